"""Small functions guessed from their values, and programs from a file: correct programs have reward 1, all others 0."""
import json
import re
import time

import numpy as np
import pytest

from llm.tasks import code, make_task
from llm.tasks.code import Code
from llm.tasks.sandbox import judge_many
from llm.tasks.task import Problem
from spinup.errors import UserError

SQUARE = {"prompt": "Write f, which squares.", "tests": ["assert f(3) == 9", "assert f(-2) == 4"],
          "answer": "def f(x):\n    return x * x"}
ROWS = [SQUARE, *({"prompt": f"Write f, which adds {i}.", "tests": [f"assert f(3) == {3 + i}"]} for i in range(30))]


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that the sandbox gets."""
    given = []

    def judge(jobs, **limits):
        given.extend(jobs)
        return judge_many(jobs, **limits)

    monkeypatch.setattr(code, "judge_many", judge)
    return given


@pytest.fixture
def write(tmp_path):
    def write(*lines):
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        (tmp_path / "p.jsonl").write_text(text)
        return str(tmp_path / "p.jsonl")
    return write


def shown_in(problem):
    """The examples in a prompt: {1: 2, 3: 4, 5: 6} for f(1)=2,f(3)=4,f(5)=6,f(x)=."""
    return {int(x): int(y) for x, y in re.findall(r"f\((\d+)\)=(-?\d+),", problem.prompt)}


def some(n, held_out=False):
    return Code().problems(n, np.random.default_rng(0), held_out)


# Catches: a template whose text is not its function; a letter that the alphabet lacks; an answer that is too long.
@pytest.mark.long
def test_text_of_each_function_solves_its_problem():
    task, seen = Code(), {}
    for problem in some(500):
        seen.setdefault(problem.answer, problem)
        assert set(problem.prompt + problem.answer) <= set(task.alphabet)
        assert task.demonstration(problem, None) == problem.answer and len(problem.answer) < task.max_tokens
    problems = list(seen.values())[:40]
    assert len({re.sub(r"\d", "#", p.answer) for p in problems}) == len(code.FAMILY) == 10
    assert task.rewards(problems, [p.answer for p in problems]) == [1.0] * 40


# Catches: tests of the examples only, or of 0 to 9 only; a reward for a part of the tests.
@pytest.mark.long
def test_program_that_fits_only_the_examples_has_reward_0():
    problem = Problem("f(1)=1,f(2)=2,f(4)=4,f(x)=", "min(x,5)", ("assert f(1) == 1", "assert f(6) == 5"))
    assert Code().reward(problem, "x") == 0 and Code().reward(problem, " min(5, x)\n") == 1
    for problem in some(10):
        examples = shown_in(problem)
        assert len(examples) == 3
        assert Code().reward(problem, f"{examples}[x]") == 0
        table = [int(re.search(r"-?\d+$", test)[0]) for test in problem.data if re.search(r"\(\d\)", test)]
        assert len(table) == 10 and Code().reward(problem, f"{table}[x]") == 0


# Catches: examples that fit several functions of the family, such as `x%9` and `min(x,9)`.
def test_no_other_function_of_the_family_fits_the_examples():
    texts, shown, _ = code.members()
    values = dict(zip(texts, shown.tolist(), strict=True))                # [f(0), f(1), ..., f(9)]
    for problem in some(200):
        examples = shown_in(problem)
        assert [t for t, f in values.items() if all(f[x] == y for x, y in examples.items())] == [problem.answer]


# Catches: prompts that are sampled without `draw`; another random number generator.
def test_held_out_prompts_never_occur_in_training():
    train, held_out = ({p.prompt for p in some(1000, side)} for side in (False, True))
    assert len(train) > 900 and len(held_out) > 500 and not train & held_out
    assert some(5) == some(5)


# Catches: a parse in the sandbox; an exception of ast.parse that is not caught; an execution in this process.
def test_text_that_is_not_an_expression_starts_no_process(jobs, recwarn):
    texts = ["", "x+", "return x", "x\nimport os", "y=3", "x)+(x", "\0", "\ud800", "-" * 9000 + "x", "9" * 9000,
             "x" + "[0]" * 9000]
    assert Code().rewards(some(len(texts)), texts) == [0.0] * len(texts)
    assert jobs == [] and Code().reward(some(1)[0], "5in x") == 0 and len(jobs) == 1
    assert not [x for x in recwarn.list if issubclass(x.category, SyntaxWarning)]        # of this text


# Catches: a lookup by response only or by problem only; rewards in another order.
def test_equal_programs_for_equal_tests_run_once(jobs):
    a, b = some(2)
    assert a.answer != b.answer
    assert Code().rewards([a, b, a, b, a], [a.answer, a.answer, a.answer, b.answer, "+"]) == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert len(jobs) == 3


# Catches: the first block in place of the last; the text around a block; a block in another language; a lost block that
# the token limit cuts off.
@pytest.mark.parametrize(("response", "reward"), [
    (SQUARE["answer"], 1), ("f = lambda x: x", 0),
    ("So:\n```python\nf = lambda x: x\n```\nno,\n```python\nf = lambda x: x * x\n```\ndone", 1),
    ("```python\nf = lambda x: x * x\n```\nor\n```python\nf = lambda x: x\n```", 0),
    ("```python\nf = lambda x: x * x\n```\nwhich prints\n```\n9\n```", 1), ("```python\nf = lambda x: x * x", 1),
    ("```\nf = lambda x: x * x\n```", 0), ("", 0), ("while True: pass", 0)])
def test_program_is_the_last_python_block_of_a_response(write, response, reward):
    task = Code(write(*ROWS), seconds=0.3)
    square = Problem(SQUARE["prompt"], SQUARE["answer"], tuple(SQUARE["tests"]))
    assert square in task.train + task.held_out
    start = time.perf_counter()
    assert task.reward(square, response) == reward
    assert time.perf_counter() - start < 5                                # `seconds` is passed on


# Catches: the alphabet of a small model, or its limit of 12 tokens, for real programs; a prompt in both sets.
def test_problems_of_a_file_are_for_models_with_a_tokenizer(write):
    task = make_task(f"code:file={write(*ROWS)},max_tokens=300")
    assert (task.name, task.alphabet, task.max_tokens, task.tool) == ("code", None, 300, None)
    train, held_out = ({p.prompt for p in task.problems(40, np.random.default_rng(0), side)} for side in (False, True))
    assert len(train | held_out) == len(ROWS) and train and held_out and not train & held_out
    assert task.demonstration(Problem("p", "pass"), None) == "pass"
    with pytest.raises(UserError, match=r'p\.jsonl has no "answer" to .* adds'):
        task.demonstration(next(p for p in task.train if "adds" in p.prompt), None)


# Catches: a missing check in `read`.
@pytest.mark.parametrize(("line", "words"), [
    ("{'prompt'}", "line 2 is not JSON"), ({"tests": ["pass"]}, 'line 2 has no text as its "prompt"'),
    ({"prompt": "p"}, 'line 2 has no list of texts as its "tests"'), ({"prompt": "p", "tests": []}, "no list of texts"),
    ({"prompt": "p", "tests": "assert f(1)"}, "no list of texts"), ({"prompt": "p", "tests": [1]}, "no list of texts"),
    ({"prompt": "p", "tests": ["f(3) == 9"]}, "which checks no result; write"),
    ({"prompt": "p", "tests": [""]}, "which checks no result"),
    ({"prompt": "p", "tests": ["def check(f):\n    assert f(3) == 9"]}, "which checks no result; .* or call the func"),
    ({"prompt": "p", "tests": ["class T:\n    def test(self):\n        assert f(3) == 9"]}, "which checks no result"),
    ({"prompt": "p", "tests": ["f()"], "answer": 3}, '"answer" that is not a text')])
def test_invalid_line_is_named(write, line, words):
    with pytest.raises(UserError, match=words):
        Code(write(SQUARE, line))


def test_one_unit_test_may_define_what_another_calls(write):
    task = Code(write(SQUARE, {"prompt": "p", "tests": ["def check(f):\n    assert f(3) == 9", "check(f)"]},
                      {"prompt": "q", "tests": ["class T:\n    assert f(3) == 9"]}))       # its body is executed
    assert len(task.train) + len(task.held_out) == 3


# Catches: a file that is opened only at the first batch; an option without a check.
def test_invalid_options_are_refused():
    with pytest.raises(UserError, match="nowhere.jsonl cannot be read"):
        Code("nowhere.jsonl")
    with pytest.raises(UserError, match="seconds"):
        Code(seconds=0)
