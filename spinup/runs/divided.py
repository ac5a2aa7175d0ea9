"""Data parallel training on environments: each rank steps its share of the environments, and computes the gradient on
its share of each minibatch. Every rank has the whole batch, so its advantages and statistics equal those of a run with
one process."""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spinup.core.fast.adam import FlatAdam, Loss
from spinup.core.rollout import Rollout
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError
from spinup.runs import ranks
from spinup.runs.run import make_env


def check_share(cfg: Any) -> None:
    """Raise UserError if the environment copies, or the steps of a minibatch, cannot be divided equally among the
    ranks, or if the ranks cannot start the processes of the environments."""
    size, rows = ranks.wanted(cfg.workers), cfg.num_envs * cfg.rollout_steps // cfg.minibatches
    if cfg.compile and size > 1:
        raise UserError("--compile works with one process only; leave out --compile or --workers")
    if cfg.workers > 1 and cfg.env_workers:
        raise UserError("--workers and --env-workers both start processes; leave out --env-workers")
    for n, name in ((cfg.num_envs, f"--num-envs {cfg.num_envs}"), (rows, f"a minibatch of {rows} steps")):
        if n % size:
            raise UserError(f"{name} cannot be divided among {size} processes; choose a multiple of {size}")


def make_share(cfg: Any) -> VectorEnv:
    """Make this rank's share of the environment copies. UserError if they cannot be divided; see `check_share`."""
    check_share(cfg)
    size = ranks.wanted(cfg.workers)
    if size == 1:
        return make_env(cfg)
    return make_env(cfg, cfg.num_envs // size, ranks.own_seed(cfg.seed))


def whole(rollout: Rollout) -> Rollout:
    """Join the rollouts of all ranks, `[N / ranks, T]` each, to one of `[N, T]`. One process returns its own."""
    if ranks.size() == 1:
        return rollout
    n, device = len(rollout.rew), rollout.rew.device
    own = replace(rollout, copy=rollout.copy + ranks.rank() * n)
    parts = ranks.gather({name: None if x is None else x.cpu() for name, x in vars(own).items()} |
                         {"shuffles": torch.get_rng_state()})
    torch.set_rng_state(parts[0]["shuffles"])                 # equal minibatches, whatever an environment has drawn
    if any(part["cost"] is not None for part in parts):                   # perhaps not in the copies of every rank
        for part in parts:
            part["cost"] = torch.zeros_like(part["rew"]) if part["cost"] is None else part["cost"]
    return Rollout(*(None if parts[0][name] is None else torch.cat([part[name] for part in parts]).to(device)
                     for name in vars(own)))


def in_shares(function: Callable[..., Sequence[Tensor]], *batch: Tensor) -> Sequence[Tensor]:
    """Return `function(*batch)`, tensors `[N, ...]` like the batch. Each of several ranks computes an equal share of
    the rows, without gradients, and gets all of them."""
    if ranks.size() == 1:
        return function(*batch)
    rows = ranks.mine(len(batch[0]))
    own = function(*(x[rows.start:rows.stop] for x in batch))
    parts = ranks.gather([x.cpu() for x in own])
    return [torch.cat(pieces).to(own[0].device) for pieces in zip(*parts, strict=True)]


def minimizer(optimizer: FlatAdam, loss: Loss, workers: int) -> Callable[..., dict[str, Tensor]]:
    """Return `optimizer.minimizer(loss)`. Each of several ranks evaluates the loss on its share of the rows, and the
    gradient and the statistics are the means over the ranks.

    `loss(*batch)` must be a mean over rows `[B, ...]`, of which each rank has an equal share.
    """
    size = ranks.wanted(workers)
    if size == 1:
        return optimizer.minimizer(loss)

    def loss_of_share(*batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        rows = ranks.mine(len(batch[0]))
        value, stats = loss(*(x[rows.start:rows.stop] for x in batch))
        optimizer.before_step = ranks.add                     # of this gradient, which `zero_grad` began
        return value / size, stats

    minimize = optimizer.minimizer(loss_of_share)

    def minimize_together(*batch: Tensor, lr: Any = None) -> dict[str, Tensor]:
        stats = minimize(*batch, lr=lr)
        return ranks.mean(stats | {"loss": stats["loss"] * size})

    return minimize_together
