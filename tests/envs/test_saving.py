"""Environments continue unchanged from a saved state, or name the attribute that cannot be saved."""
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from spinup.envs import VectorEnv, make
from spinup.envs.state import Unsaveable
from spinup.runs.checkpoint import read_checkpoint, save_checkpoint


class Garden(gymnasium.Env):
    """A user's environment with attributes of many types, all of which influence its later observations."""

    observation_space, action_space = Box(-np.inf, np.inf, (9,)), Discrete(2)

    def __init__(self):
        self.dice = np.random.default_rng(3)                              # its own generator, beside `np_random`
        self.state = np.zeros(4)
        self.front = self.state[:2]                                       # the same memory under another name
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.state[:] = self.np_random.uniform(-1, 1, 4)
        self.count, self.share, self.wet, self.last = 0, np.float32(0.3), False, np.float64(0)
        self.single, self.names = np.zeros(2, np.float32), np.array(["oak", "elm"])
        self.rows, self.beds = [[0, 1.5], [2, "reed"]], {"a": np.zeros(2), 1: None}
        self.path = self.rows[0]                                          # one list under two names
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        self.share = 3.9 * self.share * (1 - self.share)                  # chaotic: a Python float would soon differ
        self.wet = not self.wet
        self.single += np.float32(0.1) * self.share
        self.path[1] += self.count
        self.beds["a"][int(self.wet)] += self.rows[0][1]
        self.last = self.last + self.dice.standard_normal()
        self.state += 0.01 * self.np_random.standard_normal(4)
        self.front *= 0.9
        return self.observe(), float(self.last), self.np_random.random() < 0.05, False, {}

    def observe(self) -> np.ndarray:
        return np.array([*self.state, self.share, self.single[0], self.count + self.rows[0][1] + self.episodes,
                         self.beds["a"][1] + len(self.names[0]) + self.wet, self.path[1]], np.float32)


class Drawn(gymnasium.Env):
    """Its observations are samples from its own spaces, which it seeds."""

    def __init__(self):
        self.action_space, self.observation_space = Discrete(2), Box(-1, 1, (2,))
        self.hidden = Dict({"one": Discrete(9), "two": Tuple([Box(0, 1, (1,))])})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
            self.hidden.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        hidden = self.hidden.sample()
        reward = float(hidden["one"] + hidden["two"][0][0])
        return self.observation_space.sample(), reward, bool(hidden["one"] == 0), False, {}


class Wither(gymnasium.Wrapper):
    """A user's wrapper that counts steps, and truncates episodes by its count."""

    count = 0

    def step(self, action):
        self.count += 1
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward + self.count, terminated, truncated or self.count % 70 == 0, info


def withering() -> gymnasium.Env:
    return Wither(Garden())


each = pytest.mark.parametrize("source", [
    "FrozenLake-v1", "Taxi-v4", "CartPole-v1", "HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5", Garden,
    Drawn, withering], ids=lambda source: getattr(source, "__name__", source))


def started(source, seed: int, before: int) -> VectorEnv:
    """Two copies, `before` steps after their reset."""
    env = make(source, 2, seed)
    env.reset()
    play(env, before, seed)
    return env


def play(env: VectorEnv, steps: int, seed: int) -> list[tuple]:
    """All results of `steps` steps with random actions, with the lengths of the open episodes."""
    rng, space, shown = np.random.default_rng(seed), env.action_space, []
    for _ in range(steps):
        action = rng.integers(space.n, size=2) if isinstance(space, Discrete) else \
            rng.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)
        step = env.step(action)
        shown.append((*(np.copy(x) for x in step[:5] if x is not None), env.episode_length.copy(), env.take_finished()))
    return shown


def assert_same(a: list[tuple], b: list[tuple]) -> None:
    for t, (left, right) in enumerate(zip(a, b, strict=True)):
        for x, y in zip(left, right, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"step {t}")


