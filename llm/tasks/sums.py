"""Sums of numbers in words: a task in ordinary text, for a pretrained model such as smollm2."""
import re
from dataclasses import dataclass

import numpy as np

from llm.tasks.task import Problem, Task, draw

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBER = re.compile(r"(?:(?<![\w)])-)?[0-9]+(?:\.[0-9]+)?")


@dataclass
class Sums(Task):
    """For `Calculate seven plus six. Write only the equation, in digits.`, the answer is `7 + 6 = 13`.

    A response earns a quarter if its first number is 7, a quarter if its second number is 6, and half if its last
    number is 13. Without three numbers it cannot earn more than half. A reward of 1 means solved. The response may
    contain other words.
    """

    name = "sums"
    alphabet = None
    max_tokens = 14

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            a, b = rng.integers(1, len(WORDS), size=2).tolist()
            prompt = f"Calculate {WORDS[a]} plus {WORDS[b]}. Write only the equation, in digits."
            return Problem(prompt, f"{a} + {b} = {a + b}", (a, b, a + b))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer

    def answer_of(self, problem: Problem, response: str) -> str | None:
        found = NUMBER.findall(response)
        return " ".join([*found[:2], found[-1]]) if len(found) > 2 else None

    def reward(self, problem: Problem, response: str) -> float:
        found = NUMBER.findall(response)
        a, b, total = map(str, problem.data)
        return 0.25 * (found[:1] == [a]) + 0.25 * (found[1:2] == [b]) + 0.5 * (found[2:] != [] and found[-1] == total)
