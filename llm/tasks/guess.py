"""Number guessing: the policy guesses a hidden number, and the environment answers higher or lower."""
import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from llm.tasks.episodes import Episode
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range

LARGEST = 99            # numbers are from 1 to 99


class Game(Episode):
    """One game: the hidden number, and how many guesses are left. A turn that is no number ends the game."""

    def __init__(self, number: int, guesses: int):
        self.number, self.left, self.reply = number, guesses, ""

    def act(self, text: str) -> tuple[float, bool]:
        guess = text.removesuffix("?")
        if guess == str(self.number):
            return 1.0, True
        if not re.fullmatch("[0-9]{1,2}", guess):
            return 0.0, True
        self.left -= 1
        self.reply = "+" if int(guess) < self.number else "-"
        return 0.0, self.left == 0

    def observe(self) -> str:
        return self.reply


@dataclass
class Guess(Task):
    """`20-27:` asks for a hidden number from 20 to 27. After `24?` the policy reads + (higher) or - (lower).

    A response is a game of up to `guesses` turns, such as `24?+26?-25?`. The right number earns 1 and ends the game.
    The teacher guesses at random, and ignores the answers.
    """

    numbers: Annotated[int, Range(2, 90)] = 10      # numbers in the range of a prompt
    guesses: Annotated[int, Range(1, 20)] = 5       # turns in a game
    name = "guess"
    alphabet = "0123456789-+?:"
    end_of_turn = "?"

    def __post_init__(self):
        check_options(self)
        self.max_tokens = 4 * self.guesses          # two digits, ?, and a reply or the end token

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            low = int(rng.integers(1, LARGEST + 2 - self.numbers))
            high = low + self.numbers - 1
            return Problem(f"{low}-{high}:", data=int(rng.integers(low, high + 1)))
        return draw(n, held_out, make)

    def open(self, problem: Problem) -> Episode:
        """Start the game of a problem."""
        return Game(problem.data, self.guesses)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a game of random guesses within the range of the prompt."""
        low, high = map(int, problem.prompt[:-1].split("-"))
        game, text, over = self.open(problem), "", False
        while not over:
            turn = f"{rng.integers(low, high + 1)}?"
            _, over = game.act(turn)
            text += turn + ("" if over else game.observe())
        return text