def through_a_file(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    save_checkpoint(folder / "checkpoint.pt", {"algorithm": "none", "env": state})
    return read_checkpoint(folder / "checkpoint.pt")["env"]


# Catches: a state without a generator, without that of a space, or without a wrapper; MuJoCo's state without its
# derived arrays; a float32 that is loaded as a Python float; a list or a view that is loaded as a separate object; an
# `obs` that stays a tensor.
@pytest.mark.long("Humanoid-v5")
@each
def test_fresh_environment_continues_from_a_checkpoint(source, tmp_path):
    env = started(source, seed=0, before=60)
    state, obs = through_a_file(env.state_dict(), tmp_path), env.obs.copy()
    future = play(env, 300, seed=1)
    fresh = started(source, seed=5, before=7)
    fresh.load_state_dict(state)
    assert type(fresh.obs) is np.ndarray and np.array_equal(fresh.obs, obs)
    assert_same(play(fresh, 300, seed=1), future)


# Catches: the errors of the test above, if they affect the environment that was saved.
@pytest.mark.long("Taxi-v4", "Hopper-v5")
@each
def test_saving_and_loading_changes_nothing(source, tmp_path):
    saved, never = started(source, seed=0, before=60), started(source, seed=0, before=60)
    for _ in range(3):
        saved.load_state_dict(through_a_file(saved.state_dict(), tmp_path))
        assert_same(play(saved, 100, seed=1), play(never, 100, seed=1))


class Guard(gymnasium.Env):
    """Walks, and hunts from its third step on. Its attribute `behave` is one of its methods."""

    observation_space, action_space = Box(-9, 99, (1,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.behave = 0, self.walk
        return np.zeros(1, np.float32), {}

    def walk(self):
        return 1.0

    def hunt(self):
        return 50.0

    def step(self, action):
        self.t += 1
        if self.t == 3:
            self.behave = self.hunt
        return np.full(1, self.behave(), np.float32), 0.0, self.t == 9, False, {}


# Catches: a method that is treated as constant.
def test_a_method_may_be_part_of_the_state():
    env, fresh = make(Guard), make(Guard)
    env.reset()
    fresh.reset()
    for _ in range(4):
        env.step(np.zeros(1, np.int64))
    fresh.load_state_dict(env.state_dict())
    assert fresh.step(np.zeros(1, np.int64)).obs[0, 0] == 50.0


# Catches: a state that shares memory with the environment that was saved, or with the one into which it was loaded.
@pytest.mark.parametrize("source", [Garden, "CartPole-v1", "Hopper-v5"])
def test_a_state_can_be_loaded_twice(source):
    env = started(source, seed=0, before=60)
    state = env.state_dict()
    futures = [play(env, 100, seed=1)]
    for _ in range(2):
        env.load_state_dict(state)
        futures.append(play(env, 100, seed=1))
    assert_same(futures[0], futures[1])
    assert_same(futures[0], futures[2])


class Thing:
    pass


def garden_with(**attributes: Any) -> gymnasium.Env:
    garden = Garden()
    vars(garden).update(attributes)
    return garden


STATE = np.zeros(4)
IN_THE_WAY = {
    "object": ({"thing": Thing()}, "Garden.thing is of type Thing"),
    "deep": ({"things": {"a": [0, Thing()]}}, "Garden.things['a'][1] is of type Thing"),
    "set": ({"seen": {1, 2}}, "Garden.seen is of type set"),
    "keys": ({"seen": {(0, 1): 2.0}}, "Garden.seen is of type dict"),
    "generator": ({"dice": np.random.Generator(np.random.MT19937(0))},
                  "Garden.dice uses MT19937, not np.random.default_rng"),
    "window": ({"window": Thing()}, "Garden.window is of type Thing"),          # not a window of pygame
    # after loading, the array in the list would be separate, and no longer change with the other
    "view": ({"state": STATE, "parts": [STATE[:2]]}, "Garden.parts[0] and Garden.state are views of one array")}


# Catches: such attributes that are skipped, or saved unchanged, so that the resumed run silently differs; a check of
# the first copy only, or of the outermost wrapper only.
@pytest.mark.parametrize("attributes, reason", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_attribute_that_cannot_be_saved_is_named(attributes, reason):
    makers = iter([Garden, lambda: Wither(garden_with(**attributes))])
    env = make(lambda: next(makers)(), 2)
    env.reset()
    with pytest.raises(Unsaveable) as error:
        env.state_dict()
    assert str(error.value) == reason


class Goals(gymnasium.Env):
    """A user's environment whose goal is a row of a table."""

    observation_space, action_space = Box(-np.inf, np.inf, (2,)), Discrete(2)
    SHARED = np.arange(10.0).reshape(5, 2)

    def __init__(self):
        self.table = np.arange(10.0).reshape(5, 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal, self.other = (table[self.np_random.integers(5)] for table in (self.table, self.SHARED))
        self.place = self.table[self.np_random.integers(5)]
        return self.goal + 10 * self.other, {}

    def step(self, action):
        self.place = self.place + 1                                       # no longer a row of the table
        return self.goal + 10 * self.other + 100 * self.place, 0.0, self.np_random.random() < 0.2, False, {}


# Catches: a row of a table that is overwritten with the row of the saved state.
def test_row_of_a_table_is_restored_without_changing_the_table():
    env, fresh = started(Goals, seed=0, before=7), started(Goals, seed=1, before=3)
    state = env.state_dict()
    expected = play(env, 50, seed=1)
    fresh.load_state_dict(state)
    assert_same(play(fresh, 50, seed=1), expected)
    table = np.arange(10.0).reshape(5, 2)
    assert all((layer.unwrapped.table == table).all() for layer in fresh.envs) and (table == Goals.SHARED).all()


def test_windows_and_renderers_do_not_prevent_saving():
    surface = type("Surface", (), {"__module__": "pygame.surface"})
    env = make(lambda: garden_with(window=surface(), clock=surface(), viewer=Thing(), mujoco_renderer=Thing(),
                                   render_mode="human"))
    env.reset()
    env.state_dict()


class OwnWay(Garden):
    """Has its own `state_dict`, and an attribute that cannot be saved."""

    def __init__(self):
        super().__init__()
        self.thing = Thing()

    def state_dict(self):
        return {"state": self.state, "count": self.count}

    def load_state_dict(self, state):
        assert type(state["state"]) is np.ndarray                         # not a tensor, also after a file
        self.state[:], self.count = state["state"], state["count"]


# Catches: a check of the attributes before `state_dict`; the environment's own array in place of a copy.
def test_environments_own_state_dict_is_used(tmp_path):
    env = started(OwnWay, seed=0, before=10)
    state = env.state_dict()
    held = [(copy.state.copy(), copy.count) for copy in env.envs]
    written = through_a_file(state, tmp_path)
    play(env, 30, seed=1)
    for source in state, written:
        fresh = started(OwnWay, seed=1, before=3)
        fresh.load_state_dict(source)
        for copy, (array, count) in zip(fresh.envs, held, strict=True):
            np.testing.assert_array_equal(copy.state, array)
            assert copy.count == count
