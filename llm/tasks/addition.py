"""Addition, with a teacher that forgets to carry: a policy can learn more from the verifier than from the teacher."""
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range, Unit

NO_CARRY = 55 / 100     # share of the 100 pairs of digits with a sum below 10


@dataclass
class Addition(Task):
    """For 123 + 989 = 1112, the prompt is `321+989=` and the answer is 2111.

    Operands and sum are padded with zeros and written from the last digit to the first. So each digit of the sum
    depends only on the two digits of its column and the last carry. In the usual order, the first digit depends on all
    digits, and a small transformer learns that late.

    The flawed teacher drops all carries (it adds each column modulo 10) in a share `drop` of its demonstrations. A
    policy that imitates it is wrong just as often. The verifier rewards correct sums only.
    """

    digits: Annotated[int, Range(1, 18)] = 3                # digits of each operand; the sum has one more
    teacher: Literal["flawed", "perfect"] = "flawed"
    drop: Unit = 0.6
    name = "addition"
    alphabet = "0123456789+="

    def __post_init__(self):
        check_options(self)
        self.max_tokens = self.digits + 2

    @property
    def teacher_accuracy(self) -> float:
        """Exact share of correct demonstrations over all prompts; a sum without carries is correct in any case."""
        return 1 - self.drop * (1 - NO_CARRY ** self.digits) if self.teacher == "flawed" else 1.0

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            a, b = rng.integers(10 ** self.digits, size=2).tolist()
            return Problem(f"{written(a, self.digits)}+{written(b, self.digits)}=", written(a + b, self.digits + 1))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        if self.teacher == "perfect" or rng.random() >= self.drop:
            return problem.answer
        a, b = problem.prompt.rstrip("=").split("+")
        return "".join(str((int(x) + int(y)) % 10) for x, y in zip(a, b, strict=True)) + "0"

    def reward(self, problem: Problem, response: str) -> float:
        return float(response == problem.answer)


def written(number: int, width: int) -> str:
    """Write a number with `width` digits, the last digit first."""
    return f"{number:0{width}}"[::-1]
