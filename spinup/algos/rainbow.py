"""Rainbow: six improvements of DQN together (Hessel et al. 2018, arXiv:1710.02298).

Four of them are settings of dqn.py too: double Q-learning, dueling networks, n-step returns and
prioritised replay. Two are new here.

Distributional (C51: Bellemare et al. 2017, arXiv:1707.06887): the network outputs, for every
action, probabilities of K fixed returns z_1, ..., z_K. Q is the mean of this distribution. The
target distribution has atoms at T z_j, and their mass is shared between the nearest z_i:

    T z_j = r + gamma (1 - terminated) z_j,  clipped to z_1 ... z_K
    m_i   = sum_j clip( 1 - |T z_j - z_i| / (z_2 - z_1), 0, 1 ) p_j(s', a*)                 (eq. 7)
    L     = KL( m || p(s, a) )

Noisy networks (Fortunato et al. 2018, arXiv:1706.10295): the last layers have learned noise on
their weights. Its size sigma differs between weights, and falls where noise increases the loss.
This noise replaces epsilon-greedy actions:

    y = (mu^w + sigma^w eps^w) x + mu^b + sigma^b eps^b                                     (eq. 9)
    eps^w_ij = f(eps_i) f(eps_j),  f(x) = sign(x) sqrt |x|                             (eq. 10, 11)

Priorities are the KL losses. These values turn the parts off: atoms 1, sigma 0, n_steps 1, and
double, dueling and prioritised false. With all off, it is vanilla DQN, except for Adam's epsilon.

Differs from dqn.py by: a distribution of returns instead of its mean; the KL divergence instead of
the Huber loss; weight noise, new at each action and update; Adam's epsilon; raw observations.
"""
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn.functional import huber_loss, linear

from spinup.algos.dqn import exploration_rate, importance_weights, n_step_return, td_target
from spinup.core.critics import duel
from spinup.core.distributions import EpsilonGreedy
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import relu_mlp
from spinup.core.networks import CNN_WIDTH, NatureConvolutions
from spinup.core.optim import Latest, polyak
from spinup.core.priorities import Priorities
from spinup.envs.spaces import number_of_actions, observation_view
from spinup.errors import UserError
from spinup.runs.config import AtariConfig, Count, Positive, Range, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env

Return = Annotated[float, Range(-1e6, 1e6)]


