"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347).

PPO takes several epochs of gradient steps on the same batch. This is valid only while the policy
stays near pi_old, the policy that collected the batch. PPO removes the incentive to move further
away: it clips the probability ratio.

    ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)
    J       = E[ min( ratio_t A_t,  clip(ratio_t, 1 - eps, 1 + eps) A_t ) ]                 (eq. 7)
    loss    = -J + c1 E[ (V(s_t) - target_t)^2 / 2 ] - c2 E[ entropy of pi(. | s_t) ]       (eq. 9)

The paper does not halve the squared error, so its c1 is half of ours.

PPO also needs many details that the paper does not mention. The marks [1]-[13], and [c1]-[c9] for
continuous actions, refer to Huang et al. (2022), "The 37 implementation details of PPO".

Differs from vpg.py by: the clipped ratio, several epochs of shuffled minibatches, one loss for
policy and value.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium import Space
from torch import Tensor

from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, masked_mean, select, whiten
from spinup.core.networks import ActorCritic
from spinup.core.normaliser import ReturnScaler
from spinup.core.returns import explained_variance, gae
from spinup.core.rollout import collect
from spinup.envs.spaces import action_distribution, observation_view
from spinup.runs.config import (
    AtariConfig,
    Count,
    LogStd,
    NonNegative,
    Positive,
    Processes,
    Unit,
    Widths,
)
from spinup.runs.divided import in_shares, make_share, minimizer, whole
from spinup.runs.run import Result, Run


@dataclass(kw_only=True)
class Config(AtariConfig):
    rollout_steps: Count = 128       # steps per environment per update; long enough to see rewards
    epochs: Count = 4                # passes over each batch; more: larger policy changes (3-20)
    minibatches: Count = 4           # minibatches per epoch, one gradient step each (2-64)
    gamma: Unit = 0.99               # discount factor; the horizon is about 1 / (1 - gamma) steps
    lam: Unit = 0.95                 # lambda of GAE: 1 = least bias, 0 = least variance (0.8-0.99)
    clip_ratio: Positive = 0.2       # clip range of the ratio: 1 - this to 1 + this (0.1-0.3)
    clip_value: NonNegative = 0.0    # clip range of values around the old ones; 0 = no clipping
    lr: Positive = 3e-4              # initial learning rate (1e-4 to 4e-3)
    anneal: bool = True              # decay lr linearly to 0; else late updates undo good ones
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus; 0.01 if exploration is hard
    value_coef: NonNegative = 0.5    # weight of the value loss; matters if networks share layers
    max_grad_norm: Positive = 0.5    # largest gradient norm; larger gradients are scaled down
    target_kl: NonNegative = 0.0     # end an update if an epoch's mean KL > 1.5 x this; 0 = never
    hidden: Widths = (64, 64)        # hidden layers of policy and value; images use the Nature CNN
    normalise_obs: bool = False      # vectors: subtract mean, divide by std, if scales differ
    normalise_reward: bool = False   # divide rewards by the standard deviation of the return
    log_std: LogStd = 0.0            # initial log standard deviation (Box actions in -1 to 1)
    workers: Processes = 1           # processes; they share the environments and each minibatch

    def __post_init__(self):
        super().__post_init__()
        self.check_batch()


