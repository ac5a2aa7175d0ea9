"""Preference pairs of the user, from the file to the trained model."""
import copy
import json
import pickle
import re
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import llm
from llm.config import PreferenceConfig
from llm.judged import judged
from llm.preferences import HELD_OUT_PAIRS, given_pairs
from llm.run import Run
from llm.tasks.make import make_task
from llm.tasks.pairs import PairTask, left_out
from llm.tasks.task import Problem, is_held_out
from spinup.errors import UserError
from spinup.runs.files import read_json

RUN = Path("runs/x/x_s1")
RNG = np.random.default_rng(0)
# Letters in alphabetical order are preferred to the reverse. Every prompt occurs twice, and `hgf>` is held out.
LETTERS = sorted({"".join(sorted(p)) for p in permutations("abcdefgh", 3)})
PAIRS = [{"prompt": f"{three[::-1]}>", "chosen": three[:n], "rejected": three[::-1][:n]}
         for three in LETTERS[:30] + LETTERS[-2:] for n in (2, 3)]
SETTINGS = {"held_out": 8, "quiet": True, "tensorboard": False, "threads": 1, "preset": "none"}
WORDS = ["--task", "mine.jsonl", "--held-out", 8, "--threads", 1, "--no-tensorboard", "--preset", "none"]


def pair(**changes):
    """One pair, with some fields changed; None removes a field."""
    fields = {"prompt": "one>", "chosen": "good", "rejected": "bad", **changes}
    return {k: v for k, v in fields.items() if v is not None}


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def write(tmp_path):
    """Write mine.jsonl, one pair per line, and return its path."""
    def write(rows):
        path = tmp_path / "mine.jsonl"
        path.write_text(rows if isinstance(rows, str) else jsonl(rows), "utf-8")
        return path
    return write


@pytest.fixture
def mine(write):
    """PAIRS as mine.jsonl."""
    write(PAIRS)


def check_refused(done, words):
    assert done.code == 2 and words in done.err and done.err.startswith("spinup: ") and done.err.count("\n") == 1


# Catches: exchanged chosen and rejected responses; a teacher that shows another text; an alphabet from one field only;
# max_tokens without the end token; line numbers that skip empty lines.
def test_file_of_pairs_is_read(write):
    rows = [pair(chosen="as\u2028it", demonstration="x", completion="y"), pair(prompt="two>", rejected="worse")]
    path = write("\ufeff\n" + jsonl(rows).replace("\n", "\n\n"))
    for task in PairTask(path), PairTask(str(path)):
        (given,), (tested,) = sorted([task.pairs(), task.pairs(held_out=True)], key=lambda pairs: pairs[0][0])
        assert given[0] == "line 2" and given[2:] == ("as\u2028it", "bad") and given[1].prompt == "one>"
        assert tested[0] == "line 4" and tested[2:] == ("good", "worse") and tested[1].prompt == "two>"
        assert [task.demonstration(p, RNG) for p in (given[1], tested[1])] == ["as\u2028it", "good"]
        assert task.alphabet == "".join(sorted(set("one>as\u2028itbadtwo>goodworse")))
        assert (task.name, task.max_tokens, task.tool, task.left_out) == ("mine", 6, None, [])
    task = PairTask(path, max_tokens=300, alphabet="xyz")
    assert (task.max_tokens, task.alphabet) == (300, "xyz")
    assert PairTask([pair(), pair(prompt="two>", rejected="b" * 999)]).max_tokens == 256


# Catches: a list that is read as a file; places that are counted from 0.
def test_list_of_pairs_is_read():
    task = PairTask([pair(), pair(prompt="two>"), pair(prompt=None), "three>"])
    assert sorted(where for side in (False, True) for where, *_ in task.pairs(side)) == ["pair 1", "pair 2"]
    assert task.name == "pairs"
    assert task.left_out == ['left out: 2 pairs (pair 3, pair 4), where "prompt" is missing']


