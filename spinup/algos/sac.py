"""Soft actor-critic, SAC (Haarnoja et al. 2018, arXiv:1801.01290 and arXiv:1812.05905).

SAC adds alpha times the entropy of the policy to the return. So the policy stays as random as the
rewards allow, and its entropy differs between states. The target uses sampled actions, so the actor
cannot easily exploit a narrow peak of Q.

    y        = r + gamma (1 - terminated) ( min_i Q'_i(s', a') - alpha log pi(a'|s') ),
               a' ~ pi(.|s')                                                            (eq. 2, 3)
    L(pi)    = E[ alpha log pi(a|s) - min_i Q_i(s, a) ],
               a = tanh(mean + std x noise), reparameterised                              (eq. 9)
    L(alpha) = -E[ log alpha x ( log pi(a|s) + target entropy ) ]
               alpha rises while entropy is below its target                              (eq. 18)

The equation numbers are those of arXiv:1812.05905, which learns the temperature alpha. Like most
implementations, this one uses log alpha where eq. 18 has alpha.

Differs from td3.py by: a stochastic actor, whose noise explores and smooths Q; entropy in the
target and in the actor's loss; a learned temperature; no target actor, no delay, no saturation
penalty.
"""
import math
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from spinup.algos.ddpg import squared_error
from spinup.algos.dqn import td_target
from spinup.algos.td3 import clipped_double_q
from spinup.core.bounded import SquashedGaussian
from spinup.core.critics import ActorCritics, frozen
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.envs.spaces import action_bounds, observation_view
from spinup.runs.config import Count, Entropy, Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(ReplayConfig):
    learning_starts: Count = 10_000    # initial steps with random actions, for varied data
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 1e-3                # learning rate of actor and critic (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of the target networks (Polyak)
    alpha: Positive = 1.0              # initial temperature: reward per nat of entropy
    learn_alpha: bool = True           # adapt alpha to keep the entropy at `target_entropy`
    target_entropy: Entropy = -1.0     # nats per action dimension; uniform on -1 to 1 has 0.69
    hidden: Widths = (256, 256)        # hidden layers of actor and critics, after the CNN of images
    normalise_obs: bool = False        # vectors: subtract mean, divide by std, if scales differ

    ONLY_WITH = {"target_entropy": "learn_alpha"}


def soft_value(q: Tensor, logp: Tensor, alpha: Tensor) -> Tensor:
    """min_i Q_i - alpha log pi, `[B]` from `[critics, B]` and `[B]`: a sample of V(s) (eq. 3)."""
    return clipped_double_q(q) - alpha * logp


def temperature_loss(log_alpha: Tensor, logp: Tensor, target_entropy: float) -> Tensor:
    """-log alpha (log pi + target entropy), `[B]` from `[]` and `[B]` (eq. 18). Its gradient
    reaches only the temperature."""
    return -log_alpha * (logp + target_entropy).detach()


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritics:
    """Create actor and two critics; UserError for action or observation spaces SAC cannot use."""
    dist = SquashedGaussian(*action_bounds(action_space, cfg.algorithm))
    shape = observation_view(observation_space)[0]
    policy = ActorCritics(shape, dist, cfg.hidden, critics=2, normalise=cfg.normalise_obs)
    policy.log_alpha = nn.Parameter(torch.tensor(math.log(cfg.alpha)))
    return policy


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with SAC. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    if not cfg.learn_alpha:
        policy.log_alpha.data.fill_(math.log(cfg.alpha))      # not that of the run in --init
    target = deepcopy(policy).requires_grad_(False)
    pi_params = list(policy.pi.parameters())
    if cfg.learn_alpha:
        pi_params.append(policy.log_alpha)                    # learned together with the actor
    q_params = [*policy.body.parameters(), *policy.q.parameters()]        # body: of images
    target_weights = [*target.body.parameters(), *target.q.parameters()]
    settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
    pi_optimizer = FlatAdam(pi_params, **settings)
    q_optimizer = FlatAdam(q_params, **settings)
    dist, N, S = policy.dist, cfg.num_envs, cfg.update_every
    target_entropy = cfg.target_entropy * len(dist.low)
    replay = make_replay(cfg, env, dist.low.shape, np.float32)
    q_stats, pi_stats = Latest(), Latest()

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor, terminated: Tensor,
               noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_act, next_logp = dist.sample_log_prob(policy.params(next_obs), noise)
            next_q = target.values(next_obs, next_act)                    # [2, B]
            next_value = soft_value(next_q, next_logp, policy.log_alpha.exp())    # [B]
            q_target = td_target(rew, cfg.gamma, terminated, next_value)  # [B]
        q = policy.values(obs, act)                                       # [2, B]
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        act, logp = dist.sample_log_prob(policy.params(obs), noise)       # [B, k], [B]
        alpha = policy.log_alpha.exp().detach()
        with frozen(q_optimizer.params):
            loss = -soft_value(policy.values(obs, act), logp, alpha)      # eq. 9
        if cfg.learn_alpha:
            loss = loss + temperature_loss(policy.log_alpha, logp, target_entropy)
        return loss.mean(), {"entropy": -logp.detach().mean()}

    # `minimize_q(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize_q = q_optimizer.minimizer(q_loss)
    minimize_pi = pi_optimizer.minimizer(pi_loss)
    with run:
        env.reset()
        run.keep(policy=policy, target=target, pi_optimizer=pi_optimizer, q_optimizer=q_optimizer,
                 replay=replay, q_stats=q_stats, pi_stats=pi_stats)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect. Store the actions after tanh, because the critics take these.
            warming_up = replay.count < cfg.learning_starts
            for noise in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                act = dist.squash(dist.sample(actor(obs), noise))         # [N, k], in -1 to 1
                if warming_up:
                    act = dist.uniform(run.rng, (N,))
                replay.add(obs, act, env.step(dist.rescale(act)))
                policy.observe(obs)                           # statistics of --normalise-obs

            # Update: update_ratio sets the gradient steps, for any number of environments.
            if replay.count >= cfg.learning_starts:
                for _ in range(run.updates_due(cfg.update_ratio)):
                    rows = replay.draw(run.rng, cfg.batch_size)
                    batch = replay.sample(rows).to(run.device).seen(policy.normalise)
                    obs, act, rew, next_obs, terminated, _ = batch
                    noise = torch.randn_like(act)
                    q_stats.update(minimize_q(obs, act, rew, next_obs, terminated, noise))
                    pi_stats.update(minimize_pi(obs, torch.randn_like(act)))
                    polyak(target_weights, q_params, cfg.tau)
                    run.check_finite(q_loss=q_stats["loss"], pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        entropy=pi_stats["entropy"], alpha=policy.log_alpha.exp().detach())
        return run.result(policy)
