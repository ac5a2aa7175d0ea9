"""What every algorithm must do. A new one joins by a line in LEARNS, and in ACTS if it scores what its actor has done."""
import math
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import spinup
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.envs.make import find_id
from spinup.runs.config import BaseConfig, Range, comments
from spinup.runs.evaluate import evaluate
from spinup.runs.presets import choose_preset, read_presets

# Settings with which an algorithm learns the small tasks below in a second or two.
QUICK = {"num_envs": 8, "gamma": 0.5, "total_steps": 16_000}
LEARNS = {
    "vpg": {**QUICK, "rollout_steps": 16, "lr": 1e-2, "anneal": True},
    "ppo": {**QUICK, "rollout_steps": 32, "lr": 3e-3, "epochs": 4, "minibatches": 4}}
# The function of logp that each calls first in an update, and settings with which it calls it once on the whole batch.
ACTS = {"vpg": ("policy_gradient", {}), "ppo": ("clipped_surrogate", {"epochs": 1, "minibatches": 1})}
each = pytest.mark.parametrize("name", LEARNS)


class Tell(gymnasium.Env):
    """Tells what to do; each of the eight steps of an episode is worth 1 where it is done, less where it is not."""

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
    """Bounds that differ by dimension, and observations in other units still: they must be normalised."""

    def __init__(self):
        super().__init__(Box(np.float32([-1, 0]), np.float32([1, 10])), Box(-np.inf, np.inf, (2,)))

    def tell(self):
        self.wanted = self.np_random.uniform(-0.7, 0.7, 2)                # in halves of the range, from its middle
        return (1000 + 100 * self.wanted).astype(np.float32)

    def worth(self, action):
        return 1 - np.square(action / [1, 5] - [0, 1] - self.wanted).sum()


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


# What the drawing policy must reach, of 8 (a random one: 2, 4, 2.7, 4), and settings beside LEARNS
TASKS = {"discrete": (TellDiscrete, 7, {}), "multidiscrete": (TellMultiDiscrete, 7, {}),
         "box": (TellBox, 7, {"normalise_obs": True, "log_std": -1.0}),
         "image": (TellImage, 7, {"total_steps": 2048, "lr": 1e-3})}


def train(name: str, folder, env: Any, **settings: Any):
    algorithm = import_module(f"spinup.algos.{name}")
    quiet = {"log_dir": folder.as_posix(), "quiet": True, "tensorboard": False}
    return algorithm.train(algorithm.Config(env=env, **quiet, **{**LEARNS[name], **settings}))


def weights(policy) -> torch.Tensor:
    return torch.cat([x.double().flatten() for x in policy.module.state_dict().values()])


@each
@pytest.mark.parametrize("env, threshold, settings", TASKS.values(), ids=TASKS)
def test_it_learns_to_do_what_it_is_told(name, env, threshold, settings, tmp_path):
    result = train(name, tmp_path, env, **settings)
    print(name, env, np.mean(result.returns[:20]), np.mean(result.returns[-20:]), evaluate(result.policy, env, episodes=20).mean)
    assert np.mean(result.returns[-20:]) > threshold
