"""Runs a function on one case, records what it did, and compares two such outcomes."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Case = dict[str, Any]


class Overwritten(Exception):
    """A tensor was changed in place, and its gradient needs what was there before."""


@dataclass
class Outcome:
    """The result of a call: value or error, gradients of the sum of the value, names of the inputs that it changed."""

    value: Any = None
    error: Exception | None = None
    gradients: tuple[Any, ...] = ()
    changed: tuple[str, ...] = ()


def outcome(function: Callable[..., Any], inputs: Case, view: Callable[[Any], Any] | None = None) -> Outcome:
    """Call a function with copies of these inputs; `view`, if given, is applied to the value it returns."""
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
    """Whether `x` is a number."""
    return isinstance(x, int | float | np.number | bool) and not isinstance(x, str)
