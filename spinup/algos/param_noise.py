"""Parameter space noise for exploration (Plappert et al. 2018, arXiv:1706.01905), for DQN and DDPG.

Noise on actions is inconsistent: the next step often undoes the last one. Noise on the weights is
sampled once per episode. During an episode, the perturbed policy always takes the same action in
the same state.

    theta~ = theta + sigma eps,  eps ~ N(0, I) once per episode;
             act with theta~, train theta from the replay buffer                          (sec. 3)
    sigma <- k sigma  if d(pi, pi~) < delta  else  sigma / k                              (eq. 8)

The effect of weight noise on actions is not known in advance, and it changes during training. So
sigma is adapted until the distance d between pi and pi~ is delta. For DDPG, delta is the standard
deviation of the Gaussian action noise to match. For DQN, delta is KL(greedy || epsilon-greedy) of
the policy to match, where e is epsilon and n the number of actions:

    DDPG: d = sqrt( E[ (mu(s) - mu~(s))^2 ] )
    DQN:  d = KL(softmax Q || softmax Q~),   delta = -log(1 - e + e / n)

Layer normalisation makes one sigma fit all layers.

Use it for rewards that need many correct steps. With dense rewards it is only as good as action
noise. It fails if no policy with similar weights reaches the reward. The network, not the task,
decides which policies have similar weights.
Differs from dqn.py and ddpg.py by: perturbed weights choose the actions; target networks
move at every gradient step; no clipped gradients, no saturation penalty, no random actions at
first. For DQN, the paper perturbs a separate policy head and keeps a small epsilon.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn.functional import huber_loss
from torch.nn.utils import parameters_to_vector

from spinup.algos.ddpg import deterministic_policy_loss, squared_error
from spinup.algos.dqn import exploration_rate, greedy_value, td_target
from spinup.core.bounded import NoisyAction
from spinup.core.critics import ActorCritics, QNetwork, frozen
from spinup.core.fast.acting import NumpyMLPs
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import kl_categorical
from spinup.core.optim import Latest, polyak
from spinup.envs.spaces import action_bounds, number_of_actions, vector_size
from spinup.runs.config import Count, Positive, Range, ReplayConfig, Unit, Widths
from spinup.runs.episodes import check_ends
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env

Factor = Annotated[float, Range(1.0, 10.0)]


@dataclass(kw_only=True)
class Config(ReplayConfig):
    noise: Literal["parameters", "actions"] = "parameters"    # what to perturb; actions = baseline
    sigma: Positive = 0.05             # initial standard deviation of weight noise; then adapted
    adapt_every: Count = 50            # steps between measurements of the weight noise's effect
    adapt: Factor = 1.01               # factor of each change of sigma; 1.05 suits short runs
    action_noise: Positive = 0.2       # Box: delta, std of the action noise to match
    epsilon: Unit = 0.1                # Discrete: final epsilon of the policy to match
    explore: Unit = 0.5                # Discrete: fraction of the run in which epsilon falls from 1
    learning_starts: Count = 1000      # steps before the first gradient step
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 1e-3                # learning rate of all networks (1e-4 to 1e-3)
    tau: Unit = 0.01                   # soft-update rate of the target networks (Polyak)
    hidden: Widths = (64, 64)          # hidden layers, each with layer normalisation

    ONLY_WITH = dict.fromkeys(("sigma", "adapt", "adapt_every"), ("noise", "parameters"))


def noisy_weights(theta: Tensor, sigma: float, eps: Tensor) -> Tensor:
    """Perturbed weights theta~ = theta + sigma eps, `[P]`, for tensors or arrays."""
    return theta + sigma * eps


def adapted(sigma: float, distance: float, target: float, factor: float) -> float:
    """Next sigma: larger if the noise changed the actions too little, else smaller (eq. 8)."""
    return sigma * factor if distance < target else sigma / factor


def action_distance(act: Tensor, noisy: Tensor) -> Tensor:
    """Root mean squared difference, `[]`, between actions `[B, k]` (appendix C)."""
    return (act - noisy).square().mean().sqrt()


def value_distance(q: Tensor, noisy: Tensor) -> Tensor:
    """Mean KL(softmax Q || softmax Q~), `[]` from `[B, n]`. A constant added to all values has
    no effect, but a factor does: scale very large or very small rewards to a size near 1."""
    return kl_categorical(q, noisy).mean()


def epsilon_distance(epsilon: float, n: int) -> float:
    """KL divergence of the greedy from the epsilon-greedy policy, n actions (appendix C)."""
    return -float(np.log(1 - epsilon + epsilon / n))


class ValueLearner:
    """DQN learner, for Discrete actions. The Q network acts, and it is perturbed."""

    def __init__(self, cfg: Config, policy: QNetwork, target: QNetwork):
        self.cfg, self.policy, self.target, self.network = cfg, policy, target, policy.advantage
        self.optimizer = FlatAdam(self.network.parameters(), lr=cfg.lr, eps=1e-8,
                                  compile=cfg.compile)
        self.optimizers = {"optimizer": self.optimizer}
        self.action = ((), np.int64)                          # shape and dtype in the replay buffer
        # `minimize_q(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
        self.minimize_q = self.optimizer.minimizer(self.q_loss)
        self.minimize_pi = None

    def q_loss(self, obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Double DQN loss, `[]`, of a batch `[B, ...]`."""
        with torch.no_grad():
            next_value = greedy_value(self.target(next_obs), self.policy(next_obs))
            q_target = td_target(rew, self.cfg.gamma, terminated, next_value)     # [B]
        q = self.policy(obs).gather(-1, act[:, None]).squeeze(-1)                 # [B]
        return huber_loss(q, q_target), {"q": q.detach().mean()}

    def distance(self, outputs: Tensor, noisy: Tensor) -> Tensor:
        """Distance d, `[]`, between the network's outputs `[B, n]` without and with noise."""
        return value_distance(outputs, noisy)

    def act(self, outputs: np.ndarray) -> np.ndarray:
        """Greedy actions `[N]` for outputs `[N, n]`."""
        return outputs.argmax(-1)

    def wanted_distance(self, passed: float) -> float:
        """Return the target delta after the fraction `passed` of the run, and set the epsilon of
        the policy, which falls from 1."""
        cfg = self.cfg
        epsilon = exploration_rate(passed, cfg.explore, cfg.epsilon)
        self.policy.epsilon.fill_(epsilon)                    # for action noise, the baseline
        return epsilon_distance(epsilon, self.policy.dist.n)


