"""Beliefs, compared with counts made by hand and with known moments; plans, compared with all policies."""
from itertools import product

import pytest
import torch
from torch import Tensor

from spinup.envs.worlds.beliefs import (
    beta_draw,
    beta_mean,
    bonus_model,
    dirichlet,
    drawn_model,
    mean_model,
    plan,
    ucb_index,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check_mean(x: Tensor, expected: Tensor | float, variance: Tensor | float) -> None:
    """Assert the mean over the first axis, to 4.5 standard errors: 100 correct numbers all pass in 999 of 1000 such
    tests."""
    assert ((x.mean(0) - expected).abs() <= 4.5 * (torch.as_tensor(variance) / len(x)).sqrt()).all()


# Catches: `pulls` in place of `2 + pulls`; `wins` in place of `1 + wins`; in ucb_index `pulls` in place of `2 + pulls`,
# a t without `+ 1`, or a logarithm without its factor 2.
def test_indices_match_values_computed_by_hand():
    wins, pulls = torch.tensor([[0.0, 0, 0], [3, 0, 1]]), torch.tensor([[0.0, 0, 0], [4, 0, 2]])
    mean = torch.tensor([[0.5, 0.5, 0.5], [4 / 6, 1 / 2, 2 / 4]])
    torch.testing.assert_close(beta_mean(wins, pulls), mean)
    log = torch.tensor(7.0).log()                                         # the seventh pull is next
    width = torch.stack([torch.zeros(3), (log / torch.tensor([3.0, 1, 2])).sqrt()])
    torch.testing.assert_close(ucb_index(wins, pulls, c=0.3), mean + 0.3 * width)


# Catches: wins and losses exchanged; `pulls` in place of the losses.
def test_samples_of_an_arm_have_the_moments_of_its_beta():
    wins, pulls = torch.tensor([0.0, 3, 0]), torch.tensor([0.0, 4, 2])
    draws = beta_draw(wins.expand(20_000, 3), pulls.expand(20_000, 3), generator())
    mean, variance = torch.tensor([1 / 2, 4 / 6, 1 / 4]), torch.tensor([1 / 12, 8 / 252, 3 / 80])
    check_mean(draws, mean, variance)
    check_mean((draws - mean).square(), variance, 2 * variance.square())


def counts() -> tuple[Tensor, Tensor, Tensor]:
    """Counts of one MDP with two states and two actions, by hand. One step from (0, 0) was the last of its episode."""
    sums, visits = torch.tensor([[[5.0, -1], [0, 2]]]), torch.tensor([[[3.0, 1], [0, 1]]])
    moves = torch.tensor([[[[2.0, 0], [0, 1]], [[0, 0], [1, 0]]]])
    return sums, visits, moves


# Catches: a missing prior mean (`sums / (1 + visits)`); a missing `1 + moves`; `(1 + visits)` as the sum of moves; a
# bonus that does not decrease.
def test_models_match_values_computed_by_hand():
    rewards, transitions = mean_model(*counts())
    expected = torch.tensor([[[6 / 4, 0 / 2], [1 / 1, 3 / 2]]])
    torch.testing.assert_close(rewards, expected)
    moved = torch.tensor([[[[3 / 4, 1 / 4], [1 / 3, 2 / 3]], [[1 / 2, 1 / 2], [2 / 3, 1 / 3]]]])
    torch.testing.assert_close(transitions, moved)
    hopeful, same = bonus_model(*counts(), bonus=2.0)
    torch.testing.assert_close(hopeful, expected + 2 / torch.tensor([[[4.0, 2], [1, 2]]]))
    torch.testing.assert_close(same, transitions)


# Catches: `(1 + visits)` as the variance, or its square root as the factor of the noise; the same noise for the whole
# batch; `moves` or the mean transitions in place of the sample.
def test_sampled_models_have_the_moments_of_the_belief():
    n = 20_000
    drawn, moved = drawn_model(*(x.expand(n, *x.shape[1:]) for x in counts()), generator())
    rewards, transitions = (x[0] for x in mean_model(*counts()))
    variance = 1 / torch.tensor([[4.0, 2], [1, 2]])
    check_mean(drawn, rewards, variance)
    check_mean((drawn - rewards).square(), variance, 2 * variance.square())
    size = (counts()[2][0] + 1).sum(-1, keepdim=True)
    spread = transitions * (1 - transitions) / (size + 1)
    check_mean(moved, transitions, spread)
    check_mean((moved - transitions).square(), spread, 2 * spread.square())
    torch.testing.assert_close(moved.sum(-1), torch.ones(n, 2, 2))


def value_of(policy: Tensor, rewards: Tensor, transitions: Tensor) -> Tensor:
    """The expected return of a policy `[T, S]` in one MDP from each state, `[S]`."""
    value = torch.zeros(len(rewards), dtype=rewards.dtype)
    for act in policy.flip(0):
        rows = torch.arange(len(rewards))
        value = rewards[rows, act] + transitions[rows, act] @ value
    return value


# Catches: a missing `[::-1]`; `bsna,bn` in place of `bsan,bn`; min in place of max; the value of the last step; a
# discount of 0.99.
@pytest.mark.parametrize("horizon", [1, 3])
def test_plan_is_as_good_as_the_best_policy(horizon):
    rng, tasks, states, actions = generator(), 20, 2, 2
    rewards = torch.randn(tasks, states, actions, generator=rng, dtype=torch.float64)
    transitions = dirichlet(torch.ones(tasks, states, actions, states, dtype=torch.float64), rng)
    policy, value = plan(rewards, transitions, horizon)
    assert policy.shape == (tasks, horizon, states)
    assert horizon == 1 or not torch.equal(policy[:, 0], policy[:, -1])
    every = [torch.tensor(p).view(horizon, states) for p in product(range(actions), repeat=horizon * states)]
    for b in range(tasks):
        best = torch.stack([value_of(p, rewards[b], transitions[b]) for p in every]).amax(0)
        torch.testing.assert_close(value[b], best)
        torch.testing.assert_close(value_of(policy[b], rewards[b], transitions[b]), best)
