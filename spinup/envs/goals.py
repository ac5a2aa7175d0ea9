"""Environments with goals, in the form of Gymnasium-Robotics: `compute_reward` rewards any state for any goal."""
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Dict, flatdim

from spinup.envs.gym import GymVectorEnv
from spinup.envs.vector import Step, VectorEnv
from spinup.errors import UserError

KEYS = ("observation", "achieved_goal", "desired_goal")
EXAMPLE = "GoalReacher-v0"


def has_goals(env: Env) -> bool:
    """True if the observation is a Dict with `KEYS`, and the environment has `compute_reward`."""
    space = getattr(env, "observation_space", None)
    return isinstance(space, Dict) and {*KEYS} <= {*space} and hasattr(env.unwrapped, "compute_reward")


class GoalVectorEnv(GymVectorEnv):
    """N copies of an environment with goals. The observation `[N, d]` is the flat Dict.

    Attributes:
        achieved, desired: places of the achieved and of the desired goal in an observation, slices of equal length k.
    UserError if the two goals are not Boxes of the same shape, or are bytes.
    """

    MEASURES = {"success": "share of episodes that end at their goal"}

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        parts = self.observation_space.spaces
        self.goal_shape = parts["desired_goal"].shape
        if not all(isinstance(parts[key], Box) and parts[key].shape == self.goal_shape for key in KEYS[1:]):
            raise UserError(f"achieved_goal is a {parts['achieved_goal']} and desired_goal a {parts['desired_goal']}; "
                            "make both a Box of the same shape")
        if any(parts[key].dtype == np.uint8 for key in KEYS[1:]):             # networks see bytes scaled to 0 to 1
            raise UserError("achieved_goal and desired_goal must not be bytes; make each a Box of a float type")
        ends = dict(zip(parts, np.cumsum([flatdim(part) for part in parts.values()]), strict=True))
        size = int(np.prod(self.goal_shape))
        self.achieved, self.desired = (slice(int(ends[key]) - size, int(ends[key])) for key in KEYS[1:])
        self.successes: list[float] = []                                  # of episodes since the last call of measures
        self.judges, self.unlike = False, 0                               # see `with_goals` and `_step`

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Rewards `[B]`, float32, of steps that lead to the achieved goals `[B, k]` if the desired ones are `[B, k]`.
        UserError if the environment's `compute_reward` does not take a batch."""
        rewards = self._judge().compute_reward(self._goals(achieved), self._goals(desired), {})
        if np.shape(rewards) != (len(achieved),):
            raise UserError(f"compute_reward of {self.name} returned shape {np.shape(rewards)} for {len(achieved)} "
                            "goals; make it take goals [B, ...] and return rewards [B]")
        return np.asarray(rewards, np.float32)

    def compute_terminated(self, achieved: np.ndarray, desired: np.ndarray, without: np.ndarray) -> np.ndarray:
        """Whether a step that leads to the achieved goals `[B, k]` ends the task, `[B]` float32. `without` is the
        result for an environment without `compute_terminated`, whose ends do not depend on the goal."""
        judge = getattr(self._judge(), "compute_terminated", None)
        if judge is None:
            return without
        pairs = zip(self._goals(achieved), self._goals(desired), strict=True)
        return np.array([judge(*pair, {}) for pair in pairs], np.float32)     # one by one: few take a batch

    def measures(self) -> dict[str, float]:
        """Return `success`, which is NaN if no episode ended or none reported `is_success`."""
        successes, self.successes = self.successes, []
        return {**super().measures(), "success": float(np.mean(successes)) if successes else np.nan}

    def _judge(self) -> Env:
        return self.envs[0].unwrapped

    def _goals(self, flat: np.ndarray) -> np.ndarray:
        return np.array(flat).reshape(len(flat), *self.goal_shape)            # a copy, which may be changed

    def _step(self, action: np.ndarray) -> Step:
        step = super()._step(action)
        ends = np.flatnonzero(step.terminated | step.truncated)
        self.successes += [float(step.info[i]["is_success"]) for i in ends if "is_success" in step.info[i]]
        if self.judges and len(ends):
            judged = self.compute_reward(step.final_obs[ends][:, self.achieved], self.obs[ends][:, self.desired])
            alike = np.isclose(judged, step.reward[ends], rtol=1e-4, atol=1e-4).any()
            self.unlike = 0 if alike else self.unlike + 1     # once may be rounding, at the edge of a sparse reward
            if self.unlike == 3:
                raise UserError(f"the last step of an episode of {self.name} earned {step.reward[ends][0]:g}, but "
                                f"compute_reward gives {judged[0]:g} for its goals; use no wrapper that changes "
                                "rewards or goals, and make the reward depend on the goals alone")
        return step

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"successes": list(self.successes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.successes = [float(x) for x in state.get("successes", ())]       # of a run with --env-workers: none


def copies_of(make_one: Callable[[], Env], num_envs: int, seed: int, first: Env) -> GymVectorEnv:
    """Make the copies of a Gymnasium environment: a `GoalVectorEnv` if it has goals, else a `GymVectorEnv`."""
    return (GoalVectorEnv if has_goals(first) else GymVectorEnv)(make_one, num_envs, seed, first)


def with_goals(env: VectorEnv, algorithm: str) -> GoalVectorEnv:
    """Return `env`; UserError if it has no goals, or if other processes step its copies. A later step raises it if the
    rewards of the environment are not those of `compute_reward`."""
    if isinstance(env, GoalVectorEnv):
        env.judges = True
        return env
    raise UserError(f"{algorithm} needs an environment with goals: its observation is a Dict with {', '.join(KEYS)}, "
                    f"it has compute_reward(achieved_goal, desired_goal, info), and neither --env-workers nor "
                    f"--frame-stack is given; {EXAMPLE} is one")
