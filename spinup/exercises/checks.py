"""What a file of checks is made of: functions that a student writes, references for them, and mistakes by name.

    exercise = Exercise(minutes=(10, 20), difficulty=2, hints=["...", "...", "...", "..."])
    returns = exercise.function("discounted_returns", [case(rew=tensor([1.0, 0.0, 2.0]), gamma=0.5), ...])

    @returns.reference                     # another way than the solution's, brute force where that is possible
    def _(rew, gamma): ...

    @returns.mistake("You sum from the front: ...")
    def _(rew, gamma): ...                 # what who makes this mistake would write

A function of a student's is run on every case. Where it does not give what the reference gives, it is compared with
every mistake: the one that gives the same is named. Only then is the difference itself explained.
"""
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

Case = dict[str, Any]
Check = Callable[[SimpleNamespace], None]
SHOWN = 60              # characters of an input that an explanation shows
CLOSE = 1e-4            # relative and absolute; what is further off is another number


class Wrong(Exception):
    """A check has found something; the message says what, and `function` names that of the student's it is about."""

    def __init__(self, message: str, function: str = ""):
        super().__init__(message)
        self.function = function


class Overwritten(Exception):
    """A tensor was changed in place, and its gradient needs what was there before."""


def case(**inputs: Any) -> Case:
    """Inputs by name. Derivatives are compared too, by each tensor that requires them."""
    return inputs


@dataclass
class Function:
    """One function that the student writes.

    Attributes:
        name: in the student's file.
        cases: the first is small enough to be done by hand.
        right: the reference.
        mistakes: messages, and what who makes the mistake would write.
        close: how far a number may be off, relatively and absolutely.
        view: what is compared of what it returns, where that is no tensor or number: from it to tuples of such.
    """

    name: str
    cases: list[Case]
    close: float = CLOSE
    view: Callable[[Any], Any] | None = None
    right: Callable[..., Any] | None = None
    mistakes: list[tuple[str, Callable[..., Any]]] = field(default_factory=list)

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: what the function should do, written in another way than the solution."""
        self.right = function
        return function

    def mistake(self, message: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: a known wrong answer, and the message for whoever writes it."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.mistakes.append((message, function))
            return function
        return register

    def check(self, function: Callable[..., Any]) -> None:
        """Wrong where it does not do what the reference does."""
        expected, got = ([outcome(f, inputs, self.view) for inputs in self.cases]
                         for f in (self.right, function))
        if all(self.same(e, g) for e, g in zip(expected, got, strict=True)):
            return
        for message, mistaken in self.mistakes:
            if all(self.same(outcome(mistaken, c, self.view), g) for c, g in zip(self.cases, got, strict=True)):
                raise Wrong(message, self.name)
        for inputs, e, g in zip(self.cases, expected, got, strict=True):
            if not self.same(e, g):
                raise Wrong(explain(self.name, inputs, e, g, self.close), self.name) from g.error

    def same(self, one: "Outcome", other: "Outcome") -> bool:
        """Whether two outcomes are the same: errors by their kind, values and gradients within `close`."""
        if one.error or other.error:
            return type(one.error) is type(other.error)
        return equal(one.value, other.value, self.close) and equal(one.gradients, other.gradients, self.close) and (
            one.changed == other.changed)


@dataclass
class Exercise:
    """All that is known of an exercise beside its text.

    Attributes:
        minutes: that it takes, from and to. difficulty: 1 to 5.
        hints: four: the idea, where to look, in words of a program, all but the last step.
        kind: "implement", or "bug hunt" where a student gets code that runs and is wrong.
        functions, properties, probes, learnings: what is checked. A property gets the student's functions by name and
            raises Wrong; a probe lets them learn the smallest environment that tells; learning takes a minute and never
            stands in the way.
    """

    minutes: tuple[int, int]
    difficulty: int
    hints: list[str]
    kind: str = "implement"
    functions: list[Function] = field(default_factory=list)
    properties: list[Check] = field(default_factory=list)
    probes: list[Check] = field(default_factory=list)
    learnings: list[Check] = field(default_factory=list)

    def function(self, name: str, cases: list[Case], close: float = CLOSE,
                 view: Callable[[Any], Any] | None = None) -> Function:
        """A function that the student writes, and the cases in which it is compared."""
        self.functions.append(Function(name, cases, close, view))
        return self.functions[-1]

    def property(self, check: Check) -> Check:
        """Decorator: what cases cannot tell. It raises Wrong."""
        self.properties.append(check)
        return check

    def probe(self, check: Check) -> Check:
        """Decorator: a tiny training, of seconds. It raises Wrong."""
        self.probes.append(check)
        return check

    def learning(self, check: Check) -> Check:
        """Decorator: a real training, of minutes. It raises Wrong."""
        self.learnings.append(check)
        return check

    def check(self, student: SimpleNamespace, level: str) -> None:
        """One level, "property", "probe" or "learning", of the student's functions; Wrong with what was found first."""
        if level == "property":
            for function in self.functions:
                function.check(getattr(student, function.name))
        for check in {"property": self.properties, "probe": self.probes, "learning": self.learnings}[level]:
            check(student)


