"""Arithmetic with a calculator: the policy learns when to call a tool and what to do with its answer."""
import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from llm.tasks.countdown import value
from llm.tasks.episodes import replay
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range

CALL = re.compile(r"\[([^\[\]]*)\]")


@dataclass
class Calculator(Task):
    """`12*47+38:` is answered by 602, which a small model cannot find in its head.

    It can write `[12*47+38]`: the tool goes on with `=602;` and the policy after that, so the whole response reads
    `[12*47+38]=602;602`. What follows the last `;` is the answer; no call is needed where the policy knows it.
    What the tool wrote is no action of the policy's and is not trained on: see `written_by_policy`.
    """

    digits: Annotated[int, Range(1, 9)] = 2         # of each number in the prompt
    calls: Annotated[int, Range(1, 9)] = 2          # of the tool; later ones go unanswered
    name = "calculator"
    alphabet = "0123456789+-*/()[]=;?:"

    def __post_init__(self):
        check_options(self)
        self.longest = 2 * self.digits + 1          # characters of a result: the largest answer, and a sign
        # Calls of the prompt's length, each with its brackets, `=`, a result and `;`; then the answer and the end.
        self.max_tokens = self.calls * (3 * self.digits + 4 + self.longest + 2) + self.longest + 1

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            a, b, c = rng.integers(10 ** (self.digits - 1), 10 ** self.digits, size=3).tolist()
            return Problem(f"{a}*{b}+{c}:", str(a * b + c))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """The whole response, the tool's part included; `written_by_policy` says which part that is."""
        call = f"[{problem.prompt.rstrip(':')}]"
        return call + (self.tool(call) or "") + problem.answer

    def written_by_policy(self, text: str) -> list[bool]:
        """For each character of a response, whether the policy wrote it; the others are not to be trained on."""
        return replay(self, text)

    def reward(self, problem: Problem, response: str) -> float:
        return float(response.rpartition(";")[2] == problem.answer)

    def tool(self, text: str) -> str | None:
        """`=602;` after a call that is worth 602, `=?;` after any other call, None where no call has just ended.

        None also after more than `calls` calls; `=?;` also for a result that is no whole number, or a longer one than
        any answer.
        """
        if not text.endswith("]"):                                        # asked after every token: a quick way out
            return None
        calls = list(CALL.finditer(text))
        if not calls or calls[-1].end() < len(text) or len(calls) > self.calls:
            return None
        result = value(calls[-1][1])
        good = result is not None and result.denominator == 1 and len(str(result)) <= self.longest
        return f"={result};" if good else "=?;"
