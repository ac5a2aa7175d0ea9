"""GSM8K: reading a file, and the last number of a response."""
import json
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from llm.tasks.gsm8k import GSM8K, answer_in
from llm.tasks.task import Problem, is_held_out
from spinup.errors import UserError


def rows(numbers: range) -> list[dict[str, str]]:
    return [{"question": f"Ann has {i} pens and buys one. How many?", "answer": f"{i}+1={i + 1}\n#### {i + 1:,}"}
            for i in numbers]


def write(path: Path, objects: list) -> Path:
    path.write_text("".join(json.dumps(o) + "\n" for o in objects))
    return path


# Catches: the first number in place of the last; the last number after #### in place of the first; a comma, dollar sign
# or full stop that changes the number; a comparison of floats; a part of a fraction or of another number.
@pytest.mark.parametrize(("text", "number"), [
    ("#### 1,200", "1200"), ("5 then 7", "7"), ("7 #### 12 pens", "12"), ("#### $1,200.00.", "1200"), ("#### -3", "-3"),
    ("#### -$3", "-3"), ("#### $-3", "-3"), ("so 10-5", "5"), ("(8)-5", "5"), ("is .5", ".5"), ("12.", "12"),
    ("12,", "12"), ("#### 3 #### 4", "4"),
    ("#### 42 (that is 6 * 7)", "42"), ("5 #### so 42, or 43", "42"), ("1 #### 2 #### none, 3", "3"),
    ("1/2", None), ("#### 1 / 2", None), ("#### 4,2", None), ("#### 1,2000", None), ("6/2=3", "3"),
    (r"#### \frac{1}{2}", None), (r"#### $1{,}200$", "1200"), (r"#### 1\,200", "1200"), ("#### 1e3", None),
    ("1e3", None), (r"\frac{1}{2}", None), ("2^5", None), (r"#### 90^\circ", "90"), (r"2 $90^{\circ}$", "90"),
    ("#### \u22125", "-5"), ("0.1", "0.1"), ("20%", "20"), ("x=-4", "-4"),
    ("9007199254740993", "9007199254740993"), ("none", None), ("", None), ("8 ####", None), ("²", None), ("٣", None)])
def test_answer_is_read_exactly(text, number):
    assert answer_in(text) == (None if number is None else Decimal(number))


# Catches: a comparison of floats, for which both numbers are equal; a tolerance.
def test_near_number_is_wrong(tmp_path):
    task = GSM8K(str(write(tmp_path / "a.jsonl", rows(range(30)))))
    for answer, wrong in (("9007199254740993", "9007199254740992"), ("0.1", "0.10000000000000001"), ("72", "73")):
        assert task.reward(Problem("", answer), f"#### {answer}") == 1.0
        assert task.reward(Problem("", answer), f"#### {wrong}") == 0.0
    assert task.reward(Problem("", "72"), "I do not know") == 0.0


# Catches: a pattern that backtracks.
def test_hostile_responses_are_read_quickly(tmp_path):
    start = time.perf_counter()
    for text in ("9" * 10**6, "," * 10**6, "1," * 500_000, "1." * 500_000, "-" * 10**6, "#" * 10**6, "$" * 10**6):
        answer_in(text)
    assert time.perf_counter() - start < 3


# Catches: a solution that is not the file's; a wrong reference number; questions in both sets; a random order in which
# some questions repeat before others have occurred.
def test_one_file_is_split_by_its_prompts(tmp_path):
    path, rng = write(tmp_path / "all.jsonl", rows(range(1000, 1100))), np.random.default_rng(0)
    task = GSM8K(str(path))
    train, held_out = task.problems(len(task.train), rng), task.problems(len(task.held_out), rng, held_out=True)
    assert len({p.prompt for p in train}) + len({p.prompt for p in held_out}) == 100
    assert all(is_held_out(p.prompt) for p in held_out) and not any(is_held_out(p.prompt) for p in train)
    for problem in train + held_out:
        shown = task.demonstration(problem, rng)
        assert shown.endswith(f"#### {int(problem.answer):,}") and task.reward(problem, shown) == 1.0
        assert "####" in problem.prompt and "pens" in problem.prompt
    assert task.problems(5, np.random.default_rng(1)) == task.problems(5, np.random.default_rng(1))


# Catches: a folder that is read as one file; exchanged files.
def test_folder_has_its_own_split(tmp_path):
    write(tmp_path / "train.jsonl", rows(range(20)))
    write(tmp_path / "test.jsonl", rows(range(20, 25)))
    task = GSM8K(str(tmp_path))
    held_out = task.problems(5, np.random.default_rng(0), held_out=True)
    assert sorted(int(p.answer) for p in held_out) == list(range(21, 26))
    assert {int(p.answer) for p in task.problems(100, np.random.default_rng(0))} == set(range(1, 21))


# Catches: a question that is in both sets.
def test_question_in_both_files_is_refused(tmp_path):
    write(tmp_path / "train.jsonl", rows(range(20)))
    write(tmp_path / "test.jsonl", rows(range(19, 25)))
    with pytest.raises(UserError, match="1 questions are in both"):
        GSM8K(str(tmp_path))
    write(tmp_path / "test.jsonl", [])
    with pytest.raises(UserError, match="one of them is empty"):
        GSM8K(str(tmp_path))


# Catches: a file of another form that is accepted, or is refused without a line number.
@pytest.mark.parametrize(("row", "words"), [
    ({"question": "How many?"}, 'line 3 must have texts as "question" and "answer"'),
    ({"question": "How many?", "answer": 5}, 'line 3 must have texts as "question" and "answer"'),
    ({"question": "How many?", "answer": "5"}, "line 3 has no number after ####"),
    ({"question": "How many?", "answer": "5 #### five"}, "line 3 has no number after ####")])
def test_file_of_another_form_is_refused(tmp_path, row, words):
    with pytest.raises(UserError, match=words):
        GSM8K(str(write(tmp_path / "a.jsonl", [*rows(range(2)), row])))


# Catches: a traceback for a missing file; a message that does not explain how to name a file.
def test_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="write gsm8k:file=PATH"):
        GSM8K()
    for path in (tmp_path / "no.jsonl", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            GSM8K(str(path))
