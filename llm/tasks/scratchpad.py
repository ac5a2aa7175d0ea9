"""Sums of several digits, with a teacher that writes long intermediate steps: a task for length control."""
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range


@dataclass
class Scratchpad(Task):
    """For the prompt `3+5+9+2=`, a response is `8;8;7;9;9;9;#9`: partial sums modulo 10, then `#` and the last of them.

    The teacher writes each partial sum 0 to `repeats` times, so most of its steps are superfluous, and some are left
    out. Only the text after the last `#` is judged: `#9` is the shortest right response. It is also the hardest one to
    find, because all additions must be made at once.
    """

    terms: Annotated[int, Range(3, 12)] = 4         # digits to add
    repeats: Annotated[int, Range(1, 9)] = 4        # most times that the teacher writes a partial sum
    name = "scratchpad"
    alphabet = "0123456789+=;#"
    form = "([0-9];)*#[0-9]"

    def __post_init__(self):
        check_options(self)
        self.max_tokens = 2 * self.repeats * (self.terms - 1) + 3

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            numbers = rng.integers(10, size=self.terms).tolist()
            return Problem("+".join(map(str, numbers)) + "=", str(sum(numbers) % 10), numbers)
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        partial = [x % 10 for x in accumulate(problem.data)][1:]
        times = rng.integers(self.repeats + 1, size=len(partial))
        return "".join(f"{x};" * n for x, n in zip(partial, times.tolist(), strict=True)) + f"#{problem.answer}"

    def answer_of(self, problem: Problem, response: str) -> str | None:
        return response.rpartition("#")[2] or None if "#" in response else None

    def reward(self, problem: Problem, response: str) -> float:
        return float(self.answer_of(problem, response) == problem.answer)
