"""Tests of every algorithm. A new one needs no change here: the registry finds it, and its test file has its SUITE."""
import ast
import math
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

import spinup
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.data.dataset import Dataset, join
from spinup.envs.games import Game
from spinup.envs.goals import KEYS
from spinup.envs.ids import find_id
from spinup.envs.make import make
from spinup.envs.spaces import observation_view, space_to_json, to_native
from spinup.errors import UserError
from spinup.registry import algorithms
from spinup.runs.config import BaseConfig, Range, comments, settings_of, types_of
from spinup.runs.offline import OfflineConfig
from spinup.runs.policy import Policy
from spinup.runs.presets import choose_preset
from spinup.runs.run import Result
from spinup.runs.training import Training
from spinup.view.evaluate import evaluate
from spinup.view.metrics import meanings

# Settings with which the tasks below are learned in a second or two. More settings are in the test file of each
# algorithm.
QUICK, IMAGES = {"num_envs": 8, "gamma": 0.5, "total_steps": 8192}, {"total_steps": 1024, "lr": 1e-3, "threads": 1}
ONCE = {"epochs": 1, "minibatches": 1}                # settings with which a batch is scored once
ALGORITHMS = {name: algorithm for name, algorithm in algorithms().items() if not algorithm.variant}


def suite_of(name: str) -> dict[str, Any]:
    """The literal SUITE of an algorithm's test file.

    `settings`: those with which it learns the tasks here; `tasks`: the tasks that it supports, with more settings of
    each; `scores`: the loss function of an update, which gets the log-probabilities of the sampled actions as its first
    argument; `cartpole`: the return that the deterministic policy must reach on CartPole with the preset; `draws`:
    whether training samples actions; `remembers`: whether the policy gets more inputs than the observation of the
    environment.
    """
    path = Path(__file__).with_name(f"test_{name}.py")
    assert path.exists(), f"{name} has no test file {path.name}"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SUITE":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path.name} lacks SUITE, the settings with which this file trains {name}")


SUITES = {name: suite_of(name) for name in ALGORITHMS}
CARTPOLE = [name for name, suite in SUITES.items() if "cartpole" in suite]
each = pytest.mark.parametrize("name", ALGORITHMS)


class Tell(gymnasium.Env):
    """The observation contains the wanted action. An episode has eight steps. The reward is 1 for this action, less for
    others."""

    def __init__(self, action_space: gymnasium.Space, observation_space: gymnasium.Space):
        self.action_space, self.observation_space = action_space, observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.tell(), {}

    def step(self, action):
        reward, self.t = self.worth(action), self.t + 1
        return self.tell(), float(reward), False, self.t == 8, {}

    def tell(self) -> np.ndarray:
        raise NotImplementedError

    def worth(self, action) -> float:
        raise NotImplementedError


class TellDiscrete(Tell):
    def __init__(self):
        super().__init__(Discrete(4, start=2), Box(0, 1, (4,)))

    def tell(self):
        self.wanted = self.np_random.integers(4)
        return np.eye(4, dtype=np.float32)[self.wanted]

    def worth(self, action):
        return action == self.wanted + 2


class TellMultiDiscrete(Tell):
    def __init__(self):
        super().__init__(MultiDiscrete([3, 2]), Box(0, 1, (5,)))

    def tell(self):
        self.wanted = self.np_random.integers([3, 2])
        return np.concatenate([np.eye(3)[self.wanted[0]], np.eye(2)[self.wanted[1]]]).astype(np.float32)

    def worth(self, action):
        return np.mean(action == self.wanted)


class TellBox(Tell):
    """Box actions whose bounds differ by dimension."""

    def __init__(self):
        super().__init__(Box(np.float32([-1, 0]), np.float32([1, 10])), Box(-np.inf, np.inf, (2,)))

    def tell(self):
        self.wanted = self.np_random.uniform(-0.7, 0.7, 2)                # in units of half the range, from its middle
        return self.wanted.astype(np.float32)

    def worth(self, action):
        return 1 - np.square(action / [1, 5] - [0, 1] - self.wanted).sum()


class TellBoxFar(TellBox):
    """Observations on a scale on which no network learns: they must be normalised."""

    def tell(self):
        return 1000 + 100 * super().tell()


