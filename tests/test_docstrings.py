"""Every public function documents its arguments and results: shapes of tensors, units of time, errors and sources.

Public functions have no underscore, in any module of `spinup` and `llm`. Functions that carry out a command of the
command line are exempt, because --help explains them.
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
# Modules with mathematics from the literature: a reader must be able to look it up.
FOUND = [p for p in FILES if p.stem != "__init__" and (p.parent.name == "algos" or p.relative_to(ROOT).as_posix() in (
    *(f"spinup/core/{n}.py" for n in (
        "bounded", "critics", "distributions", "fast/adam", "kl", "networks", "normaliser", "optim", "replay",
        "returns", "rollout")), "spinup/core/ratings.py", "spinup/envs/worlds/beliefs.py",
    "llm/policy/transformer.py"))]


@dataclass
class Public:
    """A function or method, with all its documentation."""

    where: str
    node: ast.FunctionDef
    own: str                                                  # its docstring, or that of the overridden method
    around: str                                               # the docstrings of its class and module
    ours: bool                                                # `own` is not from Gymnasium or torch

    def annotated(self, wanted: re.Pattern) -> list[str]:
        """Parameters whose type matches; "return" is one of them."""
        arguments = self.node.args
        types = {a.arg: a.annotation for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        types["return"] = self.node.returns
        return [name for name, kind in types.items() if kind is not None and wanted.search(ast.unparse(kind))]

    def raised(self) -> set[str]:
        """Errors that the function itself creates."""
        made = (n.exc for n in ast.walk(self.node) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call))
        return {ast.unparse(call.func).split(".")[-1] for call in made} - {"NotImplementedError"}


def protocols() -> dict[tuple[str, str], str]:
    """Docstrings of the methods of Protocols, by package and name. They also document methods that implement these."""
    found = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(b) == "Protocol" for b in node.bases):
                found |= {(path.parts[-2], m.name): ast.get_docstring(m) for m in node.body
                          if isinstance(m, ast.FunctionDef) and ast.get_docstring(m)}
    return found


def overridden(kind: type, name: str) -> tuple[str, bool]:
    """The docstring of the method that a method of this class overrides, and whether it is from this project."""
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


def test_more_than_800_public_functions_are_found():
    assert len(public_functions()) > 800


def test_every_public_function_has_a_docstring():
    assert not [f.where for f in public_functions() if not f.own]


# Catches: a docstring that begins with a subordinate clause.
def test_docstrings_begin_with_a_verb_or_a_noun():
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    begun = re.compile(r'"""(What|How|Where|When|So|Of|That)\b.*')
    assert not [f"{path.relative_to(ROOT)}: {m[0]}" for path, text in texts.items() for m in begun.finditer(text)]


# Catches: |x| outside of a code literal, which stops the build of the documentation.
def test_docstrings_have_no_substitutions_of_sphinx():
    texts = {f.where: re.sub(r"`[^`]*`", "", f.own) for f in public_functions()}
    assert not [(where, m[0]) for where, text in texts.items() for m in re.finditer(r"\|\w+\|", text)]


def test_docstrings_give_the_shapes_of_tensors():
    assert not [f.where for f in public_functions() if f.ours and f.annotated(ARRAYS) and "`[" not in f.own + f.around]


def test_docstrings_name_the_errors_that_are_raised():
    assert not [f.where for f in public_functions() for error in f.raised() if error not in f.own + f.around]


def test_docstrings_give_the_unit_of_times():
    assert not [f.where for f in public_functions() for a in f.node.args.args + f.node.args.kwonlyargs
                if TIMES.search(a.arg) and "second" not in f.own + f.around + a.arg]


@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_modules_with_mathematics_name_their_source(path):
    words = [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(path.read_text()))
             if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    assert SOURCE.search("\n".join(words))
