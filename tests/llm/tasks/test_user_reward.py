"""Rewards of the user: the fields that they get, their parts, and weighted sums."""
import functools
import json
import math
import sys

import pytest

import llm
from llm.tasks.make import make_task
from llm.tasks.pairs import PairTask
from llm.tasks.parts import Score, parts_of, same_parts
from llm.tasks.task import Problem, Task
from llm.tasks.user import UserTask
from llm.tasks.user_reward import as_reward, ready_made
from spinup.errors import UserError

ROWS = [{"prompt": f"word {i}", "answer": i, "level": i % 3, "response": "x"} for i in range(12)]
PROBLEM = Problem("ask", "7", {"answer": 7, "level": 2, "response": "x"})
RUN = {"held_out": 4, "quiet": True, "tensorboard": False, "threads": 1, "preset": "none", "prompts": 2, "samples": 2,
       "layers": 1, "width": 16, "heads": 2}


def two(prompt, response):
    return float((prompt, response) == ("ask", "said"))


def named(p, r, answer, *, level=5, other=3):
    return 100 * answer + 10 * level + other


def whole(prompt, response, **row):
    return float(row == {"answer": 7, "level": 2})


def whole_by_other_names(p, r, /, **row):
    return float(row == {"answer": 7, "level": 2, "response": "x"})


class Callable:
    def __call__(self, prompt, response, answer=0, **row):
        return answer + len(row)


# Catches: fields for a function of two arguments; a default that replaces the value of the row; the answer as a text; a
# second value for the parameter `response`.
@pytest.mark.parametrize(("function", "worth"), [
    (two, 1), (named, 723), (whole, 1), (whole_by_other_names, 1), (Callable(), 8),
    (functools.partial(named, other=4), 724), (lambda *texts: len(texts), 2)])
def test_signature_decides_which_fields_a_reward_gets(function, worth):
    assert UserTask(ROWS, function).reward(PROBLEM, "said") == worth


# Catches: a missing field that is found only with responses; a line that is not named; a built-in task whose answer
# does not reach a reward.
def test_missing_field_is_found_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, [*ROWS, {"prompt": "last", "level": 1}])))
    with pytest.raises(UserError, match='mine.jsonl, line 13 has no field "answer", which the reward named requires'):
        llm.grpo("mine.jsonl", reward=named, **RUN)
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UserError, match='pair 1 has no field "level"'):
        PairTask([{"prompt": "a", "chosen": "b", "rejected": "c"}] * 3, lambda p, r, level: 1.0)
    task = make_task("reverse", lambda prompt, response, answer: float(answer == prompt[-2::-1]))
    assert task.reward(Problem("ab>", "ba"), "") == 1.0
    with pytest.raises(UserError, match='of the task reverse has no field "level"'):
        make_task("reverse", lambda prompt, response, level: 1.0)


# Catches: a reward that is not the sum of its parts; parts that are lost in a task class of the user.
def test_reward_is_the_sum_of_its_parts():
    task = UserTask(ROWS, lambda prompt, response, level: {"format": 0.5, "correct": level})
    score = task.reward(PROBLEM, "")
    assert score == 2.5 and score.parts == {"format": 0.5, "correct": 2.0}
    assert parts_of(task.rewards([PROBLEM] * 2, ["", "a"])) == {"format": [0.5, 0.5], "correct": [2.0, 2.0]}

    class Own(Task):
        name, alphabet, max_tokens = "own", "ab", 2

        def reward(self, problem, response):
            return {"a": 1, "b": 2}
    (score,) = Own().rewards([PROBLEM], ["x"])
    assert score == 3 and score.parts == {"a": 1, "b": 2}
    assert parts_of([1.0, 2.0]) == parts_of([]) == {}


# Catches: a part that cannot be the name of a column; a NaN in a part; parts that differ between responses.
@pytest.mark.parametrize(("result", "words"), [
    ({}, "empty dict"), ({"my part": 1}, "a part named 'my part'; choose a name of letters"),
    ({3: 1}, "a part named 3"),
    ({"a": math.nan}, "the part a of the reward function must return a finite number"),
    ({"a": "1"}, "the part a of"), ({"a": 2e38, "b": 2e38}, "the sum of the parts")])
def test_invalid_parts_are_refused(result, words):
    with pytest.raises(UserError, match=words):
        UserTask(ROWS, lambda prompt, response: result).reward(PROBLEM, "")
    with pytest.raises(UserError, match="different parts for different responses .a; a, b.; return all parts"):
        parts_of([Score(1, {"a": 1}), Score(1, {"a": 1, "b": 0})])


# Catches: a measure without a column, which ends a run with a traceback after its initial policy is trained.
def test_measure_must_be_a_part_of_the_reward():
    assert same_parts(None, {"a": 0}, (), "held_out_reward_a") == ["a"]
    assert same_parts(None, {}, (), "held_out_reward") == same_parts(None, {}, (), "held_out_accuracy") == []
    with pytest.raises(UserError, match="the measure held_out_reward_b, but its reward has the parts a; return a part"):
        same_parts(None, {"a": 0}, (), "held_out_reward_b")


