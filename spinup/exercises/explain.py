"""Explanations, in one sentence, of the difference between the outcome of a student's function and the expected one."""
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from spinup.exercises.outcome import OVERWRITTEN, UNUSABLE, Case, Outcome, equal, numbers, numeric

SHOWN = 60              # characters of an input in an explanation
ORDINALS = ("first", "second", "third", "fourth", "fifth")
PAIRS = ": broadcasting combined `[B, 1]` with `[B]` to all pairs"
Index = tuple[int, ...]


def explain(name: str, cases: Sequence[Case], expected: Sequence[Outcome], got: Sequence[Outcome],
            close: float) -> tuple[str, int]:
    """Describe the first difference in a sentence, followed by the inputs. Return it with the number of its case.

    Cases with a different value come first. If all values are right, the first case with a different gradient is used.
    """
    differ = [bool(g.error) or not equal(e.value, g.value, close) for e, g in zip(expected, got, strict=True)]
    for at, (inputs, e, g) in enumerate(zip(cases, expected, got, strict=True)):
        if differ[at] or (not any(differ) and (said := gradient(name, at, cases, expected, got, close))):
            return (wrong_value(name, inputs, e, g, close) if differ[at] else said), at
    at = next(i for i, (e, g) in enumerate(zip(expected, got, strict=True)) if e.changed != g.changed)
    return f"{name} changes its input {', '.join(got[at].changed)}; work on a copy", at


def wrong_value(name: str, inputs: Case, expected: Outcome, got: Outcome, close: float) -> str:
    """Describe an error, or the difference of two values."""
    if got.error and got.error.kind == OVERWRITTEN:
        return (f"{name} changes in place a tensor that the gradient still needs (clamp_, *= and x[...] = do "
                "that); make a new tensor instead")
    if got.error and got.error.kind == UNUSABLE:
        return got.error.message + on(inputs)
    if got.error and "in-place operation" in got.error.message:
        return f"{name} changes an input in place; work on a copy, such as x.clone()"
    if got.error and got.error.kind == "SystemExit":
        return "it calls exit(), which would end the check; remove that call"
    if got.error and got.value is not None:                   # it returned a value, but one of the wrong kind
        return got.error.message.rstrip(".") + on(inputs)
    if got.error:
        return f"{name} raised {got.error.kind}: {got.error.message.rstrip('.')}" + on(inputs)
    if got.value is None and expected.value is not None:
        return f"{name} returns nothing; does it end with `return`?"
    said, at, shape = difference(f"the result of {name}", expected.value, got.value, close)
    return said + on(inputs, at, shape)


def gradient(name: str, at: int, cases: Sequence[Case], expected: Sequence[Outcome], got: Sequence[Outcome],
             close: float) -> str:
    """Describe the first difference of the gradients in case `at`; "" if there is none.

    A message that no gradient reaches an input, or that none should, appears only if it is true in all cases.
    """
    inputs = cases[at]
    for k, n in enumerate(learned(inputs)):
        e, g = expected[at].gradients[k], got[at].gradients[k]
        if equal(e, g, close):
            continue
        with_n = [(i, learned(c).index(n)) for i, c in enumerate(cases) if n in learned(c)]
        never = [not any(o[i].gradients[j].any() for i, j in with_n) for o in (expected, got)]
        if never[1]:
            return f"no gradient reaches {n} through {name}: a tensor on the way was detached; do not detach it"
        if never[0]:
            return f"a gradient reaches {n} through {name}, and none should; detach it, or use torch.no_grad()"
        said, where_, shape = difference(f"the gradient of {name} with respect to {n}", e, g, close)
        return said + on(inputs, where_, shape)
    return ""


def learned(inputs: Case) -> list[str]:
    """Names of the inputs whose gradients are compared."""
    return [n for n, x in inputs.items() if isinstance(x, Tensor) and x.requires_grad]


