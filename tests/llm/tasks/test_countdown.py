"""The numbers game and its verifier."""
import time
import warnings
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from llm.tasks.countdown import Countdown, value
from llm.tasks.task import Problem, is_held_out

TASK = Countdown()
HOSTILE = {
    "power": "9**9**9", "floor": "7//3*5", "modulo": "7%3", "names": "x", "call": "int(3)", "attribute": "(3).real",
    "import": "__import__('os')", "float": "3.0*7", "exponent": "1e3", "sign": "-3+5", "plus": "+3", "shift": "3<<9",
    "nesting": "(" * 10_000 + "3" + ")" * 10_000, "chain": "3+" * 400_000 + "3",
    "long": "3+" * 50 + "5",
    "nul": "3\0+5", "million": "9" * 10**6, "superscript": "3²", "arabic": "٣+5", "zeros": "007*5", "zero": "00+3",
    "underscore": "3_0", "hex": "0x1f", "space": "3 +5", "line": "3+5\n", "walrus": "(y:=3)", "tuple": "3,5",
    "call of a number": "3(5)", "empty": "", "brackets": "()", "open": "(3+5", "zero division": "3/(5-5)",
    "surrogate": "3+\ud800", "lambda": "lambda:3", "string": "'3'"}


def solutions(numbers: tuple[int, ...]) -> dict[str, Fraction]:
    """Every fully bracketed expression of the numbers in this order, and its value, by plain recursion."""
    if len(numbers) == 1:
        return {str(numbers[0]): Fraction(numbers[0])}
    found = {}
    for cut in range(1, len(numbers)):
        for left, x in solutions(numbers[:cut]).items():
            for right, y in solutions(numbers[cut:]).items():
                found |= {f"({left}+{right})": x + y, f"({left}-{right})": x - y, f"({left}*{right})": x * y}
                if y:
                    found[f"({left}/{right})"] = x / y
    return found


# Catches: float division; a missing operator; ignored brackets; a verifier that ignores which numbers are used, or how
# many.
@pytest.mark.parametrize("numbers", [(3, 5, 7), (1, 1, 4), (2, 4, 8)])
def test_verifier_agrees_with_brute_force(numbers):
    orders = set(permutations(numbers))
    every = {text: worth for order in orders for text, worth in solutions(order).items()}
    others = {text: worth for order in ((3, 5), (9, 5, 7), (1, 4), (2, 4, 4), (3, 5, 7, 1)) for text, worth
              in solutions(order).items()}
    for target in (0, 1, 8, 26):
        problem = Problem("", data=(sorted(numbers), target))
        for text, worth in every.items():
            assert value(text) == worth
            assert TASK.reward(problem, text) == float(worth == target)
        assert not any(TASK.reward(problem, text) for text in others)


# Catches: a precedence of operators that is not Python's; rounding.
def test_values_are_exact():
    for text, worth in (("1+2*3", 7), ("8-3-2", 3), ("8/4/2", 1), ("(1/3)*3", 1), ("1/3+1/3+1/3", 1), ("0", 0),
                        ("((7))", 7), ("10*(20-1)", 190), ("9" * 50 + "-" + "9" * 49, Fraction(9 * 10**49))):
        assert value(text) == worth
    assert value("1/3") == Fraction(1, 3)


# Catches: `eval`; no limit on the number of characters; a list of forbidden parts in place of allowed ones; an
# exception of the parser that is not caught.
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_other_text_has_reward_0_quickly(text):
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert value(text) is None and TASK.reward(Problem("", data=([3, 5], 8)), text) == 0.0
    assert time.perf_counter() - start < 0.5


# Catches: a target that is negative, a fraction or too large; numbers out of range.
@pytest.mark.parametrize("task", [Countdown(), Countdown(numbers=4, largest=25)], ids=["3 of 9", "4 of 25"])
def test_problems_have_valid_numbers_and_targets(task):
    for problem in task.problems(200, np.random.default_rng(0)):
        numbers, target = problem.data
        assert problem.prompt == f"{','.join(map(str, numbers))}={target}:"
        assert 0 <= target <= 99 and numbers == sorted(numbers) and len(numbers) == task.numbers
        assert numbers[0] >= 1 and numbers[-1] <= task.largest


# Catches: a smallest setting in which no prompt, or every one, is held out, so that `problems` never returns.
@pytest.mark.parametrize("numbers", [2, 3])
def test_smallest_settings_have_prompts_for_both_sets(numbers):
    rng = np.random.default_rng(0)
    task = Countdown(numbers=numbers)
    assert {is_held_out(task.make(rng).prompt) for _ in range(500)} == {True, False}