@dataclass
class Outcome:
    """What a function did: returned, raised; derivatives of the sum of what it returned; which inputs it changed."""

    value: Any = None
    error: Exception | None = None
    gradients: tuple[Any, ...] = ()
    changed: tuple[str, ...] = ()


def outcome(function: Callable[..., Any], inputs: Case, view: Callable[[Any], Any] | None = None) -> Outcome:
    """What it does with these inputs, and what `view` makes of what it returns."""
    given = {name: copied(x) for name, x in inputs.items()}
    leaves = [x for x in given.values() if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(0)
    np.random.seed(0)
    try:
        value = function(**given)
        if view is not None and value is not None:
            value = view(value)
    except Exception as error:
        return Outcome(error=error)
    changed = tuple(name for name, x in inputs.items()
                    if isinstance(x, Tensor | np.ndarray) and not equal(x, given[name], 0.0))
    total = sum((x.sum() for x in tensors(value) if x.requires_grad), torch.zeros(()))
    if leaves and total.requires_grad:
        try:
            found = torch.autograd.grad(total, leaves, allow_unused=True)
        except RuntimeError as error:
            return Outcome(error=Overwritten() if "inplace operation" in str(error) else error)
        gradients = tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True))
    else:
        gradients = tuple(torch.zeros_like(x) for x in leaves)
    return Outcome(value, None, gradients, changed)


def copied(x: Any) -> Any:
    """A copy of an argument that the student's function cannot reach."""
    if isinstance(x, Tensor):
        return x.detach().clone().requires_grad_(x.requires_grad)
    return x.copy() if isinstance(x, np.ndarray | list | dict) else x


def tensors(x: Any) -> list[Tensor]:
    """Every tensor in nested lists, tuples and dicts, of any shape `[...]`."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, Mapping):
        x = list(x.values())
    return [t for part in x for t in tensors(part)] if isinstance(x, list | tuple) else []


def equal(one: Any, other: Any, close: float) -> bool:
    """Whether two values are of the same kind and shape, and their numbers close; NaN is like NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[k], other[k], close) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(equal(a, b, close) for a, b in zip(one, other, strict=True))
    if numeric(one) and numeric(other):
        return bool(np.isclose(float(one), float(other), close, close, equal_nan=True))
    if type(one) is not type(other):
        return False
    if not isinstance(one, Tensor | np.ndarray):
        return one == other
    a, b = (np.asarray(x.detach() if isinstance(x, Tensor) else x) for x in (one, other))
    if a.shape != b.shape or (a.dtype != b.dtype if isinstance(one, Tensor) else a.dtype.kind != b.dtype.kind):
        return False
    return bool(np.allclose(a, b, close, close, equal_nan=True) if a.dtype.kind in "fiuc" else (a == b).all())


def numeric(x: Any) -> bool:
    """Whether it is a number."""
    return isinstance(x, int | float | np.number | bool) and not isinstance(x, str)


