"""RL²: fast reinforcement learning via slow reinforcement learning (Duan et al. 2016).

The learning algorithm itself is learned. A trial is a few episodes in one task, and each trial
draws a new task. The policy has a memory, sees its last action and the reward of it, and is trained
for the return of the whole trial. Its behaviour within a trial is then a learning algorithm, whose
state is the memory and not the weights: trained on bandits it tries arms and settles.

    x_t = (s_t, a_{t-1}, r_{t-1}, d_{t-1});  h_t = GRU(h_{t-1}, x_t);  a_t ~ pi(. | h_t)  (sec. 2.2)
    J   = E[ sum of discounted rewards of the trial ]

h is kept from episode to episode and emptied between trials. Training is PPO on sequences in place
of steps; with one epoch and one minibatch it is A2C, as the clip then never acts. The paper has
TRPO. With one episode to a trial it is recurrent PPO, for partially observed environments.

It learns the prior from which the tasks are drawn: on other tasks it fails, and it learns long
trials slowly. The paper is arXiv:1611.02779.

Differs from ppo.py by: a GRU; minibatches of whole sequences; no border between the episodes of a
trial.
"""
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

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
from spinup.core.returns import gae
from spinup.core.rollout import collect
from spinup.envs.spaces import action_distribution, vector_size
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, Count, NonNegative, Positive, Size, Unit
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(BaseConfig):
    episodes: Count = 1              # episodes of a trial: how long memory lasts; 1: recurrent PPO
    num_envs: Size = 64              # copies stepped together: as many trials side by side
    rollout_steps: Count = 64        # steps per copy between updates: reach of gradients in time
    epochs: Count = 4                # passes over a batch; more rely on the clip alone (1-10)
    minibatches: Count = 4           # pieces of a batch, of whole sequences; a step each (1-16)
    gamma: Unit = 0.99               # discount, through the whole trial
    lam: Unit = 0.95                 # of GAE: 1 = unbiased and noisy, 0 = trusts V alone (0.3-0.99)
    clip_ratio: Positive = 0.2       # ratios beyond 1 +- this get no more gradient (0.1-0.3)
    lr: Positive = 1e-3              # learning rate at the start (3e-4 to 1e-2)
    anneal: bool = True              # lr and entropy_coef fall linearly to 0
    entropy_coef: NonNegative = 0.01  # weight of the entropy bonus, until trying has been learned
    value_coef: NonNegative = 0.5    # weight of the value loss: policy and value share the memory
    max_grad_norm: Positive = 1.0    # longer gradients are scaled down to it; in time they explode
    hidden_size: Size = 64           # numbers that the memory holds
    normalise_reward: bool = True    # divide rewards by the deviation of the return; V needs it

    def __post_init__(self):
        super().__post_init__()
        if self.compile:
            raise UserError("--compile does not work with rl2: trial boundaries depend on the "
                            "data; leave out --compile")
        if self.num_envs % self.minibatches:
            raise UserError(f"--minibatches {self.minibatches} does not divide --num-envs "
                            f"{self.num_envs} sequences; choose a divisor of {self.num_envs}")
        if self.num_envs * self.rollout_steps == self.minibatches:
            raise UserError("advantages cannot be normalised over minibatches of one step; choose "
                            f"longer --rollout-steps, or --minibatches below {self.minibatches}")
        if self.total_steps < self.num_envs * self.rollout_steps:
            raise UserError(f"--total-steps {self.total_steps} is less than one batch of "
                            f"--num-envs {self.num_envs} x --rollout-steps {self.rollout_steps} "
                            "steps; choose a larger one")

    @property
    def env_settings(self) -> dict[str, int]:
        return {"episodes": self.episodes}