@dataclass(kw_only=True)
class Config(ReplayConfig, AtariConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 6e-4                # initial learning rate (6.25e-5 for images)
    anneal: bool = False               # decay lr linearly to 0; the final policy varies less
    target_every: Count = 250          # gradient steps between updates of the target network
    atoms: Count = 51                  # number of fixed returns z_i; 1: learn only the mean
    v_min: Return = -10.0              # smallest fixed return, z_1; set it for each environment
    v_max: Return = 10.0               # largest fixed return, z_K; larger returns count as z_K
    sigma: Unit = 0.5                  # initial size of the weight noise; 0: epsilon-greedy instead
    epsilon: Unit = 0.05               # with sigma 0: final share of random actions
    explore: Unit = 0.1                # with sigma 0: fraction of the run in which epsilon falls
    double: bool = True                # choose the next action with p and evaluate it with p'
    dueling: bool = True               # separate streams for the state value and the advantages
    n_steps: Count = 3                 # rewards added up before bootstrapping (1-5)
    prioritised: bool = True           # sample transitions with a large loss more often
    alpha: Unit = 0.5                  # exponent of priorities: 0 = uniform, 1 = proportional
    beta: Unit = 0.4                   # initial exponent of the importance weights; grows to 1
    max_grad_norm: Positive = 10.0     # largest gradient norm; larger gradients are scaled down
    hidden: Widths = (256, 256)        # hidden layers; images use the Nature CNN instead

    ONLY_WITH = {"alpha": "prioritised", "beta": "prioritised", "epsilon": ("sigma", 0),
                 "explore": ("sigma", 0)}

    def __post_init__(self):
        super().__post_init__()
        if self.atoms > 1 and self.v_min >= self.v_max:
            raise UserError(f"--v-min {self.v_min:g} is not below --v-max {self.v_max:g}; give the "
                            "smallest and the largest return that the environment can have")


def project(ret: Tensor, discount: Tensor, terminated: Tensor, p: Tensor,
            support: Tensor) -> Tensor:
    """Target distribution m, `[B, K]`, on the atoms `support`, `[K]`, evenly spaced (C51, eq. 7).

    ret, discount, terminated: `[B]`, as for `td_target`. p: `[B, K]`, probabilities of the next
    state. Mass between two atoms is shared in proportion to their nearness, so the mean does not
    change. Mass outside of the support moves to its ends, which does change the mean.
    """
    moved = td_target(ret[:, None], discount[:, None], terminated[:, None], support)  # [B, K]
    last = len(support) - 1
    place = ((moved - support[0]) / (support[1] - support[0])).clamp(0, last)         # in atoms
    below = place.floor().clamp(max=last - 1)
    share = place - below                                     # what the atom above gets
    below = below.long()
    m = torch.zeros_like(p).scatter_add(-1, below, p * (1 - share))
    return m.scatter_add(-1, below + 1, p * share)


def divergence(p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q), `[B]`, from `[B, K]` each. Its gradient in q is that of the cross-entropy."""
    return (torch.xlogy(p, p) - p * log_q).sum(-1)


def signed_root(x: Tensor) -> Tensor:
    """Sign of x times the square root of `|x|`, `[...]` (f in Fortunato et al. 2018, sec. 3). For
    independent standard normal x and x', the variance of f(x) f(x') is 2 / pi."""
    return x.sign() * x.abs().sqrt()


def of_action(outputs: Tensor, act: Tensor) -> Tensor:
    """Outputs of the chosen actions, `[B, K]` from `[B, n, K]` and `[B]`."""
    return outputs.take_along_dim(act[:, None, None], 1).squeeze(1)


class NoisyLinear(nn.Linear):
    """Linear layer with factorised Gaussian noise on its weights; without noise it is `nn.Linear`.

    sigma: initial size of the noise, as a multiple of 1 / sqrt(n_in); 0: no parameters for noise.
    """

    def __init__(self, n_in: int, n_out: int, sigma: float):
        super().__init__(n_in, n_out)                         # uniform: mu of sec. 3.2
        self.noise_size = n_in + n_out if sigma else 0
        if sigma:
            self.weight_sigma = nn.Parameter(torch.full_like(self.weight, sigma / n_in**0.5))
            self.bias_sigma = nn.Parameter(torch.full_like(self.bias, sigma / n_in**0.5))

    def forward(self, x: Tensor, eps: Tensor | None = None) -> Tensor:
        """Outputs `[B, n_out]` for `x`, `[B, n_in]`. eps: standard normal, `[noise_size]`, or
        `[B, noise_size]` with different noise for each row; by default there is no noise."""
        y = super().forward(x)
        if eps is None or not self.noise_size:
            return y
        ins, outs = signed_root(eps).split([self.in_features, self.out_features], -1)
        # (sigma * outs ins^T) x, without the matrix of the noise.
        return y + outs * linear(x * ins, self.weight_sigma, self.bias_sigma)


class ReturnNetwork(nn.Module):
    """Distribution of the return of every action: logits `[B, n, K]`; with one atom, Q `[B, n, 1]`.

    Attributes:
        noise_size: number of noise values for one forward pass.
        epsilon: share of random actions, except when the best action is requested.
    """

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, cfg: Config):
        super().__init__()
        self.dist, self.atoms, self.dueling = EpsilonGreedy(num_actions), cfg.atoms, cfg.dueling
        if len(obs_shape) == 3:
            self.body = NatureConvolutions(obs_shape)
            width, last = self.body.width, CNN_WIDTH
        else:
            *widths, last = (obs_shape[0], *cfg.hidden)
            deep = len(widths) > 1                            # else all layers are noisy
            self.body = nn.Sequential(*relu_mlp(*widths), nn.ReLU()) if deep else nn.Identity()
            width = widths[-1]
        outputs = [cfg.atoms, num_actions * cfg.atoms] if cfg.dueling else [num_actions * cfg.atoms]
        last = max(1, last // len(outputs))                   # two streams, same width in total
        self.layers = nn.ModuleList()
        for n in outputs:
            self.layers += [NoisyLinear(width, last, cfg.sigma), NoisyLinear(last, n, cfg.sigma)]
        self.noise_sizes = [layer.noise_size for layer in self.layers]
        self.noise_size = sum(self.noise_sizes)
        self.register_buffer("support", torch.linspace(cfg.v_min, cfg.v_max, cfg.atoms))
        self.register_buffer("epsilon", torch.ones(()))

    def forward(self, obs: Tensor, eps: Tensor | None = None) -> Tensor:
        """Outputs for `obs`, `[B, *shape]`. eps: standard normal, `[noise_size]` or
        `[B, noise_size]`; by default the weights have no noise."""
        features = self.body(obs)                             # [B, width]
        noise = [None] * len(self.layers) if eps is None else eps.split(self.noise_sizes, -1)
        streams = []
        for i in range(0, len(self.layers), 2):               # hidden and output layer of each
            hidden = self.layers[i](features, noise[i]).relu()
            stream = self.layers[i + 1](hidden, noise[i + 1])
            streams.append(stream.unflatten(-1, (-1, self.atoms)).transpose(-1, -2))  # [B, K, 1|n]
        outputs = duel(*streams) if self.dueling else streams[0]
        return outputs.transpose(-1, -2)

    def mean(self, outputs: Tensor) -> Tensor:
        """Q, the mean of the distributions, `[...]` from `[..., K]`."""
        if self.atoms == 1:
            return outputs.squeeze(-1)
        return (outputs.softmax(-1) * self.support).sum(-1)

    def noise_level(self) -> Tensor:
        """Mean `|sigma|` of the output layer, `[]` (Fortunato et al. 2018, sec. 4.2)."""
        return self.layers[-1].weight_sigma.detach().abs().mean()

    def actor(self) -> Callable[..., tuple[np.ndarray, float]]:
        """Return a function from observations `[N, *shape]`, and noise `[N, noise_size]` or none,
        to (values `[N, n]`, epsilon). It always uses the current weights and epsilon."""
        @torch.no_grad()
        def values(obs: np.ndarray, eps: np.ndarray | None = None) -> tuple[np.ndarray, float]:
            obs = torch.from_numpy(np.ascontiguousarray(obs)).to(self.epsilon.device)
            eps = None if eps is None else torch.from_numpy(eps).to(self.epsilon.device)
            return self.mean(self(obs, eps)).cpu().numpy(), float(self.epsilon)
        return values


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ReturnNetwork:
    """Create the network; UserError for an action space that Rainbow cannot use."""
    n = number_of_actions(action_space, cfg.algorithm)
    return ReturnNetwork(observation_view(observation_space)[0], n, cfg)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with Rainbow. `resume`: folder of a run with the same settings, to resume
    it. UserError if the run in --init has a different v_min or v_max."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    if not policy.support.cpu().equal(torch.linspace(cfg.v_min, cfg.v_max, cfg.atoms)):  # --init
        raise UserError(f"type --v-min {policy.support[0]:g} --v-max {policy.support[-1]:g}, as "
                        "in the run of --init")
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1.5e-4,
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    replay = make_replay(cfg, env, (), np.int64)
    priorities = Priorities(replay.size, cfg.alpha) if cfg.prioritised else None
    dist, stats, N, S, M = policy.dist, Latest(), cfg.num_envs, cfg.update_every, policy.noise_size

    def loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor, terminated: Tensor,
             length: Tensor, weight: Tensor, eps: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            ret, discount = n_step_return(rew, length, cfg.gamma)
            next_outputs = target(next_obs, eps[0])                       # [B, n, K]
            chooser = policy(next_obs, eps[1]) if cfg.double else next_outputs
            next_outputs = of_action(next_outputs, policy.mean(chooser).argmax(-1))   # [B, K]
        outputs = of_action(policy(obs, eps[2]), act)                     # [B, K]
        q = policy.mean(outputs)                                          # [B]
        unclipped = td_target(ret, discount, terminated, policy.mean(next_outputs))   # [B]
        if cfg.atoms > 1:
            p = next_outputs.softmax(-1)
            m = project(ret, discount, terminated, p, policy.support)     # [B, K]
            q_target = (m * policy.support).sum(-1)                       # [B]
            each = divergence(m, outputs.log_softmax(-1))                 # [B]
        else:
            q_target = unclipped
            each = huber_loss(q, q_target, reduction="none")
        error = (q - q_target).detach().abs()
        return (weight * each).mean(), {"errors": each.detach() if cfg.atoms > 1 else error,
                                        "error": error.mean(), "q": q.detach().mean(),
                                        "clipped": (unclipped - q_target).abs().mean()}

    # `minimize(*batch)`: zero_grad, backward, clip, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    with run:
        env.reset()
        run.keep(policy=policy, target=target, optimizer=optimizer, replay=replay, stats=stats,
                 priorities=priorities)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect. Each action has its own noise.
            passed = run.steps / cfg.total_steps
            epsilon = 0 if cfg.sigma else exploration_rate(passed, cfg.explore, cfg.epsilon)
            policy.epsilon.fill_(1 if replay.count < cfg.learning_starts else epsilon)
            for noise in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                eps = run.rng.standard_normal((N, M), np.float32)
                act = dist.sample(actor(obs, eps), noise)                 # [N]
                replay.add(obs, act, env.step(dist.to_env(act)))
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
                    eps = torch.randn(3, M, device=run.device)            # one per network
                    stats.update(minimize(*batch, weight, eps, lr=lr))
                    if priorities:
                        priorities.set(rows, stats["errors"].cpu().numpy() + 1e-6)
                    if optimizer.steps % cfg.target_every == 0:
                        polyak(target_weights, weights, 1)
                    run.check_finite(loss=stats["loss"])
            if run.row_due:
                run.log(q=stats["q"], error=stats["error"], loss=stats["loss"],
                        grad_norm=stats["grad_norm"], clipped=stats["clipped"],
                        epsilon=policy.epsilon, learning_rate=lr,
                        **({"noise_level": policy.noise_level()} if cfg.sigma else {}))
        return run.result(policy)
