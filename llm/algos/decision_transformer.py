"""Decision transformer: offline reinforcement learning as sequence modelling.

Chen et al. 2021, arXiv:2106.01345.

A transformer reads an episode as a sequence and predicts its actions, as a language model predicts
words. The return-to-go comes before each observation. It is the sum of the rewards from this step
to the end of the episode:

    R_1, s_1, a_1, R_2, s_2, a_2, ..                 R_t = r_t + r_t+1 + .. + r_T
    loss = -E[ log pi(a_t | R_1, s_1, a_1 .. R_t, s_t) ]                               (section 3)

So the policy learns which actions precede a high return and which precede a low one. The method
needs no value function and no bootstrapping. To act well, request a high return. R_1 is the
requested return, and each reward is subtracted from it:

    R_t+1 = R_t - r_t

The dataset may mix good and bad policies. Behaviour cloning (bc.py) imitates their mixture. This
policy imitates the episodes whose return is the requested one. It does not combine parts of
different episodes. Methods with value functions do. Its return also depends on luck: in a random
environment, a high return-to-go may mean a lucky episode, not a good action (Paster et al. 2022,
arXiv:2205.15967).

The transformer is the language model of `llm.policy.transformer`. Its vocabulary is the set of
Discrete actions, or the dimensions of a Box action. Linear layers embed returns and observations.
An embedding of the time step is added to the three tokens of a step. As in the paper, the context
is the last `context` steps. Unlike in the paper, position embeddings are rotary, and there is no
dropout.

Differs from spinup/algos/bc.py by: the return-to-go as an input, and a context of earlier steps.
The loss function is the same. It also trains `spinup llm sft`.
"""
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.nn.functional import one_hot

from llm.policy.cache import Slots
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from spinup.algos.bc import log_likelihood
from spinup.algos.vpg import policy_gradient
from spinup.core.distributions import Categorical, Deterministic, DiagGaussian
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate
from spinup.core.normaliser import Normaliser
from spinup.core.optim import Latest, step_size
from spinup.data.dataset import Dataset
from spinup.envs.spaces import ActionsError, action_distribution, vector_size
from spinup.errors import UserError, source_name
from spinup.runs.config import Count, Natural, Positive, Size, Unit
from spinup.runs.offline import OfflineConfig, OfflineRun, open_data
from spinup.runs.run import Result

TOKENS = 3              # of a step: return-to-go, observation, action


@dataclass(kw_only=True)
class Config(OfflineConfig):
    total_steps: Count = 2000          # gradient steps of the whole run
    batch_size: Size = 64              # windows of the dataset in each gradient step
    context: Size = 20                 # steps that the policy sees; 1 = no memory
    request: Unit = 1.0                # requested quantile of the dataset's returns; 1 = highest
    layers: Size = 3                   # layers of the transformer
    width: Size = 64                   # width of the transformer
    heads: Size = 1                    # attention heads; width / heads must be even
    longest: Size = 1000               # time steps with an embedding; later ones share the last
    lr: Positive = 1e-3                # peak learning rate (1e-4 to 1e-3)
    warmup: Natural = 100              # gradient steps in which lr rises linearly from 0
    anneal: bool = True                # decay lr linearly to a tenth over the run
    max_grad_norm: Positive = 0.25     # largest gradient norm; larger gradients are scaled down

    def __post_init__(self):
        super().__post_init__()
        if self.width % self.heads or self.width // self.heads % 2:
            raise UserError(f"--width {self.width} divided by --heads {self.heads} must be an even "
                            "number; choose " + (f"--width {self.width + 1} --heads 1" if
                                                 self.width % 2 else "--heads 1"))

    @property
    def env_settings(self) -> dict[str, int]:
        return super().env_settings | {"episodes": 1}         # observations have reward and action


class Window(NamedTuple):
    """Up to K successive steps of an episode per row. Shorter ones are padded at the beginning."""

    to_go: Tensor                       # [B, K] returns-to-go
    obs: Tensor                         # [B, K, d] normalised observations
    act: Tensor                         # [B, K] or [B, K, k] actions, in the policy's units
    time: Tensor                        # [B, K] number of the step in its episode
    mask: Tensor                        # [B, K] 1 for a step, 0 for padding


def returns_to_go(rewards: np.ndarray, episodes: list[slice]) -> np.ndarray:
    """Sum of the rewards from each step to the end of its episode, `[N]` from `[N]`."""
    rewards = rewards.astype(np.float64)
    return np.concatenate([rewards[each][::-1].cumsum()[::-1] for each in episodes])


