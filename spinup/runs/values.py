"""Values of a training run in progress: diagnostics, columns of a row, and weights, which must be finite."""
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from spinup.errors import UserError
from spinup.runs.config import Row


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

    `first` may contain the logged object itself, such as the accuracy of a reward model. This is not an error.
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
