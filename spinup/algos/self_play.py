"""Self-play: PPO against a pool of its own past selves, in games of two.

An agent alone in the world can only be as good as the world is hard. In self-play the other player is a copy of the
agent, so that it always meets one of its own strength. Against its newest copy alone it can run in circles, as of
paper, scissors, stone: each new habit beats the last one and forgets the first. So opponents are drawn from the past,

    opponent ~ uniform over versions ceil(delta v), ..., v  of the v + 1 taken so far,

delta = 1 is the newest only, delta = 0 all that ever was  (Bansal et al. 2018, arXiv:1710.03748, sec. 4.2). Each has
an Elo rating, from the games of the training itself; `spinup arena` plays them against each other once more.

For games of two who move by turns, where one's win is the other's loss. It finds no habits of players unlike itself:
what it never met it may lose to. Differs from ppo.py by: the pool; moves that are not open are never drawn.
"""
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.core.distributions import Categorical
from spinup.core.fast.acting import NumpyMLP
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import ActorCritic, BoardConvolution, mlp
from spinup.core.optim import FlatAdam
from spinup.core.returns import gae
from spinup.envs import make
from spinup.envs.games import Duels
from spinup.envs.ratings import MEAN, elo
from spinup.envs.spaces import number_of_actions, vector_size
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, Count, Natural, NonNegative, Positive, Unit, Widths, check_minibatches
from spinup.runs.run import Result, Run

ACTIONS = ("Discrete",)
OBSERVATIONS = ("vectors",)
NO_GAME = ("self_play plays games of two who move by turns, and this environment is none; choose --env TicTacToe-v0, "
           "ConnectFour-v0 or one of PettingZoo's, such as classic/chess-v6")
FORBIDDEN = 1e9          # taken off the logit of a move that is not open; an infinite one would make the entropy NaN


@dataclass(kw_only=True)
class Config(BaseConfig):
    env: str | Callable = "TicTacToe-v0"         # a game of two, or in Python a subclass of spinup.envs.games.Game
    delta: Unit = 0.5                  # opponents: 1 = the newest past self, 0 = all there were, .5 = the newer half
    versions: Count = 40               # past selves taken in the whole run, the untrained one first
    opening: Natural = 3               # a game begins with up to so many random moves, or only habits are ever met
    num_envs: Count = 256              # games side by side, half of them in each seat
    rollout_steps: Count = 32          # moves per game between updates; longer than a game
    epochs: Count = 4                  # passes over a batch (3-10)
    minibatches: Count = 4             # pieces of a batch; each is one gradient step (2-64)
    gamma: Unit = 1.0                  # discount: below 1 a win soon is worth more than a win late
    lam: Unit = 0.95                   # 1 = unbiased and noisy, 0 = trusts the value function (0.8-0.99)
    clip_ratio: Positive = 0.2         # beyond 1 +- this, a step that already improved gets no more gradient (0.1-0.3)
    lr: Positive = 1e-3                # step size at the start (3e-4 to 3e-3)
    anneal: bool = True                # lr and entropy_coef fall linearly to 0
    entropy_coef: NonNegative = 0.05   # a reward for staying random: who always plays the same meets the same
    value_coef: NonNegative = 0.5      # weight of the value error
    max_grad_norm: Positive = 0.5      # longer gradients are scaled down to this
    rating_step: Positive = 2.0        # Elo's K: points that a game moves at most; smaller is steadier and slower
    kernel: Natural = 0                # side of a convolution's windows on the board; 0 = no convolution (0, 3, 4)
    channels: Count = 64               # features of such a window
    hidden: Widths = (128, 128)        # hidden layers of policy and value function, behind the convolution if there is

    def __post_init__(self):
        super().__post_init__()
        check_minibatches(self)


