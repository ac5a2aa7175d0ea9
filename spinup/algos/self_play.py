"""Self-play: PPO against a pool of its own past versions, in two-player games.

In a fixed environment, an agent stops improving when it has solved the task. In self-play the
opponent is a copy of the agent, so the opponent always has a similar strength. Training against
only the newest version can go in circles, as in rock, paper, scissors: each new strategy beats the
last one, and the agent forgets the first. So self-play samples opponents from past versions:

    opponent ~ uniform over versions ceil(delta v), ..., v  of the v + 1 versions so far

With delta = 1 this is the newest version only, with delta = 0 all versions (Bansal et al. 2018,
arXiv:1710.03748, sec. 4.2). Each version has an Elo rating from its training games. `spinup arena`
plays the versions against each other again.

Use it for turn-based zero-sum games of two players. The agent knows only players like itself. It
may lose to players with other strategies.
Differs from ppo.py by: the pool of opponents; the legal-action mask; an entropy bonus that falls
with lr. It has no target_kl, no clipped values, and no normalised rewards or observations.
"""
from collections.abc import Callable, Sequence
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
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import ActorCritic, BoardConvolution, mlp
from spinup.core.ratings import MEAN, elo
from spinup.core.returns import explained_variance, gae
from spinup.core.rollout import collect
from spinup.envs.games import Duels
from spinup.envs.spaces import number_of_actions, vector_size
from spinup.errors import UserError
from spinup.runs.config import BaseConfig, Count, Natural, NonNegative, Positive, Size, Unit, Widths
from spinup.runs.run import Result, Run, make_env

NO_GAME = ("self_play needs a two-player game with alternating moves, and this environment is not "
           "one; choose --env TicTacToe-v0, ConnectFour-v0 or a PettingZoo game such as "
           "classic/chess-v6")
FORBIDDEN = 1e9          # subtracted from logits of illegal actions; inf would make entropy NaN


@dataclass(kw_only=True)
class Config(BaseConfig):
    env: str | Callable = "TicTacToe-v0"  # a game, or a subclass of spinup.envs.games.Game
    delta: Unit = 0.5                # opponents: 1 = newest version, 0 = all, 0.5 = newer half
    versions: Count = 40             # versions in the pool at the end, at most one per update
    opening: Natural = 3             # largest number of random first moves, for varied positions
    num_envs: Size = 256             # games in parallel; the agent moves first in half of them
    rollout_steps: Count = 32        # moves per environment per update; at least a whole game
    epochs: Count = 4                # passes over each batch; more: larger policy changes (3-10)
    minibatches: Count = 4           # minibatches per epoch, one gradient step each (2-64)
    gamma: Unit = 1.0                # discount factor; below 1, earlier wins have a higher value
    lam: Unit = 0.95                 # lambda of GAE: 1 = least bias, 0 = least variance (0.8-0.99)
    clip_ratio: Positive = 0.2       # clip range of the ratio: 1 - this to 1 + this (0.1-0.3)
    lr: Positive = 1e-3              # initial learning rate (3e-4 to 3e-3)
    anneal: bool = True              # decay lr and entropy_coef linearly to 0
    entropy_coef: NonNegative = 0.05  # weight of the entropy bonus, for varied games
    value_coef: NonNegative = 0.5    # weight of the value loss
    max_grad_norm: Positive = 0.5    # largest gradient norm; larger gradients are scaled down
    rating_step: Positive = 2.0      # Elo's K: largest change per game; smaller: less noise
    kernel: Natural = 0              # kernel size of a convolution; 0 = no convolution (0, 3, 4)
    channels: Size = 64              # output channels of the convolution
    hidden: Widths = (128, 128)      # hidden layers of policy and value, after any convolution

    ONLY_WITH = {"channels": "kernel"}

    def __post_init__(self):
        super().__post_init__()
        self.check_batch()