# Catches: a field of the row that the place of the pair replaces; a place that reaches the reward as a field.
def test_row_of_a_pair_reaches_the_reward_unchanged():
    def fields(prompt, response, **row):
        return dict.fromkeys(row, 1.0)

    task = PairTask([pair(where="page 3"), pair(prompt="two>")], fields)
    (marked,), (plain,) = sorted([task.pairs(), task.pairs(True)], key=lambda pairs: pairs[0][0])
    assert marked[0] == "pair 1" and marked[1].data == {"chosen": "good", "rejected": "bad", "where": "page 3"}
    assert set(task.reward(plain[1], "x").parts) == {"answer", "chosen", "rejected"}


# Catches: places that another process or a copy of the task does not find.
def test_copy_of_a_task_has_the_same_pairs():
    task = PairTask(PAIRS)
    for other in copy.deepcopy(task), pickle.loads(pickle.dumps(task)):
        for held_out in (False, True):
            assert task.pairs(held_out) and other.pairs(held_out) == task.pairs(held_out)


# Catches: a pair whose prompt is in both sets; a pair in neither set; pairs with other prompts than the problems.
def test_no_prompt_is_in_both_sets_of_pairs():
    task = PairTask(PAIRS)
    sides = [task.pairs(held_out) for held_out in (False, True)]
    learned, tested = ({problem.prompt for _, problem, _, _ in side} for side in sides)
    assert not learned & tested and tested == {p["prompt"] for p in PAIRS if is_held_out(p["prompt"])}
    assert sorted(int(where[5:]) for side in sides for where, *_ in side) == list(range(1, len(PAIRS) + 1))
    for side, prompts in zip(sides, (learned, tested), strict=True):
        assert {p.prompt for p in task.problems(200, RNG, side is sides[1])} == prompts
        for where, problem, chosen, rejected in side:
            row = PAIRS[int(where[5:]) - 1]
            assert (problem.prompt, chosen, rejected) == tuple(row.values())
            assert problem.answer == chosen


# Catches: white space around a response that counts; a part of the response that counts as the whole; a given reward
# that is ignored.
def test_chosen_response_has_reward_1_unless_a_reward_is_given():
    problem = Problem("one>", "good ")
    for response, worth in (("good", 1.0), (" good\n", 1.0), ("goo", 0.0), ("good.", 0.0), ("bad", 0.0), ("", 0.0)):
        assert PairTask(PAIRS).reward(problem, response) == worth
    assert PairTask(PAIRS, lambda prompt, response: len(prompt) + len(response) / 10).reward(problem, "abc") == 4.3


# Pairs that are left out.