def explain(name: str, inputs: Case, expected: Outcome, got: Outcome, close: float) -> str:
    """What is different, in a sentence, with the inputs where they are small."""
    if isinstance(got.error, Overwritten):
        return (f"{name} changes in place, as clamp_, *= and x[...] = do, a tensor that the gradient still needs; make "
                "a new tensor instead")
    if got.error is not None:
        said = " ".join(f"{type(got.error).__name__}: {got.error}".split())[:500]
        return f"{name} raised {said}" + on(inputs)
    if got.value is None and expected.value is not None:
        return f"{name} returns nothing. Does it end with `return`?"
    if said := difference(f"what {name} returns", expected.value, got.value, close):
        return said + on(inputs)
    if got.changed != expected.changed:
        return f"{name} changes its input {', '.join(got.changed)}; work on a copy"
    which = [n for n, x in inputs.items() if isinstance(x, Tensor) and x.requires_grad]
    for n, e, g in zip(which, expected.gradients, got.gradients, strict=True):
        if not equal(e, g, close):
            if not g.any():
                return f"no gradient reaches {n} through {name}: something on the way was detached"
            if not e.any():
                return f"a gradient reaches {n} through {name}, and none should: detach it, or use torch.no_grad()"
            return difference(f"the gradient of {name} by {n}", e, g, close) + on(inputs)
    return f"{name} does not do what it should" + on(inputs)


def difference(what: str, expected: Any, got: Any, close: float) -> str:
    """The first of: another kind, another shape, numbers that are none, another number; "" where there is none."""
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            count = f"{len(got)} values" if isinstance(got, tuple | list) else kind(got)
            return f"{what} is {count}, where {len(expected)} values were expected"
        return next((said for i, (e, g) in enumerate(zip(expected, got, strict=True))
                     if (said := difference(f"value {i + 1} of {what}", e, g, close))), "")
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or got.keys() != expected.keys():
            return f"{what} should be a dictionary with the keys {', '.join(map(str, expected))}"
        return next((said for k in expected
                     if (said := difference(f"{k!r} of {what}", expected[k], got[k], close))), "")
    if equal(expected, got, close):
        return ""
    if type(expected) is not type(got) and not (numeric(expected) and numeric(got)):
        return f"{what} is {kind(got)}, where {kind(expected)} was expected"
    if not isinstance(expected, Tensor | np.ndarray):
        return f"{what} is {shown(got)}, where {shown(expected)} was expected"
    e, g = (np.asarray(x.detach() if isinstance(x, Tensor) else x) for x in (expected, got))
    if e.shape != g.shape:
        return f"{what} has the shape {g.shape}, where {e.shape} was expected"
    if e.dtype != g.dtype and (isinstance(expected, Tensor) or e.dtype.kind != g.dtype.kind):
        return f"{what} holds numbers of the type {g.dtype}, where {e.dtype} was expected"
    if e.dtype.kind == "f" and (bad := ~np.isfinite(g) & np.isfinite(e)).any():
        at = np.unravel_index(int(bad.argmax()), g.shape)
        return f"{what} is {g[at]}{where(at)}, where {e[at]:.5g} was expected"
    at = np.unravel_index(int((~np.isclose(e, g, close, close, equal_nan=True)).argmax()), g.shape)
    return f"{what} is {shown(g[at])}{where(at)}, where {shown(e[at])} was expected"


def where(at: Sequence[Any]) -> str:
    """A place in a tensor, as a message says it."""
    return f" at [{', '.join(str(int(i)) for i in at)}]" if len(at) else ""


def kind(x: Any) -> str:
    """What something is, as a message says it."""
    return {Tensor: "a tensor", np.ndarray: "a numpy array"}.get(type(x), "nothing" if x is None else
                                                                 f"of the type {type(x).__name__}")


def shown(x: Any) -> str:
    """A value as a message says it, rounded."""
    if isinstance(x, Tensor | np.ndarray):
        x = np.asarray(x.detach() if isinstance(x, Tensor) else x)
        x = (np.round(x.astype(float), 4) if x.dtype.kind == "f" else x).tolist()
    if isinstance(x, float | np.floating):
        x = float(f"{x:.5g}") if math.isfinite(x) else float(x)
    return str(x)


def on(inputs: Case) -> str:
    """The inputs, a line for each of those that are short."""
    texts = [f"\n    {name} = {text}" for name, x in inputs.items()
             if not callable(x) and len(text := shown(x)) <= SHOWN]
    return f", for{''.join(texts)}" if texts else ""