class Player(ActorCritic):
    """An `ActorCritic` that samples only legal actions. The last numbers of an observation are the
    legal-action mask.

    Args:
        space: observation space of a `spinup.envs.games.Duels`.
        kernel, channels, hidden: see `Config`.
    """

    def __init__(self, space: spaces.Dict, kernel: int, channels: int, hidden: tuple[int, ...]):
        board, (moves,) = space["observation"].shape, space["action_mask"].shape
        size = vector_size(space, "self_play")
        super().__init__((size,), Categorical((moves,)), hidden, activation="relu")
        if kernel:
            for name, outputs, gain in (("pi", moves, 0.01), ("v", 1, 1.0)):
                convolution = BoardConvolution(board, kernel, channels)
                sizes = [convolution.width, *hidden, outputs]
                layers = mlp(sizes, activation="relu", output_gain=gain)
                setattr(self, name, nn.Sequential(convolution, *layers))

    def params(self, features: Tensor) -> Tensor:
        """Masked logits `[..., moves]` for features `[..., width]`."""
        return mask_illegal(self.pi(features), features)

    def actor(self) -> Callable[[np.ndarray], np.ndarray]:
        outputs = super().actor()
        return lambda obs: mask_illegal(outputs(obs), obs)


def mask_illegal(logits: Any, obs: Any) -> Any:
    """Logits `[..., A]` minus 1e9 where the mask at the end of `obs` `[..., d + A]` is 0."""
    return logits - FORBIDDEN * (1 - obs[..., -logits.shape[-1]:])


def opponents(rng: np.random.Generator, n: int, versions: int, delta: float) -> np.ndarray:
    """Sample opponents `[n]`, uniform over ceil(delta v), ..., v, where v = versions - 1."""
    oldest = np.ceil(round(delta * (versions - 1), 9))        # .28 x 25 is 7.000000000000001
    return rng.integers(int(oldest), versions, n)


