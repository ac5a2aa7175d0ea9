"""Board games as text: a game is the list of its moves, one character each, and an illegal move loses."""
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Annotated
from zlib import crc32

import numpy as np

from llm.tasks.episodes import Episode
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, is_held_out
from spinup.envs.worlds.boards import BOARDS, Board
from spinup.runs.config import Range

BEGIN = ">"             # first character of every game, so that the first move has a context
STONES = "XO"           # of the first player, and of the second


class BoardGame(Task):
    """A board game against random moves. The prompt is a random opening; the policy moves next.

    The first player writes capital letters, the second player small letters: `>EaC` is three moves of tic-tac-toe on
    the squares 5, 1 and 3. Each character of the policy is a turn, and the opponent answers with its move. The reward
    is 1 for a win, 0 for a draw, -1 for a loss. Any character that is not a legal move loses.
    """

    opening: int
    end_of_turn = ""                                     # each character is a turn

    def __post_init__(self):
        check_options(self)
        self.board: type[Board] = BOARDS[self.name]
        self.moves = self.board.num_actions
        self.letters = ascii_uppercase[:self.moves], ascii_lowercase[:self.moves]            # of both players
        self.alphabet = BEGIN + "".join(self.letters)
        self.squares = self.board.rows * self.board.columns
        self.max_tokens = self.squares + 1

    def open(self, problem: Problem) -> Episode:
        """Start a game after the opening of a problem."""
        return Match(self, problem.prompt)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        """Return openings of 0 to `opening` random moves that do not end the game."""
        found: list[Problem] = []
        while len(found) < n:
            size = 2 * n * (10 if held_out else 1)
            board, alive = self.board(size), np.ones(size, bool)
            lengths, texts = rng.integers(0, self.opening + 1, size), [BEGIN] * size
            for ply in range(self.opening):
                rows = np.flatnonzero(alive & (lengths > ply))
                legal = board.legal(rows)
                moves = (rng.random(legal.shape) * legal).argmax(1)
                _, over = board.play(moves, rows)
                alive[rows[over]] = False
                for row, move in zip(rows.tolist(), moves.tolist(), strict=True):
                    texts[row] += self.letters[ply % 2][move]
            found += [Problem(text) for text, good in zip(texts, alive, strict=True)
                      if good and is_held_out(text) == held_out]
        return found[:n]

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a game of random legal moves, with the moves of the opponent."""
        match, text = Match(self, problem.prompt), ""
        over = False
        while not over:
            letter = match.letter(int(rng.choice(np.flatnonzero(match.board.legal()[0]))))
            _, over = match.act(letter)
            text += letter + ("" if over else match.observe())            # a last move of the opponent is not read
        return text

    def show(self, problem: Problem, response: str) -> str:
        """Draw the board after each move of a game, side by side; the last move is in brackets. Name an illegal move.
        """
        match, fault = Match(self, problem.prompt), []
        boards = [match.drawn()]
        for letter in response:
            if match.over:
                break
            if match.move_of(letter) is None:
                fault = [f"{letter!r} is not a legal move"]
                break
            match.play(match.move_of(letter))
            boards.append(match.drawn())
        if not match.over and not fault and len(boards) % 2 == 0:         # the opponent's last move is not in the text
            match.reply()
            boards.append(match.drawn())
        return "\n".join(["   ".join(rows) for rows in zip(*boards, strict=True)] + fault)


class Match(Episode):
    """One game of text against random moves. The reply depends only on the moves so far, so a game can be replayed."""

    def __init__(self, task: BoardGame, text: str):
        self.task, self.board, self.text = task, task.board(1), BEGIN
        self.over, self.last, self.said = False, np.zeros(self.board.shape[:2], bool), ""
        for letter in text.removeprefix(BEGIN):
            self.play(self.move_of(letter))

    def move_of(self, letter: str) -> int | None:
        """Return the move of a character for the player to move; None if it is not a legal move."""
        move = self.task.letters[int(self.board.mover[0])].find(letter) if len(letter) == 1 else -1
        return move if move >= 0 and self.board.legal()[0, move] else None

    def letter(self, move: int) -> str:
        """Return the character of a move of the player to move."""
        return self.task.letters[int(self.board.mover[0])][move]

    def play(self, move: int) -> float:
        """Make a legal move; return 1 if it wins, else 0."""
        self.text += self.letter(move)
        before = self.stones()
        worth, over = self.board.play(np.array([move]))
        self.over, self.last = bool(over[0]), self.stones() != before
        return float(worth[0])

    def act(self, text: str) -> tuple[float, bool]:
        self.said, move = "", self.move_of(text)
        if move is None:
            self.over = True
            return -1.0, True
        won = self.play(move)
        if self.over:
            return won, True
        return -self.reply(), self.over

    def reply(self) -> float:
        """Make the move of the opponent; return 1 if it wins, else 0."""
        legal = np.flatnonzero(self.board.legal()[0])
        move = int(legal[crc32(self.text.encode()) % len(legal)])
        self.said = self.letter(move)
        return self.play(move)

    def observe(self) -> str:
        return self.said

    def stones(self) -> np.ndarray:
        """Return the board, `[rows, columns]`: 1 and 2 for the stones of the first and second player, else 0."""
        own, other = np.moveaxis(self.board.observe()[0], -1, 0)
        first, second = (own, other) if self.board.mover[0] == 0 else (other, own)
        return first + 2 * second

    def drawn(self) -> list[str]:
        """Return the rows of the board; the last move is in brackets."""
        return ["".join(f"[{c}]" if mark else f" {c} " for c, mark in zip((f"·{STONES}"[s] for s in row), marked,
                                                                         strict=True))
                for row, marked in zip(self.stones(), self.last, strict=True)]


@dataclass
class TicTacToe(BoardGame):
    """Tic-tac-toe in text. A to I are the squares of the first player, row by row; a to i those of the second."""

    opening: Annotated[int, Range(1, 8)] = 5        # limit of random first moves; with 0, no game is held out
    name = "tictactoe"


@dataclass
class ConnectFour(BoardGame):
    """Connect Four in text. A to G are the columns of the first player; a to g those of the second."""

    opening: Annotated[int, Range(2, 41)] = 12      # limit of random first moves; below 2, no game is held out
    name = "connect_four"


def transcript(task: BoardGame, moves: Sequence[int]) -> str:
    """Write the moves of a game, from its first, as the text that a policy reads."""
    return BEGIN + "".join(task.letters[ply % 2][move] for ply, move in enumerate(moves))