class Player(ActorCritic):
    """An `ActorCritic` that draws only moves that are open, which the last numbers of an observation say.

    Args:
        space: what a `spinup.envs.games.Duels` shows.
        kernel, channels, hidden: see `Config`.
    """

    def __init__(self, space: spaces.Dict, kernel: int, channels: int, hidden: tuple[int, ...]):
        board, (moves,) = space["observation"].shape, space["action_mask"].shape
        size = vector_size(space, "self_play")
        super().__init__((size,), Categorical((moves,)), hidden, activation="relu")
        if kernel:
            for name, outputs, gain in (("pi", moves, 0.01), ("v", 1, 1.0)):
                convolution = BoardConvolution(board, kernel, channels)
                layers = mlp([convolution.width, *hidden, outputs], activation="relu", output_gain=gain)
                setattr(self, name, nn.Sequential(convolution, *layers))

    def params(self, features: Tensor) -> Tensor:
        """What the action distribution takes, `[..., moves]`, of features `[..., width]`."""
        return only_open(self.pi(features), features)

    def actor(self) -> Callable[[np.ndarray], np.ndarray]:
        outputs = super().actor()
        return lambda obs: only_open(outputs(obs), obs)


def only_open(logits: Any, obs: Any) -> Any:
    """The logits `[..., A]` of the moves, those that `obs` `[..., d + A]` says are not open far below all others."""
    return logits - FORBIDDEN * (1 - obs[..., -logits.shape[-1]:])


def opponents(rng: np.random.Generator, n: int, versions: int, delta: float) -> np.ndarray:
    """Numbers `[n]` of opponents, drawn from the newest of so many versions: ceil(delta v), ..., v = versions - 1."""
    return rng.integers(int(np.ceil(delta * (versions - 1))), versions, n)


