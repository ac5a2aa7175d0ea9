"""Exercises: their list, and the files that students get."""
import ast
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spinup.errors import UserError, nearest
from spinup.exercises import build

if TYPE_CHECKING:
    from spinup.exercises.checks import Exercise

HERE = Path(__file__).parent
CONTENT = next(p for p in (HERE.parents[1] / "exercises", HERE / "content")
               if p == HERE / "content" or (p / "checks").is_dir() and (p / "src").is_dir())
NAME = re.compile(r"(\d+)_(\d+)_(\w+)")
PATH = ("1.1", "1.2", "3.3", "3.1", "2.1", "3.2", "5.3", "3.4")        # for beginners; the others follow by number


@dataclass(frozen=True)
class Entry:
    """An exercise, named by its file, such as `3_1_gae`; its id is 3.1."""

    name: str

    @property
    def id(self) -> str:
        """Number of the exercise, such as 3.1."""
        return ".".join(NAME.fullmatch(self.name).groups()[:2])

    @cached_property
    def source(self) -> str:
        """Author's file, with solution and stubs."""
        return content(f"src/{self.name}.py")

    @cached_property
    def text(self) -> str:
        """Student's file as given."""
        return build.student(self.source, self.id)

    @cached_property
    def solution(self) -> str:
        """Student's file, solved."""
        return build.solution(self.source)

    def given(self, suffix: str = ".py") -> str:
        """Return the student's file as given, or its notebook for `.ipynb`."""
        return build.notebook(self.text) if suffix == ".ipynb" else self.text

    @cached_property
    def title(self) -> str:
        """First heading, without the id."""
        return re.search(r"^# # \S+ (.+)$", self.source, re.MULTILINE)[1].strip()

    @cached_property
    def about(self) -> dict[str, Any]:
        """`kind`, `minutes`, `difficulty`, `hints`, and descriptions of `probe` and `learning`, "" if there is none."""
        return build.about(content(f"checks/{self.name}.py"))

    @cached_property
    def checks(self) -> "Exercise":
        """Return the checks of the exercise. Imports torch."""
        return import_file(CONTENT / "checks" / f"{self.name}.py").exercise


def content(path: str) -> str:
    """Read a file of the exercises."""
    return (CONTENT / path).read_text(encoding="utf-8")


def entries() -> list[Entry]:
    """Return all exercises, in order."""
    names = [p.stem for p in (CONTENT / "src").glob("*.py") if NAME.fullmatch(p.stem)]
    return [Entry(n) for n in sorted(names, key=lambda n: tuple(map(int, NAME.fullmatch(n).groups()[:2])))]


def to_start() -> list[Entry]:
    """Return all exercises in the order in which `start` offers them: the path for beginners, then the others."""
    return sorted(entries(), key=lambda e: PATH.index(e.id) if e.id in PATH else len(PATH))


def find(word: str) -> Entry:
    """Find an exercise by its id or file name; UserError if there is none."""
    known = entries()
    word = Path(word).stem if word.endswith((".py", ".ipynb")) else word
    for entry in known:
        if word in (entry.id, entry.name, entry.name.split("_", 2)[2]):
            return entry
    words = [e.id for e in known] + [e.name.split("_", 2)[2] for e in known]
    raise UserError(f"there is no exercise {word!r}.{nearest(word, words)} `spinup exercise list` lists them")


def import_file(path: Path) -> ModuleType:
    """Import a Python file by its path."""
    spec = importlib.util.spec_from_file_location(f"exercise_{path.parent.name}_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def signatures(text: str) -> dict[str, list[str]]:
    """Names of the arguments of each top-level function of a file, by the function's name. SyntaxError if it is not
    Python."""
    return {node.name: [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def lines(text: str) -> dict[str, int]:
    """First line of each top-level function of a file."""
    return {node.name: node.lineno for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def todo(text: str) -> dict[str, int]:
    """Return the first line of each top-level function that still raises the reminder, in the order of the file. The
    name of a line elsewhere is ""."""
    found: dict[str, int] = {}
    for top in ast.parse(text).body:
        for node in ast.walk(top):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and (
                    getattr(node.exc.func, "id", "") == "NotImplementedError") and node.exc.args and str(
                    getattr(node.exc.args[0], "value", "")).startswith(build.TODO):
                found.setdefault(top.name if isinstance(top, ast.FunctionDef) else "", node.lineno)
    return found
