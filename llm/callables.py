"""The user's own functions in place of a method's: a loss, an advantage, an average. Each result is checked."""
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from llm.faults import SHORT, call
from spinup.errors import UserError
from spinup.runs.folders import source_name

# Columns that the run itself writes, whatever the loss.
COLUMNS = {"epoch", "steps", "steps_per_second", "wall_seconds", "reward", "reward_std", "no_contrast", "length",
           "cut_off", "loss", "entropy", "logp", "grad_norm", "learning_rate", "tokens", "tokens_per_second",
           "ratio_min", "ratio_max", "kl_to_start", "kl_of_response", "rollout_seconds", "reward_seconds",
           "update_seconds", "evaluation_seconds"}

def own_loss(function: Callable[..., Any], shape: torch.Size, *args: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The user's loss `[...]`, of the given shape, and its diagnostics. `function` returns `loss` or `(loss, dict)`.
    UserError where it fails or returns anything else."""
    name = f"the loss {source_name(function)}"
    result = call(name, "", function, *args)
    each, stats = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(stats, dict):
        raise UserError(f"{name} must return a tensor, or a tensor and a dict of numbers, not {SHORT.repr(result)}")
    check_shape(name, each, shape)
    if not each.is_floating_point() or not each.requires_grad:
        raise UserError(f"{name} must return a tensor of floats that has a gradient: make it of the log-probabilities "
                        "that it is given, without detach()")
    return each, {key: diagnostic(name, key, x) for key, x in stats.items()}


def diagnostic(name: str, key: Any, x: Any) -> Tensor:
    """The mean `[]` of a diagnostic. UserError where its key is no name, or that of a column of every run."""
    if not isinstance(key, str) or not key.isidentifier():
        raise UserError(f"{name} names a diagnostic {SHORT.repr(key)}; a name has letters, digits and _")
    if key in COLUMNS or key.startswith("held_out_"):
        raise UserError(f"{name} returns a diagnostic {key}, which is a column of every run; choose another name")
    try:
        return torch.as_tensor(x).detach().float().mean()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{name} must return numbers as diagnostics; {key} is {SHORT.repr(x)}") from None


def own_advantage(function: Callable[[Tensor], Tensor], rewards: Tensor) -> Tensor:
    """The advantages `[P, G]` which a function of the user's gives to rewards `[P, G]`. UserError where it fails, or
    its result has another form or is not finite."""
    name = f"the advantage {source_name(function)}"
    adv = call(name, "", function, rewards)
    check_shape(name, adv, rewards.shape)
    if not torch.isfinite(adv).all():
        raise UserError(f"{name} must return finite numbers, and returned {SHORT.repr(adv.tolist())}")
    return adv


def own_average(function: Callable[[Tensor, Tensor], Any], loss: Tensor, mask: Tensor,
                denominator: Tensor | float) -> Tensor:
    """The result `[]` of the user's function for a loss `[B, T]` and its mask, divided by `denominator`.

    It must sum over the rows that it is given, which are a micro-batch. UserError where it fails, or gives no number.
    """
    name = f"the average {source_name(function)}"
    total = call(name, "", function, loss, mask)
    check_shape(name, total, torch.Size())
    return total / denominator


def check_shape(name: str, found: Any, shape: torch.Size) -> None:
    """Raise UserError unless a result is a tensor of the expected shape."""
    if not isinstance(found, Tensor):
        raise UserError(f"{name} must return a tensor of shape {list(shape)}, and returned {SHORT.repr(found)}")
    if found.shape != shape:
        raise UserError(f"{name} must return a tensor of shape {list(shape)}, and returned one of {list(found.shape)}")
