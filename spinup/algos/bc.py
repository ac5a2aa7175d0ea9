"""Behaviour cloning, BC (Pomerleau 1991).

The paper is "Efficient training of artificial neural networks for autonomous navigation".

BC is supervised learning on a dataset of observations and actions. It maximises the likelihood of
these actions and does not use the rewards.

    L(pi) = -E[ log pi(a|s) ],   (s, a) from the dataset

For continuous actions, scaled to -1 to 1, pi is a normal distribution with standard deviation 1.
Then L is half the squared distance between the mean of pi and the dataset's action, plus a
constant. So the policy imitates the average of all policies in the dataset, good and bad. The
methods of td3_bc.py, iql.py and cql.py also use the rewards.

Differs from vpg.py by: the actions of a dataset instead of the policy's actions; weight 1 instead
of the advantage; no value function, and no environment steps.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.vpg import policy_gradient
from spinup.core.distributions import Categorical, Deterministic
from spinup.core.fast.adam import FlatAdam
from spinup.core.networks import Actor
from spinup.core.optim import Latest
from spinup.data.batches import Batches
from spinup.envs.spaces import action_distribution, vector_size
from spinup.runs.config import Positive, Widths
from spinup.runs.offline import OfflineConfig, OfflineRun, open_data
from spinup.runs.run import Result


@dataclass(kw_only=True)
class Config(OfflineConfig):
    lr: Positive = 1e-3                # learning rate (3e-4 to 1e-3)
    hidden: Widths = (64, 64)          # hidden layers of the policy, with tanh between them
    normalise_obs: bool = True         # normalise observations with the dataset's mean and std


def log_likelihood(dist: Deterministic, output: Tensor, act: Tensor) -> Tensor:
    """Log-likelihood log pi(a|s), `[B]`. For discrete actions, `output` has logits `[B, n]` and
    `act` is `[B, ...]`. Otherwise both are `[B, k]`, `output` has means, and the std is 1."""
    if isinstance(dist.dist, Categorical):
        return dist.dist.log_prob(output, act)
    return dist.dist.log_prob((output, torch.zeros_like(output)), act)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> Actor:
    """Create the policy; UserError for observations or actions that BC cannot use."""
    dist = action_distribution(action_space, cfg.algorithm)
    size = vector_size(observation_space, cfg.algorithm)
    return Actor(size, dist, cfg.hidden, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with BC. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env, data = open_data(cfg)
    run = OfflineRun(cfg, env, data, resume)                  # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    batches = Batches(data, policy.dist.dist.unscale(data.actions), policy.normaliser, run.device)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-8, compile=cfg.compile)
    stats = Latest()

    def loss(obs: Tensor, act: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp = log_likelihood(policy.dist, policy.pi(obs), act)           # [B]
        per_step, found = policy_gradient(logp, torch.ones_like(logp))    # [B]
        return per_step.mean(), found

    # `minimize(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    with run:
        run.keep(policy=policy, optimizer=optimizer, stats=stats)
        for _ in run.updates(cfg.total_steps):
            batch = batches.draw(run.rng, cfg.batch_size)
            stats.update(minimize(batch.obs, batch.act))
            run.check_finite(loss=stats["loss"])
            if run.row_due:
                run.log(loss=stats["loss"], grad_norm=stats["grad_norm"], logp=stats["logp"])
        return run.result(policy)
