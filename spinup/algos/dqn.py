"""Deep Q-learning (Mnih et al. 2015, "Human-level control through deep reinforcement learning").

DQN learns the value Q of every action and takes the best one. The target y contains the network's
own estimates, so training can be unstable. Two things stabilise it: a replay buffer, from which
transitions are sampled at random, and a target network Q', a copy of Q that is updated rarely.

    y = r + gamma (1 - terminated) max_a' Q'(s', a')                                      (alg. 1)
    L = E[ huber( y - Q(s, a) ) ]

Four improvements, of which the first is on by default:
    double       y uses Q'(s', argmax_a' Q(s', a')): one network chooses, the other evaluates
                 (van Hasselt et al. 2016, arXiv:1509.06461, eq. 4)
    dueling      Q = V + A - mean A (Wang et al. 2016, arXiv:1511.06581, eq. 9)
    n_steps      y = r_1 + ... + gamma^(n-1) r_n + gamma^n (1 - terminated) max_a' Q'(s', a'), with
                 s' n steps later: rewards propagate n times as fast (Sutton 1988). The later
                 actions are those of older policies. This is not corrected
    prioritised  transitions with large errors are sampled more often, and get smaller weights
                 (Schaul et al. 2016, arXiv:1511.05952)

Differs from ppo.py by: values instead of a policy; a replay buffer, which reuses each transition
many times, long after it was collected.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor
from torch.nn.functional import huber_loss

from spinup.core.critics import QNetwork
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.core.priorities import Priorities
from spinup.envs.spaces import number_of_actions, observation_view
from spinup.runs.config import AtariConfig, Count, Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(ReplayConfig, AtariConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 6e-4                # initial learning rate (1e-4 for images, up to 4e-3)
    anneal: bool = False               # decay lr linearly to 0; the final policy varies less
    target_every: Count = 250          # gradient steps between updates of Q'; too few: Q diverges
    epsilon: Unit = 0.05               # final share of random actions, to keep exploring
    explore: Unit = 0.1                # fraction of the run over which epsilon falls from 1
    double: bool = True                # choose the next action with Q and evaluate it with Q'
    dueling: bool = False              # separate streams for the state value and the advantages
    n_steps: Count = 1                 # rewards added up before bootstrapping from Q' (1-5)
    prioritised: bool = False          # sample transitions with large TD errors more often
    alpha: Unit = 0.6                  # exponent of priorities: 0 = uniform, 1 = proportional
    beta: Unit = 0.4                   # initial exponent of the importance weights; grows to 1
    max_grad_norm: Positive = 10.0     # largest gradient norm; larger gradients are scaled down
    hidden: Widths = (256, 256)        # hidden layers; images use the Nature CNN instead
    normalise_obs: bool = False        # vectors: subtract mean, divide by std, if scales differ

    ONLY_WITH = {"alpha": "prioritised", "beta": "prioritised"}


def td_target(ret: Tensor, discount: Tensor | float, terminated: Tensor,
              next_value: Tensor) -> Tensor:
    """TD target `[B]`: ret + discount (1 - terminated) next_value, each of shape `[B]`. `ret` is
    the sum of rewards before the bootstrap. `discount` may be one number."""
    return ret + discount * (1 - terminated) * next_value


def greedy_value(target_q: Tensor, online_q: Tensor | None = None) -> Tensor:
    """max_a Q'(s, a), `[B]` from `[B, n]`. With `online_q` (double DQN), Q' of the action with the
    largest `online_q`."""
    if online_q is None:
        return target_q.amax(-1)
    return target_q.gather(-1, online_q.argmax(-1, keepdim=True)).squeeze(-1)


def n_step_return(rew: Tensor, length: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Return two tensors `[B]`: the sum r_1 + gamma r_2 + ..., and gamma^length, the discount of
    the next value.

    rew: `[B, n]`, with zeros after each row's `length`. length: `[B]`, in steps.
    """
    if rew.shape[1] == 1:                                     # one step: no sum needed
        return rew[:, 0], torch.full_like(rew[:, 0], gamma)
    powers = gamma ** torch.arange(rew.shape[1], device=rew.device)
    return (rew * powers).sum(-1), gamma ** length


