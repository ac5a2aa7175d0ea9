"""RL²: fast reinforcement learning via slow reinforcement learning (Duan et al. 2016).

RL² learns a learning algorithm. A trial is a few episodes in one task, and each trial samples a new
task. The policy has a memory. It gets its last action and last reward as inputs, and is trained on
the return of the whole trial. So its behaviour within a trial becomes a learning algorithm. The
state of this algorithm is the memory, not the weights. On bandits it tries the arms and then
settles on one.

    x_t = (s_t, a_{t-1}, r_{t-1}, d_{t-1});  h_t = GRU(h_{t-1}, x_t);  a_t ~ pi(. | h_t)  (sec. 2.2)
    J   = E[ sum of discounted rewards of the trial ]

Here d_{t-1} says whether an episode ended. `spinup.envs.memory` shows how x_t encodes actions and
rewards. The memory h continues across the episodes of a trial and is reset between trials. Training
is PPO on sequences instead of steps; the paper uses TRPO. With one epoch and one minibatch it is
A2C, because the clip then has no effect. With one episode per trial it is recurrent PPO, for
partially observed environments.

The policy adapts to the distribution of its training tasks. It fails on other tasks, and it learns
long trials slowly. The paper is arXiv:1611.02779.

Differs from ppo.py by: a GRU; minibatches of whole sequences; returns that continue across the
episodes of a trial; an entropy bonus that falls with lr. It has no target_kl, no clipped values and
no normalised observations.
"""
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import mlp
from spinup.core.normaliser import ReturnScaler
from spinup.core.optim import Latest
from spinup.core.returns import explained_variance, gae
from spinup.core.rollout import collect
from spinup.envs.memory import Inputs
from spinup.envs.spaces import action_distribution, vector_size
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, Count, NonNegative, Positive, Size, Unit
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(BaseConfig):
    episodes: Count = 1              # episodes per trial, which share a memory; 1: recurrent PPO
    inputs: Inputs = "transition"    # transition: obs, last action, reward, end; observation: obs
    num_envs: Size = 64              # environments in parallel, one trial each
    rollout_steps: Count = 64        # steps per environment per update; length of backpropagation
    epochs: Count = 4                # passes over each batch; more: larger policy changes (1-10)
    minibatches: Count = 4           # minibatches of whole sequences, one step each (1-16)
    gamma: Unit = 0.99               # discount factor over the whole trial
    lam: Unit = 0.95                 # lambda of GAE: 1 = least bias, 0 = least variance (0.3-0.99)
    clip_ratio: Positive = 0.2       # clip range of the ratio: 1 - this to 1 + this (0.1-0.3)
    lr: Positive = 1e-3              # initial learning rate (3e-4 to 1e-2)
    anneal: bool = True              # decay lr and entropy_coef linearly to 0
    entropy_coef: NonNegative = 0.01  # weight of the entropy bonus, for exploration early on
    value_coef: NonNegative = 0.5    # weight of the value loss; policy and value share a memory
    max_grad_norm: Positive = 1.0    # largest gradient norm; gradients through time can explode
    hidden_size: Size = 64           # size of the memory (the GRU's hidden state)
    normalise_reward: bool = True    # divide rewards by the standard deviation of the return

    def __post_init__(self):
        super().__post_init__()
        if self.compile:
            raise UserError("--compile does not work with rl2: trial boundaries depend on the "
                            "data; leave out --compile")
        if self.num_envs % self.minibatches:
            raise UserError(f"--minibatches {self.minibatches} does not divide --num-envs "
                            f"{self.num_envs} sequences; choose a divisor of {self.num_envs}")
        self.check_batch()

    @property
    def env_settings(self) -> dict[str, Any]:
        return super().env_settings | {"episodes": self.episodes, "inputs": self.inputs}


