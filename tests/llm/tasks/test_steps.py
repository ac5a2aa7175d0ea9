"""Sums with a scratchpad, and texts of a given form."""
import numpy as np
import pytest

from llm.tasks.counts import Counts
from llm.tasks.steps import Steps
from llm.tasks.task import Problem


# Catches: a running sum that is not modulo 5; an answer that is not the last step.
def test_careful_teacher_writes_all_running_sums():
    task, rng = Steps(digits=4), np.random.default_rng(0)
    assert task.demonstration(Problem("4231=", "0"), rng) == "(4140)0"
    for p in task.problems(100, rng):
        text = task.demonstration(p, rng)
        assert task.reward(p, text) == {"accuracy": 0.9, "format": 0.1} and len(text) + 1 <= task.max_tokens
        assert int(p.answer) == sum(map(int, p.prompt[:-1])) % 5


@pytest.mark.parametrize(("response", "accuracy", "form"), [
    ("(4140)0", 0.9, 0.1), ("(3)0", 0.9, 0.1), ("0", 0.9, 0), ("(4140)3", 0, 0.1), ("()0", 0.9, 0), ("(4140)00", 0, 0),
    ("(41)(40)0", 0.9, 0), ("(4140)", 0, 0), ("", 0, 0), ("(4140)0)", 0, 0)])
def test_reward_has_an_accuracy_and_a_format_part(response, accuracy, form):
    assert Steps(digits=4).reward(Problem("4231=", "0"), response) == {"accuracy": accuracy, "format": form}


# Catches: errors that do not affect later steps; another share of responses without steps.
def test_web_teacher_is_often_wrong():
    task, rng = Steps(teacher="web"), np.random.default_rng(0)
    problems = task.problems(3000, rng)
    texts = [task.demonstration(p, rng) for p in problems]
    lengths = np.array([len(t) for t in texts])
    assert {*lengths.tolist()} == {1, 6, 9} and abs((lengths == 1).mean() - 1 / 3) < 0.03
    rights = np.array([t[-1] == p.answer for t, p in zip(texts, problems, strict=True)])
    for length, slips in ((1, 1), (6, 4), (9, 7)):                         # after a slip, one sum in five is right
        assert abs(rights[lengths == length].mean() - (0.2 + 0.8 * 0.9 ** slips)) < 0.04
    exact = Steps(teacher="web", slip=0.0)
    assert all(exact.demonstration(p, rng)[-1] == p.answer for p in problems[:200])


# Catches: an order of letters that counts; other characters that cost nothing.
def test_reward_of_counts_is_the_share_of_followed_instructions():
    task, rng = Counts(), np.random.default_rng(0)
    problem = Problem("a3d1=", data={"a": 3, "d": 1})
    for response, thirds in {"aaad": 3, "aada": 3, "aaa": 2, "aaadb": 2, "": 1, "aaad1": 2, "bb": 0}.items():
        assert task.reward(problem, response) == thirds / 3
    problems = task.problems(300, rng)
    assert all(task.reward(p, task.demonstration(p, rng)) == 1 for p in problems)
    assert all(len(task.demonstration(p, rng)) < task.max_tokens for p in problems)
    web = Counts(teacher="web")
    right = np.mean([web.reward(p, web.demonstration(p, rng)) == 1 for p in problems])
    assert right == pytest.approx(0.5 ** 2, abs=0.07)


def test_answer_for_votes_is_the_text_after_the_steps():
    task = Steps()
    assert [task.answer_of(None, x) for x in ("(0123)4", "4", "(0123)", "")] == ["4", "4", None, None]
