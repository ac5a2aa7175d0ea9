"""Curiosity: PPO with an intrinsic reward for observations that are still hard to predict.

Four intrinsic rewards, of three papers. The code divides each norm by 2 k, for k features:

    rnd       || f^(s') - f(s') ||^2           f is random and fixed; f^ learns to predict f(s')
              (Burda et al. 2018, "Exploration by random network distillation", arXiv:1810.12894)
    inverse   || g(phi(s), a) - phi(s') ||^2   phi learns to predict a from phi(s) and phi(s'), so
              it ignores what the agent cannot influence  (Pathak et al. 2017, arXiv:1705.05363)
    random    as inverse, but phi is random and fixed   (Burda et al. 2018, "Large-scale study of
    pixels    as inverse, but phi(s) = s                 curiosity-driven learning",
                                                         arXiv:1808.04355)

The reward r_t and the intrinsic reward i_t ("bonus" in flags and columns) have separate value
functions, because their discounts differ and intrinsic returns continue across episodes:

    A = c_r A^r + c_i A^i;   A^r: gamma_r, within episodes;  A^i: gamma_i, across    (RND, sec. 2.3)

If an episode end cut off future intrinsic rewards, the agent would avoid every risk. With c_r = 0
it uses neither rewards nor episode ends and only seeks novelty (the large-scale study).

Use it for rewards that a random policy does not find. A noisy television attracts the agent,
because no network can predict the pixels. With `pixels` or `random`, the agent watches the
television most of the time. With `inverse` or `rnd`, it does so less than half of the time.
Differs from ppo.py by: the intrinsic reward, and a second value function for this reward. It has
no target_kl, no clipped values, no annealing, no normalised rewards of the environment, and no
normalised observations for the policy.
"""
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import relu_mlp
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import CNN_WIDTH, ActorCritic, NatureConvolutions, mlp
from spinup.core.normaliser import Normaliser, ReturnScaler
from spinup.core.returns import gae
from spinup.core.rollout import collect
from spinup.envs.spaces import action_distribution, number_of_actions, observation_view
from spinup.errors import UserError
from spinup.runs.config import AtariConfig, Count, NonNegative, Positive, Share, Size, Unit, Widths
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(AtariConfig):
    bonus: Literal["rnd", "inverse", "random", "pixels"] = "rnd"  # kind of intrinsic reward
    reward_coef: NonNegative = 2.0   # weight of the reward; 0 = intrinsic reward only
    bonus_coef: NonNegative = 1.0    # weight of the intrinsic reward; 0 = none
                                     # (only its ratio to reward_coef counts, because the summed
                                     # advantages are normalised; RND does not normalise them)
    bonus_gamma: Unit = 0.99         # discount of intrinsic rewards: how far ahead novelty counts
    feature_size: Size = 64          # number of features that the predictors must predict
    feature_hidden: Widths = (128,)  # hidden layers of the feature and prediction networks
    bonus_lr: Positive = 1e-3        # predictor learning rate; too large: novelty fades too early
    bonus_share: Share = 0.25        # share of steps for the predictors; less: novelty fades later
    num_envs: Size = 32              # environments in parallel; each one explores
    rollout_steps: Count = 128       # steps per environment per update; RND uses 128
    epochs: Count = 4                # passes over each batch; more: larger policy changes (3-10)
    minibatches: Count = 4           # minibatches per epoch, one gradient step each (2-64)
    gamma: Unit = 0.99               # discount of rewards: a goal n steps ahead counts gamma^n
    lam: Unit = 0.95                 # lambda of GAE: 1 = least bias, 0 = least variance (0.8-0.99)
    clip_ratio: Positive = 0.2       # clip range of the ratio: 1 - this to 1 + this (0.1-0.3)
    lr: Positive = 5e-4              # constant learning rate of policy and value functions
    entropy_coef: NonNegative = 0.01  # weight of the entropy bonus, which keeps the policy random
    value_coef: NonNegative = 0.5    # weight of the two value losses
    max_grad_norm: Positive = 0.5    # largest gradient norm; larger gradients are scaled down
    hidden: Widths = (64, 64)        # hidden layers of policy and values; images use the Nature CNN

    ONLY_WITH = {"feature_size": ("bonus", "rnd", "inverse", "random"), "gamma": "reward_coef",
                 "bonus_gamma": "bonus_coef"}

    def __post_init__(self):
        super().__post_init__()
        self.check_batch()
        if self.reward_coef == self.bonus_coef == 0:
            raise UserError("--reward-coef 0 and --bonus-coef 0 leave nothing to learn from; raise "
                            "one of them")


