"""Reductions over steps, some of which may not count (padding, tool output).

Every function takes `mask`: None (all steps count) or a tensor like `x`, bool or number, 1 where a
step counts. A step that does not count may hold anything, NaN and infinity included: it is selected
away, not multiplied by 0.
"""
import torch
from torch import Tensor


def select(x: Tensor, mask: Tensor | None, fill: float = 0.0) -> Tensor:
    """`x`, `[...]`, where a step counts, `fill` elsewhere. Applied before `exp` or `log`, it keeps
    their gradients finite too."""
    return x if mask is None else torch.where(mask > 0, x, fill)


def masked_mean(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean of `x`, `[...]`, over the steps that count; 0 when none does."""
    return x.mean() if mask is None else select(x, mask).sum() / mask.sum().clamp(min=1)


def whiten(x: Tensor, mask: Tensor | None = None, *, eps: float = 1e-8) -> Tensor:
    """Normalise `x`, `[...]`, to mean 0 and deviation 1 over the steps that count; 0 where a step
    does not.

    Give it all the advantages of an optimiser step at once, then cut them into micro-batches:
    pieces that are normalised one by one would make another loss.
    """
    if mask is None:
        std, mean = torch.std_mean(x, correction=0)
        return (x - mean) / (std + eps)
    centred = select(x - masked_mean(x, mask), mask)
    return centred / (masked_mean(centred.square(), mask).sqrt() + eps)


def aggregate(loss: Tensor, mask: Tensor | None = None, *, mode: str = "token",
              denominator: float | Tensor | None = None, length: int | None = None) -> Tensor:
    """One number from per-step losses, `[B, T]`; of any shape for `token`, which ignores rows.

    - token: every step weighs the same, sum / steps (VPG, PPO, DAPO)
    - sequence: every row weighs the same, mean of row means (GRPO as published; it favours long
      wrong answers)
    - constant: sum / (rows * `length`), the same for every batch (Dr. GRPO; `length` is the longest
      row allowed)

    denominator: the steps (token) or rows (sequence, constant) of the whole optimiser step, where
        `loss` is a micro-batch of it or rows were left out; without it the gradient would depend on
        how the batch was cut.

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
