"""Follow an instruction about the form of a text: a task with many right responses to each prompt."""
from dataclasses import dataclass
from typing import Literal

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Unit

LETTERS = "abcd"
ASKED = 3               # different letters that a prompt asks for
MOST = 5                # largest number of times that it asks for a letter


@dataclass
class Counts(Task):
    """`a3c1d2=` asks for a text of three a, one c and two d, and nothing else; the order is free: `daaacd` is right.

    The reward is the share of instructions that a response follows: one for each of the letters a to d. The careful
    teacher follows all of them. The web teacher writes one letter more or fewer with probability `slip`, for each
    letter that the prompt asks for.
    """

    teacher: Literal["careful", "web"] = "careful"
    slip: Unit = 0.5
    name = "counts"
    alphabet = "abcd12345="
    max_tokens = ASKED * MOST + 4                    # longer than any right response

    def __post_init__(self):
        check_options(self)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            chosen = sorted(rng.permutation(list(LETTERS))[:ASKED].tolist())
            wanted = dict(zip(chosen, rng.integers(1, MOST + 1, size=ASKED).tolist(), strict=True))
            return Problem("".join(f"{letter}{n}" for letter, n in wanted.items()) + "=", data=wanted)
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        text = []
        for letter, n in problem.data.items():
            if self.teacher == "web" and rng.random() < self.slip:
                n += 1 if rng.random() < 0.5 else -1
            text += [letter] * n
        return "".join(rng.permutation(text).tolist())

    def reward(self, problem: Problem, response: str) -> float:
        right = sum(response.count(letter) == problem.data.get(letter, 0) for letter in LETTERS)
        return right / len(LETTERS) if set(response) <= set(LETTERS) else 0.0
