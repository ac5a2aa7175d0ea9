"""Evolution strategies (Salimans et al. 2017, arXiv:1703.03864).

ES perturbs all weights, plays a whole episode with them, and moves the weights towards the
perturbations with higher returns. It needs no backpropagation, no value function and no discount.
An episode gives one number F, its return, so the time of each reward does not matter.

    eps_i ~ N(0, I)
    grad E[ F(theta + sigma eps) ]
        ~  1 / (2 n sigma)  sum_i ( F(theta + sigma eps_i) - F(theta - sigma eps_i) ) eps_i

Here theta are the weights and sigma is the noise size. Each of the n perturbations is used with
both signs. The centred rank among all 2n returns replaces F, so one lucky episode has little
influence (sec. 2.1).

A seed determines each perturbation. So the processes exchange returns and episode lengths, but no
weights, and all compute the same step (alg. 2). The messages do not grow with the network. The
number of processes does not change the result at all.

Use it for small networks, long horizons and late rewards. It needs many episodes, and fails if all
random perturbations get the same return.
Differs from vpg.py by: noise in the weights instead of the actions.
"""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from spinup.core.fast.acting import NumpyMLPs
from spinup.core.fast.adam import FlatAdam
from spinup.core.networks import Actor
from spinup.envs.spaces import action_distribution, vector_size
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, NonNegative, Positive, Processes, Size, Widths
from spinup.runs.episodes import check_ends
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(BaseConfig):
    num_envs: Size = 16                # environments per process; changes results only by rounding
    pairs: Size = 32                   # perturbations per update, each with both signs (16-256)
    sigma: Positive = 0.05             # noise size; small: no signal, large: biased (0.01-0.1)
    lr: Positive = 0.03                # learning rate of Adam (0.005-0.1)
    weight_decay: NonNegative = 0.0    # each update multiplies weights by 1 - lr x this
    normalise_obs: bool = False        # vectors: subtract mean, divide by std, if scales differ
    hidden: Widths = (32, 32)          # hidden layers; fewer weights give less noisy gradients
    workers: Processes = 1             # processes that play; torchrun's own number overrides it

    def __post_init__(self):
        super().__post_init__()
        if self.compile:
            raise UserError("es does not support --compile, because it runs in NumPy without "
                            "gradients; leave out --compile")
        if self.device not in ("auto", "cpu"):
            raise UserError(f"es runs in NumPy on the CPU; leave out --device {self.device}")
        if self.lr * self.weight_decay >= 1:
            raise UserError(f"each update multiplies the weights by 1 - {self.lr:g} x "
                            f"{self.weight_decay:g}; choose a --weight-decay below 1 / --lr")
        if self.workers > 1 and self.env_workers:
            raise UserError("--workers and --env-workers both start processes; leave out "
                            "--env-workers")
        if self.workers > self.pairs:
            raise UserError(f"--workers {self.workers} is more than --pairs {self.pairs}; choose "
                            f"at most {self.pairs}")


def seeds_of(seed: int, update: int, pairs: int) -> np.ndarray:
    """Seeds `[pairs]` of the perturbations of an update; every process computes the same ones from
    the `seed` of the run."""
    return np.random.SeedSequence((seed, update)).generate_state(pairs)


def perturbation(seed: int, theta: Tensor) -> Tensor:
    """Standard normal eps, `[P]` like `theta`; equal on all devices of the same kind."""
    generator = torch.Generator(theta.device).manual_seed(seed)
    return torch.randn(theta.shape, generator=generator, device=theta.device, dtype=theta.dtype)


def perturb(theta: Tensor, seed: int, sigma: float) -> Tensor:
    """Return theta + sigma eps, `[P]`; a negative sigma gives the other half of the pair."""
    return theta + sigma * perturbation(seed, theta)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """Ranks from -0.5 (worst) to 0.5 (best), in the shape `[...]` of the returns. Equal returns get
    the mean of their ranks, so a pair of equal returns has no effect."""
    _, inverse, equal = np.unique(returns, return_inverse=True, return_counts=True)
    ranks = equal.cumsum() - (equal + 1) / 2                  # from 0; ties get their mean rank
    return (ranks[inverse] / (returns.size - 1) - 0.5).reshape(returns.shape)


