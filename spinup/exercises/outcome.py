"""Runs of a function on one case: records of the outcome, and comparisons of two outcomes."""
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinup.exercises.layers import Net, described

Case = dict[str, Any]
OVERWRITTEN = "Overwritten"          # failure if a tensor whose old value a gradient needs was changed in place


@dataclass
class Failure:
    """An exception as plain data: the name of its class and its text."""

    kind: str
    message: str


@dataclass
class Outcome:
    """The result of a call.

    Attributes:
        value: the returned value; networks are described by their layers. error: of a call that failed.
        gradients: gradients of the sum of the value with respect to each input that requires one.
        inputs: tensors, arrays, lists and dictionaries after the call. changed: the names of changed inputs.
        line: the line of the student's file at which the function returned or failed; 0 if unknown.
    """

    value: Any = None
    error: Failure | None = None
    gradients: tuple[Tensor, ...] = ()
    inputs: Case = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    line: int = 0


def outcome(function: Callable[..., Any], inputs: Case) -> Outcome:
    """Call a function with copies of these inputs, in its own process if it has one."""
    found = function.run(inputs) if hasattr(function, "run") else run(function, inputs)
    found.changed = tuple(n for n, x in inputs.items() if n in found.inputs and not equal(x, found.inputs[n], 0.0))
    return found


def run(function: Callable[..., Any], inputs: Case, file: str = "") -> Outcome:
    """Call a function with copies of these inputs. The recorded line is one of this file."""
    given = {name: copied(x) for name, x in inputs.items()}
    leaves = [x for x in given.values() if isinstance(x, Tensor) and x.requires_grad]
    found = Outcome(gradients=tuple(torch.zeros_like(x) for x in leaves))

    def returns(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_filename == file:
            found.line = frame.f_lineno                                   # the last one is the function's own

    torch.manual_seed(0)
    np.random.seed(0)
    if file:
        sys.setprofile(returns)
    try:
        value = function(**given)
    except (Exception, SystemExit) as error:
        found.error, found.line = failure(error), line_of(error, file) or found.line
        return found
    finally:
        if file:
            sys.setprofile(None)
    found.inputs = {n: x for n, x in given.items() if isinstance(x, Tensor | np.ndarray | list | dict)}
    total = sum((x.sum() for x in tensors(value) if x.requires_grad), torch.zeros(()))
    if leaves and total.requires_grad:
        try:
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        except RuntimeError as error:
            found.error = Failure(OVERWRITTEN, "") if "inplace operation" in str(error) else failure(error)
            return found
        found.gradients = tuple(z if g is None else g for g, z in zip(gradients, found.gradients, strict=True))
    found.value = described(value) if isinstance(value, nn.Module) else value
    return found


def line_of(error: BaseException | None, file: str) -> int:
    """Return the last line of the student's file in the traceback of an error or its cause; 0 if none."""
    while error is not None:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename == file:
                return frame.lineno or 0
        error = error.__cause__
    return 0


def failure(error: BaseException) -> Failure:
    """Return an exception as plain data, with its text on one line."""
    return Failure(type(error).__name__, " ".join(str(error).split())[:500])


def copied(x: Any) -> Any:
    """Copy an argument, so that the student's function cannot change the original."""
    if isinstance(x, Tensor):
        return x.detach().clone().requires_grad_(x.requires_grad)
    return x.copy() if isinstance(x, np.ndarray | list | dict) else x


def tensors(x: Any) -> list[Tensor]:
    """Return every tensor in nested lists, tuples and dicts, of any shape `[...]`."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, Mapping):
        x = list(x.values())
    return [t for part in x for t in tensors(part)] if isinstance(x, list | tuple) else []


def equal(one: Any, other: Any, close: float) -> bool:
    """Return whether two values have the same kind and shape, and close numbers; NaN equals NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[k], other[k], close) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(equal(a, b, close) for a, b in zip(one, other, strict=True))
    if numeric(one) and numeric(other):
        return bool(np.isclose(float(one), float(other), close, close, equal_nan=True))
    if type(one) is not type(other):
        return False
    if isinstance(one, Net):
        return equal(one.as_dict(), other.as_dict(), close)
    if not isinstance(one, Tensor | np.ndarray):
        return one == other
    if one.shape != other.shape or (one.dtype != other.dtype if isinstance(one, Tensor)
                                    else one.dtype.kind != other.dtype.kind):
        return False
    a, b = numbers(one), numbers(other)
    return bool(np.allclose(a, b, close, close, equal_nan=True) if a.dtype.kind in "fiuc" else (a == b).all())


def numbers(x: Tensor | np.ndarray) -> np.ndarray:
    """Convert a tensor `[...]` to an array; bfloat16, which NumPy does not support, becomes float32."""
    if isinstance(x, Tensor):
        x = x.detach().float() if x.dtype == torch.bfloat16 else x.detach()
    return np.asarray(x)


def numeric(x: Any) -> bool:
    """Return whether `x` is a number."""
    return isinstance(x, int | float | np.number | bool) and not isinstance(x, str)
