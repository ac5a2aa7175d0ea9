"""Every public function says what it takes and gives: shapes of tensors, units of time, errors, and whose idea it is.

Public is what has no underscore, in any module of `spinup` and `llm`; but for what carries out a command of the
command line, which --help explains.
"""
import ast
import importlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import spinup

ROOT = Path(spinup.__file__).parents[1]
FILES = sorted(p for package in ("spinup", "llm") for p in (ROOT / package).rglob("*.py"))
ARRAYS = re.compile(r"\b(Tensor|ndarray)\b")
COMMAND = re.compile(r"\bNamespace\b|^(name: str, )?argv\b")
TIMES = re.compile(r"seconds|timeout")
SOURCE = re.compile(r"arXiv:\d|\bet al\b|[A-Z][a-z]+(?: and [A-Z][a-z]+)*,? \(?(?:19|20)\d\d\b|[Nn]o paper")
# Mathematics that others have found: a reader must be able to look it up.
FOUND = [p for p in FILES if p.stem != "__init__" and (p.parent.name == "algos" or p.relative_to(ROOT).as_posix() in (
    *(f"spinup/core/{n}.py" for n in (
        "bounded", "critics", "distributions", "fast/adam", "kl", "networks", "normaliser", "optim", "replay",
        "returns", "rollout")), "spinup/envs/ratings.py", "spinup/envs/worlds/beliefs.py",
    "llm/policy/transformer.py"))]


@dataclass
class Public:
    """A function or method, with all the words that say what it does."""

    where: str
    node: ast.FunctionDef
    own: str                                                  # its docstring, or that of what it overrides
    around: str                                               # those of its class and module
    ours: bool                                                # not what Gymnasium or torch says of what it overrides

    def annotated(self, wanted: re.Pattern) -> list[str]:
        """Parameters with such a type; "return" is one."""
        arguments = self.node.args
        types = {a.arg: a.annotation for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        types["return"] = self.node.returns
        return [name for name, kind in types.items() if kind is not None and wanted.search(ast.unparse(kind))]

    def raised(self) -> set[str]:
        """Errors that it makes itself."""
        made = (n.exc for n in ast.walk(self.node) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call))
        return {ast.unparse(call.func).split(".")[-1] for call in made} - {"NotImplementedError"}


def protocols() -> dict[tuple[str, str], str]:
    """Of each method of a Protocol, by package and name, its words: those that have its form are meant by them."""
    found = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(b) == "Protocol" for b in node.bases):
                found |= {(path.parts[-2], m.name): ast.get_docstring(m) for m in node.body
                          if isinstance(m, ast.FunctionDef) and ast.get_docstring(m)}
    return found


def overridden(kind: type, name: str) -> tuple[str, bool]:
    """The words of the method that a method of this class stands for, and whether they are ours."""
    return next(((words, b.__module__.startswith(("spinup", "llm"))) for b in kind.__mro__[1:]
                 if (words := getattr(b.__dict__.get(name), "__doc__", None))), ("", True))


@cache
def public_functions() -> list[Public]:
    found, formal = [], protocols()
    for path in FILES:
        tree, name = ast.parse(path.read_text()), ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                continue
            kind = node if isinstance(node, ast.ClassDef) else None
            for f in kind.body if kind else [node]:
                if not isinstance(f, ast.FunctionDef) or f.name.startswith("_") or COMMAND.search(ast.unparse(f.args)):
                    continue
                words, ours = ast.get_docstring(f) or "", True
                if kind and not words:
                    there = getattr(importlib.import_module(name.removesuffix(".__init__")), kind.name)
                    words, ours = overridden(there, f.name)
                    words = words or formal.get((path.parts[-2], f.name), "")
                around = "\n".join(filter(None, [kind and ast.get_docstring(kind), ast.get_docstring(tree)]))
                where = f"{path.relative_to(ROOT)}:{f.lineno} {kind.name + '.' if kind else ''}{f.name}"
                found.append(Public(where, f, words, around, ours))
    return found


def test_it_looks_at_enough():
    assert len(public_functions()) > 800


def test_every_public_function_has_a_docstring():
    assert not [f.where for f in public_functions() if not f.own]


# Catches: a docstring that begins with a subordinate clause.
def test_a_docstring_begins_with_a_verb_or_a_noun():
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    begun = re.compile(r'"""(What|How|Where|When|So|Of|That)\b.*')
    assert not [f"{path.relative_to(ROOT)}: {m[0]}" for path, text in texts.items() for m in begun.finditer(text)]


def test_shapes_are_given_where_tensors_are():
    assert not [f.where for f in public_functions() if f.ours and f.annotated(ARRAYS) and "`[" not in f.own + f.around]


def test_errors_are_told():
    assert not [f.where for f in public_functions() for error in f.raised() if error not in f.own + f.around]


def test_times_have_a_unit():
    assert not [f.where for f in public_functions() for a in f.node.args.args + f.node.args.kwonlyargs
                if TIMES.search(a.arg) and "second" not in f.own + f.around + a.arg]


@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_mathematics_names_its_source(path):
    words = [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(path.read_text()))
             if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    assert SOURCE.search("\n".join(words))