def gradient(theta: Tensor, seeds: np.ndarray, scores: np.ndarray, sigma: float) -> Tensor:
    """Gradient estimate in the shape of `theta`, by the equation at the top of this file, from
    pairs of perturbations with these `seeds` `[n]` and `scores` `[n, 2]`."""
    grad = torch.zeros_like(theta)
    for seed, (plus, minus) in zip(seeds.tolist(), scores, strict=True):
        weight = float(plus - minus) / (2 * len(seeds) * sigma)
        grad.add_(perturbation(seed, theta), alpha=weight)
    return grad


def play(env: VectorEnv, policy: Actor, theta: Tensor, sigma: float,
         seeds: np.ndarray) -> np.ndarray:
    """Play two episodes per seed, with theta + sigma eps and with theta - sigma eps. The seed
    determines eps and the initial state.

    Returns `[len(seeds), 2, 2 + 2 d]`: return, steps, and the sum and the sum of squares of the
    observations. When an episode ends, its environment copy starts the next policy at once and does
    not wait for longer episodes. UserError for an episode without an end.
    """
    d = len(env.obs[0])
    totals = np.zeros((2 * len(seeds), 2 + 2 * d))
    actor, normalise = NumpyMLPs(policy.pi, env.num_envs), policy.view()
    plays = np.full(env.num_envs, -1)                         # the policy in each copy; -1: none
    waiting = iter(range(len(totals)))

    def begin(copy: int) -> None:
        plays[copy] = i = next(waiting, -1)
        if i >= 0:
            seed = int(seeds[i // 2])
            actor.put(copy, perturb(theta, seed, -sigma if i % 2 else sigma).numpy())
            env.restart(copy, seed)

    for copy in range(env.num_envs):
        begin(copy)
    while (busy := np.flatnonzero(plays >= 0)).size:
        obs = env.obs[busy].astype(np.float64)
        act = policy.dist.mode(actor(normalise(env.obs)))
        step = env.step(policy.dist.to_env(act))
        ones = np.ones((len(busy), 1))
        totals[plays[busy]] += np.concatenate([step.reward[busy, None], ones, obs, obs * obs], 1)
        check_ends(totals[plays[busy], 1].max(), "this environment")
        for copy in busy[(step.terminated | step.truncated)[busy]]:
            begin(copy)
    return totals.reshape(len(seeds), 2, 2 + 2 * d)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> Actor:
    """Create the policy; UserError for observations or actions that ES cannot use."""
    size = vector_size(observation_space, cfg.algorithm)
    dist = action_distribution(action_space, cfg.algorithm)
    return Actor(size, dist, cfg.hidden, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with evolution strategies. `resume`: folder of a run with the same settings,
    to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume, whole_episodes=True)          # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    env.check_restart()
    optimizer = FlatAdam(policy.pi.parameters(), lr=cfg.lr, eps=1e-8)
    theta = optimizer.flat                                    # [P]; the weights are views of it

    with run:
        env.reset()
        run.keep(policy=policy, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Each process plays its share of the perturbations. Then all exchange their results.
            seeds = seeds_of(cfg.seed, update, cfg.pairs)                 # [n]
            mine = play(env, policy, theta, cfg.sigma, seeds[run.workers.mine(cfg.pairs)])
            totals = run.workers.share(torch.from_numpy(mine), cfg.pairs)     # [n, 2, 2 + 2 d]
            returns, steps = totals[..., 0].numpy(), totals[..., 1].numpy()       # [n, 2]
            lengths = steps.ravel().astype(int)
            # Episodes and steps of all processes, for the row and the count of steps.
            env.finished = list(zip(returns.ravel().tolist(), lengths.tolist(), strict=True))
            run.steps_each = int(steps.sum())
            run.check_finite(observations=totals[..., 2:], returns=totals[..., 0])

            # Update: every process computes the same step from the same numbers.
            theta.grad.copy_(-gradient(theta, seeds, centred_ranks(returns), cfg.sigma))
            theta.mul_(1 - cfg.lr * cfg.weight_decay)
            grad_norm = optimizer.step()
            if policy.normaliser is not None:
                sums = totals[..., 2:].sum((0, 1)).chunk(2)
                policy.normaliser.add(*sums, run.steps_each)
            if run.row_due:
                run.log(return_std=returns.std(), grad_norm=grad_norm, weight_norm=theta.norm())
        return run.result(policy)
