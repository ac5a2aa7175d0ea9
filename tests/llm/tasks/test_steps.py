"""Sums with a scratchpad, and texts of a given form."""
import numpy as np
import pytest

from llm.tasks.counts import Counts
from llm.tasks.steps import Steps
from llm.tasks.task import Problem


# Turned red by: a running sum that is not modulo 10; an answer that is not the last step.
def test_the_careful_teacher_writes_all_running_sums():
    task, rng = Steps(digits=4), np.random.default_rng(0)
    assert task.demonstration(Problem("4729=", "2"), rng) == "(4132)2"
    for p in task.problems(100, rng):
        text = task.demonstration(p, rng)
        assert task.reward(p, text) == {"accuracy": 0.9, "format": 0.1} and len(text) + 1 <= task.max_tokens
        assert int(p.answer) == sum(map(int, p.prompt[:-1])) % 10


@pytest.mark.parametrize(("response", "accuracy", "form"), [
    ("(4132)2", 0.9, 0.1), ("(9)2", 0.9, 0.1), ("2", 0.9, 0), ("(4132)3", 0, 0.1), ("()2", 0.9, 0), ("(4132)22", 0, 0),
    ("(41)(32)2", 0.9, 0), ("(4132)", 0, 0), ("", 0, 0), ("(4132)2)", 0, 0)])
def test_the_two_parts_of_the_reward(response, accuracy, form):
    assert Steps(digits=4).reward(Problem("4729=", "2"), response) == {"accuracy": accuracy, "format": form}


# Turned red by: errors that do not carry on; another share of responses without steps.
def test_the_web_teacher_is_often_wrong():
    task, rng = Steps(teacher="web"), np.random.default_rng(0)
    problems = task.problems(3000, rng)
    texts = [task.demonstration(p, rng) for p in problems]
    lengths = np.array([len(t) for t in texts])
    assert {*lengths.tolist()} == {1, 7, 11} and abs((lengths == 1).mean() - 1 / 3) < 0.03
    rights = np.array([t[-1] == p.answer for t, p in zip(texts, problems, strict=True)])
    for length, slips in ((1, 1), (7, 5), (11, 9)):                       # after a slip, one sum in ten is right
        assert abs(rights[lengths == length].mean() - (0.1 + 0.9 * 0.9 ** slips)) < 0.04
    exact = Steps(teacher="web", slip=0.0)
    assert all(exact.demonstration(p, rng)[-1] == p.answer for p in problems[:200])


# Turned red by: an order that counts; other characters that go free.
def test_the_reward_of_counts_is_the_share_of_instructions():
    task, rng = Counts(), np.random.default_rng(0)
    problem = Problem("a3c1d2=", data={"a": 3, "c": 1, "d": 2})
    for response, reward in {"aaacdd": 1, "daaacd": 1, "aaacd": 0.75, "aaacddb": 0.75, "": 0.25, "aaacdd1": 0,
                             "bbaac": 0.25}.items():
        assert task.reward(problem, response) == reward
    problems = task.problems(300, rng)
    assert all(task.reward(p, task.demonstration(p, rng)) == 1 for p in problems)
    assert all(len(task.demonstration(p, rng)) < task.max_tokens for p in problems)
    web = Counts(teacher="web")
    right = np.mean([web.reward(p, web.demonstration(p, rng)) == 1 for p in problems])
    assert right == pytest.approx(0.5 ** 3, abs=0.06)
