"""Checks of a student's file: first without running it, then in a separate process."""
import ast
import json
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spinup.errors import UserError
from spinup.exercises.build import STILL
from spinup.exercises.process import Process
from spinup.exercises.source import Entry, lines, signatures, todo

SECONDS = {"property": 20.0, "probe": 120.0, "learning": 600.0}           # time limits
LIBRARY, MAIN = ("spinup", "llm"), '`if __name__ == "__main__":`'
MAGIC = re.compile(r"\s*([%!?].*|[\w.*]+\?+\s*)")          # %magic, !command, ?name, name?


@dataclass
class Verdict:
    """Result of a check.

    passed: whether all requested levels passed. level: the last level checked. line: of the file, 0 if no line is to
    blame. seconds: per level. took: seconds in total, including the start of a process. printed: the end of the file's
    output. checked: False if the time was up and the machine may be to blame.
    """

    passed: bool
    level: str
    message: str = ""
    line: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    printed: str = ""
    took: float = 0.0
    checked: bool = True

    def as_dict(self) -> dict:
        """Return the verdict as plain data, for JSON."""
        return asdict(self)


def python_of(file: Path) -> tuple[str, list[str]]:
    """Return the Python code of a file or notebook, and a name for each line. UserError if it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8-sig")                     # some editors begin it with a mark
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
        raise UserError(f"{file} cannot be read ({(error.strerror or '').lower()}); check its permissions") from None
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{file} is damaged; `spinup exercise reset` restores the original and keeps yours beside "
                        "it") from None


def plain(cell: list[str]) -> list[str]:
    """Return the lines of a cell; magics and shell commands, which are not Python, become comments."""
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
    """Check a file without running it: it must be valid Python, have each function with its arguments, and no
    reminder."""
    try:
        found, where = signatures(text), lines(text)
        left = todo(text)
    except (MemoryError, RecursionError):
        return Verdict(False, "static", "it is nested too deeply; write shorter expressions")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        return Verdict(False, "static", f"it is not valid Python: {getattr(error, 'msg', error)}", line)
    for name, arguments in signatures(entry.text).items():
        if name not in found:
            return Verdict(False, "static", f"the function {name} is missing; restore it")
        if found[name] != arguments:
            return Verdict(False, "static", f"{name} now has the arguments ({', '.join(found[name])}); "
                           f"restore ({', '.join(arguments)})", where[name])
    if left and ("" in left or next(iter(found), "") in left):            # else a function may be complete
        return Verdict(False, "static", STILL, left.get("", next(iter(left.values()))))
    if imported := library_imports(text):
        line, name = min(imported)
        return Verdict(False, "static", f"this imports {name}. The library contains the answer, so a check forbids the "
                       f"import; write the function yourself, and import the library only under {MAIN}", line)
    return Verdict(True, "static")


def library_imports(text: str) -> list[tuple[int, str]]:
    """Return the line and the name of each import of the library, except under `if __name__ == "__main__":`, which a
    check does not run."""
    nodes = [node for top in ast.parse(text).body if not is_main(top) for node in ast.walk(top)]
    imported = [(node.lineno, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [(node.lineno, node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)]
    return [(line, name) for line, name in imported if name.partition(".")[0] in LIBRARY]


def is_main(node: ast.stmt) -> bool:
    """Return whether this is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and (
        getattr(node.test.left, "id", "") == "__name__")


def check(entry: Entry, file: Path, level: str = "property") -> Verdict:
    """Check a student's file: without running it, then at this level."""
    start = time.perf_counter()
    text, names = python_of(file)
    verdict = static(entry, text)
    verdict.seconds["static"] = round(time.perf_counter() - start, 2)
    if verdict.passed:
        check_in_process(entry, file, text, level, verdict)
    verdict.took = round(time.perf_counter() - start, 2)
    if verdict.message and 0 < verdict.line <= len(names):
        verdict.message = f"{file.name}, {names[verdict.line - 1]}: {verdict.message}"
    elif verdict.message:
        verdict.message = f"{file.name}: {verdict.message}"
    return verdict


def check_in_process(entry: Entry, file: Path, text: str, level: str, verdict: Verdict) -> None:
    """Check a file at a level in a separate process, and add the result to the verdict."""
    verdict.level, verdict.passed = level, False
    process = Process(entry, file, text, level, SECONDS[level])
    with process:
        found = process.result()
    if "seconds" in found:
        verdict.passed, verdict.seconds[level] = True, round(found["seconds"], 2)
    else:
        verdict.message, verdict.line, verdict.checked = found["message"], found["line"], found.get("checked", True)
    verdict.printed = process.output()
