"""A task from what the user typed."""
import importlib
import json

import numpy as np
import pytest
import torch

import llm
from llm.policy.scalar import RewardModel, ScalarModel
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Shape, Transformer
from llm.tasks import Problem, make_task
from llm.tasks.addition import Addition
from llm.tasks.calculator import Calculator
from llm.tasks.make import TASKS, tool_of
from llm.tasks.pairs import PairTask
from llm.tasks.strings import Copy, Reverse
from llm.tasks.taste import Taste
from llm.tasks.user import UserTask
from spinup.errors import UserError

PROMPTS = ["one", "two", "three"]


# Turned red by: a class listed under another name than its own, or one that moved.
@pytest.mark.parametrize("name", sorted(TASKS.keys() - {"code"}))
def test_every_name_is_its_classes(name):
    module, _, cls = TASKS[name].rpartition(".")
    assert getattr(importlib.import_module(module), cls).name == name


# Turned red by: options that are not read, or stay texts.
def test_options_are_read():
    assert make_task("reverse") == Reverse(6, 10) and make_task("reverse:") == Reverse(6, 10)
    assert make_task("reverse:length=8,symbols=12") == Reverse(8, 12)
    assert make_task("copy: length = 8") == Copy(8)
    assert make_task("addition:digits=2,teacher=perfect,drop=1") == Addition(2, "perfect", 1.0)
    assert type(make_task("sort:symbols=12")) is not Copy


# Turned red by: a prompt file taken for a task, a task for a prompt file, or a task that is made anew.
def test_files_lists_and_tasks(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "answer": p}) + "\n" for p in PROMPTS))
    for given in (str(path), path):
        assert isinstance(make_task(given), UserTask) and make_task(given).name == "mine"
    assert isinstance(make_task(PROMPTS, lambda p, r: 0.0), UserTask)
    task = Calculator()
    assert make_task(task) is task
    questions = tmp_path / "school.jsonl"
    questions.write_text("".join(json.dumps({"question": p, "answer": "#### 1"}) + "\n" for p in PROMPTS))
    assert make_task(f"gsm8k:max_tokens=99,file={questions}").max_tokens == 99
    with pytest.raises(UserError, match="cannot be read"):
        make_task("C:\\mine.jsonl")


# Turned red by: a verifier that stays although the user gave another, or other parts of a task that get lost with it.
def test_a_reward_replaces_the_verifier(tmp_path):
    (tmp_path / "mine.py").write_text("def score(prompt, response):\n    return len(prompt) + len(response) / 10\n")
    plain = Calculator()
    for task in (make_task("calculator", lambda p, r: len(p) + len(r) / 10), make_task("calculator",
                 f"{tmp_path / 'mine.py'}:score"), make_task(plain, lambda p, r: len(p) + len(r) / 10)):
        assert task.reward(Problem("1*2+3:", "5"), "5") == 6.1
        assert (task.name, task.alphabet, task.max_tokens) == (plain.name, plain.alphabet, plain.max_tokens)
        problems = task.problems(5, np.random.default_rng(0), held_out=True)
        assert problems == plain.problems(5, np.random.default_rng(0), held_out=True)
        assert task.tool("[1+1]") == "=2;" and "=" in task.demonstration(problems[0], np.random.default_rng(0))
    with pytest.raises(UserError, match="failed for the prompt .*ZeroDivisionError"):
        make_task("copy", lambda p, r: 1 / 0).reward(Problem("a"), "b")


# Turned red by: a misspelling without the nearest name, or a value that is found wrong only when it is used.
@pytest.mark.parametrize(("text", "words"), [
    ("revers", "there is no task 'revers'. Did you mean 'reverse'?"), ("xyz", "There are copy, reverse, .*JSONL"),
    ("reverse:lenght=8", "the task reverse has no option 'lenght'. Did you mean 'length'?"),
    ("reverse:name=x", "has no option 'name'"), ("reverse:8", "name=value, with commas"),
    ("reverse:length=8 symbols=3", "length must be a whole number"), ("reverse:length=0", "length must be from 1 to"),
    ("addition:drop=2", "in the task addition, drop must be from 0 to 1"), ("addition:teacher=flawd", "mean 'flawed'?"),
    ("gsm8k", "gsm8k:file=PATH"), ("gsm8k:max_tokens=0", "in the task gsm8k, max_tokens must be"),
    ("gsm8k:file=no.jsonl", "no.jsonl cannot be read")])
def test_mistakes_are_named(text, words):
    with pytest.raises(UserError, match=words):
        make_task(text)


# Turned red by: an object without a verifier that is found out an hour later.
def test_what_is_no_task_is_refused():
    class Half:
        name, alphabet, max_tokens, tool = "half", None, 5, None
    with pytest.raises(UserError, match="type Half has no problems"):
        make_task(Half())
    with pytest.raises(UserError, match="must be a function"):
        make_task("copy", 5)


PAIRS = [{"prompt": f"{p}>", "chosen": p, "rejected": p[::-1]} for p in PROMPTS]


