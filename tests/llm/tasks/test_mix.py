"""Mixtures of tasks."""
import json

import numpy as np
import pytest

from llm.config import LanguageConfig
from llm.policy.tokenizer import CharTokenizer
from llm.start import identity
from llm.tasks.make import make_task
from llm.tasks.task import is_held_out, longest_prompt
from spinup.errors import UserError


# Catches: weights that are not divided by their sum; a task that is too rare in short lists of problems.
@pytest.mark.parametrize(("text", "share"), [("reverse+sort:length=4", 0.5), ("0.7*reverse+0.3*sort:length=4", 0.7),
                                             ("3*reverse + sort:length=4", 0.75)])
def test_shares_of_the_tasks_follow_the_weights(text, share):
    task, rng = make_task(f"mix:{text}"), np.random.default_rng(0)
    for n in (1, 2, 7, 40, 400):
        first = sum(len(p.prompt) == 7 for p in task.problems(n, rng))
        assert abs(first - share * n) < 1
    assert sum(len(task.problems(1, rng)[0].prompt) == 7 for _ in range(400)) == pytest.approx(400 * share, abs=40)


# Catches: the reward of the first task for all problems; a demonstration of another problem; held-out prompts in
# training.
def test_each_problem_uses_its_own_task():
    task, rng = make_task("mix:reverse+sort:length=4"), np.random.default_rng(0)
    problems = task.problems(50, rng)
    texts = [task.demonstration(p, rng) for p in problems]
    assert texts == [p.prompt[-2::-1] if len(p.prompt) == 7 else "".join(sorted(p.prompt[:-1])) for p in problems]
    assert task.rewards(problems, texts) == [1.0] * 50
    assert task.reward(problems[0], texts[0]) == 1.0 == task.reward(problems[-1], texts[-1])
    assert task.rewards(problems, [""] * 50) == [0.0] * 50
    for held_out in (False, True):
        assert all(is_held_out(p.prompt) == held_out for p in task.problems(50, rng, held_out))
    assert (task.max_tokens, task.alphabet, task.measure) == (7, "abcdefghij>", "held_out_accuracy")
    mixed = make_task("mix:reverse+taste")
    assert (mixed.measure, mixed.name) == ("held_out_reward", "mix_reverse_taste")


PLAIN = '''
from types import SimpleNamespace
class Plain:
    name, alphabet, max_tokens = "plain", "ab>", 2
    def problems(self, n, rng, held_out=False):
        return [SimpleNamespace(prompt="b>" if held_out else "a>") for _ in range(n)]
    def demonstration(self, problem, rng):
        return "a"
    def reward(self, problem, response):
        return float(response == "a")
'''


# Catches: two classes of a user's files that are read as one class in a file with a strange name.
def test_mixture_may_have_two_classes_of_a_user(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(PLAIN.replace("Plain", name.upper()))
    task = make_task(f"mix:{tmp_path}/a.py:A+{tmp_path}/b.py:B")
    assert [type(part.task).__name__ for part in task.mixed] == ["A", "B"]


# Catches: a mixture, or a task with hints, that fails with a traceback for problems that have only a prompt.
def test_problems_in_a_mixture_need_only_a_prompt(tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    task = make_task(f"mix:{tmp_path}/plain.py:Plain+reverse:length=2")
    problems = task.problems(4, np.random.default_rng(0))
    own = [p for p in problems if p.prompt == "a>"]
    assert [(p.answer, p.messages, p.turns) for p in own] == [("", None, None)] * 2
    assert task.rewards(own, ["a", "b"]) == [1.0, 0.0]
    hinted = make_task(f"hints:{tmp_path}/plain.py:Plain")
    assert longest_prompt(hinted, CharTokenizer("ab>")) == 2
    with pytest.raises(UserError, match="no known answer to show as a hint"):
        hinted.problems(1, np.random.default_rng(0))


# Catches: a reward that does not reach the tasks of a mixture; a long prompt of a file that is ignored.
def test_mixture_of_files_uses_the_given_reward(tmp_path):
    for name in "ab":
        rows = [{"prompt": f"{name}{i}" + "!" * 200 * (i == 7), "max_words": 3} for i in range(30)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text("def short(prompt, response, *, max_words):\n    return 1 - len(response) / 10\n")
    text = f"mix:{tmp_path}/a.jsonl+{tmp_path}/b.jsonl"
    task = make_task(text, f"{tmp_path}/mine.py:short")
    problems = task.problems(4, np.random.default_rng(0))
    assert task.rewards(problems, ["", "12345"] * 2) == [1.0, 0.5] * 2
    wrapped = make_task(f"length:{text}", f"{tmp_path}/mine.py:short")
    assert all(longest_prompt(x, CharTokenizer("ab!0123456789")) == 202 for x in (task, wrapped))
    before = identity(LanguageConfig(task=text), task)
    (tmp_path / "a.jsonl").write_text((tmp_path / "a.jsonl").read_text() + '{"prompt": "a99", "max_words": 3}\n')
    assert identity(LanguageConfig(task=text), task) != before


# Catches: parts of a reward that a mixture loses.
def test_parts_of_a_reward_are_kept():
    task = make_task("mix:addition+addition:digits=2", lambda prompt, response: {"a": 0.5, "b": float(len(response))})
    found = task.rewards(task.problems(4, np.random.default_rng(0)), ["", "1", "22", "333"])
    assert [x.parts for x in found] == [{"a": 0.5, "b": float(n)} for n in range(4)]


@pytest.mark.parametrize(("text", "words"), [
    ("mix:reverse", "mix:reverse is not a mixture; write tasks joined by +"),
    ("mix:reverse+", "is not a mixture"), ("mix:", "is not a mixture"),
    ("mix:reverse+srt", "no task 'srt'. Did you mean 'sort'?"), ("mix:0*reverse+sort", "has a weight of 0; leave out"),
    ("mix:reverse+sort:lenght=4", "the task sort has no option 'lenght'"),
    ("mix:hints:reverse+sort", "write it first, as in hints:mix:reverse+sort"),
    ("mix:reverse+calculator", "calculator has a tool"), ("mix:sort+tictactoe", "tictactoe has a tool, several turns")])
def test_invalid_mixtures_are_refused(text, words):
    with pytest.raises(UserError) as caught:
        make_task(text)
    assert words in str(caught.value)


# Catches: problems sorted by task; answers of the wrong task of a mixture.
def test_parts_of_a_batch_have_all_tasks_and_votes_compare_answers():
    task = make_task("vote:mix:scratchpad+steps")
    problems = task.problems(64, np.random.default_rng(0))
    assert {p.of.data[0] for p in problems[:16]} == {0, 1}
    first, second = ([p for p in problems if p.of.data[0] == i][0] for i in (0, 1))
    assert list(task.rewards([first] * 5, ["1;#4", "#4", "2;#4", "#3", "#3"])) == [1, 1, 1, 0, 0]
    assert list(task.rewards([second] * 5, ["(000)4", "4", "(1)4", "3", "3"])) == [1, 1, 1, 0, 0]


def test_infinite_weight_is_refused():
    with pytest.raises(UserError, match="weight that is too large"):
        make_task(f"mix:{'9' * 400}*reverse+sort")
