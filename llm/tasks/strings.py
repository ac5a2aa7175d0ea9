"""Copy, reverse or sort a few letters: the smallest tasks for training a transformer."""
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Annotated

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.errors import UserError
from spinup.runs.config import Range

FEWEST = 100            # least number of different prompts; with fewer, the search for a held-out one may never end


@dataclass
class Copy(Task):
    """The answer to `abc>` is abc. Raise UserError for an option out of range, or too few different prompts."""

    length: Annotated[int, Range(1, 100)] = 6       # letters in a prompt
    symbols: Annotated[int, Range(2, 26)] = 10      # different letters, from a
    name = "copy"

    def __post_init__(self):
        check_options(self)
        if self.symbols ** self.length < FEWEST:
            raise UserError(f"the task {self.name} needs at least {FEWEST} different prompts, but length={self.length} "
                            f"with symbols={self.symbols} makes {self.symbols ** self.length}; raise length")
        self.alphabet = ascii_lowercase[:self.symbols] + ">"
        self.max_tokens = self.length + 1

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            text = "".join(self.alphabet[i] for i in rng.integers(self.symbols, size=self.length))
            return Problem(f"{text}>", self.solve(text))
        return draw(n, held_out, make)

    def solve(self, text: str) -> str:
        """Return the right answer."""
        return text

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer

    def reward(self, problem: Problem, response: str) -> float:
        return float(response == problem.answer)


class Reverse(Copy):
    """The answer to `abc>` is cba."""

    name = "reverse"

    def solve(self, text: str) -> str:
        return text[::-1]


class Sort(Copy):
    """The answer to `bca>` is abc."""

    name = "sort"

    def solve(self, text: str) -> str:
        return "".join(sorted(text))
