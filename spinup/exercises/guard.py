"""Detects simple attempts to pass a check without solving the exercise.

The verdict does not depend on this, because it is made outside the process that runs a student's file. That process can
still read the library's files with the user's permissions. This module refuses the usual ways to do so.
"""
import ast
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

from spinup.exercises.source import CONTENT, HERE

LIBRARY = ("spinup", "llm")
ANSWERS = tuple(os.path.realpath(folder) + os.sep for folder in (
    CONTENT / "src", CONTENT / "checks", *(HERE.parents[1] / name for name in LIBRARY)))
INSIDE = {"sys": ("argv", "modules", "meta_path", "_getframe", "settrace", "setprofile", "orig_argv"),
          "gc": ("get_objects", "get_referrers"), "inspect": ("stack", "currentframe")}           # ways into the check
OPENS = ("open", "os.link", "os.rename")                                  # a hard link has another path
STARTS = ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec")
MAIN = '`if __name__ == "__main__":`'


class Refused(PermissionError):
    """The process of a check does not give access to the answers."""


def tampering(text: str) -> tuple[str, int]:
    """Return the first line of a file that tampers with its check, described in a sentence, and its number; "" and 0 if
    there is none.

    A check does not run code under `if __name__ == "__main__":`, so that code may do anything.
    """
    nodes = [node for top in ast.parse(text).body if not is_main(top) for node in ast.walk(top)]
    modules = {alias.asname or alias.name.partition(".")[0]: alias.name for node in nodes
               if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    found = [(line, said) for node in nodes for line, said in attempts(node, modules)]
    return min(found)[::-1] if found else ("", 0)


def attempts(node: ast.AST, modules: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Line and description of each attempt, in a piece of a program, to tamper with the check. modules: imported
    modules by name."""
    imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        imported = [node.module or ""]
        if taken := {alias.name for alias in node.names} & {*INSIDE.get(node.module or "", ())}:
            yield node.lineno, inside(f"{node.module}.{min(taken)}")
    for name in imported:
        if name.partition(".")[0] in LIBRARY:
            yield node.lineno, (f"this imports {name}. The library contains the answer, so a check forbids the import; "
                                f"write the function yourself, and import the library only under {MAIN}")
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id not in modules:
        return
    whole = f"{modules[node.value.id]}.{node.attr}"
    if isinstance(node.ctx, ast.Store | ast.Del):
        yield node.lineno, (f"this replaces {whole}. That is tampering with the check, and it has no effect: "
                            "results are compared in another process")
    elif node.attr in INSIDE.get(modules[node.value.id], ()):
        yield node.lineno, inside(whole)


def inside(name: str) -> str:
    """Describe a name of the interpreter that gives access to the check."""
    return (f"this uses {name}, which gives access to the check itself. That is tampering, and it has no effect: the "
            f"verdict is made in another process; remove it, or put it under {MAIN}")


def is_main(node: ast.stmt) -> bool:
    """Return whether this is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and (
        getattr(node.test.left, "id", "") == "__name__")


class Finder:
    """Import finder that finds no module of the library."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refused for a module of the library that is not imported yet; None, which means "look elsewhere", for all
        others."""
        if name.partition(".")[0] in LIBRARY:
            raise Refused(f"{name} may contain the answer, so a check forbids its import; write the function yourself")


def protect() -> None:
    """Refuse, from now on, to import the library, open its files or start a process in this process; raises Refused."""
    answers, opens, starts = ANSWERS, OPENS, STARTS           # what a student's file does to this module has no effect

    def closed(path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and (
            os.path.realpath(os.fsdecode(path)).startswith(answers))

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in opens and closed(given[0]):
            raise Refused("this file may contain the answer, so a check does not open it; write the function yourself")
        if event in starts:
            raise Refused("a check does not allow a file to start another process; remove that code")

    def from_file(path: Any, *given: Any, **more: Any) -> Any:
        hook("open", (path,))                                 # torch opens it without an audit event
        return torch_from_file(path, *given, **more)

    torch_from_file, torch.from_file = torch.from_file, from_file
    for name in [name for name in sys.modules if name.partition(".")[0] in LIBRARY]:
        del sys.modules[name]                                 # so that an import asks the finder
    sys.meta_path.insert(0, Finder)
    sys.addaudithook(hook)
