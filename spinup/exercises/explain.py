"""Explains in a sentence how the outcome of a student's function differs from the one expected."""
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from spinup.exercises.outcome import Case, Outcome, Overwritten, equal, numeric

SHOWN = 60              # characters of an input that an explanation shows


def explain(name: str, inputs: Case, expected: Outcome, got: Outcome, close: float) -> str:
    """Describe the difference in a sentence, followed by the inputs that are short."""
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
    """Describe the first difference in kind, shape, dtype, finiteness or value; "" where there is none."""
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
    """An index of a tensor, in the words of a message."""
    return f" at [{', '.join(str(int(i)) for i in at)}]" if len(at) else ""


def kind(x: Any) -> str:
    """The type of a value, in the words of a message."""
    return {Tensor: "a tensor", np.ndarray: "a numpy array"}.get(type(x), "nothing" if x is None else
                                                                 f"of the type {type(x).__name__}")


def shown(x: Any) -> str:
    """A value in a message, rounded."""
    if isinstance(x, Tensor | np.ndarray):
        x = np.asarray(x.detach() if isinstance(x, Tensor) else x)
        x = (np.round(x.astype(float), 4) if x.dtype.kind == "f" else x).tolist()
    if isinstance(x, float | np.floating):
        x = float(f"{x:.5g}") if math.isfinite(x) else float(x)
    return str(x)


def on(inputs: Case) -> str:
    """List the inputs that are short, one on a line."""
    texts = [f"\n    {name} = {text}" for name, x in inputs.items()
             if not callable(x) and len(text := shown(x)) <= SHOWN]
    return f", for{''.join(texts)}" if texts else ""
