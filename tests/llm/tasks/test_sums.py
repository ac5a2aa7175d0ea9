"""The task sums: numbers in words that agree with a separate table, and the parts of the reward."""
import numpy as np
import pytest

from llm.tasks.sums import Sums
from llm.tasks.task import Problem

TASK = Sums()
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
           "eleven": 11, "twelve": 12}


# Catches: a sum that counts without operands before it; an operand in another place; a number inside another number.
@pytest.mark.parametrize(("response", "earned"), [
    ("7 + 6 = 13", 1.0), ("The equation is 7+6=13.", 1.0), ("7 6 13", 1.0), ("7 + 6", 0.5), ("7 + 6 = 14", 0.5),
    ("6 + 7 = 13", 0.5), ("7 + 7 = 13", 0.75), ("13", 0.0), ("7", 0.25), ("7 + 13", 0.25), ("17 + 6 = 13", 0.75),
    ("7 + 6 = 13 = 1", 0.5), ("seven plus six is 13", 0.0), ("7 + 6 = 013", 0.5), ("7 + 6 = 1.13", 0.5),
    ("7 + 6 = -13", 0.5), ("7 plus 6 is sum-13", 1.0), ("²", 0.0), ("", 0.0)])
def test_reward_has_parts_for_both_operands_and_the_sum(response, earned):
    assert TASK.reward(Problem("", data=(7, 6, 13)), response) == earned


def test_prompts_have_right_answers_and_are_never_in_both_sets():
    rng = np.random.default_rng(0)
    train, held_out = (TASK.problems(3000, rng, out) for out in (False, True))
    assert not {p.prompt for p in train} & {p.prompt for p in held_out}
    assert len({p.prompt for p in train + held_out}) == len(NUMBERS) ** 2
    for problem in train[:300] + held_out[:30]:
        _, a, _, b, *_ = problem.prompt.replace(".", "").split()
        assert problem.answer == f"{NUMBERS[a]} + {NUMBERS[b]} = {NUMBERS[a] + NUMBERS[b]}"
        assert TASK.reward(problem, TASK.demonstration(problem, rng)) == 1.0
