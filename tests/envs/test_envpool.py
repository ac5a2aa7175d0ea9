"""EnvPool's environments, tested with a module that has EnvPool's interface, so that the package is not needed.

The interface is that of version 1.2.5: autoreset in the next step, seeds only in the constructor, and a reset by mask
that returns only the rows of those copies.
"""
import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from spinup.envs import make
from spinup.envs.make import make_one
from spinup.envs.state import Unsaveable
from spinup.errors import UserError


class Pool(gymnasium.vector.VectorEnv):
    """Episodes of 3, 4, 5, ... steps. An observation is (seed, episode, step)."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    observation_space = single_observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = single_action_space = Discrete(2)
    closed_pools = 0

    def __init__(self, num_envs: int, seed: list[int], length: int = 3):
        self.num_envs, self.length = num_envs, length
        self.at = np.stack([np.array(seed), np.zeros(num_envs, int), np.zeros(num_envs, int)], 1)
        self.due = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        assert seed is None, "EnvPool ignores this seed, with a warning"
        rows = np.flatnonzero(options["reset_mask"]) if options else np.arange(self.num_envs)
        self._begin(rows)
        return self.at[rows].astype(np.float64), {"elapsed_step": np.zeros(len(rows), int)}

    def step(self, action):
        over, goes_on = np.flatnonzero(self.due), np.flatnonzero(~self.due)
        self._begin(over)
        self.at[goes_on, 2] += 1
        reward = np.where(self.at[:, 2], 1.0, 0.0)
        self.due = self.at[:, 2] == self.length + np.arange(self.num_envs)
        return self.at.astype(np.float64), reward, self.due.copy(), np.zeros(self.num_envs, bool), {
            "elapsed_step": self.at[:, 2].copy(), "players": {"env_id": np.arange(self.num_envs)}}

    def _begin(self, rows):
        self.at[rows, 1] += 1
        self.at[rows, 2] = 0
        self.due[rows] = False

    def close(self, **kwargs):
        Pool.closed_pools += 1


@pytest.fixture
def envpool(monkeypatch):
    module = ModuleType("envpool")
    module.__spec__ = ModuleSpec("envpool", None)
    module.list_all_envs = lambda: ["CartPole-v1", "Pong-v5"]
    module.make_gymnasium = lambda task_id, **settings: Pool(**settings)
    monkeypatch.setitem(sys.modules, "envpool", module)
    return module


# Catches: the reset step of a pool stored as a transition; the rows of a reset taken as those of all copies; the first
# observation of the next episode as the last one of this.
def test_no_transition_of_a_pool_crosses_an_episode_end(envpool):
    env = make("envpool:CartPole-v1", 3, 0)
    obs = env.reset()
    for _ in range(30):
        step = env.step(np.zeros(3, np.int64))
        led_to = step.obs if step.final_obs is None else step.final_obs
        np.testing.assert_array_equal(led_to, obs + np.float32([0, 0, 1]))
        np.testing.assert_array_equal(step.reward, 1)
        np.testing.assert_array_equal(step.terminated, led_to[:, 2] == [3, 4, 5])
        np.testing.assert_array_equal(step.obs[step.terminated, 2], 0)
        assert step.info[2] == {"elapsed_step": led_to[2, 2], "players": {"env_id": 2}}
        obs = step.obs
    assert len(env.take_finished()) == 10 + 7 + 6 and obs.dtype == np.float32


# Catches: one seed for all copies; seed + i; seeds of 32 bits, which EnvPool refuses.
def test_each_copy_of_a_pool_has_its_own_seed(envpool):
    seeds = [make("envpool:CartPole-v1", 3, seed).env.at[:, 0] for seed in (0, 0, 1)]
    np.testing.assert_array_equal(seeds[0], seeds[1])
    assert len({*seeds[0], *seeds[2]}) == 6 and max(map(max, seeds)) < 2**31


# Catches: dropped settings of the environment; threads that keep running.
def test_a_pool_gets_its_settings_and_is_closed(envpool):
    assert make("envpool:Pong-v5", 2, length=9).env.length == 9
    env = make("envpool:Pong-v5", 2)
    env.reset()
    with pytest.raises(Unsaveable, match="EnvPool gives no access to its state"):
        env.state_dict()
    before = Pool.closed_pools
    env.close()
    assert Pool.closed_pools == before + 1


# Catches: requests that are passed on to EnvPool, which raises an AssertionError or renders nothing.
@pytest.mark.parametrize("asked, words", [
    (lambda: make("envpool:CartPol-v1"), r"no environment 'CartPol-v1'\. Did you mean 'CartPole-v1'"),
    (lambda: make("envpool:Pong-v5", 2, nonsense=1), "does not take these settings: .*nonsense"),
    (lambda: make("envpool:Pong-v5", 2, 0, 2), "--env-workers does not support envpool:Pong-v5"),
    (lambda: make_one("envpool:Pong-v5"), "has no renderer and cannot be rendered here; use `spinup eval` instead")])
def test_unsupported_requests_to_a_pool_are_refused(envpool, asked, words):
    with pytest.raises(UserError, match=words):
        asked()


def test_missing_package_is_answered_with_its_pip_command(monkeypatch):
    monkeypatch.setattr(importlib.import_module("spinup.envs.envpool"), "find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        make("envpool:Pong-v5")
    assert str(error.value) == "envpool:Pong-v5 needs envpool; type: pip install 'spinup-rl[envpool]'"
