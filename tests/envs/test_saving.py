"""Environments that go on from a saved state as if nothing had happened, or say what keeps them from being saved."""
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from spinup.envs import VectorEnv, make
from spinup.runs.files import load_checkpoint, save_checkpoint


class Garden(gymnasium.Env):
    """A user's environment: everything that it remembers, in each form, decides what it shows from then on."""

    observation_space, action_space = Box(-np.inf, np.inf, (8,)), Discrete(2)

    def __init__(self):
        self.dice = np.random.default_rng(3)                              # its own, beside `np_random`
        self.state = np.zeros(4)
        self.front = self.state[:2]                                       # the same memory under another name
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.state[:] = self.np_random.uniform(-1, 1, 4)
        self.count, self.share, self.wet = 0, np.float32(0.1), False
        self.single, self.rows, self.beds = np.zeros(2, np.float32), [[0, 1.5], [2, "reed"]], {"a": np.zeros(2), 1: None}
        self.last, self.names = np.float64(0), np.array(["oak", "elm"])
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        self.share = np.float32(self.share * np.float32(1.01))            # rounds otherwise as a Python float
        self.wet = not self.wet
        self.single += np.float32(0.1) * self.share
        self.rows[0][1] += self.count
        self.beds["a"][int(self.wet)] += self.rows[0][1]
        self.last = self.last + self.dice.standard_normal()
        self.front += 0.01 * self.np_random.standard_normal(2)            # and so changes state
        self.state *= 0.9
        return self.observe(), float(self.last), self.np_random.random() < 0.05, False, {}

    def observe(self) -> np.ndarray:
        return np.array([*self.state, self.count, self.share * self.single[0], self.rows[0][1] + self.episodes,
                         self.beds["a"][1] + len(self.names[0]) + self.wet], np.float32)


SOURCES = {"FrozenLake-v1": "FrozenLake-v1", "Taxi-v4": "Taxi-v4", "HalfCheetah-v5": "HalfCheetah-v5", "Hopper-v5": "Hopper-v5",
           "Ant-v5": "Ant-v5", "Humanoid-v5": "Humanoid-v5", "LunarLander... not here": None, "Garden": Garden}
SOURCES = {k: v for k, v in SOURCES.items() if v}
each = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def started(source, seed: int, before: int) -> VectorEnv:
    """Two copies, `before` steps after their reset."""
    env = make(source, 2, seed)
    env.reset()
    play(env, before, seed)
    return env


def play(env: VectorEnv, steps: int, seed: int) -> list[tuple]:
    """What `steps` steps with random actions show, in all; the length of an open episode is part of it."""
    rng, space, shown = np.random.default_rng(seed), env.action_space, []
    for _ in range(steps):
        action = rng.integers(space.n, size=2) if isinstance(space, Discrete) else \
            rng.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)
        step = env.step(action)
        shown.append((*(np.copy(x) for x in step if x is not None), env.episode_length.copy(), env.take_finished()))
    return shown


def assert_same(a: list[tuple], b: list[tuple]) -> None:
    for t, (left, right) in enumerate(zip(a, b, strict=True)):
        for x, y in zip(left, right, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"step {t}")


def through_a_file(state: dict[str, Any], folder) -> dict[str, Any]:
    save_checkpoint(folder / "checkpoint.pt", {"algorithm": "none", "env": state})
    return load_checkpoint(folder / "checkpoint.pt")["env"]


@each
def test_a_fresh_environment_goes_on_from_a_checkpoint(source, tmp_path):
    env = started(source, seed=0, before=60)
    assert env.can_save and env.why_not_saved == ""
    state = through_a_file(env.state_dict(), tmp_path)
    future = play(env, 300, seed=1)
    fresh = started(source, seed=5, before=7)
    fresh.load_state_dict(state)
    assert_same(play(fresh, 300, seed=1), future)


@each
def test_saving_and_loading_changes_nothing(source, tmp_path):
    saved, never = started(source, seed=0, before=60), started(source, seed=0, before=60)
    for _ in range(3):
        saved.load_state_dict(through_a_file(saved.state_dict(), tmp_path))
        assert_same(play(saved, 100, seed=1), play(never, 100, seed=1))
