"""Implicit Q-learning, IQL (Kostrikov et al. 2021, arXiv:2110.06169).

A maximum over actions selects actions whose values the critic overestimates, because the dataset
has no sample of them. IQL never evaluates an action outside the dataset. A value function V learns
an upper expectile of Q over the dataset's actions. This expectile replaces the maximum over these
actions. The policy imitates the dataset, with larger weights where the advantage Q - V is larger.

    L(V)  = E[ L_tau( min_i Q'_i(s, a) - V(s) ) ],   L_tau(u) = |tau - 1(u < 0)| u^2        (eq. 5)
    y     = r + gamma (1 - terminated) V(s'),   L(Q) = E[ (y - Q_i(s, a))^2 ]               (eq. 6)
    L(pi) = -E[ exp( beta (min_i Q'_i(s, a) - V(s)) ) log pi(a|s) ]                         (eq. 7)

The third loss is advantage-weighted regression. Its weights are at most 100. The policy is a
normal distribution whose standard deviation does not depend on the state. V and Q learn without
the policy.

Differs from td3.py by: a value function V, which replaces the actor in the targets; an actor that
imitates the dataset with weights; a dataset instead of environment steps.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from gymnasium import Space
from torch import Tensor, nn

from spinup.algos.ddpg import squared_error
from spinup.algos.dqn import td_target
from spinup.algos.td3 import clipped_double_q
from spinup.algos.vpg import policy_gradient
from spinup.core.distributions import DiagGaussian
from spinup.core.expectile import expectile_loss
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import relu_mlp
from spinup.core.networks import ActorCritic
from spinup.core.optim import Latest, polyak
from spinup.data.batches import Batches
from spinup.envs.spaces import action_bounds, vector_size
from spinup.runs.config import NonNegative, Positive, Range, Unit, Widths
from spinup.runs.offline import OfflineConfig, OfflineRun, open_data
from spinup.runs.run import Result

LARGEST_WEIGHT = 100.0  # of a transition in the policy's loss; else a few transitions dominate it
LOG_STD = (-5.0, 2.0)   # range of the policy's log standard deviation; actions are in -1 to 1
Expectile = Annotated[float, Range(0.001, 0.999)]


@dataclass(kw_only=True)
class Config(OfflineConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 3e-4                # learning rate of all networks (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of the target networks (Polyak)
    expectile: Expectile = 0.7         # tau of eq. 5: .5 = mean of the actions' Q, near 1: maximum
    beta: NonNegative = 3.0            # weight of advantages, per unit of reward; 0: imitation
    normalise_obs: bool = True         # normalise observations with the dataset's mean and std
    hidden: Widths = (256, 256)        # hidden layers of policy, value function and critics


def advantage_weight(adv: Tensor, beta: float) -> Tensor:
    """Weight exp(beta A) of each transition, `[B]` from `[B]`, at most 100 (eq. 7)."""
    return (beta * adv).exp().clamp(max=LARGEST_WEIGHT)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Create policy, value function and two critics; UserError for action or observation spaces
    that IQL cannot use."""
    dist = DiagGaussian(*action_bounds(action_space, cfg.algorithm))
    size = vector_size(observation_space, cfg.algorithm)
    policy = ActorCritic((size,), dist, cfg.hidden, activation="relu", normalise=cfg.normalise_obs)
    policy.q = nn.ModuleList(relu_mlp(size + dist.num_outputs, *cfg.hidden, 1) for _ in range(2))
    return policy


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with IQL. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env, data = open_data(cfg)
    run = OfflineRun(cfg, env, data, resume)                  # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    batches = Batches(data, policy.dist.unscale(data.actions), policy.normaliser, run.device)
    target = deepcopy(policy.q).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.q.parameters())
    settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
    v_optimizer = FlatAdam(policy.v.parameters(), **settings)
    q_optimizer = FlatAdam(policy.q.parameters(), **settings)
    pi_optimizer = FlatAdam([*policy.pi.parameters(), policy.log_std], **settings)
    v_stats, q_stats, pi_stats = Latest(), Latest(), Latest()

    def values(critics: nn.ModuleList, obs: Tensor, act: Tensor) -> Tensor:
        both = torch.cat([obs, act], -1)
        return torch.cat([q(both) for q in critics], 1).t()               # [2, B]

    def v_loss(obs: Tensor, q: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        value = policy.value(obs)                                         # [B]
        return expectile_loss(q - value, cfg.expectile).mean(), {"value": value.detach().mean()}

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            q_target = td_target(rew, cfg.gamma, terminated, policy.value(next_obs))  # [B]
        q = values(policy.q, obs, act)                                    # [2, B]
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor, act: Tensor, q: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, _, value = policy.evaluate(obs, act)                        # [B]
        weight = advantage_weight(q - value.detach(), cfg.beta)           # [B]
        loss, stats = policy_gradient(logp, weight)
        return loss.mean(), {**stats, "weight": weight.mean()}

    # `minimize_v(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize_v = v_optimizer.minimizer(v_loss)
    minimize_q = q_optimizer.minimizer(q_loss)
    minimize_pi = pi_optimizer.minimizer(pi_loss)
    with run:
        run.keep(policy=policy, target=target, v_optimizer=v_optimizer, q_optimizer=q_optimizer,
                 pi_optimizer=pi_optimizer, v_stats=v_stats, q_stats=q_stats, pi_stats=pi_stats)
        for _ in run.updates(cfg.total_steps):
            obs, act, rew, next_obs, terminated, _ = batches.draw(run.rng, cfg.batch_size)
            with torch.no_grad():
                q = clipped_double_q(values(target, obs, act))            # [B]
            v_stats.update(minimize_v(obs, q))
            pi_stats.update(minimize_pi(obs, act, q))
            with torch.no_grad():                             # else std -> 0 on deterministic data
                policy.log_std.clamp_(*LOG_STD)
            q_stats.update(minimize_q(obs, act, rew, next_obs, terminated))
            polyak(target_weights, weights, cfg.tau)
            run.check_finite(value_loss=v_stats["loss"], q_loss=q_stats["loss"],
                             pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        value=v_stats["value"], expectile_loss=v_stats["loss"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        weight=pi_stats["weight"], logp=pi_stats["logp"])
        return run.result(policy)