class RecurrentActorCritic(nn.Module):
    """GRU with a policy and a value function of its hidden state.

    An input consists of the environment's observation, the last action, reward and episode end, and
    a number that is above 0 at the start of a trial. The memory is reset at that step.
    """

    def __init__(self, obs_size: int, dist: Categorical | DiagGaussian, hidden_size: int):
        super().__init__()
        self.dist, self.hidden_size = dist, hidden_size
        self.gru = nn.GRU(obs_size, hidden_size, batch_first=True)
        # The heads get only the memory. A hidden layer in each combines the parts of the memory.
        self.pi = mlp((hidden_size, hidden_size, dist.num_outputs), activation="relu",
                      output_gain=0.01)
        self.v = mlp((hidden_size, hidden_size, 1), activation="relu")
        is_gaussian = isinstance(dist, DiagGaussian)
        self.log_std = nn.Parameter(torch.zeros(dist.num_outputs)) if is_gaussian else None

    def empty(self, n: int) -> Tensor:
        """Initial memory of a trial, `[n, hidden_size]`."""
        return torch.zeros(n, self.hidden_size, device=self.gru.weight_ih_l0.device)

    def remember(self, obs: Tensor, hidden: Tensor) -> Tensor:
        """Memory `[B, T, H]` after each observation `[B, T, d]`; it starts at `hidden` `[B, H]`."""
        first, found = obs[:, :, -1] > 0, []                              # [B, T]
        begin = [0, *(1 + first[:, 1:].any(0).nonzero().flatten()).tolist(), obs.shape[1]]
        for start, end in pairwise(begin):                                # between trial boundaries
            hidden = torch.where(first[:, start, None], 0, hidden)
            states, last = self.gru(obs[:, start:end], hidden[None].contiguous())
            hidden = last[0]
            found.append(states)
        return torch.cat(found, 1)

    def params(self, states: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Parameters of the action distribution for memories `[..., hidden_size]`."""
        return self.pi(states) if self.log_std is None else (self.pi(states), self.log_std)

    def value(self, states: Tensor) -> Tensor:
        """Values `[...]` of memories `[..., hidden_size]`."""
        return self.v(states).squeeze(-1)

    def actor(self, hidden: Tensor | None = None) -> Callable[[np.ndarray], np.ndarray | tuple]:
        """Return a function from the observations `[N, d]` of each step to the distribution's
        parameters. It keeps a memory, which starts at `hidden` `[N, H]`, by default zeros."""
        hidden = self.empty(0) if hidden is None else hidden

        @torch.no_grad()
        def outputs(obs: np.ndarray) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
            nonlocal hidden
            if len(hidden) != len(obs):
                hidden = self.empty(len(obs))
            seen = torch.as_tensor(obs, device=hidden.device)
            hidden = self.remember(seen[:, None], hidden)[:, 0]
            params = self.params(hidden)
            return params if isinstance(obs, Tensor) else to_numpy(params)
        return outputs


def to_numpy(params: Tensor | tuple[Tensor, Tensor]) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Convert parameters of the action distribution, `[...]`, to numpy."""
    if isinstance(params, tuple):
        return tuple(p.cpu().numpy() for p in params)
    return params.cpu().numpy()


def make_policy(cfg: Config, observation_space: Space,
                action_space: Space) -> RecurrentActorCritic:
    """Create policy and value function; UserError for spaces that RL² cannot use."""
    dist = action_distribution(action_space, cfg.algorithm)
    size = vector_size(observation_space, cfg.algorithm)
    return RecurrentActorCritic(size, dist, cfg.hidden_size)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with RL². `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5, max_grad_norm=cfg.max_grad_norm)
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    dist, N, T = policy.dist, cfg.num_envs, cfg.rollout_steps
    memory = Latest(hidden=policy.empty(N))

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             hidden: Tensor, entropy_coef: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        states = policy.remember(obs, hidden)                             # [B, T, H]
        logp, entropy = dist.log_prob_entropy(policy.params(states), act)
        clip = (cfg.clip_ratio, cfg.clip_ratio)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), clip)
        error = value_loss(policy.value(states), target)
        stats["entropy"], stats["value_loss"] = entropy.detach().mean(), error.detach().mean()
        return aggregate(surrogate + cfg.value_coef * error - entropy_coef * entropy), stats

    def value_of(obs: Tensor, hidden: Tensor) -> Tensor:      # [B] of [B, d] and the memory [B, H]
        return policy.value(policy.remember(obs[:, None], hidden)[:, 0])

    # `minimize(*batch)`: zero_grad, backward, clip, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    updates = cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer, scaler=scaler, memory=memory)
        for update in run.updates(updates, N * T):
            # Collect. The memory continues from the last rollout.
            began = memory["hidden"]                                      # [N, H]
            rollout = collect(env, policy.actor(began), dist, T, run.rng, run.device)
            obs, act, rew = rollout.obs[:, :T], rollout.act, rollout.rew  # [N, T, ...]
            if cfg.normalise_reward:
                rew = scaler.update_and_scale(rew, rollout.terminated, rollout.truncated)

            # Evaluate the batch. For advantages a trial is one episode: the end of an episode
            # within it does not end the sum, so actions get credit for later episodes.
            with torch.no_grad():
                states = policy.remember(obs, began)                      # [N, T, H]
                logp_old = dist.log_prob(policy.params(states), act)      # [N, T]
                values = policy.value(states)                             # [N, T]
                next_values = rollout.next_values(values, value_of, states)
                adv, ret = gae(rew, values, next_values, rollout.terminated,
                               rollout.truncated, gamma=cfg.gamma, lam=cfg.lam)
            memory["hidden"] = states[:, -1].clone()

            # Update: several epochs of shuffled minibatches of whole sequences.
            share = 1 - update / updates if cfg.anneal else 1.0
            lr = cfg.lr * share
            coef = torch.tensor(cfg.entropy_coef * share, device=run.device)
            batch = (obs, act, logp_old, adv, ret, began)
            for _ in range(cfg.epochs):
                order = torch.randperm(N).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch), coef, lr=lr)
            run.check_finite(rewards=rew, values=values, advantages=adv, **stats)
            if run.row_due:
                explained = explained_variance(values, ret)
                run.log(**stats, learning_rate=lr, explained_variance=explained)
        return run.result(policy)
