"""A game of two as an environment of one: the other player's moves are part of what a step does."""
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.envs.boards import BOARDS, Board
from spinup.envs.vector import Step, VectorEnv

# From what opponents see `[n, d]`, which opponents they are `[n]`, and uniform noise `[n, A]` to their moves `[n]`.
Reply = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def random_move(obs: np.ndarray, opponent: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Any open move, as likely as any other."""
    return (noise * obs[:, -noise.shape[1]:]).argmax(1)


class Duels(VectorEnv):
    """N games of a `Board`, each against an opponent, in one seat and the other by turns.

    Observations `[N, 2 squares + A]`: the own stones, the other's, and which of the A moves are open, all 0 or 1. The
    reward is 1 for a win, -1 for a loss, 0 for a draw, at the end. A move that is not open loses.

    Attributes:
        reply: makes the opponents' moves; at first `random_move`.
        draw: from a number of games that begin to the numbers of their opponents; at first all 0.
        opponent: of each game `[N]`, by its number. seat: `[N]`, 0 where the learner begins.
    """

    def __init__(self, game: type[Board], num_envs: int, seed: int):
        super().__init__(num_envs)
        self.board, self.rng = game(num_envs), np.random.default_rng(seed)
        self.moves = game.num_actions
        self.observation_space = Box(0, 1, (2 * game.rows * game.columns + self.moves,))
        self.action_space = Discrete(self.moves)
        self.reply: Reply = random_move
        self.draw: Callable[[int], np.ndarray] = partial(np.zeros, dtype=np.int64)

    def _reset(self) -> np.ndarray:
        self.board.reset()
        self.seat, self.opponent = np.arange(self.num_envs) % 2, self.draw(self.num_envs)
        self._answer(np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool))
        return self._see()

    def _step(self, action: np.ndarray) -> Step:
        reward, over = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        action, last = np.asarray(action), self.obs
        open_ = self.board.legal()[np.arange(self.num_envs), action]
        self._end(np.flatnonzero(~open_), -1, reward, over)
        moving = np.flatnonzero(open_)
        won, ended = self.board.play(action[moving], moving)
        self._end(moving[won], 1, reward, over)
        self._end(moving[ended & ~won], 0, reward, over)
        self._answer(reward, over)
        # Nothing follows the end of a game, so that what it shows there is never looked at.
        return Step(self._see(), reward, over, np.zeros(self.num_envs, bool), last.copy() if over.any() else None)

    def _answer(self, reward: np.ndarray, over: np.ndarray) -> None:
        """Let opponents move wherever it is their turn; where that ends a game and they begin the next one, again."""
        while len(turn := np.flatnonzero(self.board.mover != self.seat)):
            noise = self.rng.random((len(turn), self.moves), np.float32)
            won, ended = self.board.play(self.reply(self._see(turn), self.opponent[turn], noise), turn)
            self._end(turn[won], -1, reward, over)
            self._end(turn[ended & ~won], 0, reward, over)

    def _end(self, games: np.ndarray, result: float, reward: np.ndarray, over: np.ndarray) -> None:
        """These games ended so; the next begins, from the other seat."""
        if len(games):
            reward[games], over[games] = result, True
            self.board.reset(games)
            self.seat[games] ^= 1
            self.opponent[games] = self.draw(len(games))

    def _see(self, games: np.ndarray | slice = slice(None)) -> np.ndarray:
        stones = np.moveaxis(self.board.observe(games), -1, 1)                       # [n, 2, rows, columns]
        return np.concatenate([stones.reshape(len(stones), -1), self.board.legal(games)], 1, dtype=np.float32)

    def _save(self) -> dict[str, Any]:
        board = {name: getattr(self.board, name).copy() for name in ("own", "other", "mover")}
        return {"board": board, "seat": self.seat.copy(), "opponent": self.opponent.copy(),
                "rng": self.rng.bit_generator.state}

    def _load(self, state: dict[str, Any]) -> None:
        for name, value in state["board"].items():
            setattr(self.board, name, np.asarray(value).copy())
        self.seat, self.opponent = np.asarray(state["seat"]).copy(), np.asarray(state["opponent"]).copy()
        self.rng.bit_generator.state = state["rng"]


DUELS = {"TicTacToe-v0": partial(Duels, BOARDS["tictactoe"]), "ConnectFour-v0": partial(Duels, BOARDS["connect_four"])}
