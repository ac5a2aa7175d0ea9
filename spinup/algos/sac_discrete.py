"""Soft actor-critic for discrete actions (Christodoulou 2019, arXiv:1910.07207).

The policy is a softmax, so every action's probability is known. An expectation over n actions is
then a sum of n products. SAC estimates this expectation from one sampled action, and needs a
gradient through it. Here the losses sample nothing, and the critics have one output per action.

    V(s)     = sum_a pi(a|s) ( min_i Q_i(s, a) - alpha log pi(a|s) )                    (eq. 10)
    y        = r + gamma (1 - terminated) V'(s'),   V' with the target critics
    L(pi)    = -E[ V(s) ],   critics held constant                                      (eq. 12)
    L(alpha) = -E[ log alpha x sum_a pi(a|s) ( log pi(a|s) + target entropy ) ]         (eq. 11)

As in sac.py, L(alpha) uses log alpha where eq. 11 has alpha. The entropy of n actions lies between
0 and log n. So the target entropy is a share of log n.

Differs from sac.py by: sums over actions in place of sampled actions and their gradient; critics of
the state with one output per action; a target entropy relative to log n; vectors only,
which are not normalised.
"""
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from spinup.algos.ddpg import squared_error
from spinup.algos.dqn import td_target
from spinup.algos.sac import soft_value, temperature_loss
from spinup.core.distributions import Categorical
from spinup.core.fast.acting import outputs_of
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import relu_mlp
from spinup.core.optim import Latest, polyak
from spinup.envs.spaces import number_of_actions, vector_size
from spinup.runs.config import Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(ReplayConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 1e-3                # learning rate of actor and critic (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of the target networks (Polyak)
    alpha: Positive = 1.0              # initial temperature: reward per nat of entropy
    learn_alpha: bool = True           # adapt alpha to keep the entropy at `target_entropy`
    target_entropy: Unit = 0.5         # share of log n, the largest entropy; 0.98 in the paper
    hidden: Widths = (256, 256)        # hidden layers of actor and critics

    ONLY_WITH = {"target_entropy": "learn_alpha"}


class ActorCritics(nn.Module):
    """Actor with n logits, and two critics with n values: MLPs with ReLU for vectors `[..., d]`."""

    def __init__(self, obs_size: int, n: int, hidden: Sequence[int]):
        super().__init__()
        self.dist = Categorical((n,))
        self.pi = relu_mlp(obs_size, *hidden, n)
        self.q = nn.ModuleList(relu_mlp(obs_size, *hidden, n) for _ in range(2))

    def log_pi(self, obs: Tensor) -> Tensor:
        """Log-probabilities of all actions, `[B, n]`, for observations `[B, d]`."""
        return self.pi(obs).log_softmax(-1)

    def values(self, obs: Tensor) -> Tensor:
        """Q of all actions by each critic, `[critics, B, n]`, for observations `[B, d]`."""
        return torch.stack([q(obs) for q in self.q])

    def actor(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return a numpy function from observations `[N, d]` to logits `[N, n]`. It always uses the
        current weights."""
        return outputs_of(self.pi)


def expectation(log_pi: Tensor, x: Tensor) -> Tensor:
    """Mean of x over the actions of a policy, sum_a pi(a) x(a), `[B]` from `[B, n]` each. With the
    x of `soft_value` it is V(s) (eq. 10)."""
    return (log_pi.exp() * x).sum(-1)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritics:
    """Create actor and two critics; UserError for action or observation spaces that this algorithm
    cannot use."""
    n = number_of_actions(action_space, cfg.algorithm)
    size = vector_size(observation_space, cfg.algorithm)
    policy = ActorCritics(size, n, cfg.hidden)
    policy.log_alpha = nn.Parameter(torch.tensor(math.log(cfg.alpha)))
    return policy


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with discrete SAC. `resume`: folder of a run with the same settings, to resume
    it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    if not cfg.learn_alpha:
        policy.log_alpha.data.fill_(math.log(cfg.alpha))      # not that of the run in --init
    target = deepcopy(policy).requires_grad_(False)
    pi_params = list(policy.pi.parameters())
    if cfg.learn_alpha:
        pi_params.append(policy.log_alpha)                    # learned together with the actor
    q_params, target_weights = list(policy.q.parameters()), list(target.q.parameters())
    settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
    pi_optimizer = FlatAdam(pi_params, **settings)
    q_optimizer = FlatAdam(q_params, **settings)
    dist, N, S = policy.dist, cfg.num_envs, cfg.update_every
    target_entropy = cfg.target_entropy * math.log(dist.num_outputs)
    replay = make_replay(cfg, env, (), np.int64)
    q_stats, pi_stats = Latest(), Latest()

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_log_pi = policy.log_pi(next_obs)                         # [B, n]
            next_q = target.values(next_obs)                              # [2, B, n]
            soft_q = soft_value(next_q, next_log_pi, policy.log_alpha.exp())      # [B, n]
            next_value = expectation(next_log_pi, soft_q)                 # [B]
            q_target = td_target(rew, cfg.gamma, terminated, next_value)  # [B]
        q = policy.values(obs).take_along_dim(act[None, :, None], -1).squeeze(-1)     # [2, B]
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        log_pi = policy.log_pi(obs)                                       # [B, n]
        alpha = policy.log_alpha.exp().detach()
        with torch.no_grad():
            q = policy.values(obs)                                        # [2, B, n]
        loss = -expectation(log_pi, soft_value(q, log_pi, alpha))         # eq. 12
        if cfg.learn_alpha:                                   # eq. 11; no gradient to the policy
            loss = loss + expectation(log_pi.detach(), temperature_loss(policy.log_alpha, log_pi,
                                                                        target_entropy))
        return loss.mean(), {"entropy": -expectation(log_pi, log_pi).detach().mean()}

    # `minimize_q(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize_q = q_optimizer.minimizer(q_loss)
    minimize_pi = pi_optimizer.minimizer(pi_loss)
    with run:
        env.reset()
        run.keep(policy=policy, target=target, pi_optimizer=pi_optimizer, q_optimizer=q_optimizer,
                 replay=replay, q_stats=q_stats, pi_stats=pi_stats)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect. Equal logits are uniform actions.
            warming_up = replay.count < cfg.learning_starts
            for noise in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                logits = actor(obs)                                       # [N, n]
                if warming_up:
                    logits = 0 * logits
                act = dist.sample(logits, noise)                          # [N]
                replay.add(obs, act, env.step(dist.to_env(act)))

            # Update: update_ratio sets the gradient steps, for any number of environments.
            if replay.count >= cfg.learning_starts:
                for _ in range(run.updates_due(cfg.update_ratio)):
                    rows = replay.draw(run.rng, cfg.batch_size)
                    batch = replay.sample(rows).to(run.device)
                    obs, act, rew, next_obs, terminated, _ = batch
                    q_stats.update(minimize_q(obs, act, rew, next_obs, terminated))
                    pi_stats.update(minimize_pi(obs))
                    polyak(target_weights, q_params, cfg.tau)
                    run.check_finite(q_loss=q_stats["loss"], pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        entropy=pi_stats["entropy"], alpha=policy.log_alpha.exp().detach())
        return run.result(policy)
