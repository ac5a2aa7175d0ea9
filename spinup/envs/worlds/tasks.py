"""Bandits and tabular MDPs of `trials.py` as environments, for policies that learn within a trial.

`Tasks` has arrays of NumPy. `DeviceTasks` has tensors on any device and includes the wrapper `Memory`; a rollout in it
copies nothing to the CPU. With the same random numbers, both give the same observations and rewards.
"""
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from spinup.envs.memory import Memory
from spinup.envs.vector import Step, VectorEnv, copy_seeds
from spinup.envs.worlds.trials import Bandits, TabularMDPs, Trials


class Tasks(VectorEnv):
    """`Trials` as an environment with N copies. The observation is the one-hot state `[S]`.

    Its episodes are those within a trial. After the last episode of a trial, all copies get new tasks at the same time.
    """

    shown_by = ()

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
        return save(self.trials)

    def _load(self, state: dict[str, Any]) -> None:
        load(self.trials, state)


class DeviceTasks(Memory):
    """`Memory` around `Tasks`, with all arrays as tensors on `device`.

    All copies start and end their trials at the same time. So their ends are known without a look at the tensors, for
    which the CPU would have to wait.
    """

    def __init__(self, kind: type[Trials], sizes: tuple[int, ...], num_envs: int, seed: int, episodes: int,
                 device: torch.device):
        super().__init__(Tasks(kind, sizes, num_envs, seed), episodes)    # for its spaces and its check
        generator = torch.Generator(device).manual_seed(copy_seeds(seed, 1)[0])
        self.trials = kind(num_envs, *sizes, device, generator)

    def reset(self) -> Tensor:
        """Start N new trials. Return `obs`, `[N, d]`."""
        self.totals: list[Tensor] = []                                    # returns of the trials that have ended
        self.total = torch.zeros(self.num_envs, device=self.trials.device)
        self.obs = self._start()
        return self.obs

    def step(self, action: Tensor) -> Step:
        """Act in every copy; action: `[N]` int64 on the device. The fields of the result are tensors there."""
        trials, cell = self.trials, self.size + action + self.actions * self.trials.state
        state, reward, done = trials.step(action)
        ones, obs, final_obs = torch.ones_like(reward), self._blank(state), None
        obs.scatter_(1, torch.stack([cell, cell + self.cells], 1), torch.stack([ones, reward], 1))
        obs[:, -2] = done
        self.total = self.total + reward
        over = trials.clock == trials.steps
        if over:
            self.totals.append(self.total)
            self.total, final_obs, obs = torch.zeros_like(self.total), obs, self._start()
        self.obs = obs
        return Step(obs, reward, ones.bool() if over else ~ones.bool(), ~ones.bool(), final_obs)

    def _start(self) -> Tensor:
        obs = self._blank(self.trials.reset())
        obs[:, -1] = 1
        return obs

    def _blank(self, state: Tensor) -> Tensor:
        obs = torch.zeros(self.num_envs, *self.observation_space.shape, device=self.trials.device)
        return obs.scatter_(1, state[:, None], 1.0)

    def take_finished(self) -> list[tuple[float, int]]:
        totals, self.totals = self.totals, []
        return [(total, self.trials.steps) for each in totals for total in each.tolist()]

    def state_dict(self) -> dict[str, Any]:
        return {"trials": save(self.trials), "obs": self.obs.clone(), "total": self.total.clone(),
                "totals": [each.clone() for each in self.totals]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self.trials.device
        load(self.trials, state["trials"])
        self.obs, self.total = state["obs"].to(device), state["total"].to(device)
        self.totals = [each.to(device) for each in state["totals"]]


def save(trials: Trials) -> dict[str, Any]:
    """Return the complete state of trials."""
    tensors = {name: x.clone() for name, x in vars(trials).items() if isinstance(x, Tensor)}
    return {"tensors": tensors, "clock": trials.clock, "rng": trials.generator.get_state()}


def load(trials: Trials, state: dict[str, Any]) -> None:
    """Restore what `save` returned, on the device of `trials`."""
    tensors = {name: x.to(trials.device, copy=True) for name, x in state["tensors"].items()}
    vars(trials).update(tensors, clock=state["clock"])
    trials.generator.set_state(state["rng"])


KINDS = {**{f"Bandits-{arms}x{pulls}-v0": (Bandits, (arms, pulls)) for arms in (5, 10, 50) for pulls in (10, 100, 500)},
         **{f"TabularMDPs-{episodes}-v0": (TabularMDPs, (episodes,)) for episodes in (10, 25, 50, 75, 100)}}
WORLDS = {name: partial(Tasks, *kind) for name, kind in KINDS.items()}
ON_DEVICE = {name: partial(DeviceTasks, *kind) for name, kind in KINDS.items()}
