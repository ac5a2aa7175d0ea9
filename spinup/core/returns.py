"""Returns and advantages over `[B, T]` rewards: B environments or responses, T steps.

`terminated` and `truncated` are bool or 0/1. A step with `mask` 0 does not count, and its values
may be anything. The recursion passes through it, from later steps to earlier ones. Its own result
is 0.
"""
import torch
from torch import Tensor

from spinup.core.masked import select


def linear_recursion(b: Tensor, a: Tensor) -> Tensor:
    """Solve x_t = b_t + a_t x_{t+1}, x_T = 0, for `[B, T]` coefficients, in log2(T) passes, not T.

    After the pass with step k, x_t is the sum of its first 2 k terms, and a_t is the factor of the
    next term (Hillis & Steele 1986). `a` loses the last k entries, which would reach beyond T.
    """
    x, a, k = b.clone(), a[:, :-1], 1
    while k < x.shape[1]:
        x[:, :-k] += a * x[:, k:]
        a = a[:, :-k] * a[:, k:]
        k *= 2
    return x


def discounted(rewards: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float,
               bootstrap: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Reward-to-go sum_l gamma^l r_{t+l}, `[B, T]`, up to the end of the episode or of the row.

    bootstrap: `[B, T]`, the value of the state after each step, like `next_values` in `gae`. It
    replaces the rewards after a truncation, and after the last step that counts if the episode did
    not end there. Without it these rewards count as 0.
    """
    over = terminated.bool()
    cut = truncated.bool() & ~over
    decay = gamma * (~(over | cut)).to(rewards.dtype)
    if bootstrap is not None:
        counts = torch.ones_like(over) if mask is None else mask > 0
        last = counts.flip(1).cumsum(1).flip(1) == 1          # also marks masked steps before it
        rewards = rewards + gamma * torch.where(cut | last & ~over, bootstrap, 0.0)
    sums = linear_recursion(select(rewards, mask), select(decay, mask, 1.0))
    return select(sums, mask)


def gae(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor,
        truncated: Tensor, *, gamma: float, lam: float | Tensor,
        mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16). Return the advantages and
    the value targets A_t + V(s_t); all tensors are `[B, T]`.

    ::

        delta_t = r_t + gamma V(s_{t+1}) (1 - terminated_t) - V(s_t)
        A_t     = delta_t + gamma lam (1 - terminated_t)(1 - truncated_t) A_{t+1}

    next_values[:, t] is the value of the state after step t. At a truncation, it is the value of
    the last observation of the old episode, which still has a value at a time limit. It is not the
    value of the first observation of the new episode. In a response with tool output, it is the
    value of the next step that counts. At a termination, it is ignored.

    lam: a number, or `[B, 1]` if it depends on the row (VAPO's length-adaptive lambda).
    """
    over = terminated.bool()
    deltas = rewards + gamma * torch.where(over, 0.0, next_values) - values
    decay = gamma * lam * (~(over | truncated.bool())).to(deltas.dtype)
    adv = linear_recursion(select(deltas, mask), select(decay, mask, 1.0))
    return select(adv, mask), select(adv + values, mask)


def explained_variance(values: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Share of the variance of the value targets that the values explain, 1 - Var[target - values]
    / Var[target], `[]` from `[...]` each; 0 if all targets are equal up to rounding."""
    if mask is not None:
        values, target = values[mask > 0], target[mask > 0]
    spread, residual = target.var(correction=0), (target - values).var(correction=0)
    rounding = 1e-12 * (target.square() + values.square()).mean()         # largest from rounding
    return torch.where(spread <= rounding, 0.0, 1 - residual / spread)
