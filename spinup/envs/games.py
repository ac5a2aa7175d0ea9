"""Two-player games with alternating moves, and such a game as a single-agent environment: a step includes the
opponent's move."""
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from spinup.envs.vector import Step, VectorEnv, generator

Games = np.ndarray | slice                               # which of the games: indices, a mask, or a slice
# From what opponents see `[n, d]`, which opponents they are `[n]`, and uniform noise `[n, A]` to their moves `[n]`.
Reply = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Game:
    """N games side by side. Those that are over wait for `reset`. A game of your own is a subclass of this.

    Attributes:
        num_games: N.
        num_actions: A; moves are numbers from 0 to A - 1.
        shape: of what `observe` shows of one game.
        mover: `[N]`, 0 where the player who began is to move, else 1.
    """

    num_actions: int
    shape: tuple[int, ...]
    shown_by: tuple[str, ...] = ("arena",)               # the commands that show a policy in it

    def __init__(self, num_games: int, seed: int = 0):
        self.num_games, self.mover = num_games, np.zeros(num_games, np.int64)

    def reset(self, games: Games = slice(None)) -> None:
        """Begin these games anew; all, by default."""
        raise NotImplementedError

    def legal(self, games: Games = slice(None)) -> np.ndarray:
        """The legal-action mask `[n, A]` bool of the player to move, in these games; in all, by default."""
        raise NotImplementedError

    def play(self, action: np.ndarray, games: Games = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Make the moves `[n]`. Returns the rewards `[n]` of the players who moved: 1 for a win, -1 for a loss, 0 for a
        draw and while the game goes on; and whether the game is over, `[n]` bool.

        ValueError: a move is illegal; no move was made then.
        """
        raise NotImplementedError

    def observe(self, games: Games = slice(None)) -> np.ndarray:
        """The observations of the players to move, `[n, *shape]`."""
        raise NotImplementedError

    def save(self) -> dict[str, Any]:
        """The state of all games, as plain arrays and numbers."""
        raise NotImplementedError

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `save` returned. The arrays of a checkpoint are tensors: copy them into your own arrays."""
        raise NotImplementedError

    def numbers(self, games: Games) -> np.ndarray:
        """The indices `[n]` of these games."""
        return np.arange(self.num_games)[games]

    def check_legal(self, action: np.ndarray, games: Games) -> None:
        """ValueError where a move `[n]` is illegal."""
        if len(illegal := np.flatnonzero(~self.legal(games)[np.arange(len(action)), action])):
            i = int(illegal[0])
            raise ValueError(f"move {int(action[i])} is illegal in game {self.numbers(games)[i]}; legal() returns the "
                             "legal-action mask")


def see(game: Game, games: Games = slice(None)) -> np.ndarray:
    """A player's input `[n, d + A]` float32: the flattened observation and the legal-action mask."""
    return flat(game.observe(games), game.legal(games))


def flat(observation: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """The same, of observations `[n, *shape]` and legal-action masks `[n, A]`."""
    return np.concatenate([observation.reshape(len(observation), -1), legal], 1, dtype=np.float32)


def random_move(obs: np.ndarray, opponent: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A legal move for each game, `[n]`, drawn uniformly: a `Reply`."""
    return (noise * obs[:, -noise.shape[1]:]).argmax(1)


class Duels(VectorEnv):
    """N copies of a `Game`, each against an opponent, in one seat and the other by turns.

    Observations `[N, d + A]` are those of `see`. The reward comes at the end: 1 for a win, -1 for a loss, 0 for a draw,
    or the reward of PettingZoo's game. An illegal move loses.

    Attributes:
        reply: makes the opponents' moves; at first `random_move`.
        draw: from a number of games that begin to the numbers of their opponents; at first all 0.
        rate: is given the opponents and results of the games that ended in a step, `[n]` each; at first None.
        opening: a game begins with up to so many random moves, each number as likely as another; at first 0.
        opponent: of each game `[N]`, by its number. seat: `[N]`, 0 where the learner begins.
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
        # Nothing follows the end of a game, so that what it shows there is never looked at.
        return Step(see(self.game), reward, over, np.zeros(self.num_envs, bool), last.copy() if over.any() else None)

    def _answer(self, reward: np.ndarray, over: np.ndarray) -> None:
        """Let opponents move wherever it is their turn; where that ends a game and they begin the next one, again."""
        while len(turn := np.flatnonzero(self.game.mover != self.seat)):
            noise = self.rng.random((len(turn), self.game.num_actions), np.float32)
            move = self.reply(see(self.game, turn), self.opponent[turn], noise)
            worth, ended = self.game.play(move, turn)
            self._end(turn[ended], -worth[ended], reward, over)

    def _end(self, games: np.ndarray, result: np.ndarray | float, reward: np.ndarray, over: np.ndarray) -> None:
        """These games ended so; the next begins, from the other seat. One that ended before the learner could move is
        told to nobody: its step has the result of the game before."""
        if len(games):
            told = ~over[games]
            reward[games[told]] = np.broadcast_to(result, len(games))[told]
            over[games] = True
            self.seat[games] ^= 1
            self.opponent[games] = self.draw(len(games))
            self._begin(games)

    def _begin(self, games: np.ndarray) -> None:
        """Clear the boards of these games, and open them."""
        self.game.reset(games)
        moves = self.rng.integers(0, self.opening + 1, len(games)) if self.opening else np.zeros(len(games))
        for k in range(self.opening):
            turn = games[moves > k]
            if not len(turn):
                break
            legal = self.game.legal(turn)
            _, ended = self.game.play((self.rng.random(legal.shape) * legal).argmax(1), turn)
            self.game.reset(turn[ended])

    def _save(self) -> dict[str, Any]:
        return {"game": self.game.save(), "seat": self.seat.copy(), "opponent": self.opponent.copy(),
                "rng": self.rng.bit_generator.state}

    def _load(self, state: dict[str, Any]) -> None:
        self.game.load(state["game"])
        self.seat, self.opponent = np.asarray(state["seat"]).copy(), np.asarray(state["opponent"]).copy()
        self.rng.bit_generator.state = state["rng"]
