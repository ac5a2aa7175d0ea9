"""Follow an instruction about the form of a text: a task with many right responses to each prompt."""
from dataclasses import dataclass
from typing import Literal

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Unit

LETTERS = "abcdef"
ASKED = 2               # different letters that a prompt asks for
MOST = 4                # largest number of times that it asks for a letter


@dataclass
class Counts(Task):
    """`a3d1=` asks for a text of three a and one d, and nothing else; the order is free: `aada` is right.

    The reward is the share of three instructions that a response follows: the number of each of the two letters, and
    that there is nothing else. The careful teacher follows all of them. The web teacher writes one letter more or fewer
    with probability `slip`, for each letter.
    """

    teacher: Literal["careful", "web"] = "careful"
    slip: Unit = 0.5
    name = "counts"
    alphabet = LETTERS + "1234="
    max_tokens = ASKED * MOST + 4                         # longer than any right response

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
        followed = [response.count(letter) == n for letter, n in problem.data.items()]
        return sum([*followed, set(response) <= set(problem.data)]) / (ASKED + 1)
