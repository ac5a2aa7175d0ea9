"""Offline training: the settings and the run of algorithms that learn from a dataset and never act in training."""
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete, flatdim

from spinup.data.dataset import Dataset, load, load_about
from spinup.envs.atari import protocol
from spinup.envs.memory import Memory
from spinup.envs.spaces import observation_view, space_to_json
from spinup.envs.vector import VectorEnv
from spinup.envs.zoo import num_agents
from spinup.errors import UserError, source_name
from spinup.runs.config import INTERNAL, AtariConfig, BaseConfig, Count, Range, Size, Threads
from spinup.runs.convert import checked, flag
from spinup.runs.diagnose import diagnose
from spinup.runs.display import number
from spinup.runs.run import Run, make_env

Tests = Annotated[int, Range(0, 100)]
UNSET = "dataset"       # as env: the environment of the dataset
ROUNDING = 5e-4         # share of their range by which actions may exceed their bounds, because rescaling rounds them


@dataclass(kw_only=True)
class OfflineConfig(BaseConfig):
    """Settings of every algorithm that learns from a dataset."""

    ABOUT = "algorithms that learn from a dataset"

    data: str = ""                       # the dataset, a file that `spinup record` wrote
    env: str | Callable = UNSET          # id of the environment of the test episodes; dataset = that of the dataset
    total_steps: Count = 20_000          # gradient steps of the whole run
    test_episodes: Tests = 10            # deterministic test episodes per row of progress.csv, for test_return
    batch_size: Size = 256               # transitions sampled for each gradient step
    num_envs: Size = field(default=1, metadata=INTERNAL)                  # training has no environment steps
    env_workers: Threads = field(default=0, metadata=INTERNAL)

    def __post_init__(self):
        if self.data and isinstance(self.data, str):
            self.data = str(Path(self.data).absolute())                   # a run may resume from another folder
            if self.env == UNSET:
                self.env = recorded_in(self.data)
            unset = [name for name in AtariConfig.__annotations__ if getattr(self, name, "") is None]
            recorded = load_about(self.data)["env_settings"] if unset and protocol(self.env) else {}
            for name in recorded.keys() & unset:
                setattr(self, name, recorded[name])
        super().__post_init__()

    @classmethod
    def default_subject(cls, asked: dict[str, Any]) -> str:
        """Return the environment that the settings, `asked`, name, or else that of the dataset. UserError if they name
        no dataset."""
        data = needed(checked("data", str, asked.get("data", "")))
        return asked["env"] if asked.get("env", UNSET) not in ("", UNSET) else recorded_in(data)


def recorded_in(data: str) -> str:
    """Return the environment of a dataset. UserError if its id names a module: a file must not import one."""
    env = load_about(data)["env"]
    if ":" in env:
        raise UserError(f"{data} was recorded in {env}, which another module defines; if you trust this module, "
                        f"type --env {env}")
    return env


def needed(data: str) -> str:
    """Return the path of the dataset. UserError if it is empty."""
    if not data:
        raise UserError("--data is missing; give a dataset, such as --data dataset.npz; `spinup record` makes one")
    return data


def open_data(cfg: OfflineConfig) -> tuple[VectorEnv, Dataset]:
    """Return an environment copy, for its spaces, and the dataset of a run, with its actions as the policy's
    distribution takes them: `[N]` for one choice. UserError if the dataset cannot be loaded, or its observations or
    actions are not those of the environment."""
    data = load(needed(cfg.data))
    if isinstance(cfg.env, str) and num_agents(cfg.env) > 1:
        raise UserError(f"{cfg.env} has several agents, but a dataset holds episodes of one; leave out --env")
    env = make_env(cfg)
    plain = env.env if isinstance(env, Memory) else env                   # a policy with a memory sees more
    frames = data.about["env_settings"].get("frame_stack", 1)
    try:
        if frames != cfg.frame_stack:
            raise UserError(f"{cfg.data} was recorded with {frames} frame{'s' * (frames != 1)} per observation; type "
                            f"--frame-stack {frames}")
        check_protocol(cfg, data)
        for name, space in (("observation_space", plain.observation_space), ("action_space", plain.action_space)):
            if space_to_json(space) != data.about[name]:
                if data.about["env"] == source_name(cfg.env):
                    raise UserError(f"the metadata of {cfg.data} have another {name} than {source_name(cfg.env)}; "
                                    "correct them, or record the data again")
                raise UserError(f"{cfg.data} was recorded in {data.about['env']}, whose {name.replace('_', ' ')} "
                                f"differs from that of {source_name(cfg.env)}; give a dataset of {source_name(cfg.env)}"
                                ", or leave out --env")
        if not of_space(data.obs, plain.observation_space):
            shape, dtype, _ = observation_view(plain.observation_space)
            raise UserError(f"the observations in {cfg.data} have the shape {data.obs.shape[1:]} and the type "
                            f"{data.obs.dtype}, but those of {source_name(cfg.env)} have the shape {shape} and the "
                            f"type {np.dtype(dtype)}; correct obs and next_obs, or record the data again")
        if not of_actions(data.actions, plain.action_space):
            ends = f" and values from {data.actions.min():g} to {data.actions.max():g}" if data.actions.size else ""
            raise UserError(f"the actions in {cfg.data} have the shape {data.actions.shape[1:]}, the type "
                            f"{data.actions.dtype}{ends}, which do not fit {plain.action_space} of "
                            f"{source_name(cfg.env)}; correct the array actions, or record the data again")
    except UserError:
        env.close()
        raise
    if isinstance(plain.action_space, MultiDiscrete | MultiBinary) and data.actions.shape[1] == 1:
        data = replace(data, actions=data.actions[:, 0])
    return env, data


