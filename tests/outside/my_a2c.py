"""Advantage actor-critic, A2C (Mnih et al. 2016, arXiv:1602.01783).

One gradient step on each short rollout:

    loss = -E[ log pi(a|s) A ]  +  c1 E[ (V(s) - target)^2 / 2 ]  -  c2 E[ entropy of pi(.|s) ]

Differs from vpg.py by: policy and value function share one loss and one gradient step.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.vpg import policy_gradient, value_loss
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import ActorCritic
from spinup.core.returns import gae
from spinup.core.rollout import collect
from spinup.envs.spaces import action_distribution, vector_size
from spinup.runs.config import BaseConfig, Count, NonNegative, Positive, Unit, Widths
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(BaseConfig):
    rollout_steps: Count = 8            # steps per environment between updates (5-64)
    gamma: Unit = 0.99                  # discount factor of the rewards
    lam: Unit = 0.95                    # lambda of generalised advantage estimation
    lr: Positive = 2e-3                 # learning rate of Adam, constant
    value_coef: NonNegative = 0.5       # weight of the value loss
    entropy_coef: NonNegative = 0.01    # weight of the entropy bonus, for exploration
    hidden: Widths = (64, 64)           # hidden layers of policy and value function


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Policy and value function. UserError for unsupported spaces."""
    size = vector_size(observation_space, cfg.algorithm)
    return ActorCritic((size,), action_distribution(action_space, cfg.algorithm), cfg.hidden)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy. `resume`: the run folder to resume, with the same settings."""
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: make networks after it
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, max_grad_norm=0.5)

    def loss(obs: Tensor, act: Tensor, adv: Tensor, ret: Tensor) -> tuple[Tensor, dict]:
        logp, entropy, value = policy.evaluate(obs, act)      # [N, T] each
        surrogate, stats = policy_gradient(logp, whiten(adv))
        error = cfg.value_coef * value_loss(value, ret)
        return aggregate(surrogate + error - cfg.entropy_coef * entropy), stats

    minimize = optimizer.minimizer(loss)                      # zero_grad(), loss.backward(), step()
    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer)          # contents of a checkpoint
        steps = cfg.num_envs * cfg.rollout_steps
        for _ in run.updates(cfg.total_steps // steps, steps):
            rollout = collect(env, policy.actor(), policy.dist, cfg.rollout_steps, run.rng,
                              run.device)
            obs = rollout.obs[:, :-1]                         # [N, T, d]
            with torch.no_grad():
                values = policy.value(obs)                    # [N, T]
                next_values = rollout.next_values(values, policy.value)
                adv, ret = gae(rollout.rew, values, next_values, rollout.terminated,
                               rollout.truncated, gamma=cfg.gamma, lam=cfg.lam)
            stats = minimize(obs, rollout.act, adv, ret)
            run.check_finite(advantages=adv, **stats)
            if run.row_due:
                run.log(**stats)
        return run.result(policy)
