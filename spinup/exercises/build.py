"""Makes the student's file, the solution, their notebooks and the description from the source of an exercise.

The source is a Python file in cells (`# %%`). The lines between two marks are the solution. In the student's file,
lines that begin with `# STUB:` replace it. Without such lines, a reminder to write the code replaces it:

    # BEGIN SOLUTION
    # STUB: rewards = ...
    rewards = rew.flip(0).cumsum(0).flip(0)
    # END SOLUTION

The library stores none of these files. A command makes the files it needs from `exercises/src`, in milliseconds.
"""
import ast
import json
from typing import Any

BEGIN, END, STUB, TODO = "# BEGIN SOLUTION", "# END SOLUTION", "# STUB:", "TODO"
CELL, TEXT = "# %%", "# %% [markdown]"
STILL = "this is still to do"           # a check says so where the reminder is
LEVELS = ("probe", "learning")          # decorators of checks that train; students see their docstrings


def student(text: str, id: str) -> str:
    """Return the student's file of a source: a stub, or a reminder with the `id`, replaces the solution.

    ValueError for a solution whose marks are not both alone on their lines.
    """
    kept: list[str] = []
    indent, stubbed = None, False
    for line in text.splitlines():
        if line.strip() == BEGIN:
            indent, stubbed = line[:line.index(BEGIN)], False
        elif line.strip() == END:
            if not stubbed:
                kept.append(f"{indent}raise NotImplementedError(\"{TODO} {id}\")")
            indent = None
        elif indent is None:
            kept.append(line)
        elif line.strip().startswith(STUB):
            kept.append((line.replace(STUB + " ", "", 1) if STUB + " " in line else "").rstrip())
            stubbed = True
    if indent is not None or text.count(BEGIN) != text.count(END):
        raise ValueError(f"{id}: each {BEGIN!r} needs an {END!r}, alone on its line")
    return "\n".join(kept) + "\n"


def solution(text: str) -> str:
    """Return the solved file of a source, without marks and stubs."""
    marks = (BEGIN, END, STUB)
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith(marks)) + "\n"


def notebook(text: str) -> str:
    """Return a Python file in cells as a Jupyter notebook without outputs; the same bytes each time."""
    cells: list[dict[str, Any]] = []
    for part in ("\n" + text).split("\n" + CELL)[1:]:
        head, _, body = part.partition("\n")
        lines = body.strip("\n").splitlines()
        about = {"id": f"cell-{len(cells)}"}
        if CELL + head == TEXT:
            source = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
            cells.append({**about, "cell_type": "markdown", "metadata": {}, "source": source})
        else:
            cells.append({**about, "cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [],
                          "source": "\n".join(lines)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def about(checks: str) -> dict[str, Any]:
    """Read the description of an exercise from the source of its checks. This does not run the source, which would need
    torch.

    Returns `kind`, `minutes`, `difficulty` and `hints`. For `probe` and `learning` it returns the docstring of the
    first such check, or "". StopIteration if there is no `exercise = Exercise(...)` at the top level.
    """
    body = ast.parse(checks).body
    made = next(node.value for node in body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
                and getattr(node.value.func, "id", "") == "Exercise")
    found = {"kind": "implement", **{word.arg: ast.literal_eval(word.value) for word in made.keywords}}
    slow = dict.fromkeys(LEVELS, "")
    for node in body:
        for decorator in getattr(node, "decorator_list", ()):
            level = getattr(decorator, "attr", "")
            if level in slow and not slow[level]:
                slow[level] = " ".join((ast.get_docstring(node) or "").split())
    return {**found, **slow}
