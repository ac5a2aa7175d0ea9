"""Arm that reaches for a goal. A reward is so rare that random actions seldom find one."""
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from spinup.envs.goals import GoalVectorEnv

NEAR = 0.05             # distance at which the goal counts as reached; the arm is 1 long
STEPS = 50              # per episode
FAST = 0.4              # largest speed of a joint, in radians per step
LAG = 0.3               # share of the difference to the wanted speed that a joint makes up per step
SIDE = 200              # pixels of the picture


class GoalReacher(gymnasium.Env):
    """Arm with two links of length 0.5 in a plane. Its hand must be at the goal, a random point within its reach.

    The observation is a Dict, as in Gymnasium-Robotics. `observation` `[6]` has the cosine and the sine of both joints'
    angles, and their speeds in -1 to 1. `achieved_goal` `[2]` is the place of the hand and `desired_goal` `[2]` the
    goal. The action `[2]` is the wanted speed of each joint, which the joint approaches with a delay. The reward is 0
    if the hand is within 0.05 of the goal, else -1. An episode is truncated after 50 steps and never terminates. So the
    agent must stop at the goal. `info["is_success"]` tells whether the hand is there.

    Similar to the reaching task of Andrychowicz et al. 2017, arXiv:1707.01495, but without a simulator.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, render_mode: str | None = None):
        self.render_mode, place = render_mode, Box(-1, 1, (2,))
        self.observation_space = Dict(observation=Box(-1, 1, (6,)), achieved_goal=place, desired_goal=place)
        self.action_space = Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.steps, self.speed = 0, np.zeros(2)
        self.angles, target = self.np_random.uniform(-np.pi, np.pi, (2, 2))
        self.goal = points(target)[1].astype(np.float32)
        return self._observe(), {"is_success": False}

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        self.speed = self.speed + LAG * (np.clip(action, -1, 1) - self.speed)
        self.angles = self.angles + FAST * self.speed
        self.steps += 1
        obs = self._observe()
        reward = self.compute_reward(obs["achieved_goal"], self.goal, {})
        return obs, float(reward), False, self.steps == STEPS, {"is_success": bool(reward == 0)}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Return 0 where the achieved goal `[..., 2]` is within `NEAR` of the desired one, else -1: `[...]` float32."""
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return np.where(distance <= NEAR, np.float32(0), np.float32(-1))

    def _observe(self) -> dict[str, np.ndarray]:
        own = [np.cos(self.angles), np.sin(self.angles), self.speed]
        return {"observation": np.concatenate(own, dtype=np.float32),
                "achieved_goal": points(self.angles)[1].astype(np.float32), "desired_goal": self.goal.copy()}

    def render(self) -> np.ndarray:
        """Picture `[200, 200, 3]` of bytes: the arm, and the goal as a disc."""
        from PIL import Image, ImageDraw
        image = Image.new("RGB", (SIDE, SIDE), "white")
        draw, (elbow, hand) = ImageDraw.Draw(image), points(self.angles)
        at = [tuple(SIDE / 2 * (1 + np.array([x, -y]) / 1.1)) for x, y in (self.goal, (0, 0), elbow, hand)]
        draw.circle(at[0], NEAR * SIDE / 2.2, fill="#D55E00")
        draw.line(at[1:], fill="#0072B2", width=5, joint="curve")
        draw.circle(at[3], 4, fill="black")
        return np.asarray(image)


def points(angles: np.ndarray) -> np.ndarray:
    """Places of the elbow and the hand, `[2, 2]`, for the joints' angles `[2]`. The second is relative to the first
    link."""
    along = np.cumsum(angles)
    return np.cumsum(0.5 * np.stack([np.cos(along), np.sin(along)], 1), 0)


gymnasium.register("GoalReacher-v0", GoalReacher)
WORLDS = {"GoalReacher-v0": partial(GoalVectorEnv, GoalReacher)}
