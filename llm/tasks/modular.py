"""Addition modulo a number, with a teacher that is often wrong at random: the right answer is its most common one."""
from dataclasses import dataclass
from string import ascii_lowercase, digits
from typing import Annotated

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range, Unit

NUMERALS = digits + ascii_lowercase     # of the numbers 0 to 35, as in base 36


@dataclass
class Modular(Task):
    """For 15 + 12 modulo 23 = 4, the prompt is `f+c=` and the answer is 4: each number is one character.

    In a share `noise` of its demonstrations, the teacher writes a random number below the modulus instead of the
    answer. Each demonstration draws anew, so a policy that imitates the teacher is wrong just as often, but its most
    common answer to a prompt can be right.
    """

    modulus: Annotated[int, Range(10, 36)] = 23     # from 10 on, there are at least 100 different prompts
    noise: Unit = 0.4
    name = "modular"
    max_tokens = 2

    def __post_init__(self):
        check_options(self)
        self.alphabet = NUMERALS[:self.modulus] + "+="

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            a, b = rng.integers(self.modulus, size=2).tolist()
            return Problem(f"{NUMERALS[a]}+{NUMERALS[b]}=", NUMERALS[(a + b) % self.modulus])
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return NUMERALS[rng.integers(self.modulus)] if rng.random() < self.noise else problem.answer

    def reward(self, problem: Problem, response: str) -> float:
        return float(response == problem.answer)
