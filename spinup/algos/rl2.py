"""RL²: fast reinforcement learning via slow reinforcement learning (Duan et al. 2016, arXiv:1611.02779).

Learning itself is learned. Each trial is a few episodes in a task that is drawn anew; the policy has a memory, sees
what it did and what that earned, and is trained for the return of the whole trial. What it then does within a trial is
a learning algorithm, whose state is the memory and not the weights: trained on bandits it tries arms and settles.

    x_t = (s_t, a_{t-1}, r_{t-1}, d_{t-1});   h_t = GRU(h_{t-1}, x_t);   a_t ~ pi(. | h_t)                  (sec. 2.2)
    J   = E[ sum of discounted rewards of the trial ];  h is kept from episode to episode, wiped between trials

Trained by PPO, on sequences in place of steps: with one epoch in one minibatch that is A2C, as the clip then never
acts. The paper has TRPO. With one episode to a trial it is recurrent PPO, for environments that do not show all that
matters.

It learns the prior that the tasks are drawn from, no more: on others it fails, and on long trials it learns slowly.

Differs from ppo.py by: a GRU; minibatches of whole sequences; no border between the episodes of a trial.
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
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import mlp
from spinup.core.normaliser import ReturnScaler
from spinup.core.optim import FlatAdam, Latest
from spinup.core.returns import gae
from spinup.envs import make
from spinup.envs.spaces import action_distribution, vector_size
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, Count, NonNegative, Positive, Unit
from spinup.runs.run import Result, Run

ACTIONS = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
OBSERVATIONS = ("vectors",)


@dataclass(kw_only=True)
class Config(BaseConfig):
    episodes: Count = 1                # episodes of a trial, through which the memory lasts; 1 = recurrent PPO
    num_envs: Count = 64               # copies stepped together: as many trials side by side
    rollout_steps: Count = 64          # steps per copy between updates: how far back a gradient goes; a whole trial
    epochs: Count = 4                  # passes over a batch (1-10)
    minibatches: Count = 4             # pieces of a batch, of whole sequences; each is one gradient step (1-16)
    gamma: Unit = 0.99                 # discount, through the whole trial
    lam: Unit = 0.95                   # 1 = unbiased and noisy, 0 = trusts the value function (0.3-0.99)
    clip_ratio: Positive = 0.2         # beyond 1 +- this, a step that already improved gets no more gradient (0.1-0.3)
    lr: Positive = 1e-3                # step size at the start (3e-4 to 1e-2)
    anneal: bool = True                # lr and entropy_coef fall linearly to 0
    entropy_coef: NonNegative = 0.01   # a reward for staying random, until it has learned what trying is good for
    value_coef: NonNegative = 0.5      # weight of the value error: policy and value share the memory
    max_grad_norm: Positive = 1.0      # longer gradients are scaled down to this; through time they can explode
    hidden_size: Count = 64            # numbers that the memory holds
    normalise_reward: bool = True      # divide rewards by the deviation of the return; else values fill the memory

    def __post_init__(self):
        super().__post_init__()
        if self.compile:
            raise UserError("rl2 cannot be compiled, for where trials begin is in the data; leave out --compile")
        if self.num_envs % self.minibatches:
            raise UserError(f"--minibatches {self.minibatches} does not divide --num-envs {self.num_envs} sequences; "
                            f"choose a divisor of {self.num_envs}")
        if self.num_envs * self.rollout_steps == self.minibatches:
            raise UserError("minibatches of one step cannot be whitened; choose longer --rollout-steps, or "
                            f"--minibatches below {self.minibatches}")
        if self.total_steps < self.num_envs * self.rollout_steps:
            raise UserError(f"--total-steps {self.total_steps} is less than one batch of --num-envs {self.num_envs} x "
                            f"--rollout-steps {self.rollout_steps} steps; choose a larger one")

    @property
    def env_settings(self) -> dict[str, int]:
        return {"episodes": self.episodes}


class RecurrentActorCritic(nn.Module):
    """A GRU, and a policy and a value function of what it holds. The last number of an observation says that a trial
    begins: there the memory is empty, whatever came before."""

    def __init__(self, obs_size: int, dist: Categorical | DiagGaussian, hidden_size: int):
        super().__init__()
        self.dist, self.hidden_size = dist, hidden_size
        self.gru = nn.GRU(obs_size, hidden_size, batch_first=True)
        # A hidden layer, where what is remembered meets what is seen: without it 122 in place of 127 on small MDPs.
        self.pi = mlp((hidden_size, hidden_size, dist.num_outputs), activation="relu", output_gain=0.01)
        self.v = mlp((hidden_size, hidden_size, 1), activation="relu")
        self.log_std = nn.Parameter(torch.zeros(dist.num_outputs)) if isinstance(dist, DiagGaussian) else None

    def empty(self, n: int) -> Tensor:
        """The memory at the beginning of a trial, `[n, hidden_size]`."""
        return torch.zeros(n, self.hidden_size, device=self.gru.weight_ih_l0.device)

    def remember(self, obs: Tensor, hidden: Tensor) -> Tensor:
        """The memory after each of the observations `[B, T, d]`, `[B, T, H]`, from `hidden` `[B, H]` on."""
        first, found = obs[:, :, -1] > 0, []                              # [B, T]
        begin = [0, *(1 + first[:, 1:].any(0).nonzero().flatten()).tolist(), obs.shape[1]]
        for start, end in pairwise(begin):                                # one call where no trial begins
            hidden = torch.where(first[:, start, None], 0, hidden)
            states, last = self.gru(obs[:, start:end], hidden[None].contiguous())
            hidden = last[0]
            found.append(states)
        return torch.cat(found, 1)

    def params(self, states: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """What the action distribution takes, of memories `[..., hidden_size]`."""
        return self.pi(states) if self.log_std is None else (self.pi(states), self.log_std)

    def value(self, states: Tensor) -> Tensor:
        """Values of memories, `[..., hidden_size]` to `[...]`."""
        return self.v(states).squeeze(-1)

    def actor(self) -> Callable[[np.ndarray], np.ndarray | tuple[np.ndarray, np.ndarray]]:
        """A function from observations `[N, d]`, those of successive steps, to the distribution's parameters."""
        hidden = self.empty(0)

        @torch.no_grad()
        def outputs(obs: np.ndarray) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
            nonlocal hidden
            if len(hidden) != len(obs):
                hidden = self.empty(len(obs))
            hidden = self.remember(torch.from_numpy(obs).to(hidden.device)[:, None], hidden)[:, 0]
            return to_numpy(self.params(hidden))
        return outputs


