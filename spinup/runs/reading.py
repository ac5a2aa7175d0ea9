"""Reading of files: a fault in their contents becomes a one-sentence error that names the file."""
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from spinup.errors import UserError, out_of_memory
from spinup.runs.values import finite

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


def restore(part: Any, state: Any) -> None:
    """Restore a part of a training run from its `state_dict`. For a module, raise the errors of `load_weights`."""
    load_weights(part, state) if isinstance(part, nn.Module) else part.load_state_dict(state)
