"""TD3 with behaviour cloning, TD3+BC (Fujimoto & Gu 2021, arXiv:2106.06860).

Offline training tries no action, so no reward corrects the value of an overestimated action. The
actor of TD3 selects such actions, the targets bootstrap from their values, and the errors can grow.
TD3+BC adds a second term to the loss of the actor. This term keeps the actor near the actions of
the dataset:

    L(mu)  = E[ -lambda Q_1(s, mu(s)) + (mu(s) - a)^2 ]                                      (eq. 3)
    lambda = alpha / mean |Q_1(s, a)|                                                       (eq. 5)

lambda makes the weight of the values independent of the size of the rewards. A large alpha favours
the values, and a small alpha favours imitation. As in the authors' code, the mean is over the
values of the actor's actions, because the loss computes these values anyway. The observations are
normalised with the mean and the standard deviation of the dataset (eq. 4), and clipped to -10 to
10. The critics, their targets and the delays are those of TD3.

Differs from td3.py by: the term (mu(s) - a)^2 and the weight lambda; normalised observations; a
dataset instead of environment steps; no saturation penalty.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.ddpg import deterministic_policy_loss, squared_error
from spinup.algos.dqn import td_target
from spinup.algos.td3 import clipped_double_q, smoothed_action
from spinup.core.bounded import NoisyAction
from spinup.core.critics import ActorCritics, frozen
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.data.batches import Batches
from spinup.envs.spaces import action_bounds, vector_size
from spinup.runs.config import Count, NonNegative, Positive, Unit, Widths
from spinup.runs.offline import OfflineConfig, OfflineRun, open_data
from spinup.runs.run import Result


@dataclass(kw_only=True)
class Config(OfflineConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 3e-4                # learning rate of actor and critics (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of target networks, per actor step
    target_noise: NonNegative = 0.2    # standard deviation of target-action noise; smooths Q
    noise_clip: NonNegative = 0.5      # clip range of target_noise, to stay near the target action
    policy_delay: Count = 2            # critic gradient steps per actor gradient step
    alpha: Positive = 2.5              # weight of the values relative to imitation (1 to 4)
    imitate: bool = True               # stay near the dataset's actions; without it, offline TD3
    normalise_obs: bool = True         # normalise observations with the dataset's mean and std
    hidden: Widths = (256, 256)        # hidden layers of actor and critics

    ONLY_WITH = {"noise_clip": "target_noise", "alpha": "imitate"}


def value_weight(q: Tensor, alpha: float) -> Tensor:
    """`lambda = alpha / mean |Q|`, `[]`, from values `[B]` (eq. 5); a constant in the loss."""
    return alpha / q.detach().abs().mean()


def imitation_loss(act: Tensor, data_act: Tensor) -> Tensor:
    """Squared distance of actions from those of the dataset, averaged over dimensions: `[B]` from
    `[B, k]` each, scaled to -1 to 1 (the second term of eq. 3)."""
    return (act - data_act).square().mean(-1)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritics:
    """Create actor and two critics; UserError for action or observation spaces TD3 cannot use."""
    dist = NoisyAction(*action_bounds(action_space, cfg.algorithm), 0.0)
    size = vector_size(observation_space, cfg.algorithm)
    return ActorCritics((size,), dist, cfg.hidden, critics=2, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with TD3+BC. `resume`: folder of a run with the same settings, to resume
    it."""
    # Set up.
    env, data = open_data(cfg)
    run = OfflineRun(cfg, env, data, resume)                  # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    batches = Batches(data, policy.dist.unscale(data.actions), policy.normaliser, run.device)
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
    pi_optimizer = FlatAdam(policy.pi.parameters(), **settings)
    q_optimizer = FlatAdam(policy.q.parameters(), **settings)
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

    def pi_loss(obs: Tensor, data_act: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        act, _ = policy.params(obs)                                       # [B, k]
        with frozen(q_optimizer.params):
            q = policy.values(obs, act, critics=1)                        # [1, B]
        loss = value_weight(q[0], cfg.alpha) * deterministic_policy_loss(q)       # [B]
        distance = imitation_loss(act, data_act)                          # [B]
        if cfg.imitate:
            loss = loss + distance
        return loss.mean(), {"distance": distance.detach().mean()}

    # `minimize_q(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize_q = q_optimizer.minimizer(q_loss)
    minimize_pi = pi_optimizer.minimizer(pi_loss)
    with run:
        run.keep(policy=policy, target=target, pi_optimizer=pi_optimizer, q_optimizer=q_optimizer,
                 q_stats=q_stats, pi_stats=pi_stats)
        for _ in run.updates(cfg.total_steps):
            obs, act, rew, next_obs, terminated, _ = batches.draw(run.rng, cfg.batch_size)
            noise = cfg.target_noise * torch.randn_like(act)
            q_stats.update(minimize_q(obs, act, rew, next_obs, terminated, noise))
            run.check_finite(q_loss=q_stats["loss"])
            if q_optimizer.steps % cfg.policy_delay == 0:
                pi_stats.update(minimize_pi(obs, act))
                polyak(target_weights, weights, cfg.tau)
                run.check_finite(pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        distance=pi_stats["distance"])
        return run.result(policy)