def mixed(prompt, response, answer="", **row):
    return {"length": len(response), "right": float(response == answer)}


# Catches: columns that are missing in some rows; parts that are lost after a resume or in the evaluation; a mean over
# the held-out responses in place of the sampled ones.
def test_each_part_is_a_column(tmp_path, beginner):
    settings = {"model": beginner, "reward": mixed, "log_dir": str(tmp_path), "exp_name": "a", **RUN}
    result = llm.grpo("reverse:length=2,symbols=10", total_steps=2, **settings)
    again = llm.grpo("reverse:length=2,symbols=10", total_steps=4, resume=result.directory, **settings)
    for progress, rows in (result.progress, 2), (again.progress, 4):
        for before in "", "held_out_":
            parts = [progress[f"{before}reward_{name}"] for name in ("length", "right")]
            assert [sum(x) for x in zip(*parts, strict=True)] == pytest.approx(progress[f"{before}reward"], abs=1e-5)
            assert len(parts[0]) == rows and min(parts[0]) > 0
    assert again.progress["reward_length"][:2] == result.progress["reward_length"]
    with pytest.raises(UserError, match="a part named std, but reward_std is another column"):
        llm.grpo("reverse:length=2,symbols=10", total_steps=1, **settings | {
            "exp_name": "b", "reward": lambda p, r: {"std": 1}})
    changing = iter(range(99))
    with pytest.raises(UserError, match="different parts"):
        llm.grpo("reverse:length=2,symbols=10", total_steps=1, **settings | {
            "exp_name": "c", "reward": lambda p, r: {f"part_{next(changing) // 4}": 1}})


SOURCE = """
def right(prompt, response, answer):
    return float(response == str(answer))

def size(p, r):
    return 3
"""


# Catches: a weight that is not applied, or is applied to the column too; a list with another meaning than the text.
def test_several_rewards_give_a_weighted_sum(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "correct.py"
    file.write_text(SOURCE)
    texts = f"{file}:right, 0.5*{file}:size,-1e-1*exact"
    for reward in (texts, texts.split(","), [f"{file}:right", (0.5, f"{file}:size"), [-0.1, "exact"]]):
        score = UserTask(ROWS, reward).reward(PROBLEM, "7")
        assert score == pytest.approx(2.4) and score.parts == {"right": 1.0, "size": 3.0, "exact": 1.0}
    score = as_reward([two, (2, lambda p, r: {"a": 1, "b": 2})])(PROBLEM, "said")
    assert score == 7 and score.parts == {"two": 1, "a": 1, "b": 2}
    assert as_reward("2*exact")(PROBLEM, "7").parts == {"exact": 1.0} and as_reward("2*exact")(PROBLEM, "7") == 2
    assert type(as_reward("exact")(PROBLEM, "7")) is float                # alone, it needs no column of its own


# Catches: a mistake in one of several rewards that is found later or is not named.
@pytest.mark.parametrize(("reward", "words"), [
    ("exact,lenght", "'lenght'. Did you mean 'length'?"), ("exat", "or one of exact, .* Did you mean 'exact'?"),
    ("exact,exact", "two rewards have the name exact"), ("1.2.3*exact", "1.2.3 is not a weight"),
    ("1e999*exact", "1e999 is not a weight"), ("1e7*exact", "1e7 is not a weight"),
    ("exact,", "must be file.py:function"), ([], "list of rewards is empty"),
    ([(math.nan, "exact")], "the weight of a reward must be a number of at most 1,000,000, not nan"),
    ([5], "must be a function"),
    ([two, lambda p, r: {"two": 1}], "two rewards have a part named two")])
def test_invalid_sums_of_rewards_are_refused(reward, words):
    with pytest.raises(UserError, match=words):
        as_reward(reward)(PROBLEM, "7")


# Catches: the folder of a reward model that is read as a file.
def test_reward_model_cannot_be_part_of_a_sum(tmp_path):
    with pytest.raises(UserError, match="is a reward model, which cannot have a weight or be one of several"):
        as_reward(f"exact,{tmp_path}")
    assert list(ready_made()) == ["exact", "math", "json", "regex", "length"]


# Catches: an answer of null that is read as the text "None"; a line break that ends the name of a reward.
def test_null_answer_and_line_break_in_a_reward_name_are_refused():
    rows = [{"prompt": "a", "answer": None}, {"prompt": "b", "answer": None}]
    with pytest.raises(UserError, match='prompt 1 has no field "answer"'):
        make_task(rows, "exact")
    with pytest.raises(UserError, match="must be file.py:function, or one of"):
        make_task(rows, "exact\nmath")
