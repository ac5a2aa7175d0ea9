"""Checks of a student's file: first without running it, then in a process of its own."""
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.exercises.source import Entry, lines, signatures, todo

GRACE = 30.0             # seconds for Python to start, after which a check that does not end itself is ended
SECONDS = {"property": 20.0, "probe": 120.0, "learning": 600.0}           # after which a level is given up
LEVELS = ("static", *SECONDS)
PRINTED = 4000          # characters of what a file printed that are shown
MAGIC = re.compile(r"\s*([%!?].*|[\w.*]+\?+\s*)")          # %magic, !command, ?name, name?


@dataclass
class Verdict:
    """passed: all levels that were asked for. level: the last one looked at. line: of the file, 0 if none is to blame.
    seconds: that each level took. printed: by the file, its end."""

    passed: bool
    level: str
    message: str = ""
    line: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    printed: str = ""

    def as_dict(self) -> dict:
        """The verdict as plain data, for JSON."""
        return asdict(self)


def python_of(file: Path) -> tuple[str, list[str]]:
    """The Python code of a file or notebook, and a name for each line. UserError where it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix != ".ipynb":
            return text, [f"line {i}" for i in range(1, text.count("\n") + 2)]
        code, names, number = [], [], 0
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                source = "".join(cell["source"]).splitlines()
                code += plain(source)
                names += [f"cell {number}, line {i}" for i in range(1, len(source) + 1)]
        return "\n".join(code) + "\n", [*names, "its end"]
    except OSError as error:
        raise UserError(f"{file} cannot be read ({(error.strerror or '').lower()}); `spinup exercise start` writes it "
                        "anew") from None
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{file} is damaged; `spinup exercise reset` puts back the one you began with and keeps yours "
                        "beside it") from None


def plain(cell: list[str]) -> list[str]:
    """The lines of a cell, with magics and shell commands, which are no Python, made comments."""
    while True:
        try:
            ast.parse("\n".join(cell))
            return cell
        except (SyntaxError, ValueError) as error:
            at = (getattr(error, "lineno", 0) or 0) - 1
            if not 0 <= at < len(cell) or not MAGIC.fullmatch(cell[at]):
                return cell
            cell = [*cell[:at], f"# {cell[at]}", *cell[at + 1:]]


def static(entry: Entry, text: str) -> Verdict:
    """Check without running: it is valid Python, has each function with its arguments, and no reminder is left."""
    try:
        found, where = signatures(text), lines(text)
        left = todo(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        return Verdict(False, "static", f"it is not Python: {getattr(error, 'msg', error)}", line)
    for name, arguments in signatures(entry.text).items():
        if name not in found:
            return Verdict(False, "static", f"the function {name} is missing; put it back")
        if found[name] != arguments:
            return Verdict(False, "static", f"{name} takes ({', '.join(found[name])}) now; what calls it gives "
                           f"({', '.join(arguments)}): put these back", where[name])
    if left:
        return Verdict(False, "static", "this is still to do", left)
    return Verdict(True, "static")


def check(entry: Entry, file: Path, levels: tuple[str, ...] = ("property",)) -> Verdict:
    """Check a student's file: the static level, then these."""
    start = time.perf_counter()
    text, names = python_of(file)
    verdict = static(entry, text)
    verdict.seconds["static"] = round(time.perf_counter() - start, 2)
    if verdict.passed:
        verdict = run(entry, file, text, levels, verdict)
    if verdict.message and 0 < verdict.line <= len(names):
        verdict.message = f"{file.name}, {names[verdict.line - 1]}: {verdict.message}"
    elif verdict.message:
        verdict.message = f"{file.name}: {verdict.message}"
    return verdict


def run(entry: Entry, file: Path, text: str, levels: tuple[str, ...], verdict: Verdict) -> Verdict:
    """Check it at these levels in a process of its own, and add what was found to the verdict."""
    said, verdict.printed, ended = answers_of(entry, file, text, levels)
    for what in said:
        if "level" in what:
            verdict.level = what["level"]
            verdict.seconds[what["level"]] = what["seconds"]
    last = said[-1] if said else {}
    verdict.passed = bool(last.get("done"))
    if not verdict.passed:
        passed = [level for level in levels if level in verdict.seconds]
        verdict.level = levels[min(len(passed), len(levels) - 1)]
        verdict.line = last.get("line") or lines(text).get(last.get("function", ""), 0)
        verdict.message = last.get("message") or ended
    return verdict


def answers_of(entry: Entry, file: Path, text: str, levels: tuple[str, ...]) -> tuple[list[dict[str, Any]], str, str]:
    """Run a process that checks the file, and which cannot take the caller along.

    Returns the answers of `spinup.exercises.child`, the end of what the file printed, and how the process ended where
    it did not finish its answers.
    """
    seconds = sum(SECONDS[level] for level in levels)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as printed:
        copy, answers = Path(folder) / f"{file.stem}.py", Path(folder) / "answers"
        copy.write_text(text, encoding="utf-8")
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "spinup.exercises.child", str(copy), entry.name, ",".join(levels),
             str(seconds), str(answers)], stdin=subprocess.DEVNULL, stdout=printed, stderr=printed,
            cwd=file.resolve().parent, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})
        try:
            child.wait(seconds + GRACE)                                   # it ends itself before; unless it cannot
            ended = f"it ended its process (exit code {child.returncode}) before the check was done"
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            ended = (f"it was still running after {seconds + GRACE:.0f} seconds and was ended; is there a loop that "
                     "never ends? If not, other work keeps this machine busy: check again later")
        except BaseException:
            child.kill()
            raise
        told = answers.read_text(encoding="utf-8") if answers.exists() else ""
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - PRINTED))
        end = printed.read().decode(errors="replace").strip()
    return [json.loads(line) for line in told.splitlines(keepends=True) if line.endswith("\n")], end, ended
