"""Addition and its flawed teacher."""
import numpy as np
import pytest

from llm.tasks.addition import Addition
from llm.tasks.task import Problem
from spinup.errors import UserError


def every_problem(digits: int) -> list[Problem]:
    width = 10 ** digits
    return [Problem(f"{a:0{digits}}"[::-1] + "+" + f"{b:0{digits}}"[::-1] + "=", f"{a + b:0{digits + 1}}"[::-1])
            for a in range(width) for b in range(width)]


# Catches: numbers written in the usual order, or without their leading zeros.
def test_numbers_are_written_from_the_last_digit():
    for problem in Addition(digits=3).problems(200, np.random.default_rng(0)):
        a, b = (int(x[::-1]) for x in problem.prompt[:-1].split("+"))
        assert a + b == int(problem.answer[::-1]) and (len(problem.prompt), len(problem.answer)) == (8, 4)


# Catches: a teacher that drops only some of the carries, or writes the last carry.
def test_flawed_teacher_drops_every_carry():
    task, rng = Addition(drop=1.0), np.random.default_rng(0)
    for prompt, shown in (("321+989=", "2000"), ("999+999=", "8880"), ("000+000=", "0000"), ("001+009=", "0000")):
        assert task.demonstration(Problem(prompt), rng) == shown


# Catches: a wrong number of pairs without a carry; an accuracy that counts these pairs as errors.
@pytest.mark.parametrize("digits", [1, 2])
def test_teacher_accuracy_without_carries_equals_a_full_count(digits):
    task, rng = Addition(digits=digits, drop=1.0), np.random.default_rng(0)
    problems = every_problem(digits)
    right = sum(task.reward(p, task.demonstration(p, rng)) for p in problems)
    assert right == round(task.teacher_accuracy * len(problems)) == 55 ** digits


# Catches: a share of flawed demonstrations other than `drop`.
def test_teacher_accuracy_equals_the_measured_accuracy():
    task, rng = Addition(), np.random.default_rng(0)
    assert task.teacher_accuracy == pytest.approx(0.4 + 0.6 * 0.55 ** 3)
    problems = task.problems(10_000, rng)
    measured = np.mean([task.reward(p, task.demonstration(p, rng)) for p in problems])
    assert measured == pytest.approx(task.teacher_accuracy, abs=0.02)           # four standard deviations
    assert Addition(teacher="perfect").teacher_accuracy == Addition(drop=0).teacher_accuracy == 1


# Catches: an option that is not checked.
@pytest.mark.parametrize("options", [{"digits": 0}, {"digits": 19}, {"drop": 1.5}, {"teacher": "good"}])
def test_options_are_checked(options):
    with pytest.raises(UserError, match=f"in the task addition, {next(iter(options))} must be"):
        Addition(**options)
