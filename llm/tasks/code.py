"""Programs judged by unit tests: guess a small function from its values, or the problems of a file of the user's."""
import ast
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from llm.faults import SHORT
from llm.tasks.options import check_options
from llm.tasks.sandbox import judge_many
from llm.tasks.task import Problem, Task, draw
from llm.tasks.user import read_jsonl, split, take
from spinup.errors import UserError
from spinup.runs.config import Count, Positive

FAMILY = {              # each with every a from 2 to 9, and every b from 1 to 9 where it has one
    "{a}*x+{b}": lambda x, a, b: a * x + b,
    "{a}*x-{b}": lambda x, a, b: a * x - b,
    "x*x+{a}": lambda x, a, b: x * x + a,
    "x*x-{a}": lambda x, a, b: x * x - a,
    "{a}-x": lambda x, a, b: a - x,
    "max(x,{a})": lambda x, a, b: np.maximum(x, a),
    "min(x,{a})": lambda x, a, b: np.minimum(x, a),
    "abs(x-{a})": lambda x, a, b: abs(x - a),
    "x%{a}": lambda x, a, b: x % a,
    "x//{a}": lambda x, a, b: x // a}
SHOWN = np.arange(10)                           # what the examples in a prompt are taken from
TESTED = np.arange(-5, 16)                      # what an answer is tested on
EXAMPLES = 3
BLOCK = re.compile(r"```python[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass
class Code(Task):
    """`f(1)=5,f(7)=23,f(4)=14,f(x)=` is answered by 3*x+2: an expression, tested on numbers that the prompt lacks too.

    With `file`, the problems of a JSONL file, for a model that has been trained on text: each line an object with
    "prompt", "tests" (a list such as ["assert f(3) == 9"]) and, for a teacher, "answer". The program is the last block
    of a response that begins with ```python, or else the whole response; only the standard library is there.

    A response is worth 1 if every test passes, else 0; `sandbox` says how it is run, and what that does not limit.
    UserError: the file is missing or has another form.
    """

    file: str = ""
    seconds: Positive = 1.0         # of processor time for an answer with all its tests
    max_tokens: Count = 512         # of the answers to a file's problems; an expression has 12 at most
    name = "code"

    def __post_init__(self):
        self.file = str(self.file)
        check_options(self)
        if sys.platform == "win32":
            raise UserError("the task code runs programs in processes as Linux and macOS have them; run it there")
        self.alphabet = None if self.file else "0123456789+-*/%(),=abfimnsx"
        if self.file:
            self.train, self.held_out = split(read(self.file), self.file)
        else:
            self.max_tokens = min(self.max_tokens, 12)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        if self.file:
            return take(self.held_out if held_out else self.train, n, rng)
        return draw(n, held_out, lambda: guess(rng))

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        if not problem.answer:
            raise UserError(f'{self.file} has no "answer" to {SHORT.repr(problem.prompt)}; give one to each line')
        return problem.answer

    def reward(self, problem: Problem, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """The reward of each response to the problem beside it: two at a time, and what is the same only once."""
        jobs = [(program(response) if self.file else function(response), problem.data)
                for problem, response in zip(problems, responses, strict=True)]
        different = list(dict.fromkeys(job for job in jobs if job[0]))
        verdicts = judge_many(different, seconds=self.seconds)
        solved = {job for job, verdict in zip(different, verdicts, strict=True) if verdict.solved}
        return [float(job in solved) for job in jobs]


@cache
def members() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Every function of the family: its text, its values on SHOWN `[functions, 10]` and on TESTED `[functions, 21]`."""
    different = {text.format(a=a, b=b): (f(SHOWN, a, b), f(TESTED, a, b))
                 for (text, f), a, b in product(FAMILY.items(), range(2, 10), range(1, 10))}
    shown, tested = zip(*different.values(), strict=True)
    return list(different), np.stack(shown), np.stack(tested)


def guess(rng: np.random.Generator) -> Problem:
    """A function to be guessed from examples that no other function of the family fits, so that there is an answer."""
    texts, shown, tested = members()
    while True:
        kind = list(FAMILY)[rng.integers(len(FAMILY))]                    # not those with two numbers most of the time
        i = texts.index(kind.format(a=rng.integers(2, 10), b=rng.integers(1, 10)))
        xs = rng.permutation(len(SHOWN))[:EXAMPLES]
        fits = (shown[:, xs] == shown[i, xs]).all(1)
        if fits.sum() == 1:
            break
    examples = ",".join(f"f({SHOWN[x]})={shown[i, x]}" for x in xs)
    return Problem(f"{examples},f(x)=", texts[i],
                   tuple(f"assert f({x}) == {y}" for x, y in zip(TESTED, tested[i], strict=True)))


def function(response: str) -> str:
    """The program that a response means if it is an expression, else ""; it is parsed here and run elsewhere."""
    text = response.strip()
    try:
        with warnings.catch_warnings():                                   # of "5in x", which Python frowns on
            warnings.simplefilter("ignore")
            ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return f"def f(x):\n    return {text}"


def program(response: str) -> str:
    """The last block of Python in a response, or all of it where there is none."""
    return (BLOCK.findall(response) or [response])[-1].strip()


def read(file: str) -> list[Problem]:
    """The problems in a file, the tests of each in `data`. UserError with the line that is wrong."""
    problems = []
    for where, row in read_jsonl(file):
        prompt, tests, answer = row.get("prompt"), row.get("tests"), row.get("answer", "")
        if not isinstance(prompt, str) or not prompt.strip():
            raise UserError(f'{where} has no text as its "prompt"; write {{"prompt": "...", "tests": ["assert ..."]}}')
        if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
            raise UserError(f'{where} has no list of texts as its "tests"; write "tests": ["assert f(3) == 9"]')
        if not isinstance(answer, str):
            raise UserError(f'{where} has an "answer" that is no text; write a program, or leave it out')
        problems.append(Problem(prompt, answer, tuple(tests)))
    return problems
