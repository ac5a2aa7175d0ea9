"""Arithmetic with a calculator: the policy learns when to call a tool and how to use its result."""
import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from llm.tasks.countdown import value
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range

CALL = re.compile(r"\[([^\[\]]*)\]")


@dataclass
class Calculator(Task):
    """The answer to `12*47+38:` is 602, which a small model cannot compute without a tool.

    The policy can write `[12*47+38]`. The tool appends `=602;`, and the policy continues. The whole response is then
    `[12*47+38]=602;602`. The answer is the text after the last `;`. The policy need not call the tool if it knows the
    answer. Tokens of the tool are not actions of the policy, so the loss leaves them out.
    """

    digits: Annotated[int, Range(1, 9)] = 2         # digits of each number in the prompt
    calls: Annotated[int, Range(1, 9)] = 2          # calls of the tool; later calls get no result
    name = "calculator"
    alphabet = "0123456789+-*/()[]=;?:"

    def __post_init__(self):
        check_options(self)
        self.longest = 2 * self.digits + 1          # longest result in characters: the largest answer and a sign
        # Calls of the prompt's length, each with its brackets, `=`, a result and `;`; then the answer and the end.
        self.max_tokens = self.calls * (3 * self.digits + 4 + self.longest + 2) + self.longest + 1

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            a, b, c = rng.integers(10 ** (self.digits - 1), 10 ** self.digits, size=3).tolist()
            return Problem(f"{a}*{b}+{c}:", str(a * b + c))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return the whole response, including the output of the tool."""
        call = f"[{problem.prompt.rstrip(':')}]"
        return call + (self.tool(call) or "") + problem.answer

    def answer_of(self, problem: Problem, response: str) -> str | None:
        return response.rpartition(";")[2] or None

    def reward(self, problem: Problem, response: str) -> float:
        return float(response.rpartition(";")[2] == problem.answer)

    def tool(self, text: str) -> str | None:
        """Return `=602;` after a call with the value 602, `=?;` after an invalid call, None if no call has just ended.

        Also return None after more than `calls` calls, and `=?;` if the value is not a whole number or is longer than
        any answer.
        """
        if not text.endswith("]"):                                        # called after every token, so return early
            return None
        calls = list(CALL.finditer(text))
        if not calls or calls[-1].end() < len(text) or len(calls) > self.calls:
            return None
        result = value(calls[-1][1])
        good = result is not None and result.denominator == 1 and len(str(result)) <= self.longest
        return f"={result};" if good else "=?;"
