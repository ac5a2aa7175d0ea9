"""Chain with its reward at the far end, which exploration with independent random actions does not reach."""
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.envs.vector import Step, VectorEnv

SMALL = 1e-3            # reward at the near end, one step from the start


class Chain(VectorEnv):
    """N states in a row. The agent starts in the second state and moves left or right. A step that ends in the first
    state gives a reward of 0.001. A step that ends in the last state gives 1. An episode has N + 9 steps (Osband et al.
    2016, arXiv:1602.04621, sec. 5.1).

    With 10 states, a uniformly random policy reaches the last state in one episode of 13; with 20 states in one of
    1,651, and with 40 states in one of 124 million. The observation `[N]` is 1 up to the state, else 0.

    length: N.
    permuted: left and right are swapped in about every second state, in the same states for all seeds. Then always
        taking the same action, which networks learn easily, does not solve the task.
    """

    shown_by = ()

    def __init__(self, length: int, permuted: bool, num_envs: int, seed: int):
        super().__init__(num_envs)
        self.length, self.limit = length, length + 9
        self.observation_space, self.action_space = Box(0, 1, (length,)), Discrete(2)
        changed = np.random.default_rng(length).integers(0, 2, length) if permuted else np.zeros(length, np.int64)
        self.right = 1 - changed                                          # [N], action that moves right
        self.seen = np.tri(length, dtype=np.float32)                      # [N, N], observation of each state

    def _reset(self) -> np.ndarray:
        self.state = np.ones(self.num_envs, np.int64)
        return self.seen[self.state]

    def _restart(self, i: int, seed: int) -> np.ndarray:
        self.state[i] = 1
        return self.seen[1]

    def _step(self, action: np.ndarray) -> Step:
        move = np.where(action == self.right[self.state], 1, -1)
        self.state = np.clip(self.state + move, 0, self.length - 1)
        reward = np.where(self.state == self.length - 1, 1, np.where(self.state == 0, SMALL, 0)).astype(np.float32)
        ended, obs = self.episode_length >= self.limit - 1, self.seen[self.state]     # this step is not counted yet
        final_obs = None
        if ended.any():
            final_obs = obs.copy()
            self.state[ended] = 1
            obs[ended] = self.seen[1]
        return Step(obs, reward, np.zeros(self.num_envs, bool), ended, final_obs)

    def _save(self) -> dict[str, Any]:
        return {"state": self.state.copy()}

    def _load(self, state: dict[str, Any]) -> None:
        self.state = np.asarray(state["state"]).copy()


WORLDS = {f"Chain{'Permuted' * permuted}-{n}-v0": partial(Chain, n, permuted)
          for permuted in (False, True) for n in (10, 20, 40, 60, 80, 100)}
