"""Curiosity: PPO that is also paid for what surprises it.

Four surprises, of three papers:

    rnd       || f^(s') - f(s') ||^2             f random and fixed: what was seen often is known by heart
              (Burda et al. 2019, «Exploration by random network distillation», arXiv:1810.12894, sec. 2.2)
    inverse   || g(phi(s), a) - phi(s') ||^2     phi learned so that from phi(s), phi(s') the action can be told (ICM):
              what the agent cannot influence it does not see  (Pathak et al. 2017, arXiv:1705.05363, eq. 2-6)
    random    the same, phi random and fixed     (Burda et al. 2019, «Large-scale study of curiosity-driven learning»,
    pixels    the same, phi(s) = s                arXiv:1808.04355, sec. 2.1)

The bonus i_t comes beside the reward r_t, with a value function of its own, because it is of another kind:

    A = c_r A^r + c_i A^i;   r: gamma_r, ended by the end of an episode;   i: gamma_i, never ended      (RND, sec. 2.3)

Never ended: an end would cost all that is still unknown, and the agent would shun every risk.
With c_r = 0 there is no reward and no end at all: the agent lives for what is new (the large-scale study).

For rewards so rare that a random policy finds none. It fails in front of a noisy television, which no prediction of
pixels ever learns; `rnd` and `inverse` get bored of it. Differs from ppo.py by: the bonus, and its second value.
"""
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.fast.linear import relu_mlp
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import ActorCritic, mlp
from spinup.core.normaliser import Normaliser, ReturnScaler
from spinup.core.optim import FlatAdam
from spinup.core.returns import gae
from spinup.envs import make
from spinup.envs.spaces import action_distribution, number_of_actions, vector_size
from spinup.runs.config import BaseConfig, Count, NonNegative, Positive, Unit, Widths, check_minibatches
from spinup.runs.run import Result, Run

ACTIONS = ("Discrete",)
OBSERVATIONS = ("vectors",)


@dataclass(kw_only=True)
class Config(BaseConfig):
    bonus: Literal["rnd", "inverse", "random", "pixels"] = "rnd"   # whose error it is that surprises
    reward_coef: NonNegative = 2.0     # weight of the environment's reward; 0 = curiosity alone
    bonus_coef: NonNegative = 1.0      # weight of the bonus; 0 = PPO
    bonus_gamma: Unit = 0.99           # discount of bonuses: how far ahead something new is worth a way
    feature_size: Count = 64           # numbers in which the bonus sees the world
    feature_hidden: Widths = (128,)    # hidden layers of the bonus' networks
    bonus_lr: Positive = 1e-3          # step size of these; too large and what is new is known before it is reached
    bonus_share: Unit = 0.25           # share of the steps that they learn from; fewer, and news stays news for longer
    num_envs: Count = 32               # copies stepped together: as many explorers
    rollout_steps: Count = 128         # steps per copy between updates
    epochs: Count = 4                  # passes over a batch (3-10)
    minibatches: Count = 4             # pieces of a batch; each is one gradient step (2-64)
    gamma: Unit = 0.99                 # discount of rewards: a goal n steps ahead is worth gamma^n
    lam: Unit = 0.95                   # 1 = unbiased and noisy, 0 = trusts the value function (0.8-0.99)
    clip_ratio: Positive = 0.2         # beyond 1 +- this, a step that already improved gets no more gradient (0.1-0.3)
    lr: Positive = 5e-4                # step size of policy and values; not annealed: there is no last discovery
    entropy_coef: NonNegative = 0.01   # a reward for staying random
    value_coef: NonNegative = 0.5      # weight of the value errors
    max_grad_norm: Positive = 0.5      # longer gradients are scaled down to this
    hidden: Widths = (64, 64)          # hidden layers of the policy and of both value functions

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self)


def prediction_error(predicted: Tensor, true: Tensor) -> Tensor:
    """Half the mean squared error over features, `[...]` of `[..., k]`: the bonus, and what its network learns to be
    rid of."""
    return 0.5 * (predicted - true).square().mean(-1)


def combined_advantage(adv: Tensor, bonus_adv: Tensor, reward_coef: float, bonus_coef: float) -> Tensor:
    """c_r A^r + c_i A^i, `[...]`: advantages add up because returns do."""
    return reward_coef * adv + bonus_coef * bonus_adv


class Surprise(nn.Module):
    """The networks of one of the four bonuses, on normalised observations `[..., d]` and actions `[...]`."""

    def __init__(self, kind: str, obs_size: int, actions: int, feature_size: int, hidden: tuple[int, ...]):
        super().__init__()
        self.kind, self.actions = kind, actions
        k = obs_size if kind == "pixels" else feature_size
        self.features = nn.Identity() if kind == "pixels" else relu_mlp(obs_size, *hidden, k)
        if kind in ("rnd", "random"):
            self.features.requires_grad_(False)
        # The predictor of rnd is deeper than what it copies, so that it could copy it; forward models know the action.
        self.predict = relu_mlp(obs_size, *hidden, *hidden[-1:], k) if kind == "rnd" else (
            relu_mlp(k + actions, *hidden, k))
        self.tell_action = relu_mlp(2 * k, *hidden, actions) if kind == "inverse" else None

    def error(self, obs: Tensor, act: Tensor, next_obs: Tensor) -> Tensor:
        """How wrong the prediction was, `[...]`."""
        if self.kind == "rnd":
            return prediction_error(self.predict(next_obs), self.features(next_obs))
        # Features are targets here, never made easy to predict: to be told apart is all that they are learned for.
        known, then = self.features(obs).detach(), self.features(next_obs).detach()
        done = one_hot(act, self.actions).to(known.dtype)
        return prediction_error(self.predict(torch.cat([known, done], -1)), then)

    def loss(self, obs: Tensor, act: Tensor, next_obs: Tensor) -> Tensor:
        """What these networks minimise, `[...]`."""
        error = self.error(obs, act, next_obs)
        if self.tell_action is None:
            return error
        logits = self.tell_action(torch.cat([self.features(obs), self.features(next_obs)], -1))
        return error + cross_entropy(logits, act, reduction="none")


