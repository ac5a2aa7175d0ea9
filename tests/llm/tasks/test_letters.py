"""The task letters: answers that agree with a count by hand, and numbers in digits and in words."""
import numpy as np
import pytest

from llm.tasks.letters import WORDS, Letters
from llm.tasks.task import Problem

TASK = Letters()


# Catches: the last number instead of the first; a number inside a word; a number in words that is not read.
@pytest.mark.parametrize(("response", "number"), [
    ('The letter "r" occurs three times in "strawberry".', "3"), ("Twice.", "2"), ("1, not 3", "1"), ("ONE", "1"),
    ("once or twice", "1"), ("zero", "0"), ("0", "0"), ("10", "10"), ("someone", None), ("often", None), ("²", None),
    ("", None)])
def test_first_number_of_a_response_counts(response, number):
    for answer in ("0", "1", "2", "3"):
        assert TASK.reward(Problem("", answer), response) == float(answer == number)


# Catches: a wrong answer; only letters that occur once; a letter that does not occur; so many answers of 1 that a
# policy profits without reading the word.
def test_answers_agree_with_a_count_by_hand():
    rng = np.random.default_rng(0)
    train, held_out = (TASK.problems(2000, rng, out) for out in (False, True))
    assert not {p.prompt for p in train} & {p.prompt for p in held_out}
    assert len({*WORDS}) == len(WORDS) and all(word.isalpha() and word.islower() for word in WORDS)
    for problem in train:
        letter, word = problem.prompt.split()[6], problem.prompt.split()[-1].rstrip("?")
        assert len(letter) == 1 and int(problem.answer) == len([x for x in word if x == letter])
    for problems in (train, held_out):
        answers = [p.answer for p in problems]
        assert {"1", "2", "3"} <= {*answers} <= {"1", "2", "3", "4"} and 0.45 < answers.count("1") / len(answers) < 0.55