class ActorLearner:
    """DDPG learner, for Box actions. The actor acts and is perturbed; the critic is not."""

    def __init__(self, cfg: Config, policy: ActorCritics, target: ActorCritics):
        self.cfg, self.policy, self.target, self.network = cfg, policy, target, policy.pi
        settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
        self.optimizer = FlatAdam(policy.pi.parameters(), **settings)
        self.q_optimizer = FlatAdam(policy.q.parameters(), **settings)
        self.optimizers = {"optimizer": self.optimizer, "q_optimizer": self.q_optimizer}
        self.action = (policy.dist.low.shape, np.float32)
        self.minimize_q = self.q_optimizer.minimizer(self.q_loss)
        self.minimize_pi = self.optimizer.minimizer(self.pi_loss)

    def q_loss(self, obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Critic loss, `[]`, of a batch `[B, ...]`."""
        with torch.no_grad():
            next_act, _ = self.target.params(next_obs)                            # [B, k]
            next_value = self.target.values(next_obs, next_act)[0]                # [B]
            q_target = td_target(rew, self.cfg.gamma, terminated, next_value)     # [B]
        q = self.policy.values(obs, act)                                          # [1, B]
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(self, obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Actor loss, `[]`, of observations `[B, d]`."""
        act, _ = self.policy.params(obs)
        with frozen(self.q_optimizer.params):
            return deterministic_policy_loss(self.policy.values(obs, act)).mean(), {}

    def distance(self, outputs: Tensor, noisy: Tensor) -> Tensor:
        """Distance d, `[]`, between the actor's outputs `[B, k]` without and with noise."""
        params = self.policy.dist.params
        return action_distance(params(outputs)[0], params(noisy)[0])

    def act(self, outputs: np.ndarray) -> np.ndarray:
        """Actions `[N, k]`, in -1 to 1, for the actor's outputs `[N, k]`."""
        return self.policy.dist.params(outputs)[0]

    def wanted_distance(self, passed: float) -> float:
        """Target delta, constant over the run."""
        return self.cfg.action_noise


def make_policy(cfg: Config, observation_space: Space,
                action_space: Space) -> QNetwork | ActorCritics:
    """Create a Q network, or actor and critic. UserError for spaces that neither DQN nor DDPG can
    use."""
    size = vector_size(observation_space, cfg.algorithm)
    if isinstance(action_space, spaces.Box):
        dist = NoisyAction(*action_bounds(action_space, cfg.algorithm), cfg.action_noise)
        return ActorCritics((size,), dist, cfg.hidden, critics=1, layer_norm=True)
    actions = number_of_actions(action_space, cfg.algorithm)
    return QNetwork((size,), actions, cfg.hidden, layer_norm=True)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with parameter noise. `resume`: folder of a run with the same settings, to
    resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    side = ValueLearner if isinstance(policy, QNetwork) else ActorLearner
    learner = side(cfg, policy, target)
    dist, N, S = policy.dist, cfg.num_envs, cfg.update_every
    replay = make_replay(cfg, env, *learner.action)
    perturbed = NumpyMLPs(learner.network, N)                 # one network per environment
    probe = NumpyMLPs(learner.network, 1)                     # one to measure distances
    q_stats, pi_stats = Latest(), Latest()
    noise = Latest(sigma=cfg.sigma)

    def perturb(nets: NumpyMLPs, i: int) -> None:
        """Sample a theta~ for network i."""
        theta = parameters_to_vector(learner.optimizer.params).detach().cpu().numpy()     # [P]
        eps = run.rng.standard_normal(len(theta), np.float32)
        nets.put(i, noisy_weights(theta, float(noise["sigma"]), eps))

    @torch.no_grad()
    def measure(obs: Tensor) -> Tensor:
        """Distance between theta and a new theta~ on observations `[B, d]`."""
        perturb(probe, 0)
        noisy = torch.from_numpy(probe(obs.cpu().numpy())).to(obs.device)
        return learner.distance(learner.network(obs), noisy)

    with run:
        env.reset()
        run.keep(policy=policy, target=target, replay=replay, noise=noise, perturbed=perturbed,
                 q_stats=q_stats, pi_stats=pi_stats, **learner.optimizers)
        for copy in range(N):
            perturb(perturbed, copy)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect.
            wanted = learner.wanted_distance(run.steps / cfg.total_steps)
            for draw in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                act = (dist.sample(actor(obs), draw) if cfg.noise == "actions" else
                       learner.act(perturbed(obs)))                       # [N] or [N, k]
                step = env.step(dist.to_env(act))
                replay.add(obs, act, step)
                if cfg.noise == "parameters":                             # weights last an episode
                    check_ends(env.episode_length.max(), cfg.env)
                for copy in np.flatnonzero(step.terminated | step.truncated):
                    perturb(perturbed, copy)

            # Update: update_ratio sets the gradient steps, for any number of environments.
            if replay.count >= cfg.learning_starts:
                measured = None                               # observations for the distance
                for _ in range(run.updates_due(cfg.update_ratio)):
                    rows = replay.draw(run.rng, cfg.batch_size)
                    batch = replay.sample(rows).to(run.device)
                    obs, act, rew, next_obs, terminated, _ = batch
                    measured = obs
                    q_stats.update(learner.minimize_q(obs, act, rew, next_obs, terminated))
                    run.check_finite(q_loss=q_stats["loss"])
                    if learner.minimize_pi:
                        pi_stats.update(learner.minimize_pi(obs))
                        run.check_finite(pi_loss=pi_stats["loss"])
                    polyak(target_weights, weights, cfg.tau)
                every = cfg.adapt_every
                for _ in range((run.steps + S) // every - run.steps // every):
                    if measured is None:                      # no gradient step: no batch yet
                        rows = replay.draw(run.rng, cfg.batch_size)
                        measured = replay.sample(rows).obs.to(run.device)
                    noise["distance"] = measure(measured)
                    noise["sigma"] = adapted(noise["sigma"], noise["distance"], wanted, cfg.adapt)
            if run.row_due:
                pi_columns = {"pi_loss": pi_stats["loss"]} if learner.minimize_pi else {}
                shown = noise if cfg.noise == "parameters" else Latest()          # else NaN
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], sigma=shown["sigma"],
                        distance=shown["distance"], **pi_columns)
        return run.result(policy)