FAULTS = [
    ({"prompt": None}, '"prompt" is missing'), ({"chosen": None}, '"chosen" is missing'),
    ({"rejected": None}, '"rejected" is missing'), ({"prompt": " "}, '"prompt" is empty'),
    ({"chosen": ""}, '"chosen" is empty'), ({"rejected": "\n"}, '"rejected" is empty'),
    ({"chosen": 5}, '"chosen" is not a text'), ({"rejected": {"text": "bad"}}, '"rejected" is not a text'),
    ({"chosen": [{"role": "user", "content": "good"}]}, '"chosen" is not a text or one assistant turn'),
    ({"prompt": [{"role": "assistant", "content": "x"}]}, '"prompt" has no user turn to reply to'),
    ({"prompt": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
     '"prompt" does not end with a user turn'),
    ({"rejected": "good"}, "both responses are the same")]


# Catches: a fault that ends the run or is not reported; a list of messages that is read as a text.
@pytest.mark.parametrize(("changes", "fault"), FAULTS, ids=[f"{i}" for i in range(len(FAULTS))])
def test_pair_with_a_fault_is_left_out_and_named(changes, fault):
    task = PairTask([pair(), pair(**changes), pair(prompt="two>")])
    assert task.left_out == [f"left out: 1 pair (pair 2), where {fault}"]
    assert len(task.pairs() + task.pairs(True)) == 2


# JSON may contain an unpaired surrogate, which cannot be written as UTF-8. Catches: a UnicodeEncodeError.
@pytest.mark.parametrize("name", ["prompt", "chosen", "rejected"])
def test_pair_with_an_unpaired_surrogate_is_left_out(name, write):
    path = write(json.dumps(pair(**{name: "\ud83d"})) + "\n" + jsonl([pair(), pair(prompt="two>")]))
    assert PairTask(path).left_out == [f'left out: 1 pair (line 1), where "{name}" contains an unpaired surrogate']


# Catches: a sentence for each pair; null that is read as a text; one place too many or too few.
def test_left_out_pairs_are_counted_and_the_first_are_named():
    rows = [pair(prompt=f"{i}>", **({"rejected": None} if i % 2 else {"chosen": "bad"} if i == 4 else {}))
            for i in range(1, 14)]
    rows[-1]["rejected"] = None                                           # which is null in a file
    assert PairTask(rows).left_out == [
        'left out: 7 pairs (pair 1, pair 3, pair 5, pair 7, pair 9 and 2 more), where "rejected" is missing',
        "left out: 1 pair (pair 4), where both responses are the same"]
    assert left_out(list("abcde"), "so") == "left out: 5 pairs (a, b, c, d, e), where so"


# Catches: a fault that is found later, or is reported without its place or in several lines.
@pytest.mark.parametrize(("text", "words"), [
    ("", "holds no pair to learn from; write one such as "),
    (jsonl([pair(rejected=None)] * 7), 'holds no pair to learn from (left out: 7 pairs (line 1, line 2, line 3, line 4,'
                                       ' line 5 and 2 more), where "rejected" is missing); write one such as '),
    (jsonl([pair(), pair()]), "must contain at least two different prompts, because one is held out; it has 1"),
    (jsonl([pair()]) + '["a", "b"]', "line 2 is not a JSON object; write one such as "),
    (jsonl([pair()]) + '{"prompt" "b"}', "line 2 is not JSON"), ('{"chosen": "good"', "line 1 is not JSON")],
    ids=lambda x: x[:25])
def test_invalid_file_is_refused(write, text, words):
    path = write(text)
    with pytest.raises(UserError) as caught:
        PairTask(path)
    assert f"{path}" in str(caught.value) and words in str(caught.value) and "\n" not in str(caught.value)
    assert "such as" not in words or '{"prompt": "...", "chosen": "...", "rejected": "..."}' in str(caught.value)


# Catches: a traceback for a file that cannot be read; a message that shows the form of prompts in place of pairs.
def test_unreadable_file_is_refused(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9", "chosen": "a", "rejected": "b"}')
    for name, words in (("no.jsonl", r"no such file.*chosen"), (".", "cannot be read"), ("latin.jsonl", "as UTF-8")):
        with pytest.raises(UserError, match=words):
            PairTask(tmp_path / name)
    with pytest.raises(UserError, match="the list of pairs must contain at least two different prompts"):
        PairTask([pair()])
    with pytest.raises(UserError, match="^the list of pairs holds no pair to learn from; write"):
        PairTask([])


# Catches: a folder that is made before the file is read; an error that is not one sentence.
@pytest.mark.parametrize(("text", "words"), [
    ("", "at least two different prompts"), ("\n \n", "at least two different prompts"),
    (jsonl([{"chosen": "\n\nHuman: a", "rejected": "\n\nHuman: b"}] * 3), '"prompt" is missing); write one such as'),
    (jsonl([pair(), pair()]), "at least two different prompts"), ('{"chosen": "good"', "line 1 is not JSON"),
    (jsonl([pair(), "two"]), "line 2 is not a JSON object"),
    (jsonl([pair(prompt="p" * 600), pair(prompt="q" * 600)]), "a prompt of 600 tokens and a response of 5")],
    ids=lambda x: x[:25])
@pytest.mark.parametrize("method", ["reward_model", "dpo", "sft"])
def test_invalid_file_leaves_no_folder(method, text, words, write, cli, tree):
    write(text)
    check_refused(cli("llm", method, *WORDS), words)
    assert tree() == ["mine.jsonl"]


# Pairs as tokens.

class Words:
    """A tokenizer with one token per word."""

    def encode(self, text):
        return [1 + sum(map(ord, word)) for word in text.split()]


def as_tokens(pairs, max_tokens, held_out=False, quiet=False, **task):
    """Problems and texts that `given_pairs` passes on to be cut and padded."""
    mine = SimpleNamespace(**{"name": "mine", "left_out": (), **task})
    run = SimpleNamespace(max_tokens=max_tokens, tokenizer=Words(), task=mine,
                          demonstrated=lambda problems, texts: (problems, texts))
    return given_pairs(run, pairs, PreferenceConfig(quiet=quiet), held_out)


CUT = [("line 1", Problem("a"), "one two three", "one two four"), ("line 2", Problem("b"), "one two", "one  two"),
       ("line 3", Problem("c"), "five", "six"), ("line 4", Problem("a"), "one two", "one two three")]


# Catches: a limit in characters in place of tokens; a text that counts as equal to a longer one with the same start, as
# in line 4; responses in another order than their prompts.
def test_pairs_with_equal_tokens_are_left_out(capsys):
    assert as_tokens(CUT, 4) == ([Problem("a"), Problem("c"), Problem("a")],
                                 ["one two three", "one two four", "five", "six", "one two", "one two three"])
    assert capsys.readouterr().out == (
        "left out: 1 pair (line 2), where both responses are the same within 4 tokens\n")
    assert as_tokens(CUT, 3)[0] == [Problem("a"), Problem("c"), Problem("a")]
    assert "3 of 8 responses, with their end tokens, are longer than 3 tokens and are cut" in capsys.readouterr().out
    assert as_tokens(CUT, 2, quiet=True) == ([Problem("c")], ["five", "six"])
    assert capsys.readouterr().out == ""                                  # no message if quiet
    for held_out, what in ((False, "learn from"), (True, "test on")):
        with pytest.raises(UserError, match=f"no pair of mine is left to {what}, because .* within 2 tokens; raise"):
            as_tokens(CUT[:2], 2, held_out)


# Catches: a report of left-out pairs that is printed twice or never; an error for a task that leaves nothing out.
def test_left_out_pairs_of_the_task_are_reported_once(capsys):
    for held_out in (True, False):
        as_tokens(CUT, 9, held_out, left_out=["first", "second"])
    assert capsys.readouterr().out.splitlines() == ["first", "second", *[
        "left out: 1 pair (line 2), where both responses are the same within 9 tokens"] * 2]
    as_tokens(CUT, 9, True, quiet=True, left_out=["first"])
    assert capsys.readouterr().out == ""


# All held-out pairs of a large file would be too many for each row of the log. Catches: no limit; only the first pairs,
# in a file that is sorted; a limit on the training pairs.
def test_held_out_pairs_are_limited_and_spread_over_the_file():
    many = [(f"line {i}", Problem(f"{i}"), "five", "six") for i in range(3 * HELD_OUT_PAIRS + 5)]
    numbers = [int(problem.prompt) for problem in as_tokens(many, 9, held_out=True)[0]]
    assert HELD_OUT_PAIRS // 2 < len(numbers) <= HELD_OUT_PAIRS and numbers[-1] > len(many) - 10
    assert len(as_tokens(many, 9)[0]) == len(many)
    assert len(as_tokens(many[:HELD_OUT_PAIRS], 9, held_out=True)[0]) == HELD_OUT_PAIRS


# From the command line.

# Catches: exchanged chosen and rejected responses; pairs that are sampled from the policy in place of those of the
# file.
@pytest.mark.long("dpo", "kto")
@pytest.mark.parametrize("method", ["reward_model", "dpo", "kto"])
def test_preferences_of_a_file_are_learned(method, mine, cli, beginner, tmp_path):
    done = cli("llm", method, *WORDS, "--model", beginner, "--total-steps", 40, "--lr", 0.01, "--batch", 32,
               "--exp-name", "x")
    result = read_json(tmp_path / RUN / "result.json")
    assert done.code == 0 and result["measure"] == "pair_accuracy" and result["pair_accuracy"] > 0.9
    assert "pair accuracy " + format(result["pair_accuracy"], ".3f") in done.out and "left out" not in done.out


# Catches: a measure that the run of a method does not have, so that its result is NaN.
@pytest.mark.parametrize(("method", "measure"), [
    ("sft", "held_out_accuracy"), ("grpo", "held_out_accuracy"), ("online_dpo", "held_out_accuracy"),
    ("simpo", "pair_accuracy")])
def test_every_method_accepts_a_file_of_pairs(method, measure, mine, beginner, tmp_path):
    (tmp_path / "score.py").write_text("def score(prompt, response):\n    return len(response) % 2\n")
    settings = {"prompts": 4, "samples": 2} if method == "grpo" else {"batch": 32}
    result = getattr(llm, method)(str(tmp_path / "mine.jsonl"), reward=f"{tmp_path / 'score.py'}:score", total_steps=2,
                                  model=beginner, log_dir=str(tmp_path), **settings, **SETTINGS)
    assert result.measure == measure and result.quality == result.progress[measure][-1]
    assert read_json(result.directory / "result.json")[measure] == result.quality


# Catches: a report of left-out pairs that is printed twice, with --quiet, or not at all.
def test_command_line_reports_left_out_pairs(write, cli, beginner):
    alike = [{**p, "chosen": "aa" + p["chosen"], "rejected": "aa" + p["rejected"]} for p in PAIRS]
    write([*(new if i % 2 else old for i, (old, new) in enumerate(zip(PAIRS, alike, strict=True), 1)),
           {"prompt": "abc>", "chosen": "abc"}])
    words = ["llm", "dpo", *WORDS, "--model", beginner, "--total-steps", 1, "--batch", 4]
    missing = f'left out: 1 pair (line {len(PAIRS) + 1}), where "rejected" is missing'
    assert [line for line in cli(*words, "--max-tokens", 3).out.splitlines() if "left out" in line] == [missing]
    said = [line for line in cli(*words, "--max-tokens", 2).out.splitlines() if "left out" in line]
    assert len(said) == 3 and said[0] == missing                          # held-out pairs, then the others
    counts, numbers = zip(*(re.fullmatch(r"left out: (\d+) pairs? \((.*)\), where both responses are the same within 2 "
                                         "tokens", line).groups() for line in said[1:]), strict=True)
    assert sum(map(int, counts)) == len(PAIRS) / 2
    assert all(int(n) % 2 for text in numbers for n in re.findall(r"line (\d+)", text))
    assert cli(*words, "--max-tokens", 2, "--quiet").out == ""


# Catches: a run that starts although it has no pairs to compare.
@pytest.mark.parametrize("method", ["reward_model", "dpo"])
def test_pairs_that_are_equal_within_the_limit_are_refused(method, write, cli, tree, beginner):
    write([{**p, "chosen": "aa" + p["chosen"], "rejected": "aa" + p["rejected"]} for p in PAIRS])
    before = tree()
    check_refused(cli("llm", method, *WORDS, "--quiet", "--model", beginner, "--max-tokens", 2),
                  "because the two responses of each are the same within 2 tokens; raise --max-tokens")
    assert tree() == before


# Catches: training with a model that lacks a character of the file.
def test_model_without_a_character_of_the_file_is_refused(write, cli, tree, beginner):
    write([*PAIRS, pair(prompt="abc>", chosen="xyz", rejected="abc")])
    before = tree()
    check_refused(cli("llm", "dpo", *WORDS, "--quiet", "--model", beginner), "'x' is not in the alphabet 'abcdefghij>'")
    assert tree() == before


# Without a model, SFT on the chosen responses comes first. Catches: a teacher that shows rejected responses; a reward
# model that changes the settings of SFT, and so the initial policy.
def test_file_of_pairs_is_enough_to_train_a_policy(mine, cli, curve, tmp_path):
    small = [*WORDS, "--layers", 1, "--width", 16, "--heads", 2, "--sft-accuracy", 0.1]
    done = cli("llm", "reward_model", *small, "--total-steps", 4, "--exp-name", "judge")
    assert done.code == 0 and done.out.count("\ninitial policy: ") == 1
    (start,) = tmp_path.glob("runs/start_mine_*")
    assert cli("llm", "dpo", *small, "--total-steps", 3, "--batch", 8, "--exp-name", "x").code == 0
    assert cli("llm", "ppo", *small, "--total-steps", 1, "--prompts", 4, "--samples", 2, "--reward", "runs/judge",
               "--exp-name", "y").code == 0
    assert list(tmp_path.glob("runs/start_mine_*")) == [start]            # the same for all of them
    rows = curve(tmp_path / "runs/y/y_s1")
    assert "held_out_gold" not in rows[0] and read_json(tmp_path / "runs/y/y_s1/result.json")["held_out_reward"]
    found = json.loads(cli("eval", RUN, "--json", "--episodes", 20).out)
    assert found["task"] == "mine" and found["pairs"] > 3 and 0 <= found["pair_accuracy"] <= 1
    shown = cli("watch", RUN).out.splitlines()
    prompt = shown[0].split(">")[0] + ">"
    assert is_held_out(prompt) and prompt in {p["prompt"] for p in PAIRS} and len(shown) == 9


# Catches: uncut responses in `eval`, although training cuts them; pairs that are equal after the cut; ties that count
# as wrong in `eval` and as half in the log.
@pytest.mark.parametrize("method", ["reward_model", "dpo"])
def test_eval_judges_the_same_responses_as_the_log(method, write, cli, beginner, monkeypatch, tmp_path):
    write([{**p, "chosen": p["chosen"] + "abc", "rejected": p["rejected"] + "cba"} for p in PAIRS])
    done = cli("llm", method, *WORDS, "--model", beginner, "--total-steps", 1, "--lr", 1e-9, "--batch", 8,
               "--max-tokens", 2, "--exp-name", "x")
    assert done.code == 0
    config = read_json(tmp_path / RUN / "config.json")
    task = make_task("mine.jsonl")
    pairs = [pair for _, *pair in task.pairs(True)]
    kept, scores = judged(tmp_path / RUN, config, task, pairs, "cpu")
    assert len(kept) == len(pairs) and [pair[0] for pair in kept] == [pair[0] for pair in pairs]
    same = [(problem, text[:2], text[:2] + "d") for problem, text, _ in pairs]
    with pytest.raises(UserError, match="are the same within the longest response of"):
        judged(tmp_path / RUN, config, task, same, "cpu")
    longer = [(problem, a + "ddd", b + "eee") for problem, a, b in pairs]
    assert (judged(tmp_path / RUN, config, task, longer, "cpu")[1] == scores).all()
    monkeypatch.setattr("llm.evaluate.judged", lambda *args: ([], np.array([[1.0, 0], [2, 2], [0, 1], [2, 2]])))
    assert json.loads(cli("eval", RUN, "--json").out)["pair_accuracy"] == 0.5


# Catches: pairs in another order after the file is read again.
@pytest.mark.long("dpo")
@pytest.mark.parametrize("method", ["reward_model", "dpo"])
def test_stopped_run_resumes_with_the_same_pairs(method, mine, cli, curve, beginner, monkeypatch, tmp_path):
    words = ["llm", method, *WORDS, "--quiet", "--model", beginner, "--batch", 8, "--lr", 0.01, "--total-steps", 20]
    assert cli(*words, "--exp-name", "whole").code == 0

    def stop(run):
        run.interruption.received = 2 * (run.update == 8)                # as Ctrl-C does
    with monkeypatch.context() as patch:
        patch.setattr(Run, "after_update", stop)
        assert cli(*words, "--exp-name", "x").code == 130
    rows = len(curve(tmp_path / RUN))
    assert cli("resume", RUN).code == 0
    assert 5 < rows < 15 and curve(tmp_path / RUN) == curve(tmp_path / "runs/whole/whole_s1")


# Catches: a list of pairs that is read as prompts.
def test_list_of_pairs_trains_a_policy_from_python(beginner, tmp_path, capsys):
    result = llm.dpo(PAIRS, model=beginner, total_steps=40, lr=0.01, batch=32, log_dir=str(tmp_path), **SETTINGS)
    assert result.measure == "pair_accuracy" and result.quality > 0.9
    assert result.policy.respond("hgf>") and capsys.readouterr().out == ""