class Pool:
    """Past selves: what they would play, when they were taken, and what they are rated.

    Attributes:
        steps, ratings: of each version taken so far.
        own: rating of the learner, from which a new version's begins.
    """

    def __init__(self, player: Player, rating_step: float):
        self.player, self.rating_step = player, rating_step
        self.nets: list[nn.Sequential] = []
        self.steps: list[int] = []
        self.ratings: list[float] = []
        self.own = MEAN

    def add(self, steps: int) -> None:
        """The learner as it is after so many steps."""
        self.nets.append(deepcopy(self.player.pi).cpu())
        self.steps.append(steps)
        self.ratings.append(self.own)

    def reply(self, obs: np.ndarray, opponent: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Moves `[n]` of these versions, each drawn as in training: a `spinup.envs.games.Reply`."""
        logits = np.empty(noise.shape, np.float32)
        for version in np.unique(opponent):
            of = opponent == version
            logits[of] = NumpyMLP(self.nets[version])(obs[of])
        gumbel = -np.log(-np.log(np.maximum(noise, np.finfo(np.float32).tiny)))
        return (only_open(logits, obs) + gumbel).argmax(1)

    def rate(self, opponent: np.ndarray, result: np.ndarray) -> None:
        """Elo after the learner's games against these versions `[n]`, which ended so `[n]`: above 0 is won."""
        for version, score in zip(opponent.tolist(), (np.sign(result) + 1) / 2, strict=True):
            self.own, self.ratings[version] = elo(self.own, self.ratings[version], float(score), self.rating_step)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: every version's weights, their steps and ratings."""
        return {"nets": [net.state_dict() for net in self.nets], "steps": list(self.steps),
                "ratings": list(self.ratings), "own": self.own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The pool as it was when `state_dict` gave this."""
        self.nets = [deepcopy(self.player.pi).cpu() for _ in state["nets"]]
        for net, weights in zip(self.nets, state["nets"], strict=True):
            net.load_state_dict(weights)
        self.steps, self.ratings, self.own = list(state["steps"]), list(state["ratings"]), state["own"]


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> Player:
    """Policy and value function; UserError for spaces that no game of `spinup.envs.games` has."""
    number_of_actions(action_space, "self_play")
    if not isinstance(observation_space, spaces.Dict) or set(observation_space) != {"observation", "action_mask"}:
        raise UserError(NO_GAME)
    if cfg.kernel and len(board := observation_space["observation"].shape) != 3:
        raise UserError(f"--kernel {cfg.kernel} is for a board of rows, columns and planes, and what this game shows "
                        f"has the shape {board}; leave it out")
    return Player(observation_space, cfg.kernel, cfg.channels, cfg.hidden)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a player against its past selves. `resume`: the folder of a run of the same settings to go on with.
    UserError for what is no game of two.
    """
    # Set up.
    env = make(cfg.env, cfg.num_envs, cfg.seed)
    run = Run("self_play", cfg, env, resume)
    run.measure = "rating"                                                # whoever plays itself wins half its games
    player = make_policy(cfg, env.observation_space, env.action_space).to(run.device)
    if not isinstance(env, Duels):
        raise UserError(NO_GAME)
    optimizer = FlatAdam(player.parameters(), lr=cfg.lr, eps=1e-5, max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    pool = Pool(player, cfg.rating_step)
    dist, N, T = player.dist, cfg.num_envs, cfg.rollout_steps
    env.opening, env.reply = cfg.opening, pool.reply
    env.draw = lambda n: opponents(run.rng, n, len(pool.steps), cfg.delta)

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             entropy_coef: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = player.evaluate(obs, act)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), (cfg.clip_ratio, cfg.clip_ratio))
        error = value_loss(value, value, target)
        stats["entropy"], stats["value_loss"] = entropy.detach().mean(), error.detach().mean()
        return aggregate(surrogate + cfg.value_coef * error - entropy_coef * entropy), stats

    minimize, updates = optimizer.minimizer(loss), cfg.total_steps // (N * T)
    taken = {k * updates // cfg.versions for k in range(cfg.versions)} - {0}     # before these a version is taken
    with run:
        pool.add(0)
        env.reset()
        run.keep(policy=player, optimizer=optimizer, pool=pool)
        for update in run.updates(updates, N * T):
            if update in taken:
                pool.add(run.steps)
            # Collect: a step is a move of the learner's and what the opponent answers.
            obs, actor, noise = env.obs, player.actor(), dist.noise(run.rng, (T, N))
            observations, actions = np.empty((N, T + 1, obs.shape[1]), np.float32), np.empty((N, T), np.int64)
            rewards, over = np.empty((N, T), np.float32), np.empty((N, T), bool)
            for t in range(T):
                act, opponent = dist.sample(actor(obs), noise[t]), env.opponent.copy()       # [N]
                observations[:, t], actions[:, t] = obs, act
                obs, rewards[:, t], over[:, t], _, _ = env.step(act)[:5]
                pool.rate(opponent[over[:, t]], rewards[over[:, t], t])
            observations[:, T] = obs

            # Evaluate the batch.
            o, a, r, term = (torch.from_numpy(x).to(run.device) for x in (observations, actions, rewards, over))
            with torch.no_grad():
                logp_old, _, values = player.evaluate(o[:, :T], a)                           # [N, T]
                next_values = torch.cat([values[:, 1:], player.value(o[:, T])[:, None]], 1)
                adv, targets = gae(r, values, next_values, term, torch.zeros_like(term), gamma=cfg.gamma, lam=cfg.lam)

            # Update: several epochs of shuffled minibatches.
            share = 1 - update / updates if cfg.anneal else 1.0
            coef = torch.tensor(cfg.entropy_coef * share, device=run.device)
            batch = [x.reshape(N * T, *x.shape[2:]) for x in (o[:, :T], a, logp_old, adv, targets)]
            for _ in range(cfg.epochs):
                order = torch.randperm(N * T).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch), coef, lr=cfg.lr * share)
            run.check_finite(rewards=r, values=values, advantages=adv, **stats)
            if run.row_due:
                explained = 1 - (targets - values).var() / targets.var()
                run.log(**stats, learning_rate=cfg.lr * share, explained_variance=explained, rating=pool.own,
                        versions=len(pool.steps))
        return run.result(player)
