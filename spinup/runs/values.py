"""Checks of data read from a file: a fault becomes a one-sentence error that names the file."""
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from spinup.errors import UserError, out_of_memory
from spinup.runs.config import Row

# Errors that code raises for a value with another type, structure or size than the one that was written.
FAULTS = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RuntimeError)


@contextmanager
def reading(what: str, advice: str) -> Iterator[None]:
    """Use the contents of a file in this context. UserError, with the advice, if they are damaged."""
    try:
        yield
    except UserError:
        raise
    except FAULTS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{what} is damaged ({reason}); {advice}") from error


@contextmanager
def room_for(what: object) -> Iterator[None]:
    """Load a file in this context. UserError if there is not enough memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error):
            raise UserError(f"not enough memory to load {what}; end other programs, or load it on a larger "
                            "machine") from None
        raise


def load_weights(module: nn.Module, state: Any) -> None:
    """Load the weights of a module. ValueError, or torch's RuntimeError, unless `state` is a table of finite tensors,
    `[...]` each, with the module's names, shapes and data types."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the weights are {type(state).__name__}, not a table")
    for name, own in module.state_dict().items():
        if name not in state:
            continue                                                      # torch reports it
        if not isinstance(state[name], Tensor) or state[name].is_floating_point() != own.is_floating_point():
            raise ValueError(f"{name} does not have numbers of type {own.dtype}")
        if own.is_floating_point() and not finite(state[name]):
            raise ValueError(f"{name} is not finite")
    module.load_state_dict(state)


def diagnostics(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of diagnostics as floats. UserError for a value that is not one number."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, RuntimeError):
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"run.log must get one number for {name}, not {shape}; log its mean, for example") from None
    return numbers


def joined(first: Row, logged: Row, last: Row) -> Row:
    """Return the columns of a row in this order. UserError for a logged value that would replace a number of the run.

    The quality of a reward model, for example, is a logged value: the same object is in `first` then.
    """
    own = {**first, **last}
    for name, value in logged.items():
        if own.get(name, value) is not value:
            raise UserError(f"run.log must not get {name}, a column that the run writes itself; choose another name")
    return {**first, **logged, **last}


def finite(x: Tensor) -> bool:
    """Return whether all numbers of `x`, `[...]`, are finite. Their sum shows this without extra memory, unless it
    overflows."""
    return math.isfinite(x.sum() if x.ndim else x) or bool(torch.isfinite(x).all())


def weights(parts: Mapping[str, Any]) -> dict[str, Tensor]:
    """Weights of a training run's networks, `[...]` each, by name."""
    return {f"{name}.{key}": value for name, part in parts.items() if isinstance(part, nn.Module)
            for key, value in part.state_dict().items() if value.is_floating_point()}


def diverged(name: str, x: Tensor, between: str, where: str, config: Any) -> str:
    """Describe a tensor `[...]` of the training that is not finite. `between`: when; `config`: the settings of the
    run."""
    rate = "--lr" if hasattr(config, "lr") else "--value-lr"
    what = "NaN" if torch.isnan(x).any() else "infinite"
    return (f"{name.replace('_', ' ')} became {what} {between}; the checkpoint before that, if there is one, is kept "
            f"in {where}; try a smaller {rate} first")


def restore(part: Any, state: Any) -> None:
    """Restore a part of a training run from its `state_dict`; weights are checked. Raises as `load_weights`."""
    load_weights(part, state) if isinstance(part, nn.Module) else part.load_state_dict(state)
