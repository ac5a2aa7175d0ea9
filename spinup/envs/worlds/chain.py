"""A chain whose reward is at its far end: exploration by single random actions does not get there."""
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.envs.vector import Step, VectorEnv

SMALL = 1e-3            # reward at the near end, a step away from the start


class Chain(VectorEnv):
    """N states in a row; from the second, left or right. In the first each step is worth .001, in the last 1, and an
    episode has N + 9 steps (Osband et al. 2016, arXiv:1602.04621, sec. 5.1).

    A uniformly random policy reaches the end of 10 states in one episode of 13, of 20 in one of 1,651, of 40 in one
    of 124 million. The observation `[N]` is 1 up to the state, else 0.

    length: N.
    permuted: in every second state or so, left and right have changed places, the same for every seed: then «always
        the same action», which networks find natural, does not solve it.
    """

    def __init__(self, length: int, permuted: bool, num_envs: int, seed: int):
        super().__init__(num_envs)
        self.length, self.limit = length, length + 9
        self.observation_space, self.action_space = Box(0, 1, (length,)), Discrete(2)
        changed = np.random.default_rng(length).integers(0, 2, length) if permuted else np.zeros(length, np.int64)
        self.right = 1 - changed                                          # [N], the action that leads to the right
        self.seen = np.tri(length, dtype=np.float32)                      # [N, N], what each state looks like

    @property
    def optimum(self) -> float:
        """The return of always going right: the last 12 of the N + 9 steps are made in the last state or into it."""
        return 12.0

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
        ended, obs = self.episode_length >= self.limit - 1, self.seen[self.state]     # this step is counted after it
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