def attention_mask(mask: Tensor) -> Tensor:
    """True where a token may attend to another, `[B, 1, 3 K, 3 K]`: to itself, and to earlier
    tokens that are not padding. mask: `[B, K]`."""
    counts = mask.bool().repeat_interleave(TOKENS, 1)                     # [B, 3 K]
    T = counts.shape[1]
    causal = torch.ones(T, T, dtype=torch.bool, device=mask.device).tril()
    itself = torch.eye(T, dtype=torch.bool, device=mask.device)           # or padding gives NaN
    return (causal & counts[:, None] | itself)[:, None]


class Windows:
    """Random windows of a dataset that has `act` `[N, ...]` as a tensor. A new `normaliser` gets
    the statistics of its observations; one that has statistics keeps them."""

    def __init__(self, data: Dataset, act: Tensor, normaliser: Normaliser, context: int):
        obs = torch.from_numpy(data.obs).to(act.device)                   # [N, d]
        if normaliser.count == 0:
            normaliser.update(obs)
        episodes = data.episodes()
        starts = np.concatenate([np.full(each.stop - each.start, each.start) for each in episodes])
        self.start = torch.from_numpy(starts).to(act.device)              # [N]
        to_go = torch.from_numpy(returns_to_go(data.rewards, episodes)).float().to(act.device)
        self.steps, self.context, self.normaliser = (to_go, obs, act), context, normaliser

    def draw(self, rng: np.random.Generator, size: int) -> Window:
        """Sample `size` windows. Each ends at a random step of the dataset."""
        last = torch.from_numpy(rng.integers(len(self.start), size=size)).to(self.start.device)
        rows = last[:, None] - torch.arange(self.context - 1, -1, -1, device=last.device)   # [B, K]
        first = self.start[last, None]
        mask, rows = rows >= first, rows.clamp(min=0)
        to_go, obs, act = (x[rows] for x in self.steps)
        obs = self.normaliser(obs)                # now, because a checkpoint may load statistics
        return Window(to_go, obs, act, (rows - first).clamp(min=0), mask.float())