class TellGoal(TellBox):
    """The desired goal contains the wanted action, and the achieved goal is the last action."""

    def __init__(self):
        super().__init__()
        self.observation_space = Dict({key: Box(-2, 2, (2,)) for key in KEYS})

    def reset(self, **how):
        self.done = np.zeros(2, np.float32)
        return super().reset(**how)

    def step(self, action):
        self.done = np.float32(action / [1, 5] - [0, 1])
        return super().step(action)

    def tell(self):
        goal = super().tell()
        return {"observation": np.zeros(2, np.float32), "achieved_goal": self.done, "desired_goal": goal}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return 1 - np.square(achieved_goal - desired_goal).sum(-1)


class TellImage(Tell):
    def __init__(self):
        super().__init__(Discrete(2), Box(0, 255, (36, 36, 1), np.uint8))

    def tell(self):
        self.wanted = self.np_random.integers(2)
        image = self.np_random.integers(0, 100, (36, 36, 1), np.uint8)
        image[:, 18 * self.wanted:18 * (self.wanted + 1)] += 100          # the brighter half
        return image

    def worth(self, action):
        return action == self.wanted


class TellGame(Game):
    """The observation contains the wanted move. A player with another move loses; a game of eight moves is a draw. One
    of the five moves is illegal."""

    num_actions, shape, action_space = 5, (4,), Discrete(5)

    def __init__(self, num_games: int = 1, seed: int = 0):
        super().__init__(num_games)
        self.rng, self.t = np.random.default_rng(seed), np.zeros(num_games, np.int64)
        self.wanted, self.closed = self.t.copy(), self.t.copy()

    def tell(self, games):
        n = len(self.numbers(games))
        self.wanted[games] = self.rng.integers(0, 4, n)
        self.closed[games] = (self.wanted[games] + self.rng.integers(1, 5, n)) % 5

    def reset(self, games=slice(None)):
        self.t[games] = self.mover[games] = 0
        self.tell(games)

    def legal(self, games=slice(None)):
        return self.closed[games, None] != np.arange(5)

    def observe(self, games=slice(None)):
        return np.eye(4)[self.wanted[games]]

    def play(self, action, games=slice(None)):
        self.check_legal(action, games)
        wrong = action != self.wanted[games]
        self.t[games] += 1
        self.mover[games] ^= 1
        over = wrong | (self.t[games] == 8)
        self.tell(games)
        return np.where(wrong, -1.0, 0.0), over

    def save(self):
        arrays = {k: v.copy() for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return {"arrays": arrays, "rng": self.rng.bit_generator.state}

    def load(self, state):
        for name, value in state["arrays"].items():
            getattr(self, name)[:] = value
        self.rng.bit_generator.state = state["rng"]


TASKS = {"discrete": TellDiscrete, "multidiscrete": TellMultiDiscrete, "box": TellBox, "box far": TellBoxFar,
         "goal": TellGoal, "image": TellImage, "game": TellGame}
SERVED = [(name, task) for name, suite in SUITES.items() for task in suite["tasks"]]
LONG = pytest.mark.long(*(f"{name}-{task}" for name, suite in SUITES.items() for task in [*suite["tasks"]][1:]))
each_served = pytest.mark.parametrize("name, task", SERVED)


def kind_of(task: str) -> str:
    """The name of a task's action space, as in the TOML files."""
    return type(TASKS[task]().action_space).__name__


def is_offline(name: str) -> bool:
    """Whether an algorithm learns from a dataset, not from its own environment steps."""
    return issubclass(ALGORITHMS[name].load().Config, OfflineConfig)


@cache
def dataset_of(task: str) -> Path:
    """A dataset of 256 episodes of a task. Nine actions of ten are the wanted ones, the others are random. For a game
    and for a task with goals, it has one step, because no algorithm learns from it."""
    envs, env, rng = make(TASKS[task]), TASKS[task](), np.random.default_rng(0)
    space, (shape, dtype, view) = envs.action_space, observation_view(envs.observation_space)
    rows = []
    for episode in range(0 if task in ("game", "goal") else 256):
        obs, over = env.reset(seed=episode)[0], False
        while not over:
            wanted = (env.wanted + [0, 1]) * [1, 5] if task.startswith("box") else env.wanted
            if rng.random() < 0.1:
                wanted = rng.uniform(space.low, space.high) if task.startswith("box") else rng.integers(
                    getattr(space, "nvec", getattr(space, "n", 0)))
            act = np.asarray(wanted, np.float32 if task.startswith("box") else np.int64)
            before, (obs, reward, ended, over, _) = obs, env.step(to_native(space, act))
            rows.append((view(before), act, np.float32(reward), view(obs), ended, over))
    nothing, idle = np.zeros(shape, dtype), np.zeros(space.shape, np.float32 if isinstance(space, Box) else np.int64)
    rows = rows or [(nothing, idle, np.float32(0), nothing, True, False)]
    arrays = [np.stack(column) for column in zip(*rows, strict=True)]
    arrays[0], arrays[3] = arrays[0].astype(dtype), arrays[3].astype(dtype)
    path = Path(tempfile.mkdtemp(), f"{task}.npz")
    about = {"env": task, "env_settings": {}, "observation_space": space_to_json(envs.observation_space),
             "action_space": space_to_json(space), "parts": [], "seed": 0, "versions": {}}
    with open(path, "wb") as file:
        join([Dataset(*arrays)], about).write(file)
    return path


def first_task(name: str) -> str:
    return next(iter(SUITES[name]["tasks"]))


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> Callable[[str, str], Result]:
    """Result of an algorithm on a task, trained once for all tests; with an annealed learning rate, if it can have one.
    """
    @cache
    def training(name: str, task: str) -> Result:
        return train(name, tmp_path_factory.mktemp(name), task, **({"anneal": True} if can_anneal(name) else {}))
    return training


def train(name: str, folder: Path, task: str = "", env: Any = None, **settings: Any) -> Result:
    """Train on a task of the algorithm, by default the first one in its SUITE, or in `env`, a variant of this task."""
    algorithm, suite, task = ALGORITHMS[name].load(), SUITES[name], task or first_task(name)
    of_image = IMAGES if task == "image" else {}
    quick, images = ({name: value for name, value in given.items() if name in settings_of(algorithm.Config)}
                     for given in (QUICK, of_image))
    given = {"data": dataset_of(task).as_posix()} if is_offline(name) else {}
    chosen = {**quick, **suite["settings"], **images, **suite["tasks"][task], "quiet": True, "tensorboard": False,
              **given, **settings}
    return algorithm.train(algorithm.Config(env=env or TASKS[task], log_dir=folder.as_posix(), **chosen))


def short(name: str) -> int:
    """The number of steps of a run that need not learn: environment steps, or updates if it reads a dataset."""
    return 32 if is_offline(name) else 512


def can_anneal(name: str) -> bool:
    """Whether its updates score sampled actions, and its learning rate can be annealed."""
    return "scores" in SUITES[name] and "anneal" in settings_of(ALGORITHMS[name].load().Config)


def state(policy: Policy) -> torch.Tensor:
    """All weights and buffers of a policy, with the statistics of the normaliser."""
    return torch.cat([x.double().flatten() for x in policy.module.state_dict().values()])


# A random policy gets 2, 4, -9 and 4 of 8. Catches: nearly every bug; also, because the evaluated policy is the loaded
# one, a checkpoint without the normaliser, and an `act` that ignores the start of Discrete.
@LONG
@each_served
def test_algorithm_learns_each_task_and_its_policy_can_be_loaded(name, task, learned):
    result, env = learned(name, task), TASKS[task]
    if task == "game":                                                    # self-play is drawn; a random opponent loses
        assert evaluate(spinup.load(result.directory), env, episodes=100).mean > 0.95
        return
    assert np.mean(result.returns[-20:]) > 6.5                            # sampled actions
    assert evaluate(spinup.load(result.directory), env, episodes=20).mean > 7.8
    if SUITES[name].get("remembers"):
        return
    policy, game = spinup.load(result.directory), env()                   # step by step, as a user does
    obs, total = game.reset(seed=3)[0], 0.0
    for _ in range(8):
        obs, reward, *_ = game.step(policy.act(obs))
        total += reward
    assert total > 7.5


# Catches: a seed that does not reach the environments, the network, the sampling or the shuffling.
@pytest.mark.long("decision_transformer")
@each
def test_seed_determines_the_whole_run(name, tmp_path):
    runs, seeds, task = [], [], TASKS[first_task(name)]

    class NotedEnv(task):
        def reset(self, *, seed=None, options=None):
            seeds[-1] |= {seed} - {None}
            return super().reset(seed=seed)

    class NotedGame(task):
        def __init__(self, num_games=1, seed=0):
            seeds[-1] |= {(seed, i) for i in range(num_games)}
            super().__init__(num_games, seed)

    Noted = NotedGame if issubclass(task, Game) else NotedEnv
    for seed in 1, 1, 2:
        seeds.append(set())
        torch.rand(3), np.random.rand(3)                                  # earlier random numbers do not matter
        runs.append(train(name, tmp_path, env=Noted, seed=seed, total_steps=short(name)))
    assert seeds[0] == seeds[1] and len(seeds[0]) >= 8 and not seeds[0] & seeds[2]        # 8 copies, or more episodes
    first, again, other = ({k: v for k, v in r.progress.items() if "second" not in k} for r in runs)
    np.testing.assert_equal(again, first)                                 # NaN equals NaN here
    assert torch.equal(state(runs[0].policy), state(runs[1].policy)) and runs[0].returns == runs[1].returns
    told = next(c for c in first if "loss" in c) if is_offline(name) else "return_mean"
    assert first[told] != other[told]


# Catches: a normaliser that is not used, not saved, or updated in the evaluation; a log_std that is not used;
# deterministic actions in place of sampled ones.
@LONG
@pytest.mark.parametrize("name, task", [("dqn", "discrete")] + [
    (name, task) for name, task in SERVED if task.startswith("box") and SUITES[name].get("draws", True)])
def test_loaded_policy_is_as_good_as_the_policy_in_training(name, task, learned):
    result, env = learned(name, task), TASKS[task]
    policy = spinup.load(result.directory)
    before = state(policy)
    found = evaluate(policy, env, episodes=300, deterministic=False)
    error = math.sqrt(sum(np.var(r) / len(r) for r in (result.returns, found.returns)))
    assert len(result.returns) == 100 and abs(np.mean(result.returns) - found.mean) < 3 * error
    assert evaluate(policy, env, episodes=50).mean > found.mean + 3 * error            # sampling lowers the return
    assert torch.equal(state(policy), before)
    assert evaluate(policy, env, episodes=300, deterministic=False) == found


# Catches: an algorithm that accepts actions that it does not support; an error without the algorithms that support
# them.
@pytest.mark.parametrize(("name", "task"), [(name, task) for name in ALGORITHMS for task in TASKS
                                            if kind_of(task) not in ALGORITHMS[name].about["actions"]])
def test_algorithm_refuses_unsupported_actions_and_names_alternatives(name, task, tmp_path):
    kind = kind_of(task)
    with pytest.raises(UserError, match=f"^{name} cannot act in .* for {kind} actions: ") as error:
        getattr(spinup, name)(TASKS[task], log_dir=tmp_path.as_posix(),
                              **({"data": dataset_of(task)} if is_offline(name) else {}))
    fitting = [other for other, algorithm in ALGORITHMS.items()
               if kind in algorithm.about["actions"] and algorithm.about["observations"] != ["goals"]
               and is_offline(other) == is_offline(name)]
    assert str(error.value).endswith(f"for {kind} actions: {', '.join(fitting)}") and not list(tmp_path.iterdir())


# Catches: test episodes that change training, or whose returns are not those of the final policy; a column without a
# meaning.
@each
def test_test_episodes_do_not_change_training_and_columns_have_meanings(name, tmp_path, monkeypatch):
    monkeypatch.setattr(Training, "epochs", 8)                            # each plays test episodes
    tested, untested = (train(name, tmp_path, total_steps=short(name), test_episodes=n) for n in (3, 0))
    assert torch.equal(state(tested.policy), state(untested.policy))
    assert untested.returns == ([] if is_offline(name) else tested.returns)
    assert set(tested.progress) <= set(meanings())
    env = TASKS[first_task(name)]
    assert tested.progress["test_return"][-1] == evaluate(tested.policy, env, episodes=3, seed=1).mean


# Catches: an actor that keeps old weights, an old normaliser or log_std; different shuffles of actions and
# observations; a rollout stored as [T, N].
@pytest.mark.parametrize("name, task", [(name, task) for name, task in SERVED if "scores" in SUITES[name]])
def test_updates_score_the_sampled_actions_with_the_acting_policy(name, task, tmp_path, monkeypatch):
    algorithm, loss = ALGORITHMS[name].load(), SUITES[name]["scores"]
    once = {setting: n for setting, n in ONCE.items() if setting in settings_of(algorithm.Config)}
    drawn, scored = [], []
    for kind in Categorical, DiagGaussian:
        def sample(self, params, noise, original=kind.sample):
            act = original(self, params, noise)
            as_tensors = tuple(map(torch.from_numpy, params)) if isinstance(params, tuple) else torch.from_numpy(params)
            drawn.extend(self.log_prob(as_tensors, torch.from_numpy(act)).tolist())
            return act
        monkeypatch.setattr(kind, "sample", sample)

    original = getattr(algorithm, loss)

    def per_step(logp, *rest):
        scored.append(sorted(logp.flatten().tolist()))
        return original(logp, *rest)

    monkeypatch.setattr(algorithm, loss, per_step)
    constant_lr = {"anneal": False} if can_anneal(name) else {}
    train(name, tmp_path, task, num_envs=4, rollout_steps=8, total_steps=6 * 32, **constant_lr, **once)
    assert len(scored) == 6
    for k, batch in enumerate(scored):
        np.testing.assert_allclose(batch, sorted(drawn[32 * k:32 * (k + 1)]), rtol=0, atol=2e-5)
    assert np.ptp(scored[-1]) > 0.1                                       # by then the probabilities differ


# Half of the preset's steps are enough: seeds 0 to 2 reach 490 and more. Catches: a preset that learns more slowly.
@pytest.mark.long
@pytest.mark.parametrize("name", CARTPOLE)
def test_preset_solves_cartpole(name, tmp_path):
    result = getattr(spinup, name)("CartPole-v1", total_steps=50_000, log_dir=tmp_path.as_posix(), quiet=True,
                                   tensorboard=False)
    assert evaluate(result.policy, "CartPole-v1", episodes=100).mean >= SUITES[name]["cartpole"]


# Catches: a misspelt setting or environment in a preset; a number out of its range.
@each
def test_presets_have_valid_settings_and_existing_environments(name):
    algorithm = ALGORITHMS[name]
    for env in algorithm.presets:
        chosen, settings = choose_preset(algorithm, env)
        assert chosen == env and "total_steps" in settings and find_id(settings.get("env", env))
        algorithm.load().Config(**{"env": env, **settings})
    for variant in algorithm.variants.values():
        algorithm.load().Config(**variant)


def numbers(hint: Any, limits: tuple = ()) -> list[tuple]:
    """The limits of each number in a type."""
    if get_origin(hint) is Annotated:
        return numbers(get_args(hint)[0], limits + get_args(hint)[1:])
    if hint in (int, float):
        return [limits]
    return [found for inner in get_args(hint) if get_origin(hint) is not Literal for found in numbers(inner, limits)]


# Catches: a setting without a comment, or with its name as the comment; a number without a range, or with a range that
# is not checked.
@each
def test_every_setting_has_a_comment_and_a_checked_range(name):
    config = ALGORITHMS[name].load().Config
    hints, reasons = types_of(config), comments(config)
    assert issubclass(config, BaseConfig) and set(hints) == set(reasons) == {*settings_of(config)}
    for field, hint in hints.items():
        assert len(reasons[field].split()) >= 4 and reasons[field].lower() != field.replace("_", " ")
        for limits in numbers(hint):
            assert any(isinstance(limit, Range) for limit in limits), f"{field} has no range"
            wrong = [limit.low - 1 for limit in limits] + ([math.nan] if "float" in str(hint) else [])
            for value in wrong:
                with pytest.raises(UserError, match=f"--{field.replace('_', '-')} must be"):
                    config(**{field: (value,) if get_origin(hint) is tuple else value})