class CuriousActorCritic(ActorCritic):
    """An `ActorCritic` with a value function of the bonuses too."""

    def __init__(self, obs_size: int, dist: Categorical | DiagGaussian, hidden: tuple[int, ...]):
        super().__init__((obs_size,), dist, hidden)
        self.v_bonus = mlp([obs_size, *hidden, 1])


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> CuriousActorCritic:
    """Policy and value functions; UserError for spaces that they cannot serve."""
    number_of_actions(action_space, "curiosity")
    size = vector_size(observation_space, "curiosity")
    return CuriousActorCritic(size, action_distribution(action_space, "curiosity"), cfg.hidden)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a curious policy. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed)
    run = Run("curiosity", cfg, env, resume)
    policy = make_policy(cfg, env.observation_space, env.action_space).to(run.device)
    obs_size, dist, N, T = vector_size(env.observation_space, "curiosity"), policy.dist, cfg.num_envs, cfg.rollout_steps
    surprise = Surprise(cfg.bonus, obs_size, dist.num_outputs, cfg.feature_size, cfg.feature_hidden).to(run.device)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5, max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    learner = FlatAdam([p for p in surprise.parameters() if p.requires_grad], lr=cfg.bonus_lr, compile=cfg.compile)
    view = Normaliser((obs_size,), clip=5.0).to(run.device)               # what the bonus sees must be of one size
    scaler = ReturnScaler(N, cfg.bonus_gamma).to(run.device)              # and what it pays, through the whole run
    never = torch.zeros(N, T, dtype=torch.bool, device=run.device)

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             bonus_target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = policy.evaluate(obs, act)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), (cfg.clip_ratio, cfg.clip_ratio))
        error = value_loss(value, value, target)
        bonus_error = value_loss(policy.v_bonus(obs).squeeze(-1), value, bonus_target)
        stats |= {"entropy": entropy.detach().mean(), "value_loss": error.detach().mean(),
                  "bonus_value_loss": bonus_error.detach().mean()}
        return aggregate(surrogate + cfg.value_coef * (error + bonus_error) - cfg.entropy_coef * entropy), stats

    def bonus_loss(obs: Tensor, act: Tensor, next_obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return surprise.loss(obs, act, next_obs).mean(), {}

    minimize, learn = optimizer.minimizer(loss), learner.minimizer(bonus_loss)
    with run:
        env.reset()
        run.keep(policy=policy, surprise=surprise, optimizer=optimizer, learner=learner, view=view, scaler=scaler)
        for update in run.updates(cfg.total_steps // (N * T), N * T):
            # Collect.
            obs, actor, noise = env.obs, policy.actor(), dist.noise(run.rng, (T, N))
            observations, led_to = (np.empty((N, T, obs.shape[1]), np.float32) for _ in range(2))
            actions, rewards = np.empty((N, T), np.int64), np.empty((N, T), np.float32)
            terminated, truncated = np.empty((N, T), bool), np.empty((N, T), bool)
            for t in range(T):
                act = dist.sample(actor(obs), noise[t])                   # [N]
                observations[:, t], actions[:, t] = obs, act
                obs, rewards[:, t], terminated[:, t], truncated[:, t], final = env.step(dist.to_env(act))[:5]
                led_to[:, t] = obs if final is None else final
            o, then, a, r, term, trunc, last = (torch.from_numpy(x).to(run.device) for x in (
                observations, led_to, actions, rewards, terminated, truncated, obs))

            # Evaluate the batch: two rewards, two values, two advantages.
            if update == 0:
                view.update(then)                                         # of a policy that is still near random
            seen, seen_then = view(o), view(then)
            with torch.no_grad():
                bonus = surprise.error(seen, a, seen_then)                # [N, T]
                i = scaler.update_and_scale(bonus, never, never)          # the world ends for no explorer
                logp_old, _, values = policy.evaluate(o, a)               # [N, T]
                bonus_values = policy.v_bonus(torch.cat([o, last[:, None]], 1)).squeeze(-1)          # [N, T + 1]
                # What a step led to, where an episode ended too; for the bonus it leads on into the next one.
                next_values = policy.value(then)
                adv, targets = gae(r, values, next_values, term, trunc, gamma=cfg.gamma, lam=cfg.lam)
                bonus_adv, bonus_targets = gae(i, bonus_values[:, :-1], bonus_values[:, 1:], never, never,
                                               gamma=cfg.bonus_gamma, lam=cfg.lam)
                both = combined_advantage(adv, bonus_adv, cfg.reward_coef, cfg.bonus_coef)

            # Update: policy and values on every step, what is surprised on a share of them.
            batch = [x.reshape(N * T, *x.shape[2:]) for x in (o, a, logp_old, both, targets, bonus_targets)]
            story = [x.reshape(N * T, *x.shape[2:]) for x in (seen, a, seen_then)]
            size = N * T // cfg.minibatches
            fewer = max(1, round(size * cfg.bonus_share))
            for _ in range(cfg.epochs):
                order = torch.randperm(N * T).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch))
                    learned = learn(*(x[rows[:fewer]] for x in story))
            view.update(then)
            run.check_finite(rewards=r, bonus=bonus, values=values, **stats)
            if run.row_due:
                run.log(**stats, bonus=bonus.mean(), bonus_loss=learned["loss"])
        return run.result(policy)