def check_protocol(cfg: OfflineConfig, data: Dataset) -> None:
    """UserError if a game's protocol in test episodes differs from that of the dataset."""
    if isinstance(cfg, AtariConfig):
        settings = {name: x for name, x in data.about["env_settings"].items() if name in AtariConfig.__annotations__}
        for name, value in protocol(cfg.env, settings).items():
            if getattr(cfg, name) != value:
                raise UserError(f"{cfg.data} was recorded with {name} {value}, not {getattr(cfg, name)}; leave out "
                                f"{flag(name)}")


def of_space(obs: np.ndarray, space: Space) -> bool:
    """Return whether observations `[N, ...]` have the shape and the type of the networks' inputs for a space."""
    shape, dtype, _ = observation_view(space)
    return obs.shape[1:] == shape and obs.dtype == dtype


def shape_of_actions(space: Space) -> tuple[int, ...]:
    """Return the shape of one recorded action: `()` for Discrete, otherwise `(k,)`."""
    return (flatdim(space),) if isinstance(space, Box | MultiBinary) else space.shape


def of_actions(actions: np.ndarray, space: Space) -> bool:
    """Return whether recorded actions `[N, ...]` have the shape and the type of a space, and are within its bounds."""
    if actions.shape[1:] != shape_of_actions(space):
        return False
    if isinstance(space, Box):
        low, high = (ends.reshape(-1).astype(np.float64) for ends in (space.low, space.high))
        width = high - low
        slack = ROUNDING * np.where(np.isfinite(width), width, 0)
        within = (actions >= low - slack) & (actions <= high + slack)
        return actions.dtype == np.float32 and bool(within.all())
    choices = 2 if isinstance(space, MultiBinary) else space.nvec if isinstance(space, MultiDiscrete) else space.n
    return actions.dtype == np.int64 and bool((actions >= 0).all() and (actions < choices).all())


class OfflineRun(Run):
    """Training run on a dataset; see `Training`. A step is a gradient step. The quality of the policy is its return in
    test episodes, which do not change the training.

    env: one copy, from `open_data`, for its spaces. data: the dataset; UserError if a resumed run had another one.
    """

    measure, unit, epochs = "test_return", "gradient steps", 50

    def __init__(self, config: OfflineConfig, env: VectorEnv, data: Dataset, resume: str | Path | None = None):
        super().__init__(config, env, resume, whole_episodes=True)        # `env` keeps no state between updates
        self.data = data

    def describe_subject(self) -> dict[str, Any]:
        kept = ("sha256", "env", "steps", "episodes", "mean_return")
        return {**super().describe_subject(), "unit": self.unit,
                "dataset": {key: self.data.about.get(key) for key in kept}}

    def announce(self) -> None:
        about = self.data.about
        self.display.say(f"dataset: {about['steps']:,} transitions in {about['episodes']:,} episodes of "
                         f"{about['env']}, mean return {number(about['mean_return'])}")

    def after_update(self) -> None:
        pass

    def row(self) -> dict[str, float]:
        self.recent.clear()
        self.recent.extend(self._test())
        return {"test_return": self._mean()}

    def _mean(self) -> float:
        return float(np.mean(self.recent)) if self.recent else math.nan

    def diagnose(self, row: dict[str, float]) -> list[str]:
        largest = float(np.abs(self.data.returns()).max())
        return diagnose(row, self.config, self.env.action_space, largest, 0, self.steps / self.end)

    def outcome(self) -> dict[str, Any]:
        return {"test_return": self._mean() if self.recent else None, "returns": list(self.recent)}

    def summary(self) -> str:
        if not self.recent:
            return "no test episodes"
        if len(self.recent) == 1:
            return f"the last test episode returned {number(self._mean())}"
        return f"the last {len(self.recent)} test episodes returned {number(self._mean())} on average"
