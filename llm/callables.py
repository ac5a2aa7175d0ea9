"""The user's own functions for a loss, an advantage or an average.

They get copies of the tensors, so they cannot change a batch. Every result is checked.
"""
from collections.abc import Callable, Collection
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from llm.columns import TAKEN
from llm.faults import SHORT, call
from spinup.core.masked import select
from spinup.errors import UserError, source_name


def own_loss(function: Callable[..., Any], shape: torch.Size, *args: Tensor,
             counted: Tensor | None = None, taken: Collection[str] = ()) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the user's loss `[...]`, of the given shape, and its diagnostics.

    `function` returns `loss` or `(loss, dict)`. Raise UserError if it fails or returns anything else.

    counted: mask of the steps that count; elsewhere the loss may have any value.
    taken: names that a diagnostic may not have, in addition to the columns of every method.
    """
    name = f"the loss {source_name(function)}"
    result = ask(name, function, *args)
    each, stats = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(stats, dict):
        raise UserError(f"{name} must return a tensor, or a tensor and a dict of numbers, not {SHORT.repr(result)}")
    check_learnable(name, each, shape)
    check_finite(name, each, counted, args)
    return each, {key: diagnostic(name, key, x, taken) for key, x in stats.items()}


def own_advantage(function: Callable[[Tensor], Tensor], rewards: Tensor) -> Tensor:
    """Return the user's advantages `[P, G]` for rewards `[P, G]`.

    Raise UserError if the function fails, or if its result has another shape or is not finite.
    """
    name = f"the advantage {source_name(function)}"
    adv = ask(name, function, rewards)
    check_shape(name, adv, rewards.shape)
    if adv.is_complex():
        raise UserError(f"{name} must return a real tensor, but returned one of type {adv.dtype}")
    if not torch.isfinite(adv).all():
        raise UserError(f"{name} must return finite numbers, but returned {SHORT.repr(adv.tolist())}")
    return adv.to(rewards)


def own_average(function: Callable[[Tensor, Tensor], Any], loss: Tensor, mask: Tensor,
                denominator: Tensor | float) -> Tensor:
    """Return the result `[]` of the user's function for a loss `[B, T]` and its mask, divided by `denominator`.

    The function must sum over its rows, which are one micro-batch. Raise UserError if it fails or returns no number.
    """
    name = f"the average {source_name(function)}"
    total = ask(name, function, loss, mask)
    check_learnable(name, total, torch.Size())
    check_finite(name, total, None, (select(loss, mask),))
    return total / denominator


def ask(name: str, function: Callable[..., Any], *args: Tensor) -> Any:
    """Call the user's function on copies of these tensors. Raise UserError if it fails."""
    return call(name, "", function, *(x.clone() for x in args))


def check_shape(name: str, found: Any, shape: torch.Size) -> None:
    """Raise UserError unless a result is a tensor of the expected shape."""
    if not isinstance(found, Tensor):
        raise UserError(f"{name} must return a tensor of shape {list(shape)}, but returned {SHORT.repr(found)}")
    if found.shape != shape:
        raise UserError(f"{name} must return a tensor of shape {list(shape)}, but returned one of shape "
                        f"{list(found.shape)}")


def check_learnable(name: str, found: Any, shape: torch.Size) -> None:
    """Raise UserError unless a result is a differentiable real tensor of that shape."""
    check_shape(name, found, shape)
    if not found.is_floating_point() or not found.requires_grad:
        fault = "without a gradient" if found.is_floating_point() else f"of type {found.dtype}"
        raise UserError(f"{name} must return a differentiable real tensor, but returned one {fault}; compute it from "
                        "its first argument, without detach()")


def check_finite(name: str, found: Tensor, counted: Tensor | None, args: tuple[Tensor, ...]) -> None:
    """Raise UserError if a result `[...]` is not finite although the arguments are.

    Then the function is at fault, and not a policy that has diverged. counted: mask `[...]` of the steps to check; None
    checks all.
    """
    def finite(x: Tensor) -> bool:
        return bool(torch.isfinite(select(x, counted)).all())
    if not finite(found) and all(map(finite, args)):
        raise UserError(f"{name} must return finite numbers, but returned NaN or infinity although its arguments are "
                        "finite; check it for a division by 0, a logarithm or a large exponent")


def diagnostic(name: str, key: Any, value: Any, taken: Collection[str]) -> Tensor:
    """Return the user's diagnostic as a tensor `[]`.

    Raise UserError if its name is not a word or is taken, or if it is not a number.
    """
    if not isinstance(key, str) or not key.isidentifier():
        raise UserError(f"{name} returns a diagnostic named {SHORT.repr(key)}; choose a name of letters, digits "
                        "and _, such as my_kl")
    if key in TAKEN or key in taken:
        raise UserError(f"{name} returns a diagnostic named {key}, which is a column of the run; choose another name")
    number = value.numel() == 1 and not value.is_complex() if isinstance(value, Tensor) else isinstance(value, Real)
    if not number:
        raise UserError(f"{name} returns {SHORT.repr(value)} as its diagnostic {key}; return a number or a tensor of "
                        "one number")
    return torch.as_tensor(value).detach().float().mean()
