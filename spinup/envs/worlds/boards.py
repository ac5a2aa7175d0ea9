"""Tic-tac-toe and Connect Four: N games in parallel in numpy, with one bit per square.

Rules, squares, actions and observations are those of PettingZoo's `tictactoe-v3` and `connect_four-v3`.
"""
from functools import partial, reduce
from typing import Any

import numpy as np

from spinup.envs.games import Duels, Game, Games


class Board(Game):
    """`Game` on a board, in which a completed line wins and a full board is a draw.

    Attributes:
        rows, columns: size of the board.
        own, other: stones `[N]` uint64 of the player to move, and of the other player; square i is bit `bits[i]`.
    """

    shown_by = ("play", "arena")
    rows: int
    columns: int
    bits: np.ndarray                                     # bit of each square, row by row from the top: [rows * columns]

    def __init__(self, num_games: int, seed: int = 0):
        super().__init__(num_games)
        self.own, self.other = (np.zeros(num_games, np.uint64) for _ in range(2))
        self.shape, self.full = (self.rows, self.columns, 2), _sum(self.bits)

    def reset(self, games: Games = slice(None)) -> None:
        self.own[games] = self.other[games] = self.mover[games] = 0

    def legal(self, games: Games = slice(None)) -> np.ndarray:
        return self._legal(self.own[games] | self.other[games])

    def play(self, action: np.ndarray, games: Games = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        own, other = self.own[games], self.other[games]
        stone = self._stone(own | other, action)
        if not stone.all():
            self.check_legal(action, games)
        own = own | stone
        won = self._won(own)
        over = won | ((own | other) == self.full)
        self.own[games], self.other[games] = other, own
        self.mover[games] ^= 1
        return won.astype(np.float32), over

    def observe(self, games: Games = slice(None)) -> np.ndarray:
        """Return the stones of the player to move and of the other player, `[n, rows, columns, 2]` int8 of 0 and 1."""
        stones = np.stack([self.own[games], self.other[games]], 1)[:, None]          # [n, 1, 2]
        seen = (stones >> self.bits[:, None]) & np.uint64(1)                         # [n, squares, 2]
        return seen.astype(np.int8).reshape(-1, *self.shape)

    def save(self) -> dict[str, Any]:
        return {name: getattr(self, name).copy() for name in ("own", "other", "mover")}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the output of `save`."""
        for name, value in state.items():
            getattr(self, name)[:] = value

    def _legal(self, taken: np.ndarray) -> np.ndarray:
        """Return the legal-action masks `[n, num_actions]` if these squares `[n]` are taken."""
        raise NotImplementedError

    def _stone(self, taken: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Return the bit that each move sets, `[n]`; 0 if the move is illegal."""
        raise NotImplementedError

    def _won(self, stones: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def _sum(bits: np.ndarray) -> np.uint64:
    return reduce(np.bitwise_or, np.uint64(1) << bits)


class TicTacToe(Board):
    """Tic-tac-toe, three in a row. Move a takes square number a, counted row by row."""

    rows, columns, num_actions = 3, 3, 9
    bits = np.arange(9, dtype=np.uint64)
    lines = np.array([_sum(np.array(line, np.uint64)) for line in (
        (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))])

    def _legal(self, taken):
        return (taken[:, None] >> self.bits & np.uint64(1)) == 0

    def _stone(self, taken, action):
        stone = np.uint64(1) << np.asarray(action).astype(np.uint64)
        return np.where(taken & stone, np.uint64(0), stone)

    def _won(self, stones):
        return ((stones[:, None] & self.lines) == self.lines).any(1)


class ConnectFour(Board):
    """Connect Four, four in a row. Move a drops a stone into column a.

    A column has seven bits, its lowest square first. The seventh bit is always 0, so that no line continues from the
    top of one column to the bottom of the next.
    """

    rows, columns, num_actions = 6, 7, 7
    bits = np.array([7 * column + 5 - row for row in range(6) for column in range(7)], np.uint64)
    lowest = np.uint64(1) << np.arange(0, 49, 7, dtype=np.uint64)                   # of each column
    highest = np.uint64(1) << np.arange(5, 49, 7, dtype=np.uint64)
    directions = tuple(np.uint64(step) for step in (1, 7, 6, 8))                    # up, right, and both diagonals

    def _legal(self, taken):
        return (taken[:, None] & self.highest) == 0

    def _stone(self, taken, action):
        stone = (taken + self.lowest[action]) & ~taken       # the carry moves up the column to its free square
        return np.where(taken & self.highest[action], np.uint64(0), stone)

    def _won(self, stones):
        won = np.zeros(len(stones), bool)
        for step in self.directions:
            pairs = stones & stones >> step
            won |= (pairs & pairs >> np.uint64(2) * step) != 0
        return won


BOARDS: dict[str, type[Board]] = {"tictactoe": TicTacToe, "connect_four": ConnectFour}
WORLDS = {"TicTacToe-v0": partial(Duels, TicTacToe), "ConnectFour-v0": partial(Duels, ConnectFour)}