def prediction_error(predicted: Tensor, true: Tensor) -> Tensor:
    """Half the mean squared error over features, `[...]` from `[..., k]`. It is the intrinsic
    reward and also the loss of the predictor."""
    return 0.5 * (predicted - true).square().mean(-1)


def combined_advantage(adv: Tensor, bonus_adv: Tensor, reward_coef: float,
                       bonus_coef: float) -> Tensor:
    """Return c_r A^r + c_i A^i, `[...]`. Advantages add up because returns add up."""
    return reward_coef * adv + bonus_coef * bonus_adv


def network(obs_shape: tuple[int, ...], *sizes: int) -> nn.Sequential:
    """Create an MLP for normalised vectors, or convolutions and an MLP for normalised images."""
    if len(obs_shape) == 1:
        return relu_mlp(obs_shape[0], *sizes)
    convolutions = NatureConvolutions(obs_shape)
    return nn.Sequential(convolutions, *relu_mlp(convolutions.width, *sizes))


class Surprise(nn.Module):
    """Feature and prediction networks of one of the four intrinsic rewards.

    Their inputs are actions `[...]` and normalised observations `[..., *shape]`, vectors or images.
    """

    def __init__(self, kind: str, obs_shape: tuple[int, ...], actions: int, feature_size: int,
                 hidden: tuple[int, ...]):
        super().__init__()
        self.kind, self.actions = kind, actions
        k = obs_shape[0] if kind == "pixels" else feature_size
        self.features = nn.Identity() if kind == "pixels" else network(obs_shape, *hidden, k)
        if kind in ("rnd", "random"):
            self.features.requires_grad_(False)
        if kind == "rnd":                                     # deeper than its target network
            self.predict = network(obs_shape, *hidden, *hidden[-1:], k)
        else:                                                 # a forward model also gets the action
            self.predict = relu_mlp(k + actions, *hidden, k)
        self.tell_action = relu_mlp(2 * k, *hidden, actions) if kind == "inverse" else None

    def error(self, obs: Tensor, act: Tensor, next_obs: Tensor) -> Tensor:
        """Prediction error of a transition, `[...]`."""
        if self.kind == "rnd":
            return prediction_error(self.predict(next_obs), self.features(next_obs))
        # No gradient into the features: they would collapse to one point, easy to predict.
        features, next_features = self.features(obs).detach(), self.features(next_obs).detach()
        action = one_hot(act, self.actions).to(features.dtype)            # [..., actions]
        return prediction_error(self.predict(torch.cat([features, action], -1)), next_features)

    def loss(self, obs: Tensor, act: Tensor, next_obs: Tensor) -> Tensor:
        """Loss of these networks, `[...]`; for `inverse` it includes the action prediction loss."""
        error = self.error(obs, act, next_obs)
        if self.tell_action is None:
            return error
        logits = self.tell_action(torch.cat([self.features(obs), self.features(next_obs)], -1))
        return error + cross_entropy(logits, act, reduction="none")


