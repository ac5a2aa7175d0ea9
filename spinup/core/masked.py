"""Reductions over the steps that count. Padding and tool output, for example, do not count.

Every function takes `mask`: None (all steps count) or a tensor like `x`, bool or number, 1 where a
step counts. A step that does not count may have any value, even NaN or infinity, because the
functions replace this value and do not multiply it by 0.
"""
import torch
from torch import Tensor


def select(x: Tensor, mask: Tensor | None, fill: float = 0.0) -> Tensor:
    """Return `x`, `[...]`, with `fill` where a step does not count. Apply it before `exp` or `log`,
    so that their gradients stay finite too."""
    return x if mask is None else torch.where(mask > 0, x, fill)


def masked_mean(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of `x`, `[...]`, over the steps that count; 0 if none counts."""
    return x.mean() if mask is None else select(x, mask).sum() / mask.sum().clamp(min=1)


def whiten(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Normalise `x`, `[...]`, to mean 0 and standard deviation 1 over the steps that count. The
    result is 0 where a step does not count.

    Call it on all advantages of an optimiser step, and split them into micro-batches afterwards.
    Normalising each micro-batch separately would give a different loss.
    """
    if mask is None:
        std, mean = torch.std_mean(x, correction=0)
        return (x - mean) / (std + 1e-8)
    centred = select(x - masked_mean(x, mask), mask)
    return centred / (masked_mean(centred.square(), mask).sqrt() + 1e-8)


def aggregate(loss: Tensor, mask: Tensor | None = None, *, mode: str = "token",
              denominator: float | Tensor | None = None, length: int | None = None) -> Tensor:
    """Reduce per-step losses `[B, T]` to one number; `token` ignores rows and takes any shape.

    - token: all steps have the same weight, sum / steps (VPG, PPO, DAPO)
    - sequence: all rows have the same weight, mean of row means (GRPO as published; it favours long
      wrong responses)
    - constant: sum / (rows * `length`), the same divisor for every batch (Dr. GRPO; `length` is the
      largest row length)

    denominator: number of steps (token) or rows (sequence, constant) in the whole optimiser step.
    Needed if `loss` is only a micro-batch of it or if rows were left out. Otherwise the gradient
    would depend on how the batch was split.

    ValueError for an unknown mode, or `constant` without a length.
    """
    if mode == "token":
        if denominator is None:
            return masked_mean(loss, mask)
        return select(loss, mask).sum() / denominator
    rows = len(loss) if denominator is None else denominator
    if mode == "sequence":
        if mask is None:
            return loss.mean(1).sum() / rows
        return (select(loss, mask).sum(1) / mask.sum(1).clamp(min=1)).sum() / rows
    if mode == "constant":
        if length is None:
            raise ValueError("mode 'constant' needs length, the number of steps that every row is "
                             "divided by")
        return select(loss, mask).sum() / (rows * length)
    raise ValueError(f"mode must be 'token', 'sequence' or 'constant', not {mode!r}")
