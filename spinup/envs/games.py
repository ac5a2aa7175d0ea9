"""Two-player games with alternating moves. `Duels` makes such a game a single-agent environment: a step includes the
opponent's move."""
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv, generator

Games = np.ndarray | slice                               # selects games: indices, a mask, or a slice
# Takes the opponents' observations `[n, d]`, their numbers `[n]` and uniform noise `[n, A]`; returns their moves `[n]`.
Reply = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Game:
    """N games in parallel. A finished game waits for `reset`. To add a game, write a subclass of this class.

    Attributes:
        num_games: N.
        num_actions: A; moves are numbers from 0 to A - 1.
        shape: shape of the observation of one game.
        mover: `[N]`, 0 if the first player is to move, else 1.
    """

    num_actions: int
    shape: tuple[int, ...]
    shown_by: tuple[str, ...] = ("arena",)               # the commands that show a policy in it

    def __init__(self, num_games: int, seed: int = 0):
        self.num_games, self.mover = num_games, np.zeros(num_games, np.int64)

    def reset(self, games: Games = slice(None)) -> None:
        """Start these games again; by default all games."""
        raise NotImplementedError

    def legal(self, games: Games = slice(None)) -> np.ndarray:
        """Return the legal-action mask `[n, A]` bool of the player to move in these games; by default in all."""
        raise NotImplementedError

    def play(self, action: np.ndarray, games: Games = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Make the moves `[n]`. Return the rewards `[n]` of the players who moved, and whether the game is over, `[n]`
        bool. The reward is 1 for a win, -1 for a loss, and 0 for a draw or an unfinished game.

        ValueError: a move is illegal; then no move is made.
        """
        raise NotImplementedError

    def observe(self, games: Games = slice(None)) -> np.ndarray:
        """Return the observations of the players to move, `[n, *shape]`."""
        raise NotImplementedError

    def save(self) -> dict[str, Any]:
        """Return the state of all games as plain arrays and numbers."""
        raise NotImplementedError

    def load(self, state: dict[str, Any]) -> None:
        """Restore the output of `save`. Checkpoints contain tensors instead of arrays: copy them into your arrays."""
        raise NotImplementedError

    def numbers(self, games: Games) -> np.ndarray:
        """Return the indices `[n]` of these games."""
        return np.arange(self.num_games)[games]

    def check_legal(self, action: np.ndarray, games: Games) -> None:
        """Raise a ValueError if a move `[n]` is illegal."""
        if len(illegal := np.flatnonzero(~self.legal(games)[np.arange(len(action)), action])):
            i = int(illegal[0])
            raise ValueError(f"move {int(action[i])} is illegal in game {self.numbers(games)[i]}; legal() returns the "
                             "legal-action mask")


def see(game: Game, games: Games = slice(None)) -> np.ndarray:
    """Return a player's input `[n, d + A]` float32: the flattened observation and the legal-action mask."""
    return flat(game.observe(games), game.legal(games))


def flat(observation: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Return the input of `see` from observations `[n, *shape]` and legal-action masks `[n, A]`."""
    return np.concatenate([observation.reshape(len(observation), -1), legal], 1, dtype=np.float32)


def random_move(obs: np.ndarray, opponent: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Sample a uniformly random legal move for each game, `[n]`: a `Reply`."""
    return np.where(obs[:, -noise.shape[1]:] > 0, noise, -1).argmax(1)    # a number of `noise` may be 0


class Duels(VectorEnv):
    """N copies of a `Game`, each against an opponent. The learner alternates between first and second player.

    Observations `[N, d + A]` are those of `see`. The reward comes at the end of a game: 1 for a win, -1 for a loss, 0
    for a draw, or the reward of the PettingZoo game. An illegal move loses.

    Attributes:
        reply: function for the opponents' moves; initially `random_move`.
        draw: function that takes a count of new games and returns the index of each opponent; initially all 0.
        rate: function that gets the opponents and results of the games that ended in a step, `[n]` each; initially
            None.
        opening: largest number of random moves at the start of a game, sampled uniformly from 0; initially 0.
        opponent: `[N]`, index of the opponent in each game. seat: `[N]`, 0 if the learner moves first.
    """

    def __init__(self, make_game: Callable[[int, int], Game], num_envs: int, seed: int):
        super().__init__(num_envs)
        self.game, self.rng = make_game(num_envs, seed), generator(seed)
        self.observation_space = Dict(observation=Box(-np.inf, np.inf, self.game.shape),
                                      action_mask=MultiBinary(self.game.num_actions))
        self.action_space = Discrete(self.game.num_actions)
        self.reply: Reply = random_move
        self.draw: Callable[[int], np.ndarray] = partial(np.zeros, dtype=np.int64)
        self.rate: Callable[[np.ndarray, np.ndarray], None] | None = None
        self.opening, self.shown_by = 0, self.game.shown_by

    def _reset(self) -> np.ndarray:
        self.seat, self.opponent = np.arange(self.num_envs) % 2, self.draw(self.num_envs)
        self._begin(np.arange(self.num_envs))
        self._answer(np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool))
        return see(self.game)

    def _step(self, action: np.ndarray) -> Step:
        reward, over = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        action, last, opponent = np.asarray(action), self.obs, self.opponent.copy()
        legal = self.game.legal()[np.arange(self.num_envs), action]
        self._end(np.flatnonzero(~legal), -1, reward, over)
        moving = np.flatnonzero(legal)
        worth, ended = self.game.play(action[moving], moving)
        self._end(moving[ended], worth[ended], reward, over)
        self._answer(reward, over)
        if self.rate is not None:
            self.rate(opponent[over], reward[over])
        obs, final = see(self.game), None
        if over.any():
            final = obs.copy()
            final[over] = last[over]                          # a game terminates: its last values are never used
        return Step(obs, reward, over, np.zeros(self.num_envs, bool), final)

    def _answer(self, reward: np.ndarray, over: np.ndarray) -> None:
        """Make the opponents' moves. If a move ends a game and the opponent moves first in the next game, make that
        first move too."""
        while len(turn := np.flatnonzero(self.game.mover != self.seat)):
            noise = self.rng.random((len(turn), self.game.num_actions), np.float32)
            move = self.reply(see(self.game, turn), self.opponent[turn], noise)
            worth, ended = self.game.play(move, turn)
            self._end(turn[ended], -worth[ended], reward, over)

    def _end(self, games: np.ndarray, result: np.ndarray | float, reward: np.ndarray, over: np.ndarray) -> None:
        """Record the results of these games, and start the next games with the seats swapped. If a game ends before the
        learner's first move, its result is dropped: the step already has the result of the previous game."""
        if len(games):
            told = ~over[games]
            reward[games[told]] = np.broadcast_to(result, len(games))[told]
            over[games] = True
            self.seat[games] ^= 1
            self.opponent[games] = self.draw(len(games))
            self._begin(games)

    def _begin(self, games: np.ndarray) -> None:
        """Reset these games, and make their random opening moves."""
        self.game.reset(games)
        moves = self.rng.integers(0, self.opening + 1, len(games)) if self.opening else np.zeros(len(games))
        for k in range(self.opening):
            turn = games[moves > k]
            if not len(turn):
                break
            legal = self.game.legal(turn)
            _, ended = self.game.play(np.where(legal, self.rng.random(legal.shape), -1).argmax(1), turn)
            self.game.reset(turn[ended])

    def _save(self) -> dict[str, Any]:
        return {"game": self.game.save(), "seat": self.seat.copy(), "opponent": self.opponent.copy(),
                "rng": save_rng(self.rng)}

    def _load(self, state: dict[str, Any]) -> None:
        self.game.load(state["game"])
        self.seat, self.opponent = np.asarray(state["seat"]).copy(), np.asarray(state["opponent"]).copy()
        load_rng(self.rng, state["rng"])
