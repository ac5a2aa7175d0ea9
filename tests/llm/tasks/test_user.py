"""Prompts and rewards of the user."""
import asyncio
import json
import math
import os
import sys
from contextlib import nullcontext
from zlib import crc32

import numpy as np
import pytest
import torch

from llm.tasks.task import Problem, is_held_out
from llm.tasks.user import UserTask
from llm.tasks.user_reward import load_reward
from spinup.errors import UserError

WORDS = [f"word {i}" for i in range(60)]
RNG = np.random.default_rng(0)


def nothing(prompt: str, response: str) -> float:
    return 0.0


def reward_of(function) -> float:
    return UserTask(WORDS, function).reward(Problem("the prompt"), "the response")


# Catches: fields that are lost; the refusal of an empty line or of a byte order mark; a text that is cut at a character
# which only some programs read as a line end.
def test_file_of_prompts_is_read(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [{"prompt": "one\u2028two", "answer": 3, "level": 2}, {"prompt": "four", "completion": "yes", "answer": "x"}]
    path.write_text("\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", "utf-8")
    task = UserTask(path)
    problems = {p.prompt: p for p in task.train + task.held_out}
    assert problems["one\u2028two"] == Problem("one\u2028two", "3", {"answer": 3, "level": 2})
    assert [task.demonstration(problems[p], RNG) for p in ("one\u2028two", "four")] == ["3", "yes"]
    assert (task.name, task.alphabet, task.max_tokens, task.tool) == (
        "mine", "".join(sorted(set("one\u2028twofour3yes"))), 256, None)


# Catches: prompts in both sets or in neither; prompts that repeat before all have occurred.
def test_every_prompt_is_in_one_set():
    task = UserTask([*WORDS, *WORDS[:5]], nothing)
    train = [p.prompt for p in task.problems(len(task.train), np.random.default_rng(0))]
    held_out = [p.prompt for p in task.problems(len(task.held_out), np.random.default_rng(0), held_out=True)]
    assert sorted(train + held_out) == sorted([*WORDS, *WORDS[:5]]) and not set(train) & set(held_out)
    assert set(held_out) == {p for p in WORDS if is_held_out(p)}
    assert len(task.problems(500, RNG)) == 500 and task.problems(0, RNG) == []
    assert task.problems(9, np.random.default_rng(1)) == task.problems(9, np.random.default_rng(1))


# Catches: an empty set, from which nothing can be sampled; a choice that depends on the order of the prompts; a copy of
# the held-out prompt in training.
@pytest.mark.parametrize("side", [False, True])
def test_one_of_few_prompts_is_held_out(side):
    few = [w for w in WORDS if is_held_out(w) == side][:3]
    for order in (few, few[::-1], few + few):
        task = UserTask(order, nothing)
        assert {p.prompt for p in task.held_out} == {min(few, key=lambda w: crc32(w.encode()))}
        assert {p.prompt for p in task.train} | {p.prompt for p in task.held_out} == set(few)
        assert len(task.train) + len(task.held_out) == len(order)


# Catches: white space around a response that counts; other differences that do not count.
def test_without_a_reward_the_answer_is_compared():
    task = UserTask([{"prompt": "a", "answer": "Rome "}, {"prompt": "b", "answer": "Oslo"}])
    for response, worth in (("Rome", 1.0), (" Rome\n", 1.0), ("rome", 0.0), ("Rome.", 0.0), ("", 0.0)):
        assert task.reward(Problem("a", "Rome "), response) == worth


# Catches: 42.0 in place of 42, as a table writes it; null that is read as a demonstration.
def test_numbers_and_nulls_of_a_table_are_read():
    rows = [{"prompt": f"{i}", "answer": float(i), "demonstration": None, "completion": None} for i in range(40)]
    task = UserTask([*rows, {"prompt": "half", "answer": 0.5}])
    assert {p.answer for p in [*task.train, *task.held_out]} == {*map(str, range(40)), "0.5"}
    assert all(task.demonstration(p, np.random.default_rng(0)) == p.answer for p in task.train)
    exact = UserTask(rows, "exact")
    assert exact.reward(exact.train[0], exact.train[0].prompt) == 1.0
    said = UserTask([{"messages": [{"role": "user", "content": x}, {"role": "assistant", "content": "so"}],
                      "demonstration": None} for x in "ab"])
    assert said.demonstration(said.train[0], np.random.default_rng(0)) == "so"


# Catches: the refusal of an empty cell beside a conversation, or of a number that is too large for a float.
def test_empty_cells_and_large_numbers_are_read():
    talk = [{"role": "user", "content": "Hi"}]
    rows = [{"prompt": None, "messages": talk, "answer": "x"}, {"prompt": "Hi", "messages": None, "answer": 10**400}]
    task = UserTask(rows)
    assert {p.answer for p in [*task.train, *task.held_out]} == {"x", str(10**400)}


# Catches: the refusal of a number because of its type; a reward that stays a tensor, which no table can hold.
@pytest.mark.parametrize("result", [1, 1.0, True, np.float32(1), np.bool_(True), np.array(1), torch.tensor(1.0),
                                    torch.tensor([1.0])], ids=repr)
def test_all_types_of_numbers_are_accepted_as_reward(result):
    worth = reward_of(lambda prompt, response: result)
    assert worth == 1.0 and type(worth) is float


# Catches: exchanged prompt and response.
def test_reward_gets_prompt_and_response():
    assert reward_of(lambda prompt, response: float((prompt, response) == ("the prompt", "the response"))) == 1.0


# Catches: NaN, or a value that is not a number, as a reward in training.
@pytest.mark.parametrize("result", [None, "1", b"1", math.nan, math.inf, -math.inf, [1.0], 1j, 10**400, np.zeros(2),
                                    torch.zeros(2)], ids=repr)
def test_reward_that_is_not_a_finite_number_is_refused(result):
    with pytest.raises(UserError, match="(?s)must return a finite number, but returned .*the prompt.*the response"):
        reward_of(lambda prompt, response: result)


# Catches: an exception of asyncio that ends the run with a traceback; Ctrl-C that counts as a failed reward.
def test_cancelled_reward_counts_as_failed():
    def raises(error):
        def reward(prompt, response):
            raise error
        return reward
    with pytest.raises(UserError, match="the reward function failed .*: CancelledError"):
        reward_of(raises(asyncio.CancelledError()))
    with pytest.raises(KeyboardInterrupt):
        reward_of(raises(KeyboardInterrupt()))


# Catches: a working folder that stays changed after a reward, so that relative paths name other files.
@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_working_folder_is_restored_after_a_reward(error, tmp_path):
    def reward(prompt, response):
        os.chdir(tmp_path)
        if error:
            raise error
        return 1.0
    before = os.getcwd()
    with pytest.raises(UserError, match="failed") if error else nullcontext():
        reward_of(reward)
    assert os.getcwd() == before


# Catches: an answer of spaces, which no response equals; a key or a path that is not a text.
def test_unusable_rows_are_refused():
    rows = [{"prompt": "a", "answer": " "}, {"prompt": "b", "answer": "c"}]
    with pytest.raises(UserError, match='prompt 1 has no "answer" to compare with'):
        UserTask(rows)
    with pytest.raises(UserError, match='prompt 1 has an "answer" that is not a text or a finite number'):
        UserTask([{"prompt": "a", "answer": 10**5000}, {"prompt": "b"}], nothing)
    with pytest.raises(UserError, match="prompt 1 has the key 5, which is not a text"):
        UserTask([{"prompt": "a", 5: "b"}, {"prompt": "b"}], nothing)
    with pytest.raises(UserError, match=r"'a\\x00.jsonl' is not a path .*; give a JSONL file"):
        UserTask("a\0.jsonl")


# Catches: an exception that ends the run with a traceback; a message that does not name the error and its line.
def test_failing_reward_is_named():
    def fails(prompt, response):
        return 1 / 0
    task = UserTask(WORDS, fails)
    with pytest.raises(UserError, match="ZeroDivisionError: division by zero.*test_user.py, line [0-9]+") as caught:
        task.reward(Problem("p" * 9000), "r" * 9000)
    assert "'ppp" in str(caught.value) and "'rrr" in str(caught.value) and len(str(caught.value)) < 600
    with pytest.raises(UserError, match="TypeError: must be real number, not str$"):
        reward_of(math.pow)


# Catches: a reward with other arguments that is found only with responses; the refusal of a reward whose arguments are
# unknown.
def test_reward_must_accept_prompt_and_response():
    for function, takes in ((lambda prompt: 1.0, "prompt"), (lambda p, r, weight, /: 1.0, "p, r, weight, /"),
                            (lambda *, prompt, response: 1.0, r"\*, prompt, response")):
        with pytest.raises(UserError, match=rf"reward function takes \({takes}\); write it as a function of"):
            UserTask(WORDS, function)
    for function in (lambda p, r, weight=2: 1.0, lambda *texts: 1.0, max):
        assert UserTask(WORDS, function).function.terms[0].function is function


# Catches: a fault in the prompts that is found later, or is reported without its place.
@pytest.mark.parametrize(("text", "words"), [
    ('{"prompt": "a"}\n{"prompt" "b"}\n', r"line 2 is not JSON \(Expecting ':' delimiter, column 11\)"),
    ('{"prompt": "a"}\n\n"b"', "line 3 is not a JSON object"),
    ('{"prompt": "a"}\n{"question": "b"}', "line 2 has no text as its prompt"),
    ('{"prompt": "a"}\n{"prompt": " "}', "line 2 has no text as its prompt"), ('{"prompt": 5}', "line 1 has no text"),
    ('{"prompt": "a", "answer": true}', 'line 1 has an "answer" that is not a text or a finite number; write {"prom'),
    ('{"prompt": "a"}\n{"prompt": "b", "answer": ["x", "y"]}', 'line 2 has an "answer" that is not a text or'),
    ('{"prompt": "a", "answer": {"x": 1}}', 'line 1 has an "answer" that is not a text or a finite number'),
    ('{"prompt": "a", "answer": NaN}', 'line 1 has an "answer" that is not a text or a finite number'),
    ('{"prompt": "a", "answer": -Infinity}', 'line 1 has an "answer" that is not a text or a finite number'),
    ('{"prompt": "a"}\n{"prompt": "x", "prompt": "y"}', 'line 2 is not JSON .it has "prompt" twice.; write an object'),
    ('{"prompt": "a"}\n{"prompt": "x\\ud83d"}', "bad.jsonl contains an unpaired surrogate"),
    ('{"prompt": "a"}\n{"prompt": "x", "completion": "\\ud83d"}', "bad.jsonl contains an unpaired surrogate"),
    ('{"prompt": "a", "completion": 5}\n{"prompt": "x"}', 'line 1 has a "completion" that is not a text'),
    ("[" * 100_000, "line 1 is not JSON"), ("", "at least two different prompts, .* it has 0"),
    ('{"prompt": "a"}\n{"prompt": "a"}', "at least two different prompts, .* it has 1")], ids=lambda x: x[:30])
def test_invalid_file_is_refused(tmp_path, text, words):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        UserTask(path, nothing)
    assert "bad.jsonl" in str(caught.value) and "\n" not in str(caught.value)


# Catches: a traceback for a file that cannot be read.
def test_unreadable_file_is_refused(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    for name, words in (("no.jsonl", "no such file"), (".", "cannot be read"), ("latin.jsonl", "save it as UTF-8")):
        with pytest.raises(UserError, match=words):
            UserTask(str(tmp_path / name), nothing)


# Catches: a run that starts without a reward, an answer or a teacher that it needs.
def test_missing_prompts_answers_and_rewards_are_named():
    with pytest.raises(UserError, match='prompt 2 has no "answer".*--reward file.py:function'):
        UserTask([{"prompt": "a", "answer": "b"}, "c"])
    with pytest.raises(UserError, match="prompt 2 has no text"):
        UserTask(["a", 5], nothing)
    with pytest.raises(UserError, match="must be a function"):
        UserTask(WORDS, 5)
    with pytest.raises(UserError, match='as its "demonstration"'):
        UserTask(WORDS, nothing).demonstration(Problem("word 1", data={}), RNG)
    with pytest.raises(UserError, match="prompt 1 uses ' w'"):
        UserTask(["a word", "b"], nothing, alphabet="abdor")


SOURCE = """
from __future__ import annotations
from dataclasses import dataclass
import neighbour_of_reward

@dataclass
class Weights:
    length: float = neighbour_of_reward.WEIGHT

def score(prompt, response):
    return Weights().length * len(response)

number = 5
"""


# Catches: a file that cannot import a file beside it; a dataclass in it that cannot find its module.
def test_reward_is_loaded_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour_of_reward.py").write_text("WEIGHT = 2\n")
    (tmp_path / "json.py").write_text(SOURCE)
    assert load_reward(f"{tmp_path / 'json.py'}:score")("p", "abc") == 6
    assert json.dumps([1]) == "[1]" and sys.modules["json"] is json
    assert UserTask(WORDS, f"{tmp_path / 'json.py'}:score").reward(Problem("p"), "ab") == 4.0
    with pytest.raises(UserError, match="there is no 'scroe' in .*json.py. Did you mean 'score'?"):
        load_reward(f"{tmp_path / 'json.py'}:scroe")
    with pytest.raises(UserError, match="number is not a function"):
        load_reward(f"{tmp_path / 'json.py'}:number")


# Catches: a mistake in the file or its name that ends in a traceback.
def test_reward_that_cannot_be_loaded_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for source, words in (("def f(:", "SyntaxError: invalid"), ("import nothing_like_this", "ModuleNotFoundError: No"),
                          ("1 / 0", "ZeroDivisionError: division by zero"), ("raise SystemExit(3)", "SystemExit: 3")):
        (tmp_path / "bad.py").write_text(source)
        with pytest.raises(UserError, match=f"bad.py cannot be imported: {words}"):
            load_reward(f"{tmp_path / 'bad.py'}:f")
    for text in ("score", "file.py", "file.py:", "file.txt:f", "file.py:f()", ":f"):
        with pytest.raises(UserError, match="must be file.py:function"):
            load_reward(text)
    with pytest.raises(UserError, match="there is no file"):
        load_reward(f"{tmp_path / 'no.py'}:f")
