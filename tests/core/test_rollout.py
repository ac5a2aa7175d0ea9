"""Rollouts of an environment that counts its steps: each entry holds the observation, action and reward of its step."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from spinup.core.rollout import Rollout, collect
from spinup.envs.vector import Step


class Counting:
    """Three copies whose observations count up, 100 x episode + step. Copy 0 is truncated every 3rd step, copy 1
    terminates every 4th, and copy 2 does both at once every 5th."""

    LENGTHS = np.array([3, 4, 5])

    def __init__(self, cost_from: float = np.inf):
        self.t, self.episode, self.cost_from, self.acts = np.zeros(3, int), np.zeros(3, int), cost_from, []
        self.obs = self.show()

    def show(self) -> np.ndarray:
        return (100 * self.episode + self.t)[:, None].astype(np.float32)

    def step(self, action: np.ndarray) -> Step:
        self.acts.append(action)
        reward = (self.t + 0.5).astype(np.float32)
        self.t += 1
        led_to, over = self.show(), self.t == self.LENGTHS
        self.episode[over] += 1
        self.t[over] = 0
        self.obs = self.show()
        return Step(self.obs, reward, over & [False, True, True], over & [True, False, True],
                    led_to if over.any() else None, cost=2 * reward if len(self.acts) > self.cost_from else None)


DIST = SimpleNamespace(noise=lambda rng, shape: rng.random((*shape, 2), np.float32),
                       sample=lambda params, noise: params + noise, to_env=lambda act: act.clip(0, 0.5))


def rollouts(steps: list[int], **settings) -> list[Rollout]:
    """Successive rollouts of one environment. The actor returns twice its observation."""
    env, rng = Counting(**settings), np.random.default_rng(0)
    return [collect(env, lambda obs: 2 * obs, DIST, n, rng, torch.device("cpu")) for n in steps]


def expected(first: int, steps: int) -> list[list[tuple[float, float, bool, bool]]]:
    """For each copy and step (observation, next observation, terminated, truncated), computed step by step."""
    rows = []
    for length, terminates, truncates in ((3, False, True), (4, True, False), (5, True, True)):
        row = []
        for k in range(first, first + steps):
            episode, t = divmod(k, length)
            last = t == length - 1
            row.append((100.0 * episode + t, 100.0 * episode + t + 1, last and terminates, last and truncates))
        rows.append(row)
    return rows


# Catches: an observation that is stored after the step; a last observation that is missing, or of another step; a next
# observation that is the first one of the next episode; rows and columns of final observations exchanged; a rollout
# that starts with a reset.
def test_rollout_holds_observations_rewards_and_ends_of_each_step():
    for rollout, first in zip(rollouts([7, 1, 8]), (0, 7, 8), strict=True):
        steps = rollout.rew.shape[1]
        rows = expected(first, steps)
        obs, led_to, terminated, truncated = (torch.tensor([[step[k] for step in row] for row in rows])
                                              for k in range(4))
        following = torch.tensor([row[0][0] for row in expected(first + steps, 1)])
        assert torch.equal(rollout.obs[..., 0], torch.cat([obs, following[:, None]], 1))
        assert torch.equal(rollout.next_obs()[..., 0], led_to)
        assert torch.equal(rollout.terminated, terminated) and torch.equal(rollout.truncated, truncated)
        assert torch.equal(rollout.rew, obs % 100 + 0.5) and rollout.cost is None
        assert rollout.rew.dtype == torch.float32 and rollout.terminated.dtype == torch.bool


# Catches: the clipped action stored in place of the sampled one; noise that is sampled step by step.
def test_actions_are_stored_as_sampled_and_clipped_for_the_environment():
    env, rng = Counting(), np.random.default_rng(3)
    rollout = collect(env, lambda obs: 2 * obs, DIST, 4, rng, torch.device("cpu"))
    noise = torch.from_numpy(np.random.default_rng(3).random((4, 3, 2), np.float32)).transpose(0, 1)
    assert torch.equal(rollout.act, 2 * rollout.obs[:, :4] + noise)
    np.testing.assert_array_equal(np.stack(env.acts, 1), rollout.act.numpy().clip(0, 0.5))
    assert (rollout.act > 0.5).any()


# Catches: the value of the next episode's first observation at a truncation; a value from `values` at the row's end; a
# missing value at the end of a row that a truncation ends; a call of `value_of` for terminated episodes.
def test_next_values_are_the_values_of_the_next_observations():
    asked = []

    def value_of(obs: Tensor) -> Tensor:
        asked.append(obs[:, 0].tolist())
        return 10 * obs[:, 0]

    for rollout, first in zip(rollouts([7, 2, 8]), (0, 7, 9), strict=True):
        asked.clear()
        steps = rollout.rew.shape[1]
        next_values = rollout.next_values(10 * rollout.obs[:, :-1, 0], value_of)
        for i, row in enumerate(expected(first, steps)):
            for t, (_, led_to, terminated, _) in enumerate(row):
                assert terminated or next_values[i, t] == 10 * led_to
        truncations = [row[t][1] for t in range(steps) for row in expected(first, steps) if row[t][3]]
        assert asked == [rollout.obs[:, -1, 0].tolist(), truncations]


# Catches: the memory after the next step, the memory of another copy, or no memory.
def test_next_values_use_the_memory_after_the_previous_step():
    rollout = rollouts([7])[0]
    memory = torch.arange(21.0).view(3, 7, 1)
    found = rollout.next_values(torch.zeros(3, 7), lambda obs, hidden: obs[:, 0] + 1000 * hidden[:, 0], memory)
    assert found[:, -1].tolist() == [1000 * (7 * i + 6) + rollout.obs[i, -1, 0].item() for i in range(3)]
    assert [found[0, t].item() for t in (2, 5)] == [1000 * 2 + 3, 1000 * 5 + 103]


# Catches: costs that move to earlier steps if the first steps have none.
@pytest.mark.parametrize("first", [0, 2])
def test_costs_are_kept_where_the_environment_reports_them(first):
    rollout = rollouts([6], cost_from=first)[0]
    assert torch.equal(rollout.cost[:, first:], 2 * rollout.rew[:, first:]) and rollout.cost.shape == (3, 6)
    assert not rollout.cost[:, :first].any() and rollouts([6])[0].cost is None


# Catches: a wrong shape of the empty list of final observations, if no episode ended.
@pytest.mark.parametrize("steps", [1, 2])
def test_rollout_without_episode_ends_has_no_final_observations(steps):
    rollout = rollouts([steps])[0]
    assert rollout.final_obs.shape == (0, 1) and len(rollout.copy) == len(rollout.step) == 0
    assert torch.equal(rollout.next_obs(), rollout.obs[:, 1:])
