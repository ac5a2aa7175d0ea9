"""Runs of a function on one case: records of the outcome, and comparisons of two outcomes."""
import copy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinup.exercises.layers import Net, described

Case = dict[str, Any]
OVERWRITTEN = "Overwritten"          # failure if a tensor whose old value a gradient needs was changed in place
UNUSABLE = "Unusable"                # failure if a result is too large to compare, or not a dense tensor
LARGEST = 1_000_000


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
        changed: names of the tensors, arrays, lists and dictionaries among the inputs that the call changed.
        line: the line of the student's file at which the function returned or failed; 0 if unknown.
    """

    value: Any = None
    error: Failure | None = None
    gradients: tuple[Tensor, ...] = ()
    changed: tuple[str, ...] = ()
    line: int = 0


def outcome(function: Callable[..., Any], inputs: Case, file: str = "") -> Outcome:
    """Call a function with copies of these inputs.

    file: the student's file, if the function is in it; the recorded line is then a line of this file.
    """
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
        with torch_settings_restored():
            value = function(**given)
    except (Exception, SystemExit) as error:
        found.error, found.line = failure(error), line_of(error, file) or found.line
        return found
    finally:
        if file:
            sys.setprofile(None)
    if entries(value) > LARGEST:
        found.error = Failure(UNUSABLE, f"the result has more than {LARGEST:,} numbers, far more than the right one")
        return found
    found.changed = tuple(n for n, x in inputs.items() if isinstance(x, Tensor | np.ndarray | list | dict)
                          and not equal(x, given[n], 0.0))
    try:
        if any(x.is_nested or x.is_meta or x.layout != torch.strided for x in tensors(value)):
            found.error = Failure(UNUSABLE, "the result is a sparse, nested or meta tensor; return an ordinary tensor")
            return found
        total = sum((x.sum() for x in tensors(value) if x.requires_grad), torch.zeros(()))
        if leaves and total.requires_grad:
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            found.gradients = tuple(z if g is None else g for g, z in zip(gradients, found.gradients, strict=True))
        found.value = described(value) if isinstance(value, nn.Module) else copied(value)
    except RuntimeError as error:                                         # also a list that contains itself
        found.error = Failure(OVERWRITTEN, "") if "inplace operation" in str(error) else failure(error)
    return found


@contextmanager
def torch_settings_restored() -> Iterator[None]:
    """Restore PyTorch's default dtype, default device and gradient mode after the block, because a student's code may
    change them."""
    dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        torch.set_grad_enabled(gradients)


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
    """Copy an argument or a result, so that later changes in place do not affect it. Tensors move to the CPU, and
    NumPy's numbers become Python's."""
    if isinstance(x, Tensor):
        return x.detach().cpu().clone().requires_grad_(x.requires_grad)
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, Mapping):
        return {k: copied(y) for k, y in x.items()}
    if isinstance(x, list | tuple):
        return [copied(y) for y in x] if isinstance(x, list) else tuple(copied(y) for y in x)
    return copy.deepcopy(x) if isinstance(x, np.ndarray | nn.Module) else x


def entries(x: Any, depth: int = 0) -> int:
    """Return the number of entries of a result: at least `LARGEST` + 1 if there are more. Lists are counted to a depth
    of 10, because a list may contain itself."""
    if isinstance(x, Tensor | np.ndarray):
        return x.numel() if isinstance(x, Tensor) else x.size
    if not isinstance(x, Mapping | list | tuple) or len(x) > LARGEST or depth == 10:
        return len(x) if isinstance(x, Mapping | list | tuple) else 1
    total = 0
    for part in x.values() if isinstance(x, Mapping) else x:
        total += entries(part, depth + 1)
        if total > LARGEST:
            break
    return total


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
