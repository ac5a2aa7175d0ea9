"""Twin delayed deterministic policy gradient, TD3 (Fujimoto et al. 2018, arXiv:1802.09477).

DDPG overestimates values: its actor selects actions with large errors of the critic, and
bootstrapping propagates them. TD3 makes three changes:

    y     = r + gamma (1 - terminated) min_i Q'_i(s', a~)         the lower of two critics (eq. 10)
    a~    = clip( mu'(s') + clip(noise, -c, c), -1, 1 )           smooths peaks of Q       (eq. 14)
    L(mu) = -E[ Q_1(s, mu(s)) ]                                   every 2nd step, with the targets

Differs from ddpg.py by: a second critic, and the lower of the two Q-values in the target; noise on
the target action; an actor and target networks that are updated half as often.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.ddpg import deterministic_policy_loss, saturation, squared_error
from spinup.algos.dqn import td_target
from spinup.core.bounded import NoisyAction
from spinup.core.critics import ActorCritics, frozen
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.envs.spaces import action_bounds, vector_size
from spinup.runs.config import Count, NonNegative, Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(ReplayConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 1e-3                # learning rate of actor and critic (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of target networks, per actor step
    explore_noise: NonNegative = 0.1   # standard deviation of noise on actions in -1 to 1
    target_noise: NonNegative = 0.2    # standard deviation of target-action noise; smooths Q
    noise_clip: NonNegative = 0.5      # clip range of target_noise, to stay near the target action
    policy_delay: Count = 2            # critic gradient steps per actor gradient step
    saturation_coef: NonNegative = 1e-3    # weight of the penalty on squared outputs before tanh
                                       # (where tanh is flat, the actor stops learning)
    hidden: Widths = (256, 256)        # hidden layers of actor and critics
    normalise_obs: bool = False        # vectors: subtract mean, divide by std, if scales differ

    ONLY_WITH = {"noise_clip": "target_noise"}


def clipped_double_q(q: Tensor) -> Tensor:
    """Minimum over critics, `[B]` from `[critics, B]` (eq. 10). It is too high only if all critics
    are too high."""
    return q.amin(0)


def smoothed_action(act: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Action plus clipped noise, clipped to -1 to 1 (eq. 14); all have the shape `[B, k]`."""
    return (act + noise.clamp(-clip, clip)).clamp(-1, 1)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritics:
    """Create actor and two critics; UserError for action or observation spaces TD3 cannot use."""
    dist = NoisyAction(*action_bounds(action_space, cfg.algorithm), cfg.explore_noise)
    return ActorCritics((vector_size(observation_space, cfg.algorithm),), dist, cfg.hidden,
                        critics=2, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with TD3. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
    pi_optimizer = FlatAdam(policy.pi.parameters(), **settings)
    q_optimizer = FlatAdam(policy.q.parameters(), **settings)
    dist, N, S = policy.dist, cfg.num_envs, cfg.update_every
    replay = make_replay(cfg, env, dist.low.shape, np.float32)
    q_stats, pi_stats = Latest(), Latest()

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor, terminated: Tensor,
               noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_act, _ = target.params(next_obs)                         # [B, k]
            next_act = smoothed_action(next_act, noise, cfg.noise_clip)
            next_value = clipped_double_q(target.values(next_obs, next_act))      # [B]
            q_target = td_target(rew, cfg.gamma, terminated, next_value)  # [B]
        q = policy.values(obs, act)                                       # [2, B]
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        output = policy.pi(obs)                                           # [B, k], before tanh
        act, _ = dist.params(output)
        with frozen(q_optimizer.params):
            loss = deterministic_policy_loss(policy.values(obs, act, critics=1))      # [B]
        loss = (loss + cfg.saturation_coef * saturation(output)).mean()
        return loss, {"action_std": act.detach().std(0).mean()}           # 0: same in all states

    # `minimize_q(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize_q = q_optimizer.minimizer(q_loss)
    minimize_pi = pi_optimizer.minimizer(pi_loss)
    with run:
        env.reset()
        run.keep(policy=policy, target=target, pi_optimizer=pi_optimizer, q_optimizer=q_optimizer,
                 replay=replay, q_stats=q_stats, pi_stats=pi_stats)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect.
            warming_up = replay.count < cfg.learning_starts
            for noise in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                act = dist.sample(actor(obs), noise)                      # [N, k], in -1 to 1
                if warming_up:
                    act = dist.uniform(run.rng, (N,))
                replay.add(obs, act, env.step(dist.to_env(act)))
                policy.observe(obs)                           # statistics of --normalise-obs

            # Update: update_ratio sets the gradient steps, for any number of environments.
            if replay.count >= cfg.learning_starts:
                for _ in range(run.updates_due(cfg.update_ratio)):
                    rows = replay.draw(run.rng, cfg.batch_size)
                    batch = replay.sample(rows).to(run.device).seen(policy.normalise)
                    obs, act, rew, next_obs, terminated, _ = batch
                    noise = cfg.target_noise * torch.randn_like(act)
                    q_stats.update(minimize_q(obs, act, rew, next_obs, terminated, noise))
                    run.check_finite(q_loss=q_stats["loss"])
                    if q_optimizer.steps % cfg.policy_delay == 0:
                        pi_stats.update(minimize_pi(obs))
                        polyak(target_weights, weights, cfg.tau)
                        run.check_finite(pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        action_std=pi_stats["action_std"])
        return run.result(policy)
