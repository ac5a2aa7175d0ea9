"""Rollouts of on-policy methods: T steps in each of N environments, with all next observations.

Row i has the steps of environment copy i. An environment resets within the step that ends its
episode. If step t ended an episode, `obs[i, t + 1]` is the *first* observation of the next episode,
s'_0. The observation after the last step, s_3 below, is in `final_obs`::

    obs         s_0  s_1  s_2 | s'_0  s'_1  ...  s'_k     [N, T + 1]: one more than there are steps
    act, rew    a_0  a_1  a_2 | a'_0  a'_1  ...           [N, T]
    final_obs            s_3                              [M]: one for each episode that ended

An advantage estimator (Schulman et al. 2016, arXiv:1506.02438, eq. 16) needs V(s_{t+1}) of each
step::

    delta_t = r_t + gamma V(s_{t+1}) (1 - terminated_t) - V(s_t)

    the episode continues   V(s_{t+1}) is the next entry in the row of values
    it was truncated        V(final_obs): the last state still has a value at a time limit
    it terminated           the state after it has value 0, and the entry is ignored
    the row ends            V(obs[:, T]): the next rollout continues from there

It is wrong to bootstrap from V(s'_0) at a truncation, as s'_0 is the initial state of the next
episode. Always take the value from `next_values`.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinup.core.fast.tensors import steps_in_tensors


@dataclass
class Rollout:
    """T steps in each of N environments, as tensors on the learner's device."""

    obs: Tensor                         # [N, T + 1, *shape], as the actor saw them
    act: Tensor                         # [N, T] or [N, T, k], before clipping, for log_prob
    rew: Tensor                         # [N, T] float32
    terminated: Tensor                  # [N, T] bool: the episode ended, with no value after it
    truncated: Tensor                   # [N, T] bool: cut off, e.g. by a time limit
    final_obs: Tensor                   # [M, *shape], last observations of ended episodes
    copy: Tensor                        # [M] int64, row in which it ended
    step: Tensor                        # [M] int64, column in which it ended
    cost: Tensor | None = None          # [N, T] float32, if the environment reports costs

    def next_values(self, values: Tensor, value_of: Callable[..., Tensor],
                    memory: Tensor | None = None) -> Tensor:
        """Values of the next observations, `[N, T]`, given `values` `[N, T]` of the observations.

        value_of: function from observations `[B, *shape]`, as in `obs`, to their values `[B]`. For
        a policy with a memory it takes (observations, memory `[B, H]` after the previous step).
        memory: `[N, T, H]`, after each step.
        """
        def judged(obs: Tensor, copy: Tensor | slice, step: Tensor | int) -> Tensor:
            return value_of(obs) if memory is None else value_of(obs, memory[copy, step])

        last = judged(self.obs[:, -1], slice(None), -1)                     # [N]
        next_values = torch.cat([values[:, 1:], last[:, None]], 1)
        cut = self.truncated[self.copy, self.step]                          # [M]
        if cut.any():
            copy, step = self.copy[cut], self.step[cut]
            next_values[copy, step] = judged(self.final_obs[cut], copy, step)
        return next_values

    def next_obs(self) -> Tensor:
        """Next observations, `[N, T, *shape]`; final observations where an episode ended."""
        next_obs = self.obs[:, 1:].clone()
        next_obs[self.copy, self.step] = self.final_obs
        return next_obs


def collect(env: Any, actor: Callable[[np.ndarray], Any], dist: Any, steps: int,
            rng: np.random.Generator, device: torch.device) -> Rollout:
    """Collect T = `steps` steps in every environment copy, from its current state.

    This only samples actions. The algorithm computes values and log-probabilities later for the
    whole batch, which is many times faster than step by step.

    env: has `obs` `[N, *shape]` and `step(action)`, like `spinup.envs.VectorEnv`.
    actor: numpy function from observations `[N, *shape]` to the parameters of `dist`.
    dist: an action distribution of `spinup.core.distributions`.

    If `env.obs` is a tensor, everything stays on its device: the actor gets and returns tensors.
    """
    obs, noise = env.obs, dist.noise(rng, (steps, len(env.obs)))
    if isinstance(obs, Tensor):
        return Rollout(*steps_in_tensors(env, actor, dist, noise))
    N, T = len(obs), steps
    observations = np.empty((N, T + 1, *obs.shape[1:]), obs.dtype)
    rew, terminated, truncated = (np.empty((N, T), kind) for kind in (np.float32, bool, bool))
    actions, costs, final_obs, places = [], [], [], []
    for t in range(T):
        observations[:, t] = obs
        act = dist.sample(actor(obs), noise[t])               # [N] or [N, k]
        actions.append(act)
        step = env.step(dist.to_env(act))                     # only `env` gets clipped actions
        rew[:, t] = step.reward
        terminated[:, t], truncated[:, t] = step.terminated, step.truncated
        if step.final_obs is not None:
            ended = np.flatnonzero(step.terminated | step.truncated)
            final_obs.extend(step.final_obs[ended])
            places.extend((i, t) for i in ended)
        costs.append(step.cost)
        obs = step.obs
    observations[:, T] = obs
    copy, column = np.array(places, np.int64).reshape(-1, 2).T
    ends = np.array(final_obs, obs.dtype).reshape(-1, *obs.shape[1:])
    arrays = observations, np.stack(actions, 1), rew, terminated, truncated, ends, copy, column
    tensors = [torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in arrays]
    if all(x is None for x in costs):
        return Rollout(*tensors)
    costs = [np.zeros(N, np.float32) if x is None else x for x in costs]
    return Rollout(*tensors, torch.from_numpy(np.stack(costs, 1)).to(device))
