"""The rollout of on-policy methods: T steps in each of N environments, and what each step led to.

Row i holds the steps of copy i. Environments reset within the step: where step t ended an episode,
`obs[i, t + 1]` is the *first* observation of the next one, s'_0, and the observation that the step
really led to, s_3 below, is kept apart in `final_obs`:

    obs         s_0  s_1  s_2 | s'_0  s'_1  ...  s'_k     [N, T + 1]: one more than there are steps
    act, rew    a_0  a_1  a_2 | a'_0  a'_1  ...           [N, T]
    final_obs            s_3                              [M]: one for each episode that ended

An advantage estimator (Schulman et al. 2016, arXiv:1506.02438, eq. 16) needs V(s_{t+1}) of each:

    delta_t = r_t + gamma V(s_{t+1}) (1 - terminated_t) - V(s_t)

    the episode goes on     V(s_{t+1}) stands one place to the right in the row of values
    it was truncated        V(final_obs): only the clock ran out, the future was worth something
    it terminated           nothing follows, and the entry is ignored
    the row ends            V(obs[:, T]): the next rollout goes on from there

The classic mistake bootstraps from V(s'_0) at a truncation: s'_0 is the initial state of the next
episode. Only `next_values` decides which value is used.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass
class Rollout:
    """N rows of T steps, as tensors on the learner's device."""

    obs: Tensor                         # [N, T + 1, *shape], as the actor saw them
    act: Tensor                         # [N, T] or [N, T, k], as drawn: their density is known
    rew: Tensor                         # [N, T] float32
    terminated: Tensor                  # [N, T] bool: nothing follows
    truncated: Tensor                   # [N, T] bool: the clock ran out
    final_obs: Tensor                   # [M, *shape], of every episode that ended, in order of time
    copy: Tensor                        # [M] int64, the row in which it ended
    step: Tensor                        # [M] int64, the column
    cost: Tensor | None = None          # [N, T] float32, where the environment reports costs

    def next_values(self, values: Tensor, value_of: Callable[..., Tensor],
                    memory: Tensor | None = None) -> Tensor:
        """Values of the next observations, `[N, T]`, given `values` `[N, T]` of the observations.

        value_of: from observations `[B, *shape]`, as in `obs`, to their values `[B]`; of a policy
        with a memory from (observations, memory `[B, H]` after the step that led to them).
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
        """Next observations, `[N, T, *shape]`: final ones where an episode ended."""
        next_obs = self.obs[:, 1:].clone()
        next_obs[self.copy, self.step] = self.final_obs
        return next_obs


def collect(env: Any, actor: Callable[[np.ndarray], Any], dist: Any, steps: int,
            rng: np.random.Generator, device: torch.device) -> Rollout:
    """Act for T = `steps` steps in every copy of `env`, from where it stands.

    Only actions are drawn here; values and log-probabilities follow for the whole batch at once,
    which is many times as fast as asking for them step by step.

    env: has `obs` `[N, *shape]`, and `step(action)` that answers as `spinup.envs.VectorEnv` does.
    actor: from observations `[N, *shape]` to the parameters of `dist`, in numpy.
    dist: an action distribution of `spinup.core.distributions`.
    """
    obs, noise = env.obs, dist.noise(rng, (steps, len(env.obs)))
    N, T = len(obs), steps
    observations = np.empty((N, T + 1, *obs.shape[1:]), obs.dtype)
    rew, terminated, truncated = (np.empty((N, T), kind) for kind in (np.float32, bool, bool))
    actions, costs, final_obs, places = [], [], [], []
    for t in range(T):
        observations[:, t] = obs
        act = dist.sample(actor(obs), noise[t])               # [N] or [N, k]
        actions.append(act)
        step = env.step(dist.to_env(act))                     # only `env` gets it clipped to bounds
        rew[:, t] = step.reward
        terminated[:, t], truncated[:, t] = step.terminated, step.truncated
        if step.final_obs is not None:
            ended = np.flatnonzero(step.terminated | step.truncated)
            final_obs.extend(step.final_obs[ended])
            places.extend((i, t) for i in ended)
        if step.cost is not None:
            costs.append(step.cost)
        obs = step.obs
    observations[:, T] = obs
    copy, column = np.array(places, np.int64).reshape(-1, 2).T
    ends = np.array(final_obs, obs.dtype).reshape(-1, *obs.shape[1:])
    arrays = observations, np.stack(actions, 1), rew, terminated, truncated, ends, copy, column
    tensors = [torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in arrays]
    return Rollout(*tensors, torch.from_numpy(np.stack(costs, 1)).to(device) if costs else None)
