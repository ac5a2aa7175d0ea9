"""Programs verified by unit tests: guess a small function from its values, or solve the problems of a user's file."""
import ast
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from llm.faults import SHORT
from llm.tasks.options import check_options
from llm.tasks.sandbox import judge_many
from llm.tasks.task import Problem, Task, draw
from llm.tasks.user import read_jsonl, split, take
from spinup.errors import UserError
from spinup.runs.config import Count, Positive

FAMILY = {              # each with all a from 2 to 9, and all b from 1 to 9 if it has a b
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
SHOWN = np.arange(10)                           # inputs that the examples in a prompt may use
TESTED = np.arange(-5, 16)                      # inputs of the tests
EXAMPLES = 3
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda          # their bodies are executed later
BLOCK = re.compile(r"```python[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass
class Code(Task):
    """The answer to `f(1)=5,f(4)=14,f(7)=23,f(x)=` is 3*x+2, an expression. Tests also use numbers not in the prompt.

    With `file`, the task has the problems of a JSONL file, for a model that was trained on text. Each line is an object
    with "prompt", "tests" (a list such as ["assert f(3) == 9"]) and, for a teacher, "answer". The program is the last
    block of a response that starts with ```python, or else the whole response. It can use the standard library only.

    The reward is 1 if every test passes, else 0. `sandbox` explains how programs run, and what is not limited. Raise
    UserError if the file is missing or has another form.
    """

    file: str = ""
    seconds: Positive = 1.0         # seconds of processor time for an answer with all its tests
    max_tokens: Count = 512         # longest response to a file's problem; an expression has at most 12 tokens
    name = "code"

    def __post_init__(self):
        self.file = str(self.file)
        check_options(self)
        if sys.platform == "win32":
            raise UserError("the task code needs processes of Linux or macOS to run programs; use one of these systems")
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
            raise UserError(f'{self.file} has no "answer" to {SHORT.repr(problem.prompt)}; add one to each line')
        return problem.answer

    def reward(self, problem: Problem, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """Compute the reward of each response; problems[i] belongs to responses[i].

        One program per core runs at a time. Equal programs for the same tests run only once.
        """
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
    """Create a problem: guess a function from examples that fit no other function of the family."""
    texts, shown, tested = members()
    while True:
        kind = list(FAMILY)[rng.integers(len(FAMILY))]                    # uniform; else kinds with a and b dominate
        i = texts.index(kind.format(a=rng.integers(2, 10), b=rng.integers(1, 10)))
        xs = np.sort(rng.permutation(len(SHOWN))[:EXAMPLES])              # or one problem would have six prompts
        fits = (shown[:, xs] == shown[i, xs]).all(1)
        if fits.sum() == 1:
            break
    examples = ",".join(f"f({SHOWN[x]})={shown[i, x]}" for x in xs)
    return Problem(f"{examples},f(x)=", texts[i],
                   tuple(f"assert f({x}) == {y}" for x, y in zip(TESTED, tested[i], strict=True)))


def function(response: str) -> str:
    """Return the program for a response that is an expression, else "". This function only parses the response."""
    text = response.strip()
    return "" if parsed(text, "eval") is None else f"def f(x):\n    return {text}"


def program(response: str) -> str:
    """Return the last block of Python in a response, or the whole response if there is none."""
    return (BLOCK.findall(response) or [response])[-1].strip()


def parsed(text: str, mode: str = "exec") -> Any:
    """Parse a program, or an expression if the mode is "eval". Return None if the text is not Python."""
    try:
        with warnings.catch_warnings(action="ignore"):                    # Python warns about text such as "5in x"
            return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def says_something(test: str) -> bool:
    """Return whether a test executes an assertion, a `raise`, or a call as a statement. The body of a function does not
    count. True for a test that is not Python."""
    def executed(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, FUNCTIONS):
                yield from executed(child)

    tree = parsed(test)
    return tree is None or any(
        isinstance(node, ast.Assert | ast.Raise) or isinstance(getattr(node, "value", None), ast.Call)
        and isinstance(node, ast.Expr) for node in executed(tree))


def defines(test: str) -> bool:
    """Return whether a test defines a function or class, or imports a module, which another test may use."""
    return any(isinstance(node, FUNCTIONS | ast.ClassDef | ast.Import | ast.ImportFrom) for node in parsed(test).body)


def read(file: str) -> list[Problem]:
    """Read the problems in a file, with their tests as `data`. Raise UserError, which names the wrong line."""
    problems = []
    for where, row in read_jsonl(file):
        prompt, tests, answer = row.get("prompt"), row.get("tests"), row.get("answer", "")
        if not isinstance(prompt, str) or not prompt.strip():
            raise UserError(f'{where} has no text as its "prompt"; write {{"prompt": "...", "tests": ["assert ..."]}}')
        if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
            raise UserError(f'{where} has no list of texts as its "tests"; write "tests": ["assert f(3) == 9"]')
        checked = any(map(says_something, tests))
        for test in tests:
            if not says_something(test) and not (checked and defines(test)):
                raise UserError(f'{where} has the test {SHORT.repr(test)}, which checks no result; write an '
                                'assertion, such as "assert f(3) == 9", or call the function that has it')
        if not isinstance(answer, str):
            raise UserError(f'{where} has an "answer" that is not a text; write a program, or leave it out')
        problems.append(Problem(prompt, answer, tuple(tests)))
    return problems