def to_numpy(params: Tensor | tuple[Tensor, Tensor]) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """What the action distribution takes, `[...]`, for acting."""
    return tuple(p.cpu().numpy() for p in params) if isinstance(params, tuple) else params.cpu().numpy()


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> RecurrentActorCritic:
    """Policy and value function; UserError for spaces that RL² cannot serve."""
    dist = action_distribution(action_space, "rl2")
    return RecurrentActorCritic(vector_size(observation_space, "rl2"), dist, cfg.hidden_size)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with RL². `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed, **cfg.env_settings)
    run = Run("rl2", cfg, env, resume)
    policy = make_policy(cfg, env.observation_space, env.action_space).to(run.device)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-5, max_grad_norm=cfg.max_grad_norm)
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    dist, N, T = policy.dist, cfg.num_envs, cfg.rollout_steps
    memory = Latest(hidden=policy.empty(N))

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor, hidden: Tensor,
             entropy_coef: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        states = policy.remember(obs, hidden)                             # [B, T, H]
        logp, entropy = dist.log_prob_entropy(policy.params(states), act)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), (cfg.clip_ratio, cfg.clip_ratio))
        error = value_loss(policy.value(states), target, target)
        stats["entropy"], stats["value_loss"] = entropy.detach().mean(), error.detach().mean()
        return aggregate(surrogate + cfg.value_coef * error - entropy_coef * entropy), stats

    minimize, updates = optimizer.minimizer(loss), cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer, scaler=scaler, memory=memory)
        for update in run.updates(updates, N * T):
            # Collect. The memory goes on where the last rollout left it.
            hidden = began = memory["hidden"]                             # [N, H]
            obs, noise = torch.from_numpy(env.obs).to(run.device), dist.noise(run.rng, (T, N))
            observations, actions, logps, values, steps, final_values = [], [], [], [], [], []
            with torch.no_grad():
                for t in range(T):
                    hidden = policy.remember(obs[:, None], hidden)[:, 0]
                    params = policy.params(hidden)
                    act = dist.sample(to_numpy(params), noise[t])         # [N], or [N, k] for several dimensions
                    step = env.step(dist.to_env(act))
                    observations.append(obs)
                    actions.append(torch.from_numpy(act).to(run.device))
                    logps.append(dist.log_prob(params, actions[-1]))
                    values.append(policy.value(hidden))
                    steps.append(step)
                    if step.truncated.any():                              # judged with the memory of what led there
                        cut = np.flatnonzero(step.truncated)
                        ends = torch.from_numpy(step.final_obs[cut]).to(run.device)
                        final_values.append((cut, t, policy.value(policy.remember(ends[:, None], hidden[cut])[:, 0])))
                    obs = torch.from_numpy(step.obs).to(run.device)
                values.append(policy.value(policy.remember(obs[:, None], hidden)[:, 0]))
            memory["hidden"] = hidden

            # Advantages: the trial is one episode, whatever ends in it.
            o, a, logp_old, v = (torch.stack(x, 1) for x in (observations, actions, logps, values))  # [N, T, ...]
            r, term, trunc = (torch.from_numpy(np.stack([getattr(step, name) for step in steps], 1)).to(run.device)
                              for name in ("reward", "terminated", "truncated"))                     # [N, T]
            if cfg.normalise_reward:
                r = scaler.update_and_scale(r, term, trunc)
            next_values = v[:, 1:].clone()
            for cut, t, value in final_values:
                next_values[cut, t] = value
            adv, targets = gae(r, v[:, :-1], next_values, term, trunc, gamma=cfg.gamma, lam=cfg.lam)

            # Update: several epochs of shuffled minibatches of whole sequences.
            share = 1 - update / updates if cfg.anneal else 1.0
            coef = torch.tensor(cfg.entropy_coef * share, device=run.device)
            for _ in range(cfg.epochs):
                order = torch.randperm(N).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in (o, a, logp_old, adv, targets, began)), coef,
                                     lr=cfg.lr * share)
            run.check_finite(rewards=r, values=v, **stats)
            if run.row_due:
                run.log(**stats, learning_rate=cfg.lr * share,
                        explained_variance=1 - (targets - v[:, :-1]).var() / targets.var())
        return run.result(policy)
