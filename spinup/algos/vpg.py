"""Vanilla policy gradient with generalized advantages (Sutton et al. 2000; Schulman et al. 2016, arXiv:1506.02438).

Make an action likelier the better it turned out to be, compared with what was expected of its state:

    grad J = E[ grad log pi(a_t | s_t) A_t ]                                            (the policy gradient theorem)
    loss   = -E[ log pi(a_t | s_t) A_t ],   and for the value function   E[ (V(s_t) - target_t)^2 / 2 ]

The gradient is true only where the data came from the present policy: so every batch serves one policy step, and is
thrown away. The value function, which has no such limit, takes many steps on it.

Differs from the REINFORCE of a textbook by: generalized advantages in place of the return, whitened over the batch.
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
from spinup.errors import UserError
from spinup.runs.config import AtariConfig, Count, LogStd, NonNegative, Positive, Unit, Widths
from spinup.runs.run import Result, Run

ACTIONS = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
OBSERVATIONS = ("vectors", "images")


@dataclass(kw_only=True)
class Config(AtariConfig):
    rollout_steps: Count = 64          # steps per copy between updates; the fewer, the more and the noisier the updates
    value_epochs: Count = 10           # steps of the value function on a batch; too few and it lags behind (10-80)
    gamma: Unit = 0.99                 # discount; rewards 1 / (1 - gamma) steps ahead still count
    lam: Unit = 0.95                   # 1 = unbiased and noisy, 0 = trusts the value function (0.8-0.99)
    lr: Positive = 3e-3                # of the policy; nothing else holds the policy back (3e-4 to 1e-2)
    value_lr: Positive = 3e-3          # of the value function, which may be as quick (1e-3 to 1e-2)
    anneal: bool = False               # lr falls linearly to 0
    entropy_coef: NonNegative = 0.0    # a reward for staying random; .01 where exploration is the problem
    max_grad_norm: Positive = 10.0     # longer gradients are scaled down to this
    hidden: Widths = (64, 64)          # hidden layers of policy and value function; images use the Nature CNN instead
    normalise_obs: bool = False        # running mean and deviation of observations: needed where their units differ
    normalise_reward: bool = False     # divide rewards by the deviation of the return, so that lr need not fit them
    log_std: LogStd = -0.5             # log of the first standard deviation of continuous actions, of range -1 to 1

    def __post_init__(self):
        super().__post_init__()
        batch = self.num_envs * self.rollout_steps
        if batch == 1:
            raise UserError("a batch of one step cannot be whitened; choose --num-envs x --rollout-steps of at least 2")
        if self.total_steps < batch:
            raise UserError(f"--total-steps {self.total_steps} is less than one batch of {batch} steps; choose at "
                            f"least {batch}, or a smaller --rollout-steps")


def policy_gradient(logp: Tensor, adv: Tensor, mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Per-step loss -log pi(a|s) A, of the shape of `logp`, and what to watch.

    Its gradient is that of -J only on data of the present policy. `adv` is broadcast: `[B, 1]` gives each step of a
    response the same.
    """
    logp = select(logp, mask)
    return -logp * select(adv, mask), {"logp": masked_mean(logp.detach(), mask)}


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Per-step squared error, halved, `[...]` as both."""
    return 0.5 * (value - target).square()


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Policy and value function; UserError for an action space that VPG cannot serve."""
    shape, dist = observation_view(observation_space)[0], action_distribution(action_space, "vpg")
    policy = ActorCritic(shape, dist, cfg.hidden, normalise=cfg.normalise_obs)
    if policy.log_std is not None:
        policy.log_std.data.fill_(cfg.log_std)                # a Gaussian, as wide in every state
    return policy


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with VPG. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed, **cfg.env_settings)       # copies: one batch, many situations
    run = Run("vpg", cfg, env, resume)
    policy = make_policy(cfg, env.observation_space, env.action_space).to(run.device)
    value_params = list(policy.v.parameters())                # two optimisers: the value function takes more steps
    policy_params = [p for p in policy.parameters() if all(p is not q for q in value_params)]
    shared = {"max_grad_norm": cfg.max_grad_norm, "compile": cfg.compile}
    policy_optimizer = FlatAdam(policy_params, lr=cfg.lr, **shared)
    value_optimizer = FlatAdam(value_params, lr=cfg.value_lr, **shared)
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    dist, N, T = policy.dist, cfg.num_envs, cfg.rollout_steps

    def policy_loss(obs: Tensor, act: Tensor, adv: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, _ = policy.evaluate(obs, act)          # dimensions are independent: their logs add up
        surrogate, stats = policy_gradient(logp, whiten(adv))                   # whatever the reward's unit
        stats["entropy"] = entropy.detach().mean()
        return aggregate(surrogate - cfg.entropy_coef * entropy), stats

    def value_error(obs: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return aggregate(value_loss(policy.value(obs), target)), {}

    improve_policy, improve_value = policy_optimizer.minimizer(policy_loss), value_optimizer.minimizer(value_error)
    updates = cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, policy_optimizer=policy_optimizer, value_optimizer=value_optimizer, scaler=scaler)
        for update in run.updates(updates, N * T):
            # Collect. Only actions are needed now; values follow for the whole batch at once.
            obs, actor, noise = env.obs, policy.actor(), dist.noise(run.rng, (T, N))
            observations, actions = np.empty((N, T + 1, *obs.shape[1:]), obs.dtype), []
            rewards, terminated, truncated = (np.empty((N, T), np.float32) for _ in range(3))
            final_obs, final_at = [], []                      # what truncated episodes ended in, and (copy, step)
            for t in range(T):
                act = dist.sample(actor(obs), noise[t])       # [N], or [N, k] for several dimensions
                observations[:, t] = obs
                actions.append(act)                           # unclipped: of this one the density is known
                obs, rewards[:, t], terminated[:, t], truncated[:, t], final = env.step(dist.to_env(act))[:5]
                if final is not None:
                    for i in np.flatnonzero(truncated[:, t]):
                        final_obs.append(final[i])
                        final_at.append((i, t))
            observations[:, T] = obs

            # Evaluate the batch under the policy that collected it.
            o, a, r, term, trunc = (torch.from_numpy(x).to(run.device) for x in (
                observations, np.stack(actions, 1), rewards, terminated, truncated))
            x = policy.normalise(o)                           # by what the actor saw
            if cfg.normalise_reward:
                r = scaler.update_and_scale(r, term, trunc)   # scaled, not shifted: that would change the task
            with torch.no_grad():
                values = policy.value(x[:, :T])               # [N, T]
                next_values = torch.cat([values[:, 1:], policy.value(x[:, T])[:, None]], 1)
                if final_at:                                  # those steps led to the end, not to the restart
                    ends = policy.normalise(torch.from_numpy(np.stack(final_obs)).to(run.device))
                    next_values[tuple(zip(*final_at, strict=True))] = policy.value(ends)
                adv, targets = gae(r, values, next_values, term, trunc, gamma=cfg.gamma, lam=cfg.lam)

            # Update: one step of the policy, many of the value function.
            lr = cfg.lr * (1 - update / updates) if cfg.anneal else cfg.lr
            x, a, adv, target = (y.reshape(N * T, *y.shape[2:]) for y in (x[:, :T], a, adv, targets))
            stats = improve_policy(x, a, adv, lr=lr)
            for _ in range(cfg.value_epochs):
                error = improve_value(x, target)["loss"]
            run.check_finite(rewards=r, values=values, advantages=adv, **stats, value_loss=error)
            if policy.normaliser is not None:
                policy.normaliser.update(o[:, :T])            # only now: the batch was seen through the old numbers
            if run.row_due:
                explained = 1 - (targets - values).var() / targets.var()
                run.log(**stats, value_loss=error, learning_rate=lr, explained_variance=explained)
        return run.result(policy)
