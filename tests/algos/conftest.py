"""Fixtures for methods with a replay buffer or a dataset: training runs whose gradient steps are recorded, and an
environment that records its steps."""
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from spinup.core.fast.adam import FlatAdam
from spinup.core.replay import Replay
from spinup.data.dataset import Dataset, join
from spinup.envs.spaces import space_to_json
from spinup.runs.offline import OfflineRun
from spinup.runs.run import Result, Run


class Told(NamedTuple):
    """Record of one environment step: the action that the environment got, and the result."""

    number: int                         # number of earlier steps of all copies: the row in the replay buffer
    action: Any
    reward: float
    next_obs: tuple[float, ...]
    terminated: bool
    ended: bool


class Counter(gymnasium.Env):
    """Episodes of three steps that end by termination, by truncation, or by both, in turn.

    An observation contains the copy, the episode and the step, so all observations differ. `told` maps each one to its
    step.
    """

    def __init__(self, action_space: gymnasium.Space, told: dict[tuple[float, ...], Told], copy: int):
        self.action_space, self.observation_space = action_space, Box(-np.inf, np.inf, (3,))
        self.told, self.copy, self.episode = told, copy, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        before, self.t = self.observe(), self.t + 1
        obs, reward = self.observe(), float(np.float32(self.t + 0.3 * (self.episode % 4)))
        terminated, truncated = (self.t == 3 and self.episode % 3 in kinds for kinds in ((0, 2), (1, 2)))
        assert tuple(before.tolist()) not in self.told
        self.told[tuple(before.tolist())] = Told(len(self.told), action, reward,
                                                   tuple(obs.tolist()), terminated, self.t == 3)
        return obs, reward, terminated, truncated, {}

    def observe(self) -> np.ndarray:
        return np.array([self.copy / 4, self.episode / 64, self.t / 3], np.float32)


@dataclass
class Step:
    """A gradient step of the critics ("q") or the actor ("pi"): its batch, the networks before it, and its results."""

    part: str
    rows: range                         # of the replay buffer at that time
    batch: tuple[Tensor, ...]
    stats: dict[str, Tensor]
    gradient: Tensor                    # flat, in the order of the optimiser; clipped
    nets: tuple[nn.Module, nn.Module]
    weights: tuple[Tensor, Tensor]

    @property
    def policy(self) -> nn.Module:
        """The policy before this step, in float64. Reading `policy` of another step overwrites it."""
        return self._as_it_was(0)

    @property
    def target(self) -> nn.Module:
        """The target networks before this step, in the same way."""
        return self._as_it_was(1)

    def _as_it_was(self, i: int) -> nn.Module:
        vector_to_parameters(self.weights[i], self.nets[i].parameters())
        return self.nets[i]


@dataclass
class Watched:
    """Record of a training run in `Counter`: its environment steps, gradient steps, networks and result."""

    told: dict[tuple[float, ...], Told] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    copies: int = 0
    policy: nn.Module = None
    target: nn.Module = None
    replay: Replay = None
    result: Result = None

    def of(self, part: str) -> list[Step]:
        return [step for step in self.steps if step.part == part]


TINY = {"total_steps": 120, "learning_starts": 40, "batch_size": 8, "hidden": (8, 6), "lr": 0.01, "threads": 1,
        "checkpoint_steps": 10**6, "tensorboard": False, "quiet": True}


@pytest.fixture
def watch(monkeypatch, tmp_path) -> Callable[..., Watched]:
    """`watch("sac", space, ...)`: train a small network for 120 steps in `Counter` with these actions; return the
    record."""
    minimizer = FlatAdam.minimizer

    def training(name: str, actions: gymnasium.Space, **settings: Any) -> Watched:
        algorithm, seen = import_module(f"spinup.algos.{name}"), Watched()
        make_policy, make_replay = algorithm.make_policy, algorithm.make_replay

        def env() -> Counter:
            seen.copies += 1
            return Counter(actions, seen.told, seen.copies - 1)

        def made(*args: Any) -> nn.Module:
            seen.policy = make_policy(*args)
            return seen.policy

        def copied(net: nn.Module) -> nn.Module:
            seen.target = deepcopy(net)
            return seen.target

        def stored(*args: Any) -> Replay:
            seen.replay = make_replay(*args)
            return seen.replay

        def kept(optimizer: FlatAdam, loss: Callable) -> Callable:
            minimize = minimizer(optimizer, loss)
            nets = deepcopy(seen.policy).double(), deepcopy(seen.target).double()

            def step(*batch: Tensor, **settings: float) -> dict[str, Tensor]:
                of_actor = any(optimizer.params[0] is p for p in getattr(seen.policy, "pi", nn.Module()).parameters())
                rows = range(seen.replay.oldest, seen.replay.count)
                before = tuple(parameters_to_vector(net.parameters()).detach().double().clone()
                               for net in (seen.policy, seen.target))
                stats = minimize(*batch, **settings)
                gradient = optimizer.flat.grad.double().clone()
                seen.steps.append(Step("pi" if of_actor else "q", rows, batch, stats, gradient, nets, before))
                return stats
            return step

        with monkeypatch.context() as patch:
            patch.setattr("spinup.runs.run.try_out", lambda *_, **__: None)  # its steps would be recorded too
            patch.setattr(algorithm, "make_policy", made)
            patch.setattr(algorithm, "deepcopy", copied)
            patch.setattr(algorithm, "make_replay", stored)
            patch.setattr(FlatAdam, "minimizer", kept)
            cfg = algorithm.Config(env=env, log_dir=tmp_path.as_posix(), **{**TINY, **settings})
            seen.result = algorithm.train(cfg)
        return seen

    return training


