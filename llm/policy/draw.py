"""Sampling of tokens from the probabilities of a model."""
import torch
import torch.nn.functional as F
from torch import Tensor

MANY = 1024             # vocabulary from which one random number per row is faster than one per token
GROUP = 512             # tokens per group in a large vocabulary


def choose(log_pi: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample one token per row, `[B]`, from log-probabilities `[B, vocab]`; without a generator, take the most likely.

    With exponential noise, the argmin of noise / pi has the distribution pi. This needs no sort and no sum. A large
    vocabulary needs too many random numbers for this, so one number per row selects from the cumulative probabilities.
    """
    if generator is None:
        return log_pi.argmax(-1)
    if log_pi.shape[-1] > MANY:
        return at_quantile(log_pi.exp(), uniform(log_pi, generator))
    return (log_pi.exp() / torch.empty_like(log_pi).exponential_(generator=generator)).argmax(-1)


def uniform(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One random number from 0 to 1 per row, `[B, 1]`."""
    return torch.rand(len(logits), 1, device=logits.device, generator=generator)


def draw(logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return one token per row and its log-probability, `[B]` each, from logits `[B, vocab]` and numbers `[B, 1]`."""
    log_pi = (logits.float() / temperature).log_softmax(-1)
    token = at_quantile(log_pi.exp(), u)
    return token, log_pi.gather(1, token[:, None])[:, 0]


def at_quantile(pi: Tensor, u: Tensor) -> Tensor:
    """Return the first token per row, `[B]`, whose cumulative probability exceeds the share `u`, `[B, 1]`, of the sum
    of `pi`, `[B, vocab]`.

    It finds the group of tokens first, and then the token in it: long cumulative sums are slow on a GPU. If rounding
    leads to a token without probability, the most likely one takes its place. NaN in `pi` gives an arbitrary token.
    """
    groups = F.pad(pi, (0, -pi.shape[-1] % GROUP)).unflatten(-1, (-1, GROUP))                # [B, groups, GROUP]
    sizes = groups.sum(-1)
    ends = sizes.cumsum(-1)                                               # [B, groups]
    at = below(u * ends[:, -1:], ends)
    group = torch.searchsorted(ends, at, right=True).clamp(max=groups.shape[1] - 1)          # [B, 1]
    inside = groups.gather(1, group[..., None].expand(-1, -1, GROUP))[:, 0].cumsum(-1)       # [B, GROUP]
    at = below(at - (ends - sizes).gather(1, group), inside)
    token = (group * GROUP + torch.searchsorted(inside, at, right=True)).clamp(max=pi.shape[-1] - 1)
    return torch.where(pi.gather(1, token) > 0, token, pi.argmax(-1, keepdim=True))[:, 0]


def below(at: Tensor, ends: Tensor) -> Tensor:
    """Return `at`, `[B, 1]`, or if rounding put it outside of the cumulative sums, `[B, n]`, a number inside of them.
    """
    return torch.minimum(at.clamp(min=0), ends[:, -1:] * (1 - 2**-20))
