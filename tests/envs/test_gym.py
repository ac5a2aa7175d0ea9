"""Users' own environments: saving of their attributes, their infos and costs, and checks of their return values."""
import enum
import itertools
import re
from collections import defaultdict, namedtuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from spinup.envs import make
from spinup.envs.memory import Memory
from spinup.envs.single import Single
from spinup.envs.state import Unsaveable
from spinup.errors import UserError
from spinup.runs.checkpoint import read_checkpoint, save_checkpoint

Place = namedtuple("Place", "x y")


class Phase(enum.IntEnum):
    DAY = 1


class Game(gymnasium.Env):
    """Observes the result of `play`, which depends on all attributes; `begin` starts an episode."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begin()
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.full(1, self.play(int(action)), np.float32), 1.0, False, False, {}

    def begin(self) -> None:
        """Does nothing by default."""

    def play(self, action: int) -> float:
        return 0.0


class CountsWithAClock(Game):
    def begin(self):
        self.clock, self.window = 0, [0]                                  # names of pygame objects, which are not saved

    def play(self, action):
        self.clock += 1
        self.window[0] += action
        return self.clock + self.window[0]


class SharesLists(Game):
    def begin(self):
        self.history = [0.0]
        self.players = {"one": {"seen": self.history}, "two": [self.history]}
        self.players["all"] = self.players                                # it also contains itself

    def play(self, action):
        self.history.append(action)
        return len(self.players["one"]["seen"]) + sum(self.players["all"]["two"][0])


class SharesArrays(Game):
    def begin(self):
        self.board = self.start = np.zeros(3)
        self.boards, self.row = [self.board], self.board[1:]

    def play(self, action):
        self.boards[0] += action
        self.row += 1
        return self.board.sum() + 10 * self.start.sum()


class PartsArrays(Game):
    """One array with two names at first, and two arrays later. A fresh environment must separate them too."""

    def begin(self):
        self.home = np.arange(3.0)
        self.place = self.home

    def play(self, action):
        self.place = self.place + action
        return self.place.sum() + 100 * self.home.sum()


class SavesItself(Game):
    def begin(self):
        self.grid, self.thing = np.zeros(3), object()

    def play(self, action):
        self.grid[action] += 1
        return float(self.grid @ [1, 10, 100]) if type(self.grid) is np.ndarray else np.nan      # NaN for a tensor

    def state_dict(self):
        return {"grid": self.grid, "again": [self.grid]}

    def load_state_dict(self, state):
        self.grid = state["grid"]


class ReadsOnly(Game):
    def begin(self):
        self.names, self.goal = np.array([b"oak", b"elm"]), np.broadcast_to(np.float64(3), 4)

    def play(self, action):
        self.names = np.array([b"beech", self.names[action]])
        return float(len(self.names[1])) + float(self.goal.sum()) + (self.names.dtype.kind == "S")


# Catches (each was tried): a `_plain` without SAME; a `load_layer` without `filled`, without filling arrays in place,
# or with tensors for `load_state_dict`; attributes with names in CONSTANT_NAMES that are never saved.
@pytest.mark.parametrize("game", [CountsWithAClock, SharesLists, SharesArrays, PartsArrays, SavesItself, ReadsOnly])
def test_attributes_are_restored_from_a_checkpoint(game, tmp_path):
    env, fresh, never = make(game, 2, 0), make(game, 2, 9), make(game, 2, 0)
    actions = np.random.default_rng(0).integers(2, size=(20, 2))
    for each in (env, fresh, never):
        each.reset()
    for action in actions:
        env.step(action)
        never.step(action)
    save_checkpoint(tmp_path / "checkpoint.pt", {"algorithm": "none", "env": env.state_dict()})
    for each in (env, fresh):
        each.load_state_dict(read_checkpoint(tmp_path / "checkpoint.pt")["env"])
    for action in actions[::-1]:
        expected = never.step(action).obs
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(env.step(action).obs, expected)     # the environment that was saved continues
        np.testing.assert_array_equal(fresh.step(action).obs, expected)   # and so does the restored one


def holds(**attributes) -> type[Game]:
    """An environment with these attributes, created again in each episode."""
    class Holder(Game):
        def begin(self):
            for name, made in attributes.items():
                setattr(self, name, made())
    return Holder


class SavesASet(SavesItself):
    def state_dict(self):
        return {"grid": {1, 2}}


# Catches (each was tried): `isinstance` in place of `type` in `_plain`; Env in CONSTANT; a missing check for MT19937.
@pytest.mark.parametrize(("game", "why"), [
    (holds(thing=object), "Holder.thing is of type object"),
    (holds(things=lambda: {"a": [0, object()]}), "Holder.things['a'][1] is of type object"),
    (holds(phase=lambda: Phase.DAY), "Holder.phase is of type Phase"),
    (holds(place=lambda: Place(1, 2)), "Holder.place is of type Place"),
    (holds(counts=lambda: defaultdict(int)), "Holder.counts is of type defaultdict"),
    (holds(inner=lambda: gymnasium.make("CartPole-v1").unwrapped), "Holder.inner is of type CartPoleEnv"),
    (holds(dice=lambda: np.random.Generator(np.random.MT19937(0))), "Holder.dice uses MT19937, not np.random.default"),
    (holds(rows=lambda: [*np.zeros((2, 2))]), "Holder.rows[1] and Holder.rows[0] are views of one array"),
    (SavesASet, "SavesASet.state_dict()['grid'] is of type set")])
def test_attribute_that_cannot_be_saved_is_named(game, why):
    env = make(game, 2, 0)
    env.reset()
    with pytest.raises(Unsaveable, match=f"^{re.escape(why)}"):
        env.state_dict()


class Unsafe(Game):
    """Episodes of three steps. Each info has the step and the copy. In copy 1, odd steps have a cost."""

    def __init__(self, copy: int):
        self.copy, self.t = copy, 0

    def begin(self):
        self.t = 0

    def step(self, action):
        self.t += 1
        info = {"t": self.t, "copy": self.copy}
        if self.copy == 1 and self.t % 2:
            info["cost"] = 10.0 * self.t
        return np.zeros(1, np.float32), 1.0, self.t == 3, False, info


def unsafe(copies: int = 2):
    """A vectorised environment of copies 0, 1, ... of `Unsafe`."""
    numbers = itertools.count()
    return make(lambda: Unsafe(next(numbers)), copies)


# Catches: the info of the reset in place of that of the last step of an episode; rows in another order.
def test_each_copy_has_the_info_of_its_step():
    env = unsafe()
    env.reset()
    for t in (1, 2, 3, 1):
        info = env.step(np.zeros(2, np.int64)).info
        assert [(of["t"], of["copy"]) for of in info] == [(t, 0), (t, 1)]


# Catches: costs of 0 if no cost was ever reported; None or the last cost in a step without a cost; another dtype; the
# total of an episode that continues in the next one; costs in another order than returns.
def test_costs_are_summed_per_episode_like_returns():
    safe = unsafe(1)
    safe.reset()
    assert [safe.step(np.zeros(1, np.int64)).cost for _ in range(4)] == [None] * 4
    assert safe.take_finished() == [(3.0, 3)] and safe.finished_costs == [0.0]
    env = unsafe()
    env.reset()
    costs = [env.step(np.zeros(2, np.int64)).cost for _ in range(4)]
    assert [cost.tolist() for cost in costs] == [[0, 10], [0, 0], [0, 30], [0, 10]]
    assert all(cost.dtype == np.float32 for cost in costs)
    assert env.take_finished() == [(3.0, 3), (3.0, 3)] and env.finished_costs == [0.0, 40.0]
    assert env.take_finished() == [] and env.finished_costs == []
    env.reset()
    for _ in range(3):
        env.step(np.zeros(2, np.int64))
    env.take_finished()
    assert env.finished_costs == [0.0, 40.0]


# Catches: a traceback of numpy; a NaN as the cost of an episode.
@pytest.mark.parametrize("cost, words", [
    ("low", "a cost of 'low'; it must be one number"), ([1.0, 2.0], "a cost of \\[1.0, 2.0\\]; it must be one number"),
    (np.nan, "the costs \\[nan\\] in its copies"), (1e300, "a cost of 1e\\+300, but float32 holds at most 3e\\+38")])
def test_cost_must_be_one_finite_number(cost, words, monkeypatch):
    env, step = unsafe(1), Unsafe.step
    monkeypatch.setattr(Unsafe, "step", lambda self, action: (*step(self, action)[:4], {"cost": cost}))
    env.reset()
    with pytest.raises(UserError, match=words):
        env.step(np.zeros(1, np.int64))


# Catches: a state without the costs of open or of finished episodes, or without the information that costs are
# reported.
def test_costs_are_saved():
    env, fresh = unsafe(), unsafe()
    for each in env, fresh:
        each.reset()
    for _ in range(4):
        env.step(np.zeros(2, np.int64))
    fresh.load_state_dict(env.state_dict())
    assert fresh.step(np.zeros(2, np.int64)).cost.tolist() == [0, 0]
    fresh.step(np.zeros(2, np.int64))
    assert fresh.take_finished() == [(3.0, 3)] * 4 and fresh.finished_costs == [0.0, 40.0] * 2


# Catches: a wrapper that drops costs and infos.
def test_costs_and_infos_pass_through_wrappers():
    memory = Memory(unsafe(), 2)
    memory.reset()
    for _ in range(6):
        step = memory.step(np.zeros(2, np.int64))
    assert step.cost.tolist() == [0, 30] and step.info[1] == {"t": 3, "copy": 1, "cost": 30.0}
    assert memory.take_finished() == [(6.0, 6)] * 2 and memory.finished_costs == [0.0, 80.0]
    game = Single(unsafe(1))
    game.reset()
    assert game.step(0)[-1] == {"t": 1, "copy": 0}


class Odd(gymnasium.Env):
    """An environment whose return values may violate its spaces."""

    action_space = Discrete(2)

    def __init__(self, begun=None, seen=(0.0, 0.0, 0.0), reward=0.0, ends=(False, False), made=..., space=None):
        self.begun = (np.zeros(3), {}) if begun is None else begun
        self.made = (seen, reward, *ends, {}) if made is ... else made
        self.observation_space = space or Box(-1, 1, (3,))

    def reset(self, *, seed=None, options=None):
        return self.begun

    def step(self, action):
        return self.made


# Catches: copies that all step one environment.
def test_function_that_returns_the_same_object_twice_is_refused():
    env = Odd()
    with pytest.raises(UserError, match="returned the same object twice; make it return a new environment"):
        make(lambda: env, 2)
    make(lambda: env, 1)


# Catches: an evaluation in the training's own environment, whose episode then continues from another state.
def test_environment_object_serves_only_one_run():
    env = gymnasium.make("CartPole-v1")
    first = make(lambda: env, 1)
    first.reset()
    first.state_dict()
    make(lambda: env, 1).reset()
    with pytest.raises(UserError, match="another run or evaluation has used the same object of CartPole"):
        first.reset()


# Catches: numpy's broadcasting, which repeats a number to fill an array; float, which converts "5" to 5.0; `if ended`,
# for which "no" is true.
@pytest.mark.parametrize("odd, words", [
    ({"begun": np.zeros(3)}, "reset of the environment returned ndarray, not an observation and a dict"),
    ({"begun": (np.zeros(3), None)}, "returned ndarray and NoneType, not an observation and a dict"),
    ({"begun": (np.array([300, -1, 5.7]), {}), "space": Box(0, 255, (3,), np.uint8)},
     r"the observation \[300.0, -1.0, 5.7\] of dtype float64, but its observation_space is Box"),
    ({"reward": 10**400}, "it must be one number"),
    ({"reward": 1e300}, "a reward of 1e\\+300, but float32 holds at most 3e\\+38; divide the rewards .at step 1"),
    ({"begun": (np.zeros(1), {})}, r"an observation of shape \(1,\), but its observation_space is Box"),
    ({"begun": (np.zeros(1), {}), "space": Box(0, 255, (3,), np.uint8)}, r"an observation of shape \(1,\), but its"),
    ({"begun": (np.zeros(3), {}), "space": Box(-1, 1, (2, 2))}, r"an observation of shape \(3,\), but its"),
    ({"begun": ({"a": 0.5}, {}), "space": Dict(a=Box(0, 255, (3,), np.uint8))}, r"the observation \{'a': 0.5\}, but"),
    ({"begun": ([1, [2]], {})}, r"the observation \[1, \[2\]\], but its observation_space is Box"),
    ({"begun": (7, {}), "space": Discrete(3)}, r"the observation 7, but its observation_space is Discrete\(3\)"),
    ({"made": (np.zeros(3), 0.0, False, False, None)}, "step of the environment returned None for info; it must be a"),
    ({"begun": ({"b": 1}, {}), "space": Dict(a=Discrete(2))}, r"returned the observation \{'b': 1\}, but"),
    ({"begun": ((1,), {}), "space": Tuple([Discrete(2)] * 2)}, r"returned the observation \(1,\), but"),
    ({"begun": (np.zeros(3), {}), "seen": 0.0}, "returned the observation 0.0, but its observation_space is Box"),
    ({"begun": (np.zeros(3), {}), "seen": np.zeros((1, 3))}, r"an observation of shape \(1, 3\), but"),
    ({"begun": (np.zeros(3), {}), "reward": np.zeros(2)}, r"a reward of array\(\[0., 0.\]\); it must be one"),
    ({"begun": (np.zeros(3), {}), "reward": None}, "returned a reward of None; it must be one number"),
    ({"reward": "5"}, "returned a reward of '5'; it must be one number"),
    ({"made": (np.zeros(3), 0.0, False, {})}, "step of the environment returned 4 values, not five: observation"),
    ({"made": None}, "step of the environment returned NoneType, not five"),
    ({"ends": ("no", False)}, "the environment returned 'no' for terminated; it must be True or False"),
    ({"ends": (False, None)}, "the environment returned None for truncated; it must be True or False"),
    ({"ends": (2, False)}, "the environment returned 2 for terminated; it must be True or False")])
def test_return_values_that_do_not_fit_are_refused(odd, words):
    env = make(lambda: Odd(**odd))
    with pytest.raises(UserError, match=words):
        env.reset()
        env.step(np.zeros(1, np.int64))


def test_reward_may_be_an_array_with_one_element():
    env = make(lambda: Odd((np.zeros(3), {}), reward=np.array([2.5])))
    env.reset()
    assert env.step(np.zeros(1, np.int64)).reward == 2.5


class Forbids(gymnasium.Env):
    """Changes its action in place: it sets the first element to 0."""

    action_space, observation_space = MultiBinary(3), Box(-1, 1, (3,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        action[0] = 0
        return action.astype(np.float32), 0.0, False, False, {}


# Catches: a view of the action for the environment. The update would then use an action that was not sampled.
def test_environment_may_change_its_action_in_place():
    env, action = make(Forbids), np.ones((1, 3), np.int8)
    env.reset()
    assert env.step(action).obs.tolist() == [[0, 1, 1]] and action.all()