class CuriousActorCritic(ActorCritic):
    """An `ActorCritic` with a second value function, for intrinsic rewards."""

    def __init__(self, obs_shape: tuple[int, ...], dist: Categorical | DiagGaussian,
                 hidden: tuple[int, ...]):
        super().__init__(obs_shape, dist, hidden)
        image = len(obs_shape) == 3
        self.v_bonus = mlp([CNN_WIDTH, 1] if image else [*obs_shape, *hidden, 1])

    def bonus_value(self, obs: Tensor) -> Tensor:
        """Value of the intrinsic rewards, `[...]`, for observations `[..., *shape]`."""
        return self.v_bonus(self.body(obs)).squeeze(-1)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> CuriousActorCritic:
    """Create policy and value functions; UserError for spaces that they cannot use."""
    number_of_actions(action_space, cfg.algorithm)
    shape = observation_view(observation_space)[0]
    if cfg.bonus == "pixels" and len(shape) == 3:
        raise UserError(f"--bonus pixels predicts the numbers of a vector, not images of {shape}; "
                        "choose --bonus rnd, inverse or random")
    return CuriousActorCritic(shape, action_distribution(action_space, cfg.algorithm), cfg.hidden)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a curious policy. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    shape = observation_view(env.observation_space)[0]
    surprise = Surprise(cfg.bonus, shape, policy.dist.num_outputs, cfg.feature_size,
                        cfg.feature_hidden).to(run.device)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5,
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    bonus_optimizer = FlatAdam(surprise.parameters(), lr=cfg.bonus_lr, compile=cfg.compile)
    obs_normaliser = Normaliser(shape, clip=5.0).to(run.device)   # for the networks of `surprise`
    N, T = cfg.num_envs, cfg.rollout_steps
    scaler = ReturnScaler(N, cfg.bonus_gamma).to(run.device)  # puts bonuses on one scale
    no_end = torch.zeros(N, T, dtype=torch.bool, device=run.device)

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             bonus_target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = policy.evaluate(obs, act)
        clip = (cfg.clip_ratio, cfg.clip_ratio)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), clip)
        error = value_loss(value, target)
        bonus_error = value_loss(policy.bonus_value(obs), bonus_target)
        stats |= {"entropy": entropy.detach().mean(), "value_loss": error.detach().mean(),
                  "bonus_value_loss": bonus_error.detach().mean()}
        errors = (cfg.reward_coef > 0) * error + (cfg.bonus_coef > 0) * bonus_error
        total = surrogate + cfg.value_coef * errors - cfg.entropy_coef * entropy
        return aggregate(total), stats

    def bonus_loss(obs: Tensor, act: Tensor,
                   next_obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return surprise.loss(obs, act, next_obs).mean(), {}

    # `minimize(*batch)`: zero_grad, backward, clip, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    minimize_bonus = bonus_optimizer.minimizer(bonus_loss)
    with run:
        env.reset()
        run.keep(policy=policy, surprise=surprise, optimizer=optimizer,
                 bonus_optimizer=bonus_optimizer, obs_normaliser=obs_normaliser, scaler=scaler)
        for update in run.updates(cfg.total_steps // (N * T), N * T):
            # Collect.
            rollout = collect(env, policy.actor(), policy.dist, T, run.rng, run.device)
            obs, next_obs = rollout.obs[:, :T], rollout.next_obs()        # [N, T, d]
            act, rew = rollout.act, rollout.rew                           # [N, T]

            # Evaluate the batch: two rewards, two values, two advantages.
            if update == 0:
                obs_normaliser.update(next_obs)               # first statistics; added again below
            seen, next_seen = obs_normaliser(obs), obs_normaliser(next_obs)
            with torch.no_grad():
                bonus = surprise.error(seen, act, next_seen)              # [N, T]
                intrinsic = scaler.update_and_scale(bonus, no_end, no_end)
                logp_old, _, values = policy.evaluate(obs, act)           # [N, T]
                next_values = rollout.next_values(values, policy.value)
                adv, ret = gae(rew, values, next_values, rollout.terminated, rollout.truncated,
                               gamma=cfg.gamma, lam=cfg.lam)
                # Intrinsic returns continue across an episode end, into the next episode.
                bonus_values = policy.bonus_value(rollout.obs)            # [N, T + 1]
                bonus_adv, bonus_ret = gae(intrinsic, bonus_values[:, :-1], bonus_values[:, 1:],
                                           no_end, no_end, gamma=cfg.bonus_gamma, lam=cfg.lam)
                adv = combined_advantage(adv, bonus_adv, cfg.reward_coef, cfg.bonus_coef)

            # Update: policy and values train on all steps, predictors on a share of them.
            batch = [x.reshape(N * T, *x.shape[2:])
                     for x in (obs, act, logp_old, adv, ret, bonus_ret)]
            transitions = [x.reshape(N * T, *x.shape[2:]) for x in (seen, act, next_seen)]
            share = max(1, round(N * T // cfg.minibatches * cfg.bonus_share))
            for _ in range(cfg.epochs):
                order = torch.randperm(N * T).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch))
                    bonus_stats = minimize_bonus(*(x[rows[:share]] for x in transitions))
            obs_normaliser.update(next_obs)
            run.check_finite(rewards=rew, bonus=bonus, values=values, advantages=adv, **stats)
            if run.row_due:
                run.log(**stats, bonus=bonus.mean(), bonus_loss=bonus_stats["loss"])
        return run.result(policy)
