"""Bandits and tabular MDPs of `trials.py` as environments, for policies that learn within a trial."""
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete

from spinup.envs.vector import Step, VectorEnv, copy_seeds
from spinup.envs.worlds.trials import Bandits, TabularMDPs, Trials


class Tasks(VectorEnv):
    """`Trials` as an environment with N copies. The observation is the one-hot state `[S]`.

    Its episodes are those within a trial. After the last episode of a trial, all copies get new tasks at the same time.
    """

    def __init__(self, kind: type[Trials], sizes: tuple[int, ...], num_envs: int, seed: int):
        super().__init__(num_envs)
        self.trials = kind(num_envs, *sizes, "cpu", torch.Generator().manual_seed(copy_seeds(seed, 1)[0]))
        self.trial_episodes, self.trial_steps = self.trials.steps // self.trials.horizon, self.trials.steps
        self.observation_space = Discrete(self.trials.num_states)
        self.action_space = Discrete(self.trials.num_actions)
        self.seen = np.eye(self.trials.num_states, dtype=np.float32)

    def _reset(self) -> np.ndarray:
        return self.seen[self.trials.reset().numpy()]

    def _step(self, action: np.ndarray) -> Step:
        state, reward, done = (x.numpy() for x in self.trials.step(torch.as_tensor(action)))
        ended, obs, final_obs = done.astype(bool), self.seen[state], None
        if ended.any():                                                   # all copies end together
            final_obs = obs.copy()                                        # terminated, so its value is not used
            if self.trials.clock == self.trials.steps:
                obs = self._reset()
        return Step(obs, reward, ended, np.zeros(self.num_envs, bool), final_obs)

    def _save(self) -> dict[str, Any]:
        state = {k: v.clone() for k, v in vars(self.trials).items() if isinstance(v, torch.Tensor)}
        return {"tensors": state, "clock": self.trials.clock, "rng": self.trials.generator.get_state()}

    def _load(self, state: dict[str, Any]) -> None:
        vars(self.trials).update({k: v.clone() for k, v in state["tensors"].items()}, clock=state["clock"])
        self.trials.generator.set_state(state["rng"])


WORLDS = {**{f"Bandits-{arms}x{pulls}-v0": partial(Tasks, Bandits, (arms, pulls))
             for arms in (5, 10, 50) for pulls in (10, 100, 500)},
          **{f"TabularMDPs-{episodes}-v0": partial(Tasks, TabularMDPs, (episodes,))
             for episodes in (10, 25, 50, 75, 100)}}
