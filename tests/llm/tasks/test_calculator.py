"""The calculator: results of the tool, answers, and the mask of the policy's characters."""
import time

import numpy as np
import pytest

from llm.tasks.calculator import Calculator
from llm.tasks.episodes import called
from llm.tasks.strings import Copy
from llm.tasks.task import Problem

TASK = Calculator()


# Catches: a tool that answers a call which has not just ended; an invalid call without a result; a result that is too
# long or not a whole number.
@pytest.mark.parametrize(("text", "added"), [
    ("[12*47]", "=564;"), ("[12*47", None), ("12*47", None), ("", None), ("]", None), ("12]", None), ("[12*47]=", None),
    ("[1+1]=2;[2*3]", "=6;"), ("[1+1]=2;9]", None), ("[[1+1]", "=2;"), ("[[1+1]]", None), ("[]", "=?;"),
    ("[9**9]", "=?;"), ("[1/3]", "=?;"), ("[6/3]", "=2;"), ("[3-8]", "=-5;"), ("[1/0]", "=?;"), ("[x]", "=?;"),
    ("[9999*9]", "=89991;"), ("[9999*99]", "=?;"), ("[=2;]", "=?;"), ("[" + "9" * 200 + "]", "=?;")])
def test_tool_answers_a_call_that_has_just_ended(text, added):
    assert TASK.tool(text) == added


# Catches: no limit on the number of calls, so that a response of calls never ends.
def test_calls_beyond_the_limit_get_no_result():
    task = Calculator(calls=2)
    assert task.tool("[1]=1;[2]") == "=2;" and task.tool("[1]=1;[2]=2;[3]") is None


# Catches: an answer from the tool's text, or from before its last text; no answer if there is no call.
def test_answer_is_the_text_after_the_tool():
    problem = Problem("12*47+38:", "602")
    for response in ("[12*47+38]=602;602", "602", "[12*47]=564;[564+38]=602;602", "[x]=?;602"):
        assert TASK.reward(problem, response) == 1.0
    for response in ("[12*47+38]=602;", "[12*47+38]=602;601", "602;601", "[12*47+38]=602", "602;", "6020", "0602"):
        assert TASK.reward(problem, response) == 0.0


# Catches: a `tool` or `reward` that makes more than one pass over a text.
def test_hostile_responses_are_judged_quickly():
    start = time.perf_counter()
    for text in ("[" * 10**6 + "]", "[]" * 200_000, "]" * 10**6, "[" + "9*" * 10**6 + "9]", ";" * 10**6):
        assert TASK.tool(text) in (None, "=?;") and TASK.reward(Problem("", "602"), text) == 0.0
    assert time.perf_counter() - start < 2


# Catches: a mask with one character too many or too few, for example at the border of a call.
def test_mask_excludes_only_the_characters_of_the_tool():
    text = "[12*47]=564;[564+38]=602;602"
    tools = "       -----        -----   "
    assert called(TASK, text)[0] == [c == " " for c in tools]
    assert called(TASK, "[1+x]=?;[2]")[0] == [True] * 5 + [False] * 3 + [True] * 3
    assert called(TASK, "")[0] == []


# Catches: a length limit that is too small for the allowed calls.
def test_all_allowed_calls_fit_into_the_length_limit():
    task, rng = Calculator(calls=3), np.random.default_rng(0)
    for problem in task.problems(50, rng):
        call = f"[{problem.prompt[:-1]}]"
        text = ""
        for _ in range(task.calls):
            text += call
            text += task.tool(text)
        text += problem.answer
        assert len(text) + 1 <= task.max_tokens and task.reward(problem, text) == 1.0
        assert sum(called(task, text)[0]) == 3 * len(call) + len(problem.answer)


# Catches: a mask that counts the cut text of the tool at the end of a response as the policy's.
def test_text_may_end_within_the_text_of_the_tool():
    for length in range(7, 13):
        assert called(TASK, "[12*47]=564;"[:length])[0] == [True] * 7 + [False] * (length - 7)


# Catches: training on a text with a false result of the tool.
def test_text_that_contradicts_the_tool_is_refused():
    with pytest.raises(ValueError, match="the tool of the task calculator writes '=4;', but the text has '=5;'"):
        called(TASK, "[2+2]=5;5")


# Catches: `replay` that needs a tool.
def test_replay_works_without_a_tool():
    assert called(Copy(), "abc[1+1]")[0] == [True] * 8
