"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347).

A policy gradient may be followed for several passes over the same data as long as the policy stays near the one that
collected it. PPO takes away the incentive to leave, with a clipped probability ratio:

    ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)
    J       = E[ min( ratio_t A_t,  clip(ratio_t, 1 - eps, 1 + eps) A_t ) ]                                     (eq. 7)
    loss    = -J + c1 E[ (V(s_t) - target_t)^2 / 2 ] - c2 E[ entropy of pi(. | s_t) ]                           (eq. 9)

The paper leaves out much of what makes it work. The details marked [1]-[13], and [c1]-[c9] for continuous actions, are
those of Huang et al. (2022), «The 37 implementation details of proximal policy optimization».

Differs from vpg.py by: the ratio and its clip, several epochs of shuffled minibatches, one loss for policy and value.
"""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from spinup.core.masked import aggregate, masked_mean, select, whiten
from spinup.core.networks import ActorCritic
from spinup.core.normaliser import ReturnScaler
from spinup.core.optim import FlatAdam
from spinup.core.returns import gae
from spinup.envs import make
from spinup.envs.spaces import action_distribution, observation_view
from spinup.runs.config import AtariConfig, Count, LogStd, NonNegative, Positive, Unit, Widths, check_minibatches
from spinup.runs.run import Result, Run

ACTIONS = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
OBSERVATIONS = ("vectors", "images")


@dataclass(kw_only=True)
class Config(AtariConfig):
    rollout_steps: Count = 128         # steps per copy between updates; long enough to see the reward of an action
    epochs: Count = 4                  # passes over a batch; too many and the clip is all that holds the policy (3-20)
    minibatches: Count = 4             # pieces of a batch; each is one gradient step (2-64)
    gamma: Unit = 0.99                 # discount; rewards 1 / (1 - gamma) steps ahead still count
    lam: Unit = 0.95                   # 1 = unbiased and noisy, 0 = trusts the value function (0.8-0.99)
    clip_ratio: Positive = 0.2         # beyond 1 +- this, a step that already improved gets no more gradient (0.1-0.3)
    clip_value: NonNegative = 0.0      # how far a value may move in one update; 0 = any distance
    lr: Positive = 3e-4                # step size at the start (1e-4 to 4e-3)
    anneal: bool = True                # lr falls linearly to 0, without which late updates undo good policies
    entropy_coef: NonNegative = 0.0    # a reward for staying random; .01 where exploration is the problem
    value_coef: NonNegative = 0.5      # weight of the value error; it matters where policy and value share a body
    max_grad_norm: Positive = 0.5      # longer gradients are scaled down to this; one odd minibatch does little harm
    target_kl: NonNegative = 0.0       # an update ends after an epoch that went 1.5 times this far; 0 = never
    hidden: Widths = (64, 64)          # hidden layers of policy and value function; images use the Nature CNN instead
    normalise_obs: bool = False        # running mean and deviation of observations: needed where their units differ
    normalise_reward: bool = False     # divide rewards by the deviation of the return, so that lr need not fit them
    log_std: LogStd = 0.0              # log of the first standard deviation of continuous actions, of range -1 to 1

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self)


def clipped_surrogate(logp: Tensor, logp_old: Tensor, adv: Tensor, clip: tuple[float, float],
                      mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Per-step PPO loss (eq. 7, negated), of the shape of `logp`, and what to watch.

    clip = (below, above), which differ in DAPO. `adv` is broadcast: `[B, 1]` gives each step of a response the same.
    """
    log_ratio = select(logp - logp_old, mask)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip[0], 1 + clip[1])
    loss = torch.maximum(-ratio * adv, -clipped * adv)                                       # [8]
    with torch.no_grad():
        stats = {"kl": masked_mean(torch.expm1(log_ratio) - log_ratio, mask),                # [12] k3, never negative
                 "clip_fraction": masked_mean((-clipped * adv > -ratio * adv).float(), mask)}
    return loss, stats