class DecisionTransformer(nn.Module):
    """Policy that reads returns-to-go, observations and actions of the last steps.

    Attributes:
        request: `[]`, return that `actor` requests for an episode.
        scale: `[]`, returns-to-go are divided by it.
    """

    def __init__(self, cfg: Config, obs_size: int, dist: Categorical | DiagGaussian):
        super().__init__()
        self.context, self.longest = cfg.context, cfg.longest
        self.discrete = isinstance(dist, Categorical)
        self.dist = dist if self.discrete else Deterministic(dist)
        self.num_outputs, self.obs_size = dist.num_outputs, obs_size
        self.body = Transformer(Shape(
            vocab_size=self.num_outputs, context=TOKENS * cfg.context, layers=cfg.layers,
            width=cfg.width, heads=cfg.heads, kv_heads=cfg.heads,
            head_size=cfg.width // cfg.heads, hidden=3 * cfg.width, tied=False))
        self.embed_return, self.embed_obs = nn.Linear(1, cfg.width), nn.Linear(obs_size, cfg.width)
        self.embed_time = nn.Embedding(cfg.longest, cfg.width)
        nn.init.normal_(self.embed_time.weight, std=0.02)
        self.normaliser = Normaliser((obs_size,))
        self.register_buffer("request", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def numbers(self, act: Tensor) -> Tensor:
        """Actions as numbers, `[..., outputs]`: one-hot if they are Discrete."""
        return one_hot(act, self.num_outputs).float() if self.discrete else act

    def forward(self, window: Window) -> Tensor:
        """Outputs of the policy for each step of a window, `[B, K, outputs]`. The action of a step
        does not change its outputs."""
        tokens = torch.stack([
            self.embed_return((window.to_go / self.scale)[..., None]),
            self.embed_obs(window.obs),
            self.numbers(window.act) @ self.body.embed.weight], 2)        # [B, K, 3, width]
        time = self.embed_time(window.time.clamp(max=self.longest - 1))
        tokens = (tokens + time[:, :, None]).flatten(1, 2)                # [B, 3 K, width]
        states = self.body.hidden(tokens, Slots(mask=attention_mask(window.mask)))
        return self.body.logits(states[:, 1::TOKENS])                     # of the observations

    def actor(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from the observations `[N, d + m + 2]` of `spinup.envs.memory.Memory`
        to the outputs of the policy, `[N, outputs]`. It keeps the last steps of N episodes."""
        window: Window | None = None

        @torch.no_grad()
        def outputs(seen: np.ndarray) -> np.ndarray:
            nonlocal window
            obs, act, rew, first = self.parts(torch.as_tensor(seen, device=self.scale.device))
            if window is None or len(window.mask) != len(seen):
                window = self.empty(len(seen))
            window.act[:, -1] = act                           # the action of the previous step
            to_go = torch.where(first, self.request, window.to_go[:, -1] - rew)
            time = torch.where(first, 0, window.time[:, -1] + 1)
            new = (to_go, self.normaliser(obs), torch.zeros_like(act), time, torch.ones_like(to_go))
            window = Window(*(torch.cat([x[:, 1:], y[:, None]], 1)
                              for x, y in zip(window, new, strict=True)))
            window.mask[first, :-1] = 0                       # earlier steps are of another episode
            return self(window)[:, -1].cpu().numpy()
        return outputs

    def parts(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Split observations of `Memory`: observation, last action, its reward, and whether the
        episode starts."""
        d, k = self.obs_size, self.num_outputs
        obs, memory, first = seen[:, :d], seen[:, d:-2], seen[:, -1] > 0
        if self.discrete:
            return obs, memory[:, :k].argmax(1), memory[:, k:].sum(1), first
        act = torch.from_numpy(self.dist.dist.unscale(memory[:, :k].cpu().numpy())).to(seen)
        return obs, act, memory[:, k], first

    def empty(self, n: int) -> Window:
        """A window of padding for n episodes."""
        zeros = torch.zeros(n, self.context, device=self.scale.device)
        act = zeros.long() if self.discrete else zeros[..., None].repeat(1, 1, self.num_outputs)
        obs = zeros[..., None].repeat(1, 1, self.obs_size)
        return Window(zeros, obs, act, zeros.long(), zeros.clone())


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> DecisionTransformer:
    """Create the policy for the observations of `Memory`; ActionsError, a UserError, for actions
    that are neither Discrete nor Box."""
    if not isinstance(action_space, Box | Discrete):
        raise ActionsError(f"{cfg.algorithm} cannot act in {action_space}; it supports Discrete "
                           "and Box actions", type(action_space).__name__)
    dist = action_distribution(action_space, cfg.algorithm)
    # Memory adds the last action and its reward, the end of an episode, and the start of a trial.
    told = 2 * dist.num_outputs if isinstance(action_space, Discrete) else dist.num_outputs + 1
    size = vector_size(observation_space, cfg.algorithm) - told - 2
    return DecisionTransformer(cfg, size, dist)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a decision transformer on a dataset. `resume`: folder of a run with the same
    settings. UserError for an environment with numbered states."""
    # Set up.
    env, data = open_data(cfg)
    if env.tabular:
        env.close()
        raise UserError(f"{cfg.algorithm} supports observations that are vectors, and "
                        f"{source_name(cfg.env)} has numbered states; choose bc or cql")
    run = OfflineRun(cfg, env, data, resume)                  # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    returns = data.returns()
    policy.request.fill_(float(np.quantile(returns, cfg.request)))
    if policy.normaliser.count == 0:                          # with --init, both scales are kept
        to_go = returns_to_go(data.rewards, data.episodes())
        policy.scale.fill_(max(1e-6, float(to_go.std())))
    dist = policy.dist if policy.discrete else policy.dist.dist
    act = torch.from_numpy(dist.unscale(data.actions)).to(run.device)
    windows = Windows(data, act, policy.normaliser, cfg.context)
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-8, max_grad_norm=cfg.max_grad_norm,
                         compile=cfg.compile)
    stats = Latest()

    def loss(*batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        window = Window(*batch)
        logp = log_likelihood(Deterministic(dist), policy(window), window.act)        # [B, K]
        each, found = policy_gradient(logp, torch.ones_like(logp), window.mask)
        return aggregate(each, window.mask), found

    minimize = optimizer.minimizer(loss)
    with run:
        run.keep(policy=policy, optimizer=optimizer, stats=stats)
        for update in run.updates(cfg.total_steps):
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            stats.update(minimize(*windows.draw(run.rng, cfg.batch_size), lr=lr))
            run.check_finite(loss=stats["loss"])
            if run.row_due:
                run.log(loss=stats["loss"], grad_norm=stats["grad_norm"], logp=stats["logp"],
                        request=policy.request, learning_rate=lr)
        return run.result(policy)
