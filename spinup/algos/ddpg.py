"""Deep deterministic policy gradient, DDPG (Lillicrap et al. 2016, arXiv:1509.02971).

Q-learning takes a maximum over actions. With continuous actions, trying them all is impossible.
DDPG learns the best action with a second network: the actor mu maximises the critic Q. Both learn
from a replay buffer. The targets use copies mu' and Q', which slowly follow mu and Q.

    y     = r + gamma (1 - terminated) Q'(s', mu'(s'))                                    (alg. 1)
    L(Q)  = E[ (Q(s, a) - y)^2 ]                                                           (eq. 4)
    L(mu) = -E[ Q(s, mu(s)) ]                                                              (eq. 6)

The actor selects actions whose value Q overestimates. td3.py and sac.py reduce this weakness.

Differs from dqn.py by: an actor in place of the maximum; Gaussian noise on actions in place of
random actions (the paper's noise is correlated in time); target networks that move at every
gradient step; the squared error; a penalty on saturated actions; no gradient clipping.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.dqn import td_target
from spinup.core.bounded import NoisyAction
from spinup.core.critics import ActorCritics, frozen
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.envs.spaces import action_bounds, vector_size
from spinup.runs.config import NonNegative, Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(ReplayConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 1e-3                # learning rate of actor and critic (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of the target networks (Polyak)
    explore_noise: NonNegative = 0.1   # standard deviation of noise on actions in -1 to 1
    saturation_coef: NonNegative = 1e-3    # weight of the penalty on squared outputs before tanh
                                       # (where tanh is flat, the actor stops learning)
    hidden: Widths = (256, 256)        # hidden layers of actor and critic
    normalise_obs: bool = False        # vectors: subtract mean, divide by std, if scales differ


def squared_error(q: Tensor, target: Tensor) -> Tensor:
    """(Q - y)^2, `[critics, B]`, of values `[critics, B]` and their shared target `[B]` (eq. 4).

    ValueError for other shapes: [B, 1] and [B] would broadcast to [B, B], and the critic would
    learn the mean of all targets.
    """
    if q.ndim != 2 or q.shape[1:] != target.shape:
        raise ValueError(f"the critics have shape {tuple(q.shape)} and the target has "
                         f"{tuple(target.shape)}; pass [critics, B] and [B]")
    return (q - target).square()


def deterministic_policy_loss(q: Tensor) -> Tensor:
    """Actor loss -Q(s, mu(s)), `[B]` from `[1, B]`; its gradient is eq. 6, negated."""
    return -q[0]


def saturation(output: Tensor) -> Tensor:
    """Mean square of the actor's outputs before tanh, `[B]` from `[B, k]`. As a penalty, it keeps
    the outputs where tanh is not flat (not in the paper)."""
    return output.square().mean(-1)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritics:
    """Create actor and critic; UserError for action or observation spaces DDPG cannot use."""
    dist = NoisyAction(*action_bounds(action_space, cfg.algorithm), cfg.explore_noise)
    return ActorCritics((vector_size(observation_space, cfg.algorithm),), dist, cfg.hidden,
                        critics=1, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with DDPG. `resume`: folder of a run with the same settings, to resume it."""
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

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_act, _ = target.params(next_obs)                         # [B, k]
            next_value = target.values(next_obs, next_act)[0]             # [B]
            q_target = td_target(rew, cfg.gamma, terminated, next_value)  # [B]
        q = policy.values(obs, act)                                       # [1, B]
        # The mean over the batch, and the sum over the critics.
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        output = policy.pi(obs)                                           # [B, k], before tanh
        act, _ = dist.params(output)
        with frozen(q_optimizer.params):
            loss = deterministic_policy_loss(policy.values(obs, act))     # [B]
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
                    q_stats.update(minimize_q(obs, act, rew, next_obs, terminated))
                    pi_stats.update(minimize_pi(obs))
                    polyak(target_weights, weights, cfg.tau)
                    run.check_finite(q_loss=q_stats["loss"], pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        action_std=pi_stats["action_std"])
        return run.result(policy)
