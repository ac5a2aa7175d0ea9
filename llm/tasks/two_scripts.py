"""Sums in two alphabets; the teacher rarely writes one of them: a task for language consistency and hints."""
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from llm.tasks.addition import written
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range, Unit

SCRIPTS = {"latin": "abcdefghij", "greek": "αβγδεζηθικ"}        # the digits 0 to 9


@dataclass
class TwoScripts(Task):
    """For 23 + 49 = 72, the prompt is `dc+je=` and the answer is `cha`, or in Greek letters `δγ+κε=` and `γθα`.

    The letters are digits, a for 0, and numbers begin with the last digit, as in the task `addition`. A right sum in
    either alphabet earns the reward, so nothing asks a policy to answer a Greek prompt in Greek. With `rule=strict`,
    the answer must be right and in the alphabet of the prompt. With `rule=script`, it only must be in that alphabet,
    right or wrong. The teacher answers a Greek prompt in Greek only in a share `rare` of its demonstrations, and else
    in Latin letters.
    """

    digits: Annotated[int, Range(2, 18)] = 2        # digits of each number; the sum has one more
    rare: Unit = 0.05
    script: Literal["both", "latin", "greek"] = "both"      # of the prompts: each alphabet for half of them, or one
    rule: Literal["sum", "strict", "script"] = "sum"    # see above
    name = "two_scripts"
    alphabet = SCRIPTS["latin"] + SCRIPTS["greek"] + "+="

    def __post_init__(self):
        check_options(self)
        self.max_tokens = self.digits + 2

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            script = [*SCRIPTS][rng.integers(2)] if self.script == "both" else self.script
            a, b = rng.integers(10 ** self.digits, size=2).tolist()
            first, second = (in_script(written(x, self.digits), script) for x in (a, b))
            return Problem(f"{first}+{second}=", in_script(written(a + b, self.digits + 1), script), script)
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer if rng.random() < self.rare else in_latin(problem.answer)

    def answer_of(self, problem: Problem, response: str) -> str | None:
        return (in_latin(response) if self.rule == "sum" else response) or None

    def reward(self, problem: Problem, response: str) -> float:
        if self.rule == "script":
            return float(response != "" and {*response} <= {*SCRIPTS[problem.data]})
        alike = self.rule == "sum" and in_latin(response) == in_latin(problem.answer)
        return float(alike or response == problem.answer)


def in_script(number: str, script: str) -> str:
    """Write a number in digits with the letters of a script."""
    return number.translate(str.maketrans("0123456789", SCRIPTS[script]))


def in_latin(text: str) -> str:
    """Write the Greek letters of a text as the Latin letters of the same digits."""
    return text.translate(str.maketrans(SCRIPTS["greek"], SCRIPTS["latin"]))
