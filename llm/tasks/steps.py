"""Sums of digits with a scratchpad: a task that hardly any policy solves without intermediate steps."""
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range, Unit

FORM = re.compile(r"\([0-9]+\)[0-9]")
ACCURACY, FORMAT = 0.9, 0.1             # largest rewards of the two parts, as in Magistral


@dataclass
class Steps(Task):
    """The answer to `4231=` is 0: the sum modulo 5. `(4140)0` also has the steps, which are all running sums.

    The reward has two parts: .9 if the text after the last bracket is the answer, and .1 for the format, which is
    digits in brackets and then one digit. So 1 means a right answer in the format. A small transformer cannot add
    many digits at once, so its answers without steps are hardly better than chance. Each step needs one digit and the
    step before it.

    The careful teacher writes all steps without an error. The web teacher writes as an unfiltered corpus would: in a
    third of its demonstrations the answer alone, in a third every second step, in a third all steps; and each digit
    that it writes is wrong with probability `slip`. Later steps are computed from the wrong digit.
    """

    digits: Annotated[int, Range(4, 18)] = 6                # digits of a prompt
    modulus: Annotated[int, Range(4, 10)] = 5               # digits are smaller than this, and so are sums
    teacher: Literal["careful", "web"] = "careful"
    slip: Unit = 0.1
    name = "steps"
    form = FORM.pattern

    def __post_init__(self):
        check_options(self)
        self.alphabet = "0123456789"[:self.modulus] + "()="
        self.max_tokens = self.digits + 4

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            digits = rng.integers(self.modulus, size=self.digits).tolist()
            return Problem("".join(map(str, digits)) + "=", str(sum(digits) % self.modulus))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        digits = [int(x) for x in problem.prompt.rstrip("=")]
        if self.teacher == "careful":
            return f"({''.join(str(x % self.modulus) for x in accumulate(digits))}){problem.answer}"
        each, total, written = rng.integers(3), 0, ""                     # 0: no steps; 1: all; 2: every second one
        for i, x in enumerate(digits, 1):
            total = (total + x) % self.modulus
            if each and i % each == 0:
                total = self.slipped(total, rng)
                written += str(total)
        answer = self.slipped(total, rng)
        return f"({written}){answer}" if each else str(answer)

    def slipped(self, digit: int, rng: np.random.Generator) -> int:
        """Return the digit, or with probability `slip` a random one."""
        return int(rng.integers(self.modulus)) if rng.random() < self.slip else digit

    def answer_of(self, problem: Problem, response: str) -> str | None:
        return response.rpartition(")")[2] or None

    def reward(self, problem: Problem, response: str) -> dict[str, float]:
        return {"accuracy": ACCURACY * (self.answer_of(problem, response) == problem.answer),
                "format": FORMAT * (FORM.fullmatch(response) is not None)}