class RecurrentActorCritic(nn.Module):
    """A GRU, and a policy and a value function of its state.

    The last number of an observation says that a trial begins: there the memory is emptied.
    """

    def __init__(self, obs_size: int, dist: Categorical | DiagGaussian, hidden_size: int):
        super().__init__()
        self.dist, self.hidden_size = dist, hidden_size
        self.gru = nn.GRU(obs_size, hidden_size, batch_first=True)
        # A hidden layer combines memory and observation: without it 122, not 127, on small MDPs.
        self.pi = mlp((hidden_size, hidden_size, dist.num_outputs), activation="relu",
                      output_gain=0.01)
        self.v = mlp((hidden_size, hidden_size, 1), activation="relu")
        is_gaussian = isinstance(dist, DiagGaussian)
        self.log_std = nn.Parameter(torch.zeros(dist.num_outputs)) if is_gaussian else None

    def empty(self, n: int) -> Tensor:
        """Memory at the beginning of a trial, `[n, hidden_size]`."""
        return torch.zeros(n, self.hidden_size, device=self.gru.weight_ih_l0.device)

    def remember(self, obs: Tensor, hidden: Tensor) -> Tensor:
        """Memory `[B, T, H]` after each of the observations `[B, T, d]`, from `hidden` `[B, H]`."""
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
        """Values of memories, `[..., hidden_size]` to `[...]`."""
        return self.v(states).squeeze(-1)

    def actor(self, hidden: Tensor | None = None) -> Callable[[np.ndarray], np.ndarray | tuple]:
        """A function from observations `[N, d]` of successive steps to the distribution's
        parameters. It carries its own memory on from `hidden` `[N, H]`, by default empty."""
        hidden = self.empty(0) if hidden is None else hidden

        @torch.no_grad()
        def outputs(obs: np.ndarray) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
            nonlocal hidden
            if len(hidden) != len(obs):
                hidden = self.empty(len(obs))
            seen = torch.from_numpy(obs).to(hidden.device)
            hidden = self.remember(seen[:, None], hidden)[:, 0]
            return to_numpy(self.params(hidden))
        return outputs


def to_numpy(params: Tensor | tuple[Tensor, Tensor]) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Parameters of the action distribution, `[...]`, for acting."""
    if isinstance(params, tuple):
        return tuple(p.cpu().numpy() for p in params)
    return params.cpu().numpy()


def make_policy(cfg: Config, observation_space: Space,
                action_space: Space) -> RecurrentActorCritic:
    """Policy and value function; UserError for spaces that RL² cannot serve."""
    dist = action_distribution(action_space, cfg.algorithm)
    size = vector_size(observation_space, cfg.algorithm)
    return RecurrentActorCritic(size, dist, cfg.hidden_size)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with RL². `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: make networks after it
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

    minimize, updates = optimizer.minimizer(loss), cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer, scaler=scaler, memory=memory)
        for update in run.updates(updates, N * T):
            # Collect. The memory goes on where the last rollout left it.
            began = memory["hidden"]                                      # [N, H]
            rollout = collect(env, policy.actor(began), dist, T, run.rng, run.device)
            obs, act, rew = rollout.obs[:, :T], rollout.act, rollout.rew  # [N, T, ...]
            if cfg.normalise_reward:
                rew = scaler.update_and_scale(rew, rollout.terminated, rollout.truncated)

            # Evaluate the batch. To advantages a trial is one episode: only its end is one.
            with torch.no_grad():
                states = policy.remember(obs, began)                      # [N, T, H]
                logp_old = dist.log_prob(policy.params(states), act)      # [N, T]
                values = policy.value(states)                             # [N, T]
                next_values = rollout.next_values(values, value_of, states)
                adv, ret = gae(rew, values, next_values, rollout.terminated, rollout.truncated,
                               gamma=cfg.gamma, lam=cfg.lam)
            memory["hidden"] = states[:, -1].clone()

            # Update: several epochs of shuffled minibatches of whole sequences.
            share = 1 - update / updates if cfg.anneal else 1.0
            coef = torch.tensor(cfg.entropy_coef * share, device=run.device)
            batch = (obs, act, logp_old, adv, ret, began)
            for _ in range(cfg.epochs):
                order = torch.randperm(N).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch), coef, lr=cfg.lr * share)
            run.check_finite(rewards=rew, values=values, **stats)
            if run.row_due:
                explained = 1 - (ret - values).var() / ret.var()
                run.log(**stats, learning_rate=cfg.lr * share, explained_variance=explained)
        return run.result(policy)
