"""Rollouts in environments that are tensors on a device, such as thousands of bandits on a GPU.

Plain: copy each observation to the CPU and use the loop of `spinup.core.rollout.collect`. The
numbers are equal, but the GPU then waits for the CPU in every step.
"""
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def steps_in_tensors(env: Any, actor: Callable[[Tensor], Any], dist: Any,
                     noise: np.ndarray) -> tuple[Tensor | None, ...]:
    """Take one step in each of N environments for each row of `noise`, `[T, N, outputs]`. Return
    the fields of `spinup.core.rollout.Rollout` in their order."""
    observations, steps, actions, ends, columns = [env.obs], [], [], [], []
    for t, draw in enumerate(torch.from_numpy(noise).to(env.obs.device)):
        act = dist.sample(actor(env.obs), draw)                           # [N] or [N, k]
        step = env.step(dist.to_env(act))
        actions.append(act)
        steps.append(step)
        observations.append(step.obs)
        if step.final_obs is not None:
            ends.append(step.final_obs)
            columns.append(t)
    rew, terminated, truncated = (torch.stack([getattr(step, name) for step in steps], 1)
                                  for name in ("reward", "terminated", "truncated"))
    over = (terminated | truncated)[:, columns]                           # [N, columns]
    k, copy = over.t().nonzero(as_tuple=True)                             # by time
    final_obs = torch.stack(ends)[k, copy] if ends else env.obs[:0]
    step_of = torch.tensor(columns, dtype=torch.long, device=env.obs.device)[k]
    cost = None if steps[0].cost is None else torch.stack([step.cost for step in steps], 1)
    return (torch.stack(observations, 1), torch.stack(actions, 1), rew, terminated, truncated,
            final_obs, copy, step_of, cost)
