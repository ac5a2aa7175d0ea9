"""A task from what the user typed."""
import importlib
import json

import numpy as np
import pytest

from llm.tasks import Problem, make_task
from llm.tasks.addition import Addition
from llm.tasks.calculator import Calculator
from llm.tasks.make import TASKS
from llm.tasks.strings import Copy, Reverse
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