def value_loss(value: Tensor, value_old: Tensor, target: Tensor, clip: float = 0.0) -> Tensor:
    """Per-step squared error, halved, `[...]`; with `clip`, a value gains nothing by moving further than that."""
    error = (value - target).square()
    if clip:                                                                                 # [9]
        near = value_old + (value - value_old).clamp(-clip, clip)
        error = torch.maximum(error, (near - target).square())
    return 0.5 * error


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Policy and value function [2, 13, c4]; UserError for an action space that PPO cannot serve."""
    shape, dist = observation_view(observation_space)[0], action_distribution(action_space, "ppo")
    policy = ActorCritic(shape, dist, cfg.hidden, normalise=cfg.normalise_obs)
    if policy.log_std is not None:
        policy.log_std.data.fill_(cfg.log_std)                # [c1, c2] a Gaussian, as wide in every state
    return policy


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with PPO. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed, **cfg.env_settings)       # [1] copies: one batch, many situations
    run = Run("ppo", cfg, env, resume)
    policy = make_policy(cfg, env.observation_space, env.action_space).to(run.device)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5, max_grad_norm=cfg.max_grad_norm,         # [3, 11]
                         compile=cfg.compile)
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    dist, N, T = policy.dist, cfg.num_envs, cfg.rollout_steps

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             value_old: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = policy.evaluate(obs, act)      # [c3] dimensions are independent: their logs add up
        clip = (cfg.clip_ratio, cfg.clip_ratio)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), clip)             # [7] whitened per minibatch
        error = value_loss(value, value_old, target, cfg.clip_value)
        stats["entropy"], stats["value_loss"] = entropy.detach().mean(), error.detach().mean()
        return aggregate(surrogate + cfg.value_coef * error - cfg.entropy_coef * entropy), stats         # [10] eq. 9

    minimize = optimizer.minimizer(loss)
    updates = cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer, scaler=scaler)
        for update in run.updates(updates, N * T):
            # Collect. Only actions are needed now; log-probabilities and values follow for the whole batch at once.
            obs, actor, noise = env.obs, policy.actor(), dist.noise(run.rng, (T, N))
            observations, actions = np.empty((N, T + 1, *obs.shape[1:]), obs.dtype), []
            rewards, terminated, truncated = (np.empty((N, T), np.float32) for _ in range(3))
            final_obs, final_at = [], []                      # what truncated episodes ended in, and (copy, step)
            for t in range(T):
                act = dist.sample(actor(obs), noise[t])       # [N], or [N, k] for several dimensions
                observations[:, t] = obs
                actions.append(act)                           # [c5] unclipped: of this one the density is known
                obs, rewards[:, t], terminated[:, t], truncated[:, t], final = env.step(dist.to_env(act))[:5]
                if final is not None:
                    for i in np.flatnonzero(truncated[:, t]):
                        final_obs.append(final[i])
                        final_at.append((i, t))
            observations[:, T] = obs

            # Evaluate the batch under the policy that collected it.
            o, a, r, term, trunc = (torch.from_numpy(x).to(run.device) for x in (
                observations, np.stack(actions, 1), rewards, terminated, truncated))
            x = policy.normalise(o)                           # [c6, c7] by what the actor saw, or ratios begin beside 1
            if cfg.normalise_reward:
                r = scaler.update_and_scale(r, term, trunc)   # [c8, c9] scaled, not shifted: that would change the task
            with torch.no_grad():
                logp_old, _, values = policy.evaluate(x[:, :T], a)                           # [N, T]
                next_values = torch.cat([values[:, 1:], policy.value(x[:, T])[:, None]], 1)
                if final_at:                                  # those steps led to the end, not to the restart
                    ends = policy.normalise(torch.from_numpy(np.stack(final_obs)).to(run.device))
                    next_values[tuple(zip(*final_at, strict=True))] = policy.value(ends)
                adv, targets = gae(r, values, next_values, term, trunc, gamma=cfg.gamma, lam=cfg.lam)        # [5]

            # Update: several epochs of shuffled minibatches.
            lr = cfg.lr * (1 - update / updates) if cfg.anneal else cfg.lr                   # [4]
            batch = [y.reshape(N * T, *y.shape[2:]) for y in (x[:, :T], a, logp_old, adv, targets, values)]
            for epoch in range(1, cfg.epochs + 1):
                order = torch.randperm(N * T).to(run.device)  # [6] every step once an epoch
                shuffled = [y.index_select(0, order) for y in batch]          # one gather; minibatches are slices of it
                for minibatch in zip(*(y.chunk(cfg.minibatches) for y in shuffled), strict=True):
                    stats = minimize(*minibatch, lr=lr)
                if cfg.target_kl and stats["kl"] > 1.5 * cfg.target_kl:
                    break
            run.check_finite(rewards=r, values=values, advantages=adv, **stats)
            if policy.normaliser is not None:
                policy.normaliser.update(o[:, :T])            # only now: the batch was seen through the old numbers
            if run.row_due:
                explained = 1 - (targets - values).var() / targets.var()
                run.log(**stats, learning_rate=lr, epochs=epoch, explained_variance=explained)
        return run.result(policy)
