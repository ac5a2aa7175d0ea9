"""Evolution strategies (Salimans et al. 2017, arXiv:1703.03864).

Shake all weights at once, play a whole episode, keep more of the shakes that scored better. No backpropagation, no
value function, no discount: an episode is one number F, so it does not matter when in it the reward came.

    eps_i ~ N(0, I)
    grad E[ F(theta + sigma eps) ]  ~  1 / (2 n sigma) sum_i ( F(theta + sigma eps_i) - F(theta - sigma eps_i) ) eps_i

with F replaced by its centred rank among all 2n: one lucky episode weighs little more than the next best (sec. 2.1).

A shake is known by its seed: processes that share nothing but returns can all take the same step (alg. 2). What they
send does not grow with the network, and how many they are does not change a digit of the result.

For tasks with few weights, long horizons, rewards late; it needs many episodes, and fails where no random shake ever
scores better than another. Differs from vpg.py by: noise in the weights instead of the actions.
"""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from scipy.stats import rankdata
from torch import Tensor

from spinup.core.fast.acting import NumpyMLPs
from spinup.core.networks import Actor
from spinup.core.optim import FlatAdam
from spinup.envs import make
from spinup.envs.spaces import action_distribution, vector_size
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, Count, NonNegative, Positive, Widths
from spinup.runs.episodes import check_ends
from spinup.runs.run import Result, Run
from spinup.runs.workers import Follower, Workers

ACTIONS = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")
OBSERVATIONS = ("vectors",)


@dataclass(kw_only=True)
class Config(BaseConfig):
    num_envs: Count = 16               # copies stepped together in each process; they do not change the result
    pairs: Count = 32                  # shakes an update, each played with both signs; fewer are noisier (16-256)
    sigma: Positive = 0.05             # size of a shake: below it nothing is seen, above it details are lost (.01-.1)
    lr: Positive = 0.03                # step size of Adam (.005-.1)
    weight_decay: NonNegative = 0.0    # share of the weights lost an update, times lr: else they outgrow the shakes
    normalise_obs: bool = False        # running mean and deviation of observations: needed where their units differ
    hidden: Widths = (32, 32)          # hidden layers; a shake of fewer weights shows more of each
    workers: Count = 1                 # processes that play; under torchrun its own number counts instead

    def __post_init__(self):
        super().__post_init__()
        if self.compile:
            raise UserError("es plays in numpy, and has no gradient step to compile; leave out --compile")
        if self.workers > self.pairs:
            raise UserError(f"--pairs {self.pairs} cannot be shared among --workers {self.workers}; choose at most "
                            f"{self.pairs}")


def perturbation(seed: int, theta: Tensor) -> Tensor:
    """eps, standard normal, `[n]` like `theta`: the same wherever it is drawn on the same kind of device."""
    generator = torch.Generator(theta.device).manual_seed(seed)
    return torch.randn(theta.shape, generator=generator, device=theta.device, dtype=theta.dtype)


def perturb(theta: Tensor, seed: int, sigma: float) -> Tensor:
    """theta + sigma eps, `[n]`; a negative sigma gives the other of the pair."""
    return theta + sigma * perturbation(seed, theta)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """-.5 for the worst to .5 for the best, `[...]` as the returns; equals share their ranks, so that they weigh
    nothing.
    """
    return ((rankdata(returns) - 1) / (returns.size - 1) - 0.5).reshape(returns.shape)


def gradient(theta: Tensor, seeds: np.ndarray, scores: np.ndarray, sigma: float) -> Tensor:
    """The estimate above, of the shape of `theta`: of what `scores` `[n, 2]` say of the pairs of `seeds` `[n]`."""
    grad = torch.zeros_like(theta)
    for seed, (plus, minus) in zip(seeds.tolist(), scores, strict=True):
        grad.add_(perturbation(seed, theta), alpha=float(plus - minus) / (2 * len(seeds) * sigma))
    return grad


def play(env: VectorEnv, policy: Actor, theta: Tensor, sigma: float, seeds: np.ndarray) -> np.ndarray:
    """One episode of each of the two policies that a seed stands for, both from the start that it also decides.

    Returns `[len(seeds), 2, 2 + 2 d]`: return, steps, and the sum and the sum of squares of the observations.
    A copy that has ended takes the next policy at once: none waits for the longest episode. UserError for one without
    an end.
    """
    d = len(env.obs[0])
    told, actor, normalise = np.zeros((2 * len(seeds), 2 + 2 * d)), NumpyMLPs(policy.pi, env.num_envs), policy.view()
    plays, waiting = np.full(env.num_envs, -1), iter(range(len(told)))    # who plays in which copy; -1: nobody

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
        step = env.step(policy.dist.to_env(policy.dist.mode(actor(normalise(env.obs)))))
        told[plays[busy]] += np.concatenate([step.reward[busy, None], np.ones((len(busy), 1)), obs, obs * obs], 1)
        check_ends(told[plays[busy], 1].max(), "this environment")
        for copy in busy[(step.terminated | step.truncated)[busy]]:
            begin(copy)
    return told.reshape(len(seeds), 2, 2 + 2 * d)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> Actor:
    """The policy; UserError for observations that are no vectors, or actions that no distribution serves."""
    size = vector_size(observation_space, "es")
    return Actor(size, action_distribution(action_space, "es"), cfg.hidden, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with evolution strategies. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed)
    workers = Workers(cfg.workers, cfg)
    run = Follower(cfg, resume) if workers.rank else Run("es", cfg, env, resume, whole_episodes=True)
    policy = make_policy(cfg, env.observation_space, env.action_space)
    env.check_restart()
    optimizer = FlatAdam(policy.pi.parameters(), lr=cfg.lr, eps=1e-8)
    theta = optimizer.flat                                                # [P]; the policy's weights are views of it

    with run, workers.together(train, cfg, resume):
        env.reset()
        run.keep(policy=policy, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Play: each process its share of the shakes; then all tell what became of theirs.
            seeds = np.random.SeedSequence((cfg.seed, update)).generate_state(cfg.pairs)             # [n]
            mine = torch.from_numpy(play(env, policy, theta, cfg.sigma, seeds[workers.mine(cfg.pairs)]))
            told = workers.share(mine, cfg.pairs)                         # [n, 2, 2 + 2 d]
            returns, steps = told[..., 0].numpy(), told[..., 1].numpy()   # [n, 2]
            env.finished = list(zip(returns.ravel().tolist(), steps.ravel().astype(int).tolist(), strict=True))
            run.steps_each = int(steps.sum())
            run.check_finite(observations=told[..., 2:], returns=told[..., 0])

            # Update: every process the same step, from the same numbers.
            theta.grad.copy_(-gradient(theta, seeds, centred_ranks(returns), cfg.sigma))
            theta.mul_(1 - cfg.lr * cfg.weight_decay)
            grad_norm = optimizer.step()
            if policy.normaliser is not None:
                policy.normaliser.add(*told[..., 2:].sum((0, 1)).chunk(2), run.steps_each)
            if run.row_due:
                run.log(return_std=returns.std(), grad_norm=grad_norm, weight_norm=theta.norm())
        return run.result(policy)