def clipped_surrogate(logp: Tensor, logp_old: Tensor, adv: Tensor, clip: tuple[float, float],
                      mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped PPO loss per step (eq. 7, negated), of the shape of `logp`, and its diagnostics.

    `clip` is (eps below 1, eps above 1). DAPO uses two values. `adv` is broadcast: `[B, 1]` gives
    each step of a response the same advantage.
    """
    log_ratio = select(logp - logp_old, mask)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip[0], 1 + clip[1])
    loss = torch.maximum(-ratio * adv, -clipped * adv)                                  # [8]
    with torch.no_grad():
        stats = {"kl": masked_mean(torch.expm1(log_ratio) - log_ratio, mask),           # [12] k3
                 "clip_fraction": masked_mean((-clipped * adv > -ratio * adv).float(), mask)}
    return loss, stats


def value_loss(value: Tensor, target: Tensor, *, old: Tensor | None = None,
               clip: float = 0.0) -> Tensor:
    """Half the squared error per step, `[...]`. `old` is the value before the update. Moving a
    value further than `clip` from `old` does not lower the loss."""
    error = (value - target).square()
    if clip:                                                                            # [9]
        near = old + (value - old).clamp(-clip, clip)
        error = torch.maximum(error, (near - target).square())
    return 0.5 * error


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Create policy and value function [2, 13, c4]; UserError for action spaces PPO cannot use."""
    shape = observation_view(observation_space)[0]
    dist = action_distribution(action_space, cfg.algorithm)
    return ActorCritic(shape, dist, cfg.hidden, normalise=cfg.normalise_obs,
                       log_std=cfg.log_std)                   # [c1, c2] independent of the state


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with PPO. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_share(cfg)                                     # [1] copies of one environment
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5,                      # [3]
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)          # [11]
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    N, T = cfg.num_envs, cfg.rollout_steps

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, target: Tensor, value_old: Tensor,
             adv: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = policy.evaluate(obs, act)      # [c3] sum over independent dimensions
        clip = (cfg.clip_ratio, cfg.clip_ratio)
        surrogate, stats = clipped_surrogate(logp, logp_old, adv, clip)
        error = value_loss(value, target, old=value_old, clip=cfg.clip_value)
        stats["entropy"], stats["value_loss"] = entropy.detach().mean(), error.detach().mean()
        total = surrogate + cfg.value_coef * error - cfg.entropy_coef * entropy         # [10] eq. 9
        return aggregate(total), stats

    def value_of(obs: Tensor) -> Tensor:                      # takes unnormalised observations
        return policy.value(policy.normalise(obs))

    # `minimize(*batch)` is zero_grad(); loss(*batch)[0].backward(); clip_grad_norm_; Adam's step():
    # one call, so that --compile can compile all of it. With --workers, each process has a share.
    minimize = minimizer(optimizer, loss, cfg.workers)
    updates = cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer, scaler=scaler)
        for update in run.updates(updates, N * T):
            # Collect a rollout with the current policy.
            rollout = whole(collect(env, policy.actor(), policy.dist, T, run.rng,       # [c5]
                                    run.device))
            obs = policy.normalise(rollout.obs[:, :T])        # [c6, c7] as the actor saw them
            act, rew = rollout.act, rollout.rew               # [N, T, ...]
            terminated, truncated = rollout.terminated, rollout.truncated
            if cfg.normalise_reward:                          # [c8, c9] scaled, not shifted
                rew = scaler.update_and_scale(rew, terminated, truncated)

            # Evaluate the batch under the policy that collected it.
            with torch.no_grad():
                logp_old, _, values = in_shares(policy.evaluate, obs, act)      # [N, T]
                next_values = rollout.next_values(values, value_of)       # [N, T]
                adv, ret = gae(rew, values, next_values, terminated, truncated,
                               gamma=cfg.gamma, lam=cfg.lam)                            # [5]

            # Update: several epochs of shuffled minibatches.
            lr = cfg.lr * (1 - update / updates) if cfg.anneal else cfg.lr              # [4]
            batch = [x.reshape(N * T, *x.shape[2:])
                     for x in (obs, act, logp_old, ret, values, adv)]
            for epoch in range(1, cfg.epochs + 1):
                order = torch.randperm(N * T).to(run.device)  # [6] every step once an epoch
                # One lookup per epoch and then slices: faster than a lookup per minibatch.
                shuffled = [x.index_select(0, order) for x in batch]
                kls = []
                minibatches = zip(*(x.chunk(cfg.minibatches) for x in shuffled), strict=True)
                for *minibatch, advantages in minibatches:
                    # Normalise here: with --workers, the loss gets only a share of a minibatch.
                    stats = minimize(*minibatch, whiten(advantages), lr=lr)             # [7]
                    kls.append(stats["kl"])
                # The epoch's mean, because the KL of one minibatch is too noisy (Spinning Up uses
                # the KL of the batch).
                stats["kl"] = torch.stack(kls).mean()
                if cfg.target_kl and stats["kl"] > 1.5 * cfg.target_kl:
                    break
            run.check_finite(rewards=rew, values=values, advantages=adv, **stats)
            if policy.normaliser is not None:                 # after the update, because the batch
                policy.normaliser.update(rollout.obs[:, :T])  # used the old statistics
            if run.row_due:
                explained = explained_variance(values, ret)
                run.log(**stats, learning_rate=lr, epochs=epoch, explained_variance=explained)
        return run.result(policy)
