"""Vanilla policy gradient with generalised advantages (Sutton et al. 2000; arXiv:1506.02438).

VPG makes an action more likely if its return was higher than the value of its state, and less
likely if it was lower. The difference is the advantage A_t:

    grad J = E[ sum_t grad log pi(a_t | s_t) A_t ]                  (the policy gradient theorem)
    loss   = -E[ log pi(a_t | s_t) A_t ],   and for the value function   E[ (V(s_t) - R_t)^2 / 2 ]

R_t is the value target. The gradient is valid only for data of the current policy. So the policy
takes only one step on each batch. The value function has no such limit and takes many steps on the
batch. Then the batch is discarded.

Differs from textbook REINFORCE by: generalised advantages in place of the return, normalised over
the batch.
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
from spinup.runs.config import AtariConfig, Count, LogStd, NonNegative, Positive, Unit, Widths
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(AtariConfig):
    rollout_steps: Count = 64        # steps per environment per update; fewer means more noise
    value_epochs: Count = 10         # gradient steps of V per batch; too few and V lags (10-80)
    gamma: Unit = 0.99               # discount factor; the horizon is about 1 / (1 - gamma) steps
    lam: Unit = 0.95                 # lambda of GAE: 1 = least bias, 0 = least variance (0.8-0.99)
    lr: Positive = 3e-3              # policy learning rate; too large: collapse (3e-4 to 1e-2)
    value_lr: Positive = 3e-3        # learning rate of V; may be as large as lr (1e-3 to 1e-2)
    anneal: bool = False             # decay lr linearly to 0 over the run
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus; 0.01 if exploration is hard
    max_grad_norm: Positive = 10.0   # largest gradient norm; larger gradients are scaled down
    hidden: Widths = (64, 64)        # hidden layers of policy and value; images use the Nature CNN
    output_gain: Positive = 0.01     # gain of the policy's last layer; small: near-uniform at first
    normalise_obs: bool = False      # vectors: subtract mean, divide by std, if scales differ
    normalise_reward: bool = False   # divide rewards by the standard deviation of the return
    log_std: LogStd = -0.5           # initial log standard deviation (Box actions in -1 to 1)

    def __post_init__(self):
        super().__post_init__()
        self.check_batch()


def policy_gradient(logp: Tensor, adv: Tensor,
                    mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy-gradient loss per step, -log pi(a|s) A, of the shape of `logp`, and its diagnostics.

    Its gradient estimates that of -J only on data of the current policy. `adv` is broadcast:
    `[B, 1]` gives each step of a response the same advantage.
    """
    logp = select(logp, mask)
    return -logp * select(adv, mask), {"logp": masked_mean(logp.detach(), mask)}


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Half the squared error per step, `[...]`, of values `[...]` and targets `[...]`."""
    return 0.5 * (value - target).square()


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Create policy and value function; UserError for an action space that VPG cannot use."""
    shape = observation_view(observation_space)[0]
    dist = action_distribution(action_space, cfg.algorithm)
    return ActorCritic(shape, dist, cfg.hidden, normalise=cfg.normalise_obs,
                       output_gain=cfg.output_gain, log_std=cfg.log_std)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with VPG. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)                                       # copies of one environment
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    # Two optimisers, because V takes more steps. For images, V is a head on the policy's CNN. Only
    # the policy loss trains the CNN: ten steps of V per batch would spoil its features for pi.
    policy_params = [p for name, p in policy.named_parameters() if not name.startswith("v.")]
    settings = {"max_grad_norm": cfg.max_grad_norm, "compile": cfg.compile}
    policy_optimizer = FlatAdam(policy_params, lr=cfg.lr, **settings)
    value_optimizer = FlatAdam(policy.v.parameters(), lr=cfg.value_lr, **settings)
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    N, T = cfg.num_envs, cfg.rollout_steps

    def policy_loss(obs: Tensor, act: Tensor, adv: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, _ = policy.evaluate(obs, act)          # sum over independent dimensions
        surrogate, stats = policy_gradient(logp, whiten(adv))             # removes the reward scale
        stats["entropy"] = entropy.detach().mean()
        return aggregate(surrogate - cfg.entropy_coef * entropy), stats

    def value_error(features: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return aggregate(value_loss(policy.v(features).squeeze(-1), target)), {}

    def value_of(obs: Tensor) -> Tensor:                      # takes unnormalised observations
        return policy.value(policy.normalise(obs))

    # `minimize_...(*batch)` is zero_grad(); loss(*batch)[0].backward(); clip_grad_norm_; Adam's
    # step(): one call, so that --compile can compile all of it.
    minimize_policy = policy_optimizer.minimizer(policy_loss)
    minimize_value = value_optimizer.minimizer(value_error)
    updates = cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, policy_optimizer=policy_optimizer, value_optimizer=value_optimizer,
                 scaler=scaler)
        for update in run.updates(updates, N * T):
            # Collect a rollout with the current policy.
            rollout = collect(env, policy.actor(), policy.dist, T, run.rng, run.device)
            obs = policy.normalise(rollout.obs[:, :T])        # as the actor saw them
            act, rew = rollout.act, rollout.rew               # [N, T, ...]
            terminated, truncated = rollout.terminated, rollout.truncated
            if cfg.normalise_reward:                          # scaled, not shifted
                rew = scaler.update_and_scale(rew, terminated, truncated)

            # Evaluate the batch under the policy that collected it.
            with torch.no_grad():
                values = policy.value(obs)                                # [N, T]
                next_values = rollout.next_values(values, value_of)       # [N, T]
                adv, ret = gae(rew, values, next_values, terminated, truncated,
                               gamma=cfg.gamma, lam=cfg.lam)

            # Update: one step of the policy, many of the value function.
            lr = cfg.lr * (1 - update / updates) if cfg.anneal else cfg.lr
            batch = [x.reshape(N * T, *x.shape[2:]) for x in (obs, act, adv, ret)]
            stats = minimize_policy(*batch[:3], lr=lr)
            with torch.no_grad():                             # these steps do not change the CNN
                features = policy.body(batch[0])              # vectors: the observations
            for _ in range(cfg.value_epochs):
                error = minimize_value(features, batch[3])["loss"]
            run.check_finite(rewards=rew, values=values, advantages=adv, **stats, value_loss=error)
            if policy.normaliser is not None:                 # after the update, because the batch
                policy.normaliser.update(rollout.obs[:, :T])  # used the old statistics
            if run.row_due:
                explained = explained_variance(values, ret)
                run.log(**stats, value_loss=error, learning_rate=lr, explained_variance=explained)
        return run.result(policy)
