"""Countdown, the numbers game: reach a target with given numbers. Answers are hard to find and easy to check."""
import ast
import operator
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range

LARGEST_TARGET = 99
LONGEST = 100           # characters of an expression; also limits its depth: each level takes a character
ARITHMETIC = re.compile(r"(?!.*\b0[0-9])[0-9+\-*/()]+")                  # ASCII only, and no number such as 007
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value(expression: str) -> Fraction | None:
    """Return the exact value of an expression of whole numbers, + - * / and brackets; None for any other text.

    The text is parsed, and its tree is evaluated, but it is never run as Python. A policy may write anything, and
    running 9**9**9 would hang the training. Also return None for a sign before a number, a division by zero, and more
    than `LONGEST` characters.
    """
    if len(expression) > LONGEST or not ARITHMETIC.fullmatch(expression):
        return None
    try:
        return walk(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def walk(node: ast.AST) -> Fraction:
    """Return the value of a parsed expression. Raise ValueError at the first node that is not allowed."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](walk(node.left), walk(node.right))
    raise ValueError(f"not arithmetic: {type(node).__name__}")


@dataclass
class Countdown(Task):
    """An answer to `3,5,7=26:` is 7*3+5, or any other expression with this value that uses each number once.

    The numbers of a prompt are sorted. Otherwise training could use a held-out problem with its numbers in another
    order.
    """

    numbers: Annotated[int, Range(2, 5)] = 3
    largest: Annotated[int, Range(9, 99)] = 15      # largest number; the smallest is 1
    name = "countdown"
    alphabet = "0123456789+-*/(),=:"

    def __post_init__(self):
        check_options(self)
        # The numbers, the operators between them, as many pairs of brackets as operators, and the end token.
        self.max_tokens = self.numbers * len(str(self.largest)) + 3 * (self.numbers - 1) + 1

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return draw(n, held_out, lambda: self.make(rng))

    def make(self, rng: np.random.Generator) -> Problem:
        """Create a problem from its solution: a random expression whose value is a valid target."""
        while True:
            numbers = sorted(rng.integers(1, self.largest + 1, size=self.numbers).tolist())
            terms = [str(x) for x in numbers]
            while len(terms) > 1:
                left, right = (terms.pop(rng.integers(len(terms))) for _ in range(2))
                terms.append(f"({left}{'+-*/'[rng.integers(4)]}{right})")
            solution = terms[0][1:-1]                                     # without the outermost brackets
            target = value(solution)
            if target is not None and target.denominator == 1 and 0 <= target <= LARGEST_TARGET:
                return Problem(f"{','.join(map(str, numbers))}={target}:", solution, (numbers, int(target)))

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer

    def reward(self, problem: Problem, response: str) -> float:
        numbers, target = problem.data
        if value(response) != target:                                     # first, because it checks the length
            return 0.0
        return float(sorted(int(x) for x in re.findall("[0-9]+", response)) == numbers)