class Learned(NamedTuple):
    """A gradient step on a dataset: the networks before it, by their names in the checkpoint, and its results."""

    nets: dict[str, nn.Module]
    batch: tuple[Tensor, ...]
    loss: float
    gradient: Tensor                    # flat, in the order of the optimiser


@pytest.fixture
def dataset(tmp_path) -> Callable[..., str]:
    """`dataset(space)`: a file of 60 random transitions. Episodes have three steps, and terminate or are truncated in
    turn."""
    def made(space: gymnasium.Space, env: str = "Pendulum-v1") -> str:
        rng, n = np.random.default_rng(0), 60
        steps = rng.normal(size=(2, n, 3)).astype(np.float32)
        act = rng.uniform(space.low, space.high, (n, *space.shape)).astype(np.float32) if isinstance(
            space, Box) else rng.integers(space.n, size=n)
        ends = np.arange(n) % 3 == 2
        terminated = ends & (np.arange(n) // 3 % 2 == 0)
        about = {"env": env, "env_settings": {}, "parts": [], "seed": 0, "versions": {}, "action_space":
                 space_to_json(space), "observation_space": space_to_json(Box(-np.inf, np.inf, (3,)))}
        data = Dataset(steps[0], act, rng.normal(size=n).astype(np.float32), steps[1], terminated, ends & ~terminated)
        with open(tmp_path / "data.npz", "wb") as file:
            join([data], about).write(file)
        return (tmp_path / "data.npz").as_posix()
    return made


@pytest.fixture
def learn(monkeypatch, tmp_path, dataset) -> Callable[..., list[Learned]]:
    """`learn("cql", space, ...)`: train for a few gradient steps on a `dataset`, and return every step."""
    def training(name: str, space: gymnasium.Space, **settings: Any) -> list[Learned]:
        algorithm, steps, minimizer = import_module(f"spinup.algos.{name}"), [], FlatAdam.minimizer
        kept: dict[str, Any] = {}

        def env() -> Counter:
            return Counter(space, {}, 0)

        def keep(run: OfflineRun, **parts: Any) -> None:
            kept.update(parts)
            Run.keep(run, **parts)

        def watched(optimizer: FlatAdam, loss: Callable) -> Callable:
            minimize = minimizer(optimizer, loss)

            def step(*batch: Tensor) -> dict[str, Tensor]:
                nets = {key: deepcopy(part).double() for key, part in kept.items() if isinstance(part, nn.Module)}
                stats = minimize(*batch)
                steps.append(Learned(nets, tuple(x.double() if x.is_floating_point() else x for x in batch),
                                     stats["loss"].item(), optimizer.flat.grad.double().clone()))
                return stats
            return step

        with monkeypatch.context() as patch:
            patch.setattr("spinup.runs.run.try_out", lambda *_, **__: None)
            patch.setattr(FlatAdam, "minimizer", watched)
            patch.setattr(OfflineRun, "keep", keep, raising=False)
            tiny = {"total_steps": 12, "batch_size": 8, "hidden": (8, 6), "lr": 0.01, "threads": 1, "quiet": True,
                    "tensorboard": False, "test_episodes": 0, "checkpoint_steps": 10**6}
            algorithm.train(algorithm.Config(env=env, data=dataset(space), log_dir=tmp_path.as_posix(),
                                             **{**tiny, **settings}))
        return steps
    return training


@pytest.fixture
def same_step() -> Callable[[Learned, Tensor, Iterable[nn.Parameter]], None]:
    """Assert that a step had this loss, and its gradient with respect to these parameters."""
    def check(step: Learned, loss: Tensor, params: Iterable[nn.Parameter]) -> None:
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(params))])
        assert step.loss == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-5)
    return check
