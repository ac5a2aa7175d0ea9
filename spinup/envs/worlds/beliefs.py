"""Posterior beliefs about Bernoulli bandits and small MDPs, and optimal plans for a model of an MDP.

All functions are batched over B tasks. Counts represent a belief: `[B, k]` for k arms, `[B, S, A]` for S states and A
actions.
"""
import torch
from torch import Generator, Tensor


def beta_mean(wins: Tensor, pulls: Tensor) -> Tensor:
    """Expected probability of a win, in the shape of `wins` and `pulls`; the prior is uniform on [0, 1]."""
    return (1 + wins) / (2 + pulls)


def beta_draw(wins: Tensor, pulls: Tensor, generator: Generator) -> Tensor:
    """Sample a probability of a win from Beta(1 + wins, 1 + losses), in the shape of `wins` and `pulls`."""
    return dirichlet(torch.stack([1 + wins, 1 + pulls - wins], -1), generator)[..., 0]


def ucb_index(wins: Tensor, pulls: Tensor, c: float) -> Tensor:
    """Index m + c sqrt(2 ln t / n), `[B, k]`, at pull number t, from 1 (UCB1, Auer et al. 2002, with c = 1).

    The mean m and the count n of an arm start with one win and one loss (Duan et al. 2016, appendix). So UCB1 need not
    try every arm first. With more arms than pulls, trying every arm first would be a random policy.
    """
    t = pulls.sum(-1, keepdim=True) + 1
    return beta_mean(wins, pulls) + c * (2 * t.log() / (2 + pulls)).sqrt()


def mean_model(sums: Tensor, visits: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """Expected rewards `[B, S, A]` and transitions `[B, S, A, S]` of an MDP, given counts of its steps.

    The prior: rewards are Normal(m, 1) with m from Normal(1, 1), and transitions come from a flat Dirichlet.

    sums, visits: `[B, S, A]`, sum of rewards and number of steps. moves: `[B, S, A, S]`, number of each transition.
    """
    return (1 + sums) / (1 + visits), (1 + moves) / (1 + moves).sum(-1, keepdim=True)


def drawn_model(sums: Tensor, visits: Tensor, moves: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Sample one MDP from the belief of `mean_model` (posterior sampling, Strens 2000; PSRL, Osband et al. 2013)."""
    rewards, _ = mean_model(sums, visits, moves)
    noise = torch.empty_like(rewards).normal_(generator=generator)
    return rewards + noise * (1 + visits).rsqrt(), dirichlet(1 + moves, generator)


def bonus_model(sums: Tensor, visits: Tensor, moves: Tensor, bonus: float) -> tuple[Tensor, Tensor]:
    """`mean_model` with bonus / (1 + visits) added to the rewards (Bayesian exploration bonus, Kolter & Ng 2009)."""
    rewards, transitions = mean_model(sums, visits, moves)
    return rewards + bonus / (1 + visits), transitions


def plan(rewards: Tensor, transitions: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
    """Compute the optimal policy for `horizon` steps, `[B, horizon, S]` actions, and its value, `[B, S]`.

    rewards: `[B, S, A]`, means. transitions: `[B, S, A, S]`, the last axis sums to 1. horizon: at least 1.
    """
    value, policy = rewards.new_zeros(rewards.shape[:2]), []
    for _ in range(horizon):                                              # from the last step to the first
        value, act = (rewards + torch.einsum("bsan,bn->bsa", transitions, value)).max(-1)
        policy.append(act)
    return torch.stack(policy[::-1], 1), value


def dirichlet(concentration: Tensor, generator: Generator) -> Tensor:
    """Sample probabilities along the last axis from a Dirichlet with this concentration `[..., n]`, at least 1 each.

    `torch.distributions` takes no generator, so its samples would depend on other uses of the global generator.
    """
    # Plain: torch.distributions.Gamma(concentration, 1).sample()
    gamma = torch._standard_gamma(concentration, generator=generator)
    return gamma / gamma.sum(-1, keepdim=True)