def additions(updates: int, versions: int) -> set[int]:
    """Return the updates before which a version is added; version 0 is added before the first."""
    return {k * updates // versions for k in range(versions)} - {0}


def rated(own: float, ratings: Sequence[float], opponent: np.ndarray, result: np.ndarray,
          step: float) -> tuple[float, list[float]]:
    """Return the Elo ratings of the learner and of all versions after games against these versions
    `[n]`, one after the other. A result `[n]` above 0 is a win of the learner."""
    ratings = list(ratings)
    for version, score in zip(opponent.tolist(), (np.sign(result) + 1) / 2, strict=True):
        own, ratings[version] = elo(own, ratings[version], float(score), step)
    return own, ratings


class Pool:
    """Past versions of the learner: their networks, their ratings and the steps at which they were
    added.

    Attributes:
        steps, ratings: environment steps and Elo rating of each version so far.
        own: rating of the learner; a new version starts with it.
    """

    def __init__(self, player: Player, rating_step: float):
        self.player, self.rating_step = player, rating_step
        self.nets: list[nn.Sequential] = []
        self.steps: list[int] = []
        self.ratings: list[float] = []
        self.own = MEAN

    def add(self, steps: int) -> None:
        """Add a copy of the learner as a new version; `steps` are its environment steps."""
        self.nets.append(deepcopy(self.player.pi).cpu())
        self.steps.append(steps)
        self.ratings.append(self.own)

    def reply(self, obs: np.ndarray, opponent: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Sample a move of each opponent, `[n]`, from its policy: a `spinup.envs.games.Reply`."""
        logits = np.empty(noise.shape, np.float32)
        for version in np.unique(opponent):
            of = opponent == version
            logits[of] = NumpyMLP(self.nets[version])(obs[of])
        gumbel = -np.log(-np.log(np.maximum(noise, np.finfo(np.float32).tiny)))
        return (mask_illegal(logits, obs) + gumbel).argmax(1)

    def rate(self, opponent: np.ndarray, result: np.ndarray) -> None:
        """Update the Elo ratings with games against these versions `[n]`. A result `[n]` above 0 is
        a win of the learner."""
        self.own, self.ratings = rated(self.own, self.ratings, opponent, result, self.rating_step)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, steps and ratings of all versions."""
        return {"nets": [net.state_dict() for net in self.nets], "steps": list(self.steps),
                "ratings": list(self.ratings), "own": self.own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the pool from the output of `state_dict`."""
        self.nets = [deepcopy(self.player.pi).cpu() for _ in state["nets"]]
        for net, weights in zip(self.nets, state["nets"], strict=True):
            net.load_state_dict(weights)
        self.steps, self.ratings = list(state["steps"]), list(state["ratings"])
        self.own = state["own"]


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> Player:
    """Create policy and value function; UserError for spaces other than those of
    `spinup.envs.games`."""
    number_of_actions(action_space, cfg.algorithm)
    if cfg.frame_stack > 1:
        raise UserError("self_play sees one position at a time; leave out --frame-stack")
    keys = set(observation_space) if isinstance(observation_space, spaces.Dict) else set()
    if keys != {"observation", "action_mask"}:
        raise UserError(NO_GAME)
    board = observation_space["observation"].shape
    if cfg.kernel and len(board) != 3:
        raise UserError(f"--kernel {cfg.kernel} needs observations of rows, columns and planes, "
                        f"but this game's observations have shape {board}; leave out --kernel")
    return Player(observation_space, cfg.kernel, cfg.channels, cfg.hidden)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a player against its past versions. `resume`: folder of a run with the same settings,
    to resume it. UserError for an environment that is not a two-player game.
    """
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    run.measure = "rating"                                    # the returns depend on the opponents
    player = run.place(make_policy(cfg, env.observation_space, env.action_space))
    if not isinstance(env, Duels):
        raise UserError(NO_GAME)
    optimizer = FlatAdam(player.parameters(), lr=cfg.lr, eps=1e-5,
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    pool = Pool(player, cfg.rating_step)
    N, T = cfg.num_envs, cfg.rollout_steps
    # env calls these: a reply to each move, ratings when games end, opponents for new games.
    env.opening, env.reply, env.rate = cfg.opening, pool.reply, pool.rate
    env.draw = lambda n: opponents(run.rng, n, len(pool.steps), cfg.delta)

    def loss(obs: Tensor, act: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor,
             entropy_coef: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = player.evaluate(obs, act)
        clip = (cfg.clip_ratio, cfg.clip_ratio)
        surrogate, stats = clipped_surrogate(logp, logp_old, whiten(adv), clip)
        error = value_loss(value, target)
        stats["entropy"], stats["value_loss"] = entropy.detach().mean(), error.detach().mean()
        return aggregate(surrogate + cfg.value_coef * error - entropy_coef * entropy), stats

    # `minimize(*batch)`: zero_grad, backward, clip, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    updates = cfg.total_steps // (N * T)
    taken = additions(updates, cfg.versions)
    with run:
        pool.add(0)
        env.reset()
        run.keep(policy=player, optimizer=optimizer, pool=pool)
        for update in run.updates(updates, N * T):
            if update in taken:
                pool.add(run.steps)
            # Collect: one step is a move of the learner and the opponent's reply.
            rollout = collect(env, player.actor(), player.dist, T, run.rng, run.device)
            obs, act, rew = rollout.obs[:, :T], rollout.act, rollout.rew  # [N, T, ...]

            # Evaluate the batch.
            with torch.no_grad():
                logp_old, _, values = player.evaluate(obs, act)           # [N, T]
                next_values = rollout.next_values(values, player.value)
                adv, ret = gae(rew, values, next_values, rollout.terminated, rollout.truncated,
                               gamma=cfg.gamma, lam=cfg.lam)

            # Update: several epochs of shuffled minibatches.
            share = 1 - update / updates if cfg.anneal else 1.0
            lr = cfg.lr * share
            coef = torch.tensor(cfg.entropy_coef * share, device=run.device)
            batch = [x.reshape(N * T, *x.shape[2:]) for x in (obs, act, logp_old, adv, ret)]
            for _ in range(cfg.epochs):
                order = torch.randperm(N * T).to(run.device)
                for rows in order.chunk(cfg.minibatches):
                    stats = minimize(*(x[rows] for x in batch), coef, lr=lr)
            run.check_finite(rewards=rew, values=values, advantages=adv, **stats)
            if run.row_due:
                explained = explained_variance(values, ret)
                run.log(**stats, learning_rate=lr, explained_variance=explained,
                        rating=pool.own, versions=len(pool.steps))
        return run.result(player)
