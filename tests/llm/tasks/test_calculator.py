"""The calculator, and whose characters a response holds."""
import time

import numpy as np
import pytest

from llm.tasks.calculator import Calculator
from llm.tasks.episodes import replay
from llm.tasks.strings import Copy
from llm.tasks.task import Problem

TASK = Calculator()


# Catches: a tool that answers a call not just closed, an invalid one in silence, or with a long or broken number.
@pytest.mark.parametrize(("text", "added"), [
    ("[12*47]", "=564;"), ("[12*47", None), ("12*47", None), ("", None), ("]", None), ("12]", None), ("[12*47]=", None),
    ("[1+1]=2;[2*3]", "=6;"), ("[1+1]=2;9]", None), ("[[1+1]", "=2;"), ("[[1+1]]", None), ("[]", "=?;"),
    ("[9**9]", "=?;"), ("[1/3]", "=?;"), ("[6/3]", "=2;"), ("[3-8]", "=-5;"), ("[1/0]", "=?;"), ("[x]", "=?;"),
    ("[9999*9]", "=89991;"), ("[9999*99]", "=?;"), ("[=2;]", "=?;"), ("[" + "9" * 200 + "]", "=?;")])
def test_the_tool_answers_a_call_that_has_just_ended(text, added):
    assert TASK.tool(text) == added


# Catches: no limit on the number of calls: a response of calls would go on for ever.
def test_later_calls_go_unanswered():
    task = Calculator(calls=2)
    assert task.tool("[1]=1;[2]") == "=2;" and task.tool("[1]=1;[2]=2;[3]") is None


# Catches: an answer taken from the tool's words, from before its last ones, or none without a call.
def test_the_answer_is_what_follows_the_tool():
    problem = Problem("12*47+38:", "602")
    for response in ("[12*47+38]=602;602", "602", "[12*47]=564;[564+38]=602;602", "[x]=?;602"):
        assert TASK.reward(problem, response) == 1.0
    for response in ("[12*47+38]=602;", "[12*47+38]=602;601", "602;601", "[12*47+38]=602", "602;", "6020", "0602"):
        assert TASK.reward(problem, response) == 0.0


# Catches: `tool` or `reward` of more than one pass over a text.
def test_hostile_responses_are_quick():
    start = time.perf_counter()
    for text in ("[" * 10**6 + "]", "[]" * 200_000, "]" * 10**6, "[" + "9*" * 10**6 + "9]", ";" * 10**6):
        assert TASK.tool(text) in (None, "=?;") and TASK.reward(Problem("", "602"), text) == 0.0
    assert time.perf_counter() - start < 2


# Catches: one character too many or too few in what is masked, at a call's border above all.
def test_only_the_tools_characters_are_not_the_policys():
    text = "[12*47]=564;[564+38]=602;602"
    tools = "       -----        -----   "
    assert TASK.written_by_policy(text) == [c == " " for c in tools]
    assert TASK.written_by_policy("[1+x]=?;[2]") == [True] * 5 + [False] * 3 + [True] * 3
    assert TASK.written_by_policy("") == []


# Catches: a length that leaves no room for the calls that are allowed.
def test_every_call_fits():
    task, rng = Calculator(calls=3), np.random.default_rng(0)
    for problem in task.problems(50, rng):
        call = f"[{problem.prompt[:-1]}]"
        text = ""
        for _ in range(task.calls):
            text += call
            text += task.tool(text)
        text += problem.answer
        assert len(text) + 1 <= task.max_tokens and task.reward(problem, text) == 1.0
        assert sum(task.written_by_policy(text)) == 3 * len(call) + len(problem.answer)


# Catches: a mask that reads the end of a response cut in the middle of the tool's words as the policy's.
def test_a_text_may_end_within_what_the_tool_wrote():
    for length in range(7, 13):
        assert replay(TASK, "[12*47]=564;"[:length]) == [True] * 7 + [False] * (length - 7)


# Catches: a text trained on in which the tool says what it never would.
def test_a_text_that_contradicts_the_tool_is_refused():
    with pytest.raises(ValueError, match="the tool of the task calculator writes '=4;', but the text has '=5;'"):
        replay(TASK, "[2+2]=5;5")


# Catches: `replay` that needs a tool.
def test_replay_takes_any_task():
    assert replay(Copy(), "abc[1+1]") == [True] * 8
