"""Number guessing: the policy guesses a hidden number, and the environment answers higher or lower."""
from dataclasses import dataclass
from string import digits
from typing import Annotated

import numpy as np

from llm.tasks.episodes import Episode
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, numbered
from spinup.runs.config import Range


class Game(Episode):
    """One game: the hidden digit, and how many guesses are left. A character that is no digit ends the game."""

    def __init__(self, hidden: str, guesses: int):
        self.hidden, self.left, self.reply = hidden, guesses, ""

    def act(self, text: str) -> tuple[float, bool]:
        if text == self.hidden:
            return 1.0, True
        self.left -= 1
        self.reply = "+" if text < self.hidden else "-"
        return 0.0, self.left == 0 or len(text) != 1 or text not in digits

    def observe(self) -> str:
        return self.reply


@dataclass
class Guess(Task):
    """The policy guesses a hidden number from 0 on, one digit a turn. After `4` it reads + (higher) or - (lower).

    A response is a game of up to `guesses` turns, such as `4+7-5`. The right number earns 1 and ends the game. The
    teacher guesses at random, and ignores the answers. All prompts are `?`; the number of the game, `data`, determines
    the hidden number.
    """

    numbers: Annotated[int, Range(2, 10)] = 8       # possible numbers, from 0
    guesses: Annotated[int, Range(1, 20)] = 5       # turns in a game
    name = "guess"
    alphabet = digits + "+-?"
    end_of_turn = ""                                # each character is a turn

    def __post_init__(self):
        check_options(self)
        self.max_tokens = 2 * self.guesses          # after each guess a reply, or the end token

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return numbered(n, rng, held_out)

    def open(self, problem: Problem) -> Episode:
        """Start the game of a problem."""
        return Game(str(problem.data // 2 % self.numbers), self.guesses)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a game of random guesses."""
        game, text, over = self.open(problem), "", False
        while not over:
            turn = str(rng.integers(self.numbers))
            _, over = game.act(turn)
            text += turn + ("" if over else game.observe())
        return text
