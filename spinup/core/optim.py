"""Helpers for optimisation: statistics of the last step, target networks, learning rate schedule.

The optimiser is `spinup.core.fast.adam.FlatAdam`, a faster torch.optim.Adam.
"""
import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Latest(dict):
    """Named values that a checkpoint saves, such as statistics of the last gradient step. A missing
    value is NaN.

    A resumed run needs them if it writes a row before its next gradient step.
    """

    def __missing__(self, name: str) -> float:
        return math.nan

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the values, `[...]` by name."""
        return dict(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the values, `[...]` by name. Each tensor moves to the device of the tensor that
        it replaces."""
        for name, value in state.items():
            before = self.get(name)
            self[name] = value.to(before.device) if isinstance(before, Tensor) else value


@torch.no_grad()
def polyak(target: Sequence[Tensor], online: Sequence[Tensor], tau: float) -> None:
    """Update theta' <- (1 - tau) theta' + tau theta for each pair of parameters `[...]`; tau = 1
    copies (Lillicrap et al. 2016, arXiv:1509.02971, alg. 1)."""
    # Plain: for t, o in zip(target, online): t.lerp_(o, tau)
    torch._foreach_lerp_(target, online, tau)


def step_size(lr: float, update: int, total: int, warmup: int, anneal: bool) -> float:
    """Learning rate of an update of a language model. It grows linearly to `lr` in the first
    `warmup` updates. With `anneal` it falls linearly to a tenth of `lr` over the run, and not to 0
    as in `spinup.algos`."""
    rising = min(1.0, (update + 1) / max(1, warmup))
    return lr * rising * (1 - 0.9 * update / total if anneal else 1.0)