def exploration_rate(passed: float, explore: float, final: float) -> float:
    """Share of random actions after the fraction `passed` of the run. It falls linearly from 1 to
    `final` over the first fraction `explore` of the run."""
    return max(final, 1 - passed / max(explore, 1e-9) * (1 - final))


def importance_weights(probability: np.ndarray, size: int, beta: float) -> np.ndarray:
    """Weights (size x probability)^-beta, `[B]`, divided by the largest of the batch (Schaul et al.
    2016, sec. 3.4). With beta = 1, twice the probability gives half the weight."""
    weights = (size * probability) ** -beta
    return (weights / weights.max()).astype(np.float32)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> QNetwork:
    """Create the Q network; UserError for an action space that DQN cannot use."""
    n = number_of_actions(action_space, cfg.algorithm)
    return QNetwork(observation_view(observation_space)[0], n, cfg.hidden, cfg.dueling,
                    normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with DQN. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-8,
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    replay = make_replay(cfg, env, (), np.int64)
    priorities = Priorities(replay.size, cfg.alpha) if cfg.prioritised else None
    dist, N, S = policy.dist, cfg.num_envs, cfg.update_every
    stats = Latest()

    def loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor, terminated: Tensor,
             length: Tensor, weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            ret, discount = n_step_return(rew, length, cfg.gamma)
            next_value = greedy_value(target(next_obs), policy(next_obs) if cfg.double else None)
            q_target = td_target(ret, discount, terminated, next_value)   # [B]
        q = policy(obs).gather(-1, act[:, None]).squeeze(-1)              # [B]
        loss = weight * huber_loss(q, q_target, reduction="none")
        error = (q - q_target).detach().abs()
        return loss.mean(), {"errors": error, "error": error.mean(), "q": q.detach().mean()}

    # `minimize(*batch)`: zero_grad, backward, clip, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    with run:
        env.reset()
        run.keep(policy=policy, target=target, optimizer=optimizer, replay=replay, stats=stats,
                 priorities=priorities)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect.
            passed = run.steps / cfg.total_steps
            warming_up = replay.count < cfg.learning_starts
            epsilon = exploration_rate(passed, cfg.explore, cfg.epsilon)
            policy.epsilon.fill_(1 if warming_up else epsilon)
            for noise in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                act = dist.sample(actor(obs), noise)                      # [N]
                replay.add(obs, act, env.step(dist.to_env(act)))
                policy.observe(obs)                           # statistics of --normalise-obs
                if priorities:
                    priorities.follow(replay)

            # Update: update_ratio sets the gradient steps, for any number of environments.
            lr = cfg.lr * (1 - passed) if cfg.anneal else cfg.lr
            if replay.count >= cfg.learning_starts:
                for _ in range(run.updates_due(cfg.update_ratio)):
                    if priorities:
                        rows, probability = priorities.draw(run.rng, cfg.batch_size, replay.count)
                        beta = cfg.beta + passed * (1 - cfg.beta)
                        weight = importance_weights(probability, len(replay), beta)       # [B]
                        weight = torch.from_numpy(weight).to(run.device)
                    else:
                        rows = replay.draw(run.rng, cfg.batch_size)
                        weight = torch.ones((), device=run.device)
                    batch = replay.sample_n(rows, cfg.n_steps).to(run.device)
                    batch = batch.seen(policy.normalise)
                    stats.update(minimize(*batch, weight, lr=lr))
                    if priorities:
                        priorities.set(rows, stats["errors"].cpu().numpy() + 1e-6)
                    if optimizer.steps % cfg.target_every == 0:
                        polyak(target_weights, weights, 1)
                    run.check_finite(loss=stats["loss"])
            if run.row_due:
                run.log(q=stats["q"], error=stats["error"], loss=stats["loss"],
                        grad_norm=stats["grad_norm"], epsilon=policy.epsilon, learning_rate=lr)
        return run.result(policy)
