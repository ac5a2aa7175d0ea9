"""Curiosity: PPO with an intrinsic reward for what its networks cannot predict yet.

Four intrinsic rewards, of three papers:

    rnd       || f^(s') - f(s') ||^2           f random and fixed: known states are predicted well
              (Burda et al. 2019, «Exploration by random network distillation», arXiv:1810.12894)
    inverse   || g(phi(s), a) - phi(s') ||^2   phi learned so that phi(s), phi(s') tell the action:
              it ignores what the agent cannot influence  (Pathak et al. 2017, arXiv:1705.05363)
    random    the same, phi random and fixed   (Burda et al. 2019, «Large-scale study of
    pixels    the same, phi(s) = s              curiosity-driven learning», arXiv:1808.04355)

The intrinsic reward i_t («bonus» in flags and columns) has a value function of its own beside that
of the reward r_t, because its discount differs and it has no episodes:

    A = c_r A^r + c_i A^i;   r: gamma_r, episodes end;   i: gamma_i, no end         (RND, sec. 2.3)

If an end cost all that is still unknown, the agent would avoid every risk. With c_r = 0 there is
neither reward nor end: the agent lives for novelty alone (the large-scale study).

For rewards so rare that a random policy finds none. It fails in front of a noisy television, which
no prediction of pixels ever learns; `rnd` and `inverse` lose interest in it.
Differs from ppo.py by: the intrinsic reward, and its own value function.
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
from spinup.core.networks import ActorCritic, mlp
from spinup.core.normaliser import Normaliser, ReturnScaler
from spinup.core.returns import gae
from spinup.core.rollout import collect
from spinup.envs.spaces import action_distribution, number_of_actions, vector_size
from spinup.runs.config import (
    BaseConfig,
    Count,
    NonNegative,
    Positive,
    Size,
    Unit,
    Widths,
    check_minibatches,
)
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(BaseConfig):
    bonus: Literal["rnd", "inverse", "random", "pixels"] = "rnd"  # whose error is the bonus
    reward_coef: NonNegative = 2.0   # weight of the environment's reward; 0 = curiosity alone
    bonus_coef: NonNegative = 1.0    # weight of the intrinsic reward; 0 = PPO. Only the ratio of
                                     # both counts: combined advantages are normalised, in RND not
    bonus_gamma: Unit = 0.99         # its discount: how far ahead novelty is worth a detour
    feature_size: Size = 64          # features in which prediction errors are measured
    feature_hidden: Widths = (128,)  # hidden layers of the predicting networks
    bonus_lr: Positive = 1e-3        # their learning rate; too large and novelty fades too early
    bonus_share: Unit = 0.25         # share of the steps they learn from; fewer make novelty last
    num_envs: Size = 32              # copies stepped together: as many explorers
    rollout_steps: Count = 128       # steps per copy between updates, 128 as in RND
    epochs: Count = 4                # passes over a batch; more rely on the clip alone (3-10)
    minibatches: Count = 4           # pieces of a batch; each is one gradient step (2-64)
    gamma: Unit = 0.99               # discount of rewards: a goal n steps ahead counts gamma^n
    lam: Unit = 0.95                 # of GAE: 1 = unbiased and noisy, 0 = trusts V alone (0.8-0.99)
    clip_ratio: Positive = 0.2       # ratios beyond 1 +- this get no more gradient (0.1-0.3)
    lr: Positive = 5e-4              # learning rate of policy and values; it stays as it is
    entropy_coef: NonNegative = 0.01  # weight of the entropy bonus, which keeps the policy random
    value_coef: NonNegative = 0.5    # weight of both value losses
    max_grad_norm: Positive = 0.5    # longer gradients are scaled down to this norm
    hidden: Widths = (64, 64)        # hidden layers of the policy and of both value functions

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self)


def prediction_error(predicted: Tensor, true: Tensor) -> Tensor:
    """Half the mean squared error over features, `[...]` of `[..., k]`: the intrinsic reward, and
    the loss of the predictor."""
    return 0.5 * (predicted - true).square().mean(-1)


def combined_advantage(adv: Tensor, bonus_adv: Tensor, reward_coef: float,
                       bonus_coef: float) -> Tensor:
    """c_r A^r + c_i A^i, `[...]`: advantages add up because returns do."""
    return reward_coef * adv + bonus_coef * bonus_adv


class Surprise(nn.Module):
    """Networks of one of the four intrinsic rewards, for normalised observations `[..., d]` and
    actions `[...]`."""

    def __init__(self, kind: str, obs_size: int, actions: int, feature_size: int,
                 hidden: tuple[int, ...]):
        super().__init__()
        self.kind, self.actions = kind, actions
        k = obs_size if kind == "pixels" else feature_size
        self.features = nn.Identity() if kind == "pixels" else relu_mlp(obs_size, *hidden, k)
        if kind in ("rnd", "random"):
            self.features.requires_grad_(False)
        if kind == "rnd":                                     # deeper than what it must copy
            self.predict = relu_mlp(obs_size, *hidden, *hidden[-1:], k)
        else:                                                 # a forward model is given the action
            self.predict = relu_mlp(k + actions, *hidden, k)
        self.tell_action = relu_mlp(2 * k, *hidden, actions) if kind == "inverse" else None

    def error(self, obs: Tensor, act: Tensor, next_obs: Tensor) -> Tensor:
        """Prediction error of a transition, `[...]`."""
        if self.kind == "rnd":
            return prediction_error(self.predict(next_obs), self.features(next_obs))
        # Features are constants here. Trained to be easy to predict, they would all become equal.
        features, next_features = self.features(obs).detach(), self.features(next_obs).detach()
        action = one_hot(act, self.actions).to(features.dtype)            # [..., actions]
        return prediction_error(self.predict(torch.cat([features, action], -1)), next_features)

    def loss(self, obs: Tensor, act: Tensor, next_obs: Tensor) -> Tensor:
        """Loss of these networks, `[...]`; for `inverse` with that of telling the action."""
        error = self.error(obs, act, next_obs)
        if self.tell_action is None:
            return error
        logits = self.tell_action(torch.cat([self.features(obs), self.features(next_obs)], -1))
        return error + cross_entropy(logits, act, reduction="none")


class CuriousActorCritic(ActorCritic):
    """An `ActorCritic` with a second value function, of intrinsic rewards."""

    def __init__(self, obs_size: int, dist: Categorical | DiagGaussian, hidden: tuple[int, ...]):
        super().__init__((obs_size,), dist, hidden)
        self.v_bonus = mlp([obs_size, *hidden, 1])


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> CuriousActorCritic:
    """Policy and value functions; UserError for spaces that they cannot serve."""
    number_of_actions(action_space, cfg.algorithm)
    size = vector_size(observation_space, cfg.algorithm)
    return CuriousActorCritic(size, action_distribution(action_space, cfg.algorithm), cfg.hidden)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a curious policy. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: make networks after it
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    obs_size = vector_size(env.observation_space, cfg.algorithm)
    surprise = Surprise(cfg.bonus, obs_size, policy.dist.num_outputs, cfg.feature_size,
                        cfg.feature_hidden).to(run.device)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5,
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    learner = FlatAdam([p for p in surprise.parameters() if p.requires_grad], lr=cfg.bonus_lr,
                       compile=cfg.compile)
    view = Normaliser((obs_size,), clip=5.0).to(run.device)   # errors need inputs of one scale
    N, T = cfg.num_envs, cfg.rollout_steps
    scaler = ReturnScaler(N, cfg.bonus_gamma).to(run.device)  # and bonuses one scale over the run
    never = torch.zeros(N, T, dtype=torch.bool, device=run.device)

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             bonus_target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = policy.evaluate(obs, act)
        clip = (cfg.clip_ratio, cfg.clip_ratio)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), clip)
        error = value_loss(value, target)
        bonus_error = value_loss(policy.v_bonus(obs).squeeze(-1), bonus_target)
        stats |= {"entropy": entropy.detach().mean(), "value_loss": error.detach().mean(),
                  "bonus_value_loss": bonus_error.detach().mean()}
        errors = error + bonus_error
        total = surrogate + cfg.value_coef * errors - cfg.entropy_coef * entropy
        return aggregate(total), stats

    def bonus_loss(obs: Tensor, act: Tensor,
                   next_obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return surprise.loss(obs, act, next_obs).mean(), {}

    minimize, learn = optimizer.minimizer(loss), learner.minimizer(bonus_loss)
    with run:
        env.reset()
        run.keep(policy=policy, surprise=surprise, optimizer=optimizer, learner=learner, view=view,
                 scaler=scaler)
        for update in run.updates(cfg.total_steps // (N * T), N * T):
            # Collect.
            rollout = collect(env, policy.actor(), policy.dist, T, run.rng, run.device)
            obs, next_obs = rollout.obs[:, :T], rollout.next_obs()        # [N, T, d]
            act, rew = rollout.act, rollout.rew                           # [N, T]

            # Evaluate the batch: two rewards, two values, two advantages.
            if update == 0:
                view.update(next_obs)                         # of a policy still close to random
            seen, next_seen = view(obs), view(next_obs)
            with torch.no_grad():
                bonus = surprise.error(seen, act, next_seen)              # [N, T]
                intrinsic = scaler.update_and_scale(bonus, never, never)
                logp_old, _, values = policy.evaluate(obs, act)           # [N, T]
                next_values = rollout.next_values(values, policy.value)
                adv, ret = gae(rew, values, next_values, rollout.terminated, rollout.truncated,
                               gamma=cfg.gamma, lam=cfg.lam)
                # Of intrinsic rewards no episode ends: the next one's first value follows.
                bonus_values = policy.v_bonus(rollout.obs).squeeze(-1)    # [N, T + 1]
                bonus_adv, bonus_ret = gae(intrinsic, bonus_values[:, :-1], bonus_values[:, 1:],
                                           never, never, gamma=cfg.bonus_gamma, lam=cfg.lam)
                both = combined_advantage(adv, bonus_adv, cfg.reward_coef, cfg.bonus_coef)

            # Update: policy and values on every step, the predictors on a share of them.
            batch = [x.reshape(N * T, *x.shape[2:])
                     for x in (obs, act, logp_old, both, ret, bonus_ret)]
            transitions = [x.reshape(N * T, *x.shape[2:]) for x in (seen, act, next_seen)]
            share = max(1, round(N * T // cfg.minibatches * cfg.bonus_share))
            for _ in range(cfg.epochs):
                order = torch.randperm(N * T).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch))
                    learned = learn(*(x[rows[:share]] for x in transitions))
            view.update(next_obs)
            run.check_finite(rewards=rew, bonus=bonus, values=values, **stats)
            if run.row_due:
                run.log(**stats, bonus=bonus.mean(), bonus_loss=learned["loss"])
        return run.result(policy)
