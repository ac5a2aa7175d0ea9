"""Parameter space noise for exploration (Plappert et al. 2018, arXiv:1706.01905), for DQN and for DDPG.

Noise on actions dithers: what one step tries, the next takes back. Noise on the weights, drawn once an episode, makes a
policy that is odd in the same way for the whole of it: in the same state it does the same, and goes far.

    theta~ = theta + sigma eps,  eps ~ N(0, I) once an episode;  act by theta~, learn theta from the replay     (sec. 3)
    sigma <- k sigma  if d(pi, pi~) < delta  else  sigma / k                                                  (eq. 8)

How much a change of weights changes actions nobody knows beforehand, and it changes as one learns: so sigma follows the
distance d in actions. It is delta = the deviation that Gaussian noise would have (DDPG), or that of a softmax of Q from
one that is epsilon-greedy (DQN):

    DDPG: d = sqrt( E[ (mu(s) - mu~(s))^2 ] )          DQN: d = KL(softmax Q || softmax Q~), delta = -log(1 - e + e / n)

Layers are normalised, so that the same sigma disturbs each of them alike.

For rewards that lie many right steps away; where they are dense, it is as good as noise on actions. It fails where no
policy near this one goes there: the network, not the task, decides what is near. Differs from dqn.py and ddpg.py by:
who acts.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn.functional import huber_loss
from torch.nn.utils import parameters_to_vector

from spinup.algos.ddpg import deterministic_policy_loss, squared_error
from spinup.algos.dqn import greedy_value, td_target
from spinup.core.critics import ActorCritics, QNetwork, frozen
from spinup.core.distributions import NoisyAction
from spinup.core.fast.acting import NumpyMLPs
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.envs import make
from spinup.envs.spaces import action_bounds, number_of_actions, vector_size
from spinup.runs.config import Count, Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run

ACTIONS = ("Discrete", "Box")
OBSERVATIONS = ("vectors",)


@dataclass(kw_only=True)
class Config(ReplayConfig):
    noise: Literal["parameters", "actions"] = "parameters"     # where it is added; actions, for comparison
    sigma: Positive = 0.05             # deviation of the weights' noise at the start; it then follows the actions
    adapt_every: Count = 50            # steps between two looks at what the noise does to actions
    adapt: Positive = 1.01             # factor by which sigma then changes; too large and it swings
    action_noise: Positive = 0.2       # Box: deviation of actions, of range -1 to 1, that the noise is to make
    epsilon: Unit = 0.1                # Discrete: share of random actions that the noise is to equal in the end
    explore: Unit = 0.5                # Discrete: share of the run in which that falls from 1
    learning_starts: Count = 1000      # steps before the first gradient step
    gamma: Unit = 0.99                 # discount; rewards 1 / (1 - gamma) steps ahead still count
    lr: Positive = 1e-3                # step size of all networks (1e-4 to 1e-3)
    tau: Unit = 0.01                   # share of the way that target networks go at each gradient step
    hidden: Widths = (64, 64)          # hidden layers, each normalised


def adapted(sigma: float, distance: float, target: float, factor: float) -> float:
    """Larger where the noise changed the actions less than it should, else smaller (eq. 8)."""
    return sigma * factor if distance < target else sigma / factor


def action_distance(act: Tensor, noisy: Tensor) -> Tensor:
    """Root of the mean squared difference of actions `[B, k]` (appendix C): that of Gaussian noise is its deviation."""
    return (act - noisy).square().mean().sqrt()


def value_distance(q: Tensor, noisy: Tensor) -> Tensor:
    """Mean over the batch of KL(softmax Q || softmax Q~), of `[B, n]`: of choices, since values may be of any size."""
    log_pi = q.log_softmax(-1)
    return (log_pi.exp() * (log_pi - noisy.log_softmax(-1))).sum(-1).mean()


def epsilon_distance(epsilon: float, n: int) -> float:
    """KL of the greedy policy from the epsilon-greedy one: the distance that compares with it (appendix C)."""
    return -float(np.log(1 - epsilon + epsilon / n))


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> QNetwork | ActorCritics:
    """Values of actions, or actor and critic; UserError for spaces that neither serves."""
    size = vector_size(observation_space, "param_noise")
    if isinstance(action_space, spaces.Box):
        dist = NoisyAction(*action_bounds(action_space, "param_noise"), cfg.action_noise)
        return ActorCritics(size, dist, cfg.hidden, critics=1, layer_norm=True)
    return QNetwork((size,), number_of_actions(action_space, "param_noise"), cfg.hidden, layer_norm=True)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with parameter noise. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed)
    run = Run("param_noise", cfg, env, resume)
    policy = make_policy(cfg, env.observation_space, env.action_space).to(run.device)
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    discrete, dist, N, S = isinstance(policy, QNetwork), policy.dist, cfg.num_envs, cfg.update_every
    acts = policy.advantage if discrete else policy.pi                    # the network that is shaken
    optimizer = FlatAdam(acts.parameters(), lr=cfg.lr, eps=1e-8, compile=cfg.compile)
    q_optimizer = None if discrete else FlatAdam(policy.q.parameters(), lr=cfg.lr, eps=1e-8, compile=cfg.compile)
    replay = make_replay(cfg, env, *(((), np.int64) if discrete else (dist.low.shape, np.float32)))
    shaken, probe = NumpyMLPs(acts, N), NumpyMLPs(acts, 1)                # one network for each copy, and one to look
    q_stats, pi_stats = Latest(), Latest()
    noise = Latest(sigma=cfg.sigma)

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_value = greedy_value(target(next_obs), policy(next_obs)) if discrete else (
                target.values(next_obs, target.params(next_obs)[0])[0])
            y = td_target(rew, cfg.gamma, terminated, next_value)         # [B]
        if discrete:
            q = policy(obs).gather(-1, act[:, None]).squeeze(-1)          # [B]
            return huber_loss(q, y), {"q": q.detach().mean()}
        q = policy.values(obs, act)                                       # [1, B]
        return squared_error(q, y).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with frozen(q_optimizer.params):
            return deterministic_policy_loss(policy.values(obs, policy.params(obs)[0])).mean(), {}

    learn_q = (q_optimizer or optimizer).minimizer(q_loss)
    learn_pi = None if discrete else optimizer.minimizer(pi_loss)

    def shake(nets: NumpyMLPs, i: int) -> None:
        """Give network i a theta~ of its own."""
        theta = parameters_to_vector(optimizer.params).detach().cpu().numpy()                        # [P]
        nets.put(i, theta + float(noise["sigma"]) * run.rng.standard_normal(len(theta), np.float32))

    def distance(obs: Tensor) -> Tensor:
        """How far the actions of a fresh theta~ are from those of theta."""
        shake(probe, 0)
        outputs, noisy = acts(obs), torch.from_numpy(probe(obs.cpu().numpy())).to(obs.device)
        if discrete:
            return value_distance(outputs, noisy)
        return action_distance(dist.params(outputs)[0], dist.params(noisy)[0])

    with run:
        env.reset()
        run.keep(policy=policy, target=target, optimizer=optimizer, replay=replay, shaken=shaken, noise=noise,
                 q_stats=q_stats, pi_stats=pi_stats, **({} if discrete else {"q_optimizer": q_optimizer}))
        for copy in range(N):
            shake(shaken, copy)
        actor = policy.actor()
        for update in run.updates(cfg.total_steps // S, S):
            # Collect.
            passed = run.steps / cfg.total_steps
            epsilon = max(cfg.epsilon, 1 - passed / max(cfg.explore, 1e-9) * (1 - cfg.epsilon))
            if discrete:
                policy.epsilon.fill_(epsilon)
            for draw in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                if cfg.noise == "actions":
                    act = dist.sample(actor(obs), draw)
                else:
                    act = shaken(obs).argmax(-1) if discrete else dist.params(shaken(obs))[0]      # [N], or [N, k]
                step = env.step(dist.to_env(act))
                replay.add(obs, act, step)
                for copy in np.flatnonzero(step.terminated | step.truncated):
                    shake(shaken, copy)

            # Update: as many gradient steps as the ratio says, however many copies collect.
            if replay.count >= cfg.learning_starts:
                gradient_steps = int((run.steps + S) * cfg.update_ratio) - int(run.steps * cfg.update_ratio)
                for _ in range(gradient_steps):
                    rows = replay.draw(run.rng, cfg.batch_size)
                    obs, act, rew, next_obs, terminated, _ = replay.sample(rows).to(run.device)
                    q_stats.update(learn_q(obs, act, rew, next_obs, terminated))
                    if not discrete:
                        pi_stats.update(learn_pi(obs))
                    polyak(target_weights, weights, cfg.tau)
                    run.check_finite(q_loss=q_stats["loss"])
                if (run.steps + S) // cfg.adapt_every > run.steps // cfg.adapt_every:
                    if not gradient_steps:                                # with a ratio below 1: no batch was drawn
                        obs = replay.sample(replay.draw(run.rng, cfg.batch_size)).to(run.device).obs
                    with torch.no_grad():
                        noise["distance"] = distance(obs)
                    wanted = epsilon_distance(epsilon, dist.n) if discrete else cfg.action_noise
                    noise["sigma"] = adapted(noise["sigma"], noise["distance"], wanted, cfg.adapt)
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], sigma=noise["sigma"], distance=noise["distance"],
                        **({} if discrete else {"pi_loss": pi_stats["loss"]}))
        return run.result(policy)
