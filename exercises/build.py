"""Make of each exercise's source what students get: python exercises/build.py writes, --check says what is stale.

    src/1_1_name.py, checks/1_1_name.py  ->  student/1_1_name.py, .ipynb, solutions/1_1_name.py, .ipynb, index.json
"""
import json
import sys
from pathlib import Path
from typing import Any

import jupytext

from spinup.exercises.checks import Exercise
from spinup.exercises.source import CONTENT, listed, load, solution, student
from spinup.runs.files import write_whole


def notebook(text: str) -> str:
    """The same as a notebook without outputs, to the byte the same each time."""
    made = jupytext.reads(text, fmt="py:percent")
    for i, cell in enumerate(made.cells):
        cell["id"], cell.metadata = f"cell-{i}", {}
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    made.nbformat, made.nbformat_minor = 4, 5
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def built() -> dict[Path, str]:
    """Every file that follows from the sources, and its text."""
    found, index = {}, {}
    for entry in listed(CONTENT / "src"):
        text = (CONTENT / "src" / f"{entry.name}.py").read_text(encoding="utf-8")
        for folder, made in (("student", student(text, entry)), ("solutions", solution(text))):
            found[CONTENT / folder / f"{entry.name}.py"] = made
            found[CONTENT / folder / f"{entry.name}.ipynb"] = notebook(made)
        index[entry.name] = about(load(CONTENT / "checks" / f"{entry.name}.py").exercise)
    found[CONTENT / "index.json"] = json.dumps(index, indent=1, ensure_ascii=False) + "\n"
    return found


def about(exercise: Exercise) -> dict[str, Any]:
    """What the command says of an exercise without importing its checks."""
    slow = {level: " ".join((checks[0].__doc__ or "").split()) if checks else ""
            for level, checks in (("probe", exercise.probes), ("learning", exercise.learnings))}
    return {"kind": exercise.kind, "minutes": exercise.minutes, "difficulty": exercise.difficulty,
            "hints": exercise.hints, **slow}


def stale() -> list[Path]:
    """Files that are not what the sources say, or that no source makes."""
    made = built()
    there = {p for folder in ("student", "solutions") for p in (CONTENT / folder).iterdir()}
    return sorted([p for p, text in made.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
                  + list(there - set(made)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if found := stale():
            sys.exit("stale, run python exercises/build.py: " + ", ".join(p.name for p in found))
    else:
        for path, text in built().items():
            write_whole(path, text.encode())