def difference(what: str, expected: Any, got: Any, close: float) -> tuple[str, Index, Index]:
    """Describe the first difference in kind, shape, dtype, finiteness or value; "" if there is none.

    Returns the description. For a number in an array it also returns the index and the array's shape, else () and ().
    """
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            count = f"{len(got)} values" if isinstance(got, tuple | list) else kind(got)
            return f"{what} is {count}, but {len(expected)} values were expected", (), ()
        words = [f"the {ORDINALS[i]} value" if i < len(ORDINALS) else f"value {i + 1}" for i in range(len(got))]
        return first([(f"{word} of {what}", e, g) for word, e, g in zip(words, expected, got, strict=True)], close)
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or got.keys() != expected.keys():
            return f"{what} should be a dictionary with the keys {', '.join(map(str, expected))}", (), ()
        return first([(f"{k!r} of {what}", expected[k], got[k]) for k in expected], close)
    if equal(expected, got, close):
        return "", (), ()
    if type(expected) is not type(got) and not (numeric(expected) and numeric(got)):
        return f"{what} is {kind(got)}, but {kind(expected)} was expected", (), ()
    if not isinstance(expected, Tensor | np.ndarray):
        return f"{what} is {shown(got)}, but {shown(expected)} was expected", (), ()
    if expected.shape != got.shape:
        size, wanted = tuple(got.shape), tuple(expected.shape)
        pairs = len(wanted) == 1 < wanted[0] and size == (*wanted, *wanted)
        return f"{what} has the shape {size}, but {wanted} was expected{PAIRS * pairs}", (), ()
    if expected.dtype != got.dtype and (isinstance(expected, Tensor) or expected.dtype.kind != got.dtype.kind):
        types = [str(x.dtype).removeprefix("torch.") for x in (got, expected)]
        return f"{what} holds numbers of the type {types[0]}, but {types[1]} was expected", (), ()
    e, g = numbers(expected), numbers(got)
    wrong = ~np.isclose(e, g, close, close, equal_nan=True)
    if e.dtype.kind == "f" and (bad := ~np.isfinite(g) & np.isfinite(e)).any():
        wrong = bad
    at = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), g.shape))
    return f"{what} is {shown(g[at])}{where(at)}, but {shown(e[at])} was expected", at, g.shape


def first(parts: Sequence[tuple[str, Any, Any]], close: float) -> tuple[str, Index, Index]:
    """First difference in several (name, expected value, value)."""
    return next((found for part in parts if (found := difference(*part, close))[0]), ("", (), ()))


def where(at: Index) -> str:
    """Describe an index of a tensor in words."""
    return f" at [{', '.join(map(str, at))}]" if at else ""


def kind(x: Any) -> str:
    """Describe the type of a value in words."""
    return {Tensor: "a tensor", np.ndarray: "a numpy array"}.get(type(x), "nothing" if x is None else
                                                                 f"of the type {type(x).__name__}")


def shown(x: Any) -> str:
    """Format a value for a message, rounded."""
    if isinstance(x, Tensor | np.ndarray):
        x = numbers(x)
        x = (np.vectorize(rounded, otypes=[float])(x) if x.dtype.kind == "f" else x).tolist()
    if isinstance(x, float | np.floating):
        x = rounded(x)
    return " ".join(str(x).split())


def rounded(x: float) -> float:
    """Round a number to five significant digits."""
    return float(f"{x:.5g}")


def on(inputs: Case, at: Index = (), shape: Index = ()) -> str:
    """List the inputs, one per line. For a long one, show its shape and the row at `at`.

    Args:
        at: the index of the wrong number, in an array of this shape.
    """
    texts = [f"\n    {name} {described(x, at, shape)}" for name, x in inputs.items()
             if not callable(x) or isinstance(x, nn.Module)]
    return f", for{''.join(texts)}" if texts else ""


def described(x: Any, at: Index, shape: Index) -> str:
    """Describe an input: " = value", or its shape and the relevant part."""
    text = shown(x)
    if len(text) <= SHOWN:
        return f"= {text}"
    if not isinstance(x, Tensor | np.ndarray):
        return f"= {text[:SHOWN]} ..."
    size = f"[{', '.join(map(str, x.shape))}]"
    row, rest = (), x
    while len(row) < min(len(at), x.ndim) and len(shown(rest)) > SHOWN and (
            x.shape[len(row)] == shape[len(row)]):
        row = (*row, at[len(row)])
        rest = x[row]
    if not row:
        return f"of shape {size}, begins {shown(x.reshape(-1)[:6])[:-1]}, ..."
    text = shown(rest)
    return f"of shape {size},{where(row)} {text[:SHOWN]}{' ...' * (len(text) > SHOWN)}"