# Turned red by: pairs taken for prompts without an answer, or prompts for pairs without a text; a file that is looked
# at below its first line.
@pytest.mark.parametrize(("rows", "kind"), [
    (PAIRS, PairTask), ([{"prompt": "a", "rejected": "b"}, *PAIRS], PairTask), ([{"chosen": "b"}, *PAIRS], PairTask),
    ([{"prompt": p, "answer": p} for p in PROMPTS], UserTask),
    ([{"prompt": "a", "answer": "b"}, *({"answer": "x", **pair} for pair in PAIRS)], UserTask)])
def test_pairs_are_told_from_prompts(rows, kind, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\ufeff\n \n" + "".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    for given in (str(path), path, rows):
        assert type(make_task(given)) is kind


def judge_of(alphabet: str) -> RewardModel:
    """A reward model that has learned nothing."""
    torch.manual_seed(0)
    tokenizer = CharTokenizer(alphabet)
    return RewardModel(ScalarModel(Transformer(Shape(tokenizer.vocab_size, 64, 1, 16, 2, 2, 8, 32)), 0.2), tokenizer)


# Turned red by: a measure, or pairs, or what was left out of them, that gets lost with a reward of the user's; a column
# that only one method has as the measure of all.
def test_what_a_task_also_has_stays_with_another_reward():
    rows = [*PAIRS, {"prompt": "four>"}]
    plain, taste = PairTask(rows), Taste()
    judge = judge_of(plain.alphabet)
    for reward in (None, lambda p, r: len(r), judge):
        for given in (rows, plain):
            task = make_task(given, reward)
            assert task.pairs(True) == plain.pairs(True) and task.pairs() == plain.pairs()
            assert task.left_out == plain.left_out == ['left out: 1 pair (pair 4), where "chosen" is missing']
            assert getattr(task, "measure", None) == ("held_out_reward" if reward is judge else None)
        assert make_task(taste, reward).measure == "held_out_reward"
    copied = make_task("copy", lambda p, r: 0.0)
    assert not {"measure", "pairs", "gold", "rewards"} & {*dir(copied)}


# Turned red by: a response that is judged as if it answered another prompt; the verifier's word lost, by which one sees
# what a learned reward is worth; exact agreement with one answer of many, or the model's own word, taken for that.
def test_a_reward_model_judges():
    plain = make_task("copy")
    judge = judge_of(plain.alphabet)
    task = make_task(plain, judge)
    problems = task.problems(3, np.random.default_rng(0))
    responses = [problems[0].answer, "a", "bcd"]
    assert task.rewards(problems, responses) == pytest.approx(
        [judge(p.prompt, r) for p, r in zip(problems, responses, strict=True)], abs=1e-6)
    assert [task.gold(p, r) for p, r in zip(problems, responses, strict=True)] == [1.0, 0.0, 0.0]
    assert task.measure == "held_out_reward" and task.name == "copy"
    answered = [{"prompt": p, "answer": "a"} for p in PROMPTS]
    assert make_task(UserTask(answered), judge).gold(Problem("one", "a"), "a") == 1.0
    for nobody_knows in (PROMPTS, PAIRS, PairTask(PAIRS)):
        task = make_task(nobody_knows, judge_of("".join(sorted(set("".join(PROMPTS)) | {">"}))))
        assert not hasattr(task, "gold")
        assert task.rewards([Problem("one")], ["two"]) == [task.function("one", "two")]


# What people do with a reward model. Turned red by: its folder taken for file.py:function, or asked for answers.
def test_prompts_of_the_users_are_judged_by_the_folder_of_a_reward_model(tmp_path, beginner):
    pairs = [{"prompt": p, "chosen": "a", "rejected": "b"} for p in ("ab>", "ba>", "aa>")]
    folder = llm.reward_model(pairs, model=beginner, total_steps=1, held_out=4, calibration=8, log_dir=str(tmp_path),
                              quiet=True, tensorboard=False, threads=1).directory
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in ("ab>", "ba>", "aa>")))
    for given in (str(tmp_path / "mine.jsonl"), ["ab>", "ba>", "aa>"]):
        task = make_task(given, str(folder))
        assert task.measure == "held_out_reward" and task.name in ("mine", "user")
        assert task.rewards([Problem("ab>")], ["ba"]) == [pytest.approx(llm.load(folder)("ab>", "ba"), abs=1e-6)]
    with pytest.raises(UserError, match="is a run of llm sft, not a reward model"):
        make_task(["ab>", "ba>"], beginner)


# Turned red by: a task that is made, and its file opened, to ask it for a tool that it has not.
def test_a_tool_is_found_without_a_tasks_file():
    assert tool_of("calculator:digits=1")("[1*2+3]") == "=5;"
    for task in "reverse", "gsm8k:file=gone.jsonl", "code:file=gone.jsonl", "prompts.jsonl", {"callable": "mine"}:
        assert tool_of(task) is None
