"""Posterior beliefs about Bernoulli bandits and small MDPs, and optimal plans for a model of an MDP.

Everything is batched over B tasks. A belief is its counts: `[B, k]` of k arms, `[B, S, A]` of S states and A actions.
"""
import torch
from torch import Generator, Tensor


def beta_mean(wins: Tensor, pulls: Tensor) -> Tensor:
    """Expected probability of a win, of the shape of `wins` and `pulls`; before the first pull any is as likely."""
    return (1 + wins) / (2 + pulls)


def beta_draw(wins: Tensor, pulls: Tensor, generator: Generator) -> Tensor:
    """A probability of a win drawn from Beta(1 + wins, 1 + losses), of the shape of `wins` and `pulls`."""
    return dirichlet(torch.stack([1 + wins, 1 + pulls - wins], -1), generator)[..., 0]


def ucb_index(wins: Tensor, pulls: Tensor, c: float) -> Tensor:
    """m + c sqrt(2 ln t / n), `[B, k]`, at pull number t, from 1 (UCB1, Auer et al. 2002, where c is 1).

    The mean m and the count n of an arm begin with one win and one loss (Duan et al. 2016, appendix), so that not every
    arm must be tried; with more arms than pulls that would be playing at random.
    """
    t = pulls.sum(-1, keepdim=True) + 1
    return beta_mean(wins, pulls) + c * (2 * t.log() / (2 + pulls)).sqrt()


def mean_model(sums: Tensor, visits: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """Expected rewards `[B, S, A]` and transitions `[B, S, A, S]` of an MDP of which only counts are known.

    Beforehand rewards are Normal(m, 1) with m from Normal(1, 1), and transitions from a flat Dirichlet.

    sums, visits: `[B, S, A]`, rewards seen there and their number. moves: `[B, S, A, S]`, times that it led there.
    """
    return (1 + sums) / (1 + visits), (1 + moves) / (1 + moves).sum(-1, keepdim=True)


def drawn_model(sums: Tensor, visits: Tensor, moves: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """One MDP drawn from the belief, as `mean_model` (posterior sampling, Strens 2000; PSRL, Osband et al. 2013)."""
    rewards, _ = mean_model(sums, visits, moves)
    noise = torch.empty_like(rewards).normal_(generator=generator)
    return rewards + noise * (1 + visits).rsqrt(), dirichlet(1 + moves, generator)


def bonus_model(sums: Tensor, visits: Tensor, moves: Tensor, bonus: float) -> tuple[Tensor, Tensor]:
    """`mean_model` with bonus / (1 + visits) added to the rewards (Bayesian exploration bonus, Kolter & Ng 2009)."""
    rewards, transitions = mean_model(sums, visits, moves)
    return rewards + bonus / (1 + visits), transitions


def plan(rewards: Tensor, transitions: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
    """The best policy for `horizon` steps, `[B, horizon, S]` actions, and what it earns from each state, `[B, S]`.

    rewards: `[B, S, A]`, means. transitions: `[B, S, A, S]`, the last axis sums to 1. horizon: at least 1.
    """
    value, policy = rewards.new_zeros(rewards.shape[:2]), []
    for _ in range(horizon):                                              # from the last step to the first
        value, act = (rewards + torch.einsum("bsan,bn->bsa", transitions, value)).max(-1)
        policy.append(act)
    return torch.stack(policy[::-1], 1), value


def dirichlet(concentration: Tensor, generator: Generator) -> Tensor:
    """Probabilities along the last axis, drawn with the given concentration, at least 1 each.

    `torch.distributions` takes no generator: its draws would depend on what else has drawn from the global one.
    """
    # Plain: torch.distributions.Gamma(concentration, 1).sample()
    gamma = torch._standard_gamma(concentration, generator=generator)
    return gamma / gamma.sum(-1, keepdim=True)
