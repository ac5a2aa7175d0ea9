"""Where exercises are, and what is made of the source of one: a student's file, its solution, notebooks of either.

The source is a Python file in cells (`# %%`). What is between two marks is the solution; lines that begin with
`# STUB:` take its place in the student's file, or, where there are none, a reminder of what is left to do:

    # BEGIN SOLUTION
    # STUB: rewards = ...
    rewards = rew.flip(0).cumsum(0).flip(0)
    # END SOLUTION
"""
import ast
import importlib.util
import json
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spinup.errors import UserError, nearest

if TYPE_CHECKING:
    from spinup.exercises.checks import Exercise

BEGIN, END, STUB, TODO = "# BEGIN SOLUTION", "# END SOLUTION", "# STUB:", "TODO"
HERE = Path(__file__).parent
CONTENT = next(p for p in (HERE.parents[1] / "exercises", HERE / "content") if p == HERE / "content" or p.is_dir())
NAME = re.compile(r"(\d+)_(\d+)_(\w+)")


@dataclass(frozen=True)
class Entry:
    """An exercise by its file's name, such as `2_1_gae`; its id is 2.1."""

    name: str

    @property
    def id(self) -> str:
        """Its number, such as 3.1."""
        return ".".join(NAME.fullmatch(self.name).groups()[:2])

    @cached_property
    def text(self) -> str:
        """The student's file as it is given."""
        return (CONTENT / "student" / f"{self.name}.py").read_text(encoding="utf-8")

    @cached_property
    def title(self) -> str:
        """Of the first heading, without the id."""
        return re.search(r"^# # \S+ (.+)$", self.text, re.MULTILINE)[1].strip()

    @cached_property
    def about(self) -> dict[str, Any]:
        """`kind`, `minutes`, `difficulty`, `hints`, and what `probe` and `learning` do, "" where there is none."""
        return json.loads((CONTENT / "index.json").read_text(encoding="utf-8"))[self.name]

    @cached_property
    def checks(self) -> "Exercise":
        """What its file of checks knows. Imports torch."""
        return load(CONTENT / "checks" / f"{self.name}.py").exercise


def entries() -> list[Entry]:
    """All exercises, in order."""
    return listed(CONTENT / "student")


def listed(folder: Path) -> list[Entry]:
    """Those of which there is a file in this folder."""
    names = [p.stem for p in folder.glob("*.py") if NAME.fullmatch(p.stem)]
    return [Entry(n) for n in sorted(names, key=lambda n: tuple(map(int, NAME.fullmatch(n).groups()[:2])))]


def find(word: str) -> Entry:
    """The exercise of an id or a file's name; UserError where there is none."""
    known = entries()
    word = Path(word).stem if word.endswith((".py", ".ipynb")) else word
    for entry in known:
        if word in (entry.id, entry.name, entry.name.split("_", 2)[2]):
            return entry
    words = [e.id for e in known] + [e.name.split("_", 2)[2] for e in known]
    raise UserError(f"there is no exercise {word!r}.{nearest(word, words)} `spinup exercise list` lists them")


def load(path: Path) -> ModuleType:
    """A Python file as a module, by its path."""
    spec = importlib.util.spec_from_file_location(f"exercise_{path.parent.name}_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def student(text: str, entry: Entry) -> str:
    """What a student is given of a source."""
    kept: list[str] = []
    indent, stubbed = None, False
    for line in text.splitlines():
        if line.strip() == BEGIN:
            indent, stubbed = line[:line.index(BEGIN)], False
        elif line.strip() == END:
            if not stubbed:
                kept.append(f"{indent}raise NotImplementedError(\"{TODO} {entry.id}\")")
            indent = None
        elif indent is None:
            kept.append(line)
        elif line.strip().startswith(STUB):
            kept.append((line.replace(STUB + " ", "", 1) if STUB + " " in line else "").rstrip())
            stubbed = True
    return "\n".join(kept) + "\n"


def solution(text: str) -> str:
    """The same, solved."""
    marks = (BEGIN, END, STUB)
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith(marks)) + "\n"


def signatures(text: str) -> dict[str, list[str]]:
    """Names of the arguments of each function at the top of a file, by the function's name. SyntaxError."""
    return {node.name: [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def lines(text: str) -> dict[str, int]:
    """The line on which each function at the top of a file begins."""
    return {node.name: node.lineno for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def todo(text: str) -> int:
    """The first line that still raises the reminder; 0 where none does."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and (
                getattr(node.exc.func, "id", "") == "NotImplementedError"):
            return node.lineno
    return 0
