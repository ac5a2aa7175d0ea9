"""Rows that are conversations, as prompts, demonstrations and preference pairs."""
import json

import pytest

from llm.policy.tokenizer import CharTokenizer
from llm.tasks.held_out import distinct
from llm.tasks.make import make_task
from llm.tasks.pairs import PairTask
from llm.tasks.task import Problem, as_text, input_of, key_of, longest_prompt
from llm.tasks.user import UserTask
from spinup.errors import UserError


def turns(*words, first="user"):
    """A conversation whose turns alternate."""
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [{"role": roles[i % 2], "content": word} for i, word in enumerate(words)]


SYSTEM = {"role": "system", "content": "Be brief."}


def nothing(prompt, response):
    return 0.0


# Catches: a prompt that is the whole conversation; the last assistant turn in the prompt; extra keys of a turn that
# reach the template.
@pytest.mark.parametrize("key", ["prompt", "messages"])
def test_conversation_becomes_prompt_and_messages(key):
    rows = [{key: [SYSTEM, *turns("1+1", "2", "2+2")], "level": 3}, {key: turns("3+3", "6"), "answer": 6},
            {key: [{**turns("hi")[0], "name": "x"}]}]
    task = UserTask(rows, nothing)
    found = {p.prompt: p for p in task.train + task.held_out}
    assert found["2+2"] == Problem("2+2", "", {"level": 3}, [SYSTEM, *turns("1+1", "2", "2+2")])
    assert found["3+3"] == Problem("3+3", "6", {"answer": 6, "demonstration": "6"}, turns("3+3"))
    assert found["hi"].messages == turns("hi") and task.demonstration(found["3+3"], None) == "6"
    assert as_text(found["hi"]) == "hi"
    assert as_text(found["2+2"]) == "system: Be brief.\nuser: 1+1\nassistant: 2\nuser: 2+2"


# Catches: a response that is compared with another field; the refusal of a completion that is a list of one turn.
def test_last_assistant_turn_is_the_answer():
    task = UserTask([{"messages": turns("a", "b")}, {"prompt": turns("c"), "completion": turns("d", first="assistant"),
                                                     "answer": "e"}])
    found = {p.prompt: p for p in task.train + task.held_out}
    assert [task.reward(found["a"], r) for r in "ab"] == [0, 1]
    assert task.demonstration(found["c"], None) == "d" and task.reward(found["c"], "e") == 1


# Catches: a reward that gets the whole conversation as its prompt, or does not get it at all.
def test_reward_gets_the_last_turn_and_the_conversation():
    def reward(prompt, response, messages):
        return float(prompt == "c" and messages == turns("a", "b", "c"))
    task = UserTask([{"messages": turns("a", "b", "c")}, {"messages": turns("x")}], reward)
    assert [task.reward(p, "") for p in sorted(task.train + task.held_out, key=lambda p: p.prompt)] == [1, 0]


# Catches: equal last turns that count as the same prompt; a conversation that is in both sets.
def test_conversations_are_split_as_a_whole():
    rows = [{"prompt": turns(f"question {i}", "yes", "why?"), "copy": copy} for i in range(40) for copy in range(2)]
    task = UserTask(rows, nothing)
    train, held_out = ({key_of(p) for p in side} for side in (task.train, task.held_out))
    assert len(train | held_out) == 40 and not train & held_out and 0 < len(held_out) < 15
    assert len(distinct(task.held_out)) == len(task.held_out) == 2 * len(held_out)


# Catches: a fault that is found only when training applies the chat template.
@pytest.mark.parametrize(("given", "words"), [
    ([], r'"prompt" is not a list of turns such as \[{"role": "user"'), (["hi"], "the role None in turn 1, but only"),
    ([{"role": "tool", "content": "x"}], "the role 'tool' in turn 1"), ([{"role": "user"}], "no text as the content"),
    ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], "no text as the content of turn 1"),
    (turns("a", " "), "no text as the content of turn 2"), ([*turns("a"), SYSTEM], "a system turn in place 2"),
    ([SYSTEM], "no user turn to reply to"), (turns("a", first="assistant"), "no user turn to reply to"),
    ([*turns("a", "b"), *turns("c", first="assistant")], "ends with two assistant turns"),
    (turns("\ud83d"), "unpaired surrogate in turn 1")])
def test_invalid_conversation_is_named_with_its_line(given, words, tmp_path):
    (tmp_path / "bad.jsonl").write_text(json.dumps({"prompt": "x"}) + "\n" + json.dumps({"prompt": given}))
    with pytest.raises(UserError, match=f"bad.jsonl, line 2: .*{words}.*; correct it"):
        UserTask(tmp_path / "bad.jsonl", nothing)


# Catches: a small character model that fails for a conversation.
def test_character_model_reads_the_last_turn():
    task = UserTask([{"prompt": turns("ab", "c", "ba"), "answer": "c"}, {"prompt": "b", "answer": "c"}])
    assert task.alphabet == "abc" and longest_prompt(task, CharTokenizer("abc")) == 2


# Catches: a form of TRL's pairs that is not read; a shared prompt that is lost; a reward that gets no fields.
def test_pairs_of_conversations_are_read_in_all_forms():
    good, bad = turns("good", first="assistant"), turns("bad", first="assistant")
    asked = turns("a", "b", "c")
    explicit, implicit = {"prompt": asked, "chosen": good}, {"chosen": [*asked, *good], "rejected": [*asked, *bad]}
    for row in explicit | {"rejected": bad}, explicit | {"rejected": "bad"}, implicit:
        task = make_task([row, {"prompt": "x", "chosen": "y", "rejected": "z"}])
        (found,) = (pair for side in (False, True) for pair in task.pairs(side) if pair[0] == "pair 1")
        assert found[1].prompt == "c" and input_of(found[1]) == asked and found[2:] == ("good", "bad")
    rows = [{"prompt": p, "chosen": good, "rejected": bad, "level": level} for p, level in ((asked, 2), ("x", 0))]
    task = PairTask(rows, lambda prompt, response, level, rejected: level + (response == rejected))
    assert sorted(task.reward(p, "bad") for p in task.train + task.held_out) == [1, 3]


# Catches: a pair of conversations that differ before the last turn; a reason that names another field.
@pytest.mark.parametrize(("row", "fault"), [
    ({"chosen": turns("a", "b"), "rejected": turns("x", "c")}, '"prompt" is missing, and "chosen" and'),
    ({"chosen": [*turns("a"), *turns("b")], "rejected": [*turns("a"), *turns("c")]}, '"chosen" is not a'),
    ({"chosen": turns("a", "b", first="assistant"), "rejected": turns("a", "c", first="assistant")}, '"prompt" has')])
def test_invalid_pairs_of_conversations_are_left_out(row, fault):
    rest = [{"prompt": p, "chosen": "b", "rejected": "c"} for p in "xy"]
    assert PairTask([*rest, row]).left_out[0].startswith(f"left out: 1 pair (pair 3), where {fault}")


# Catches: one of two prompts that is silently ignored.
def test_row_with_two_prompts_is_refused():
    rows = [{"prompt": str(i), "messages": [{"role": "user", "content": "x"}], "answer": "y"} for i in range(2)]
    with pytest.raises(UserError, match='prompt 1 has both "prompt" and "messages"; leave one of them out'):
        make_task(rows)
