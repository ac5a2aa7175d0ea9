"""The ready-made rewards."""
import json
import sys
import threading
import time

import pytest

from llm.tasks import rewards
from llm.tasks.user import UserTask
from llm.tasks.user_reward import ready_made
from spinup.errors import UserError

HOSTILE = ["$9^{9^{9}}$", "9**9**9", "1000000000!", "(" * 5000, "\\boxed{" * 500, "9" * 100_000, "[" * 100_000, "\x00",
           "\ud83d", "\\frac{" * 300 + "1" + "}{x}" * 300]


def task(reward, **row):
    return UserTask([{"prompt": "a", **row}, {"prompt": "b", **row}], reward)


def worth(reward, response, **row):
    made = task(reward, **row)
    return made.reward(made.train[0], response)


# Catches: white space around a response that counts; an answer that is a number and equals no response.
def test_exact_compares_without_outer_white_space():
    assert [worth("exact", r, answer=7) for r in ("7", " 7\n", "07", "")] == [1, 1, 0, 0]


# Catches: a comparison of texts in place of numbers; the first number in place of the last; an answer without dollar
# signs that is not read.
@pytest.mark.parametrize(("answer", "response", "right"), [
    ("42", "So the answer is 42.", 1), (42, r"We get \boxed{42}, not 43", 1), ("1/2", "0.5", 1),
    (r"\frac{1}{2}", r"it is $\frac{2}{4}$", 1), ("x^2+1", "$1+x^2$", 1), ("1,200", "$1{,}200$", 1),
    ("3", "3, then 4", 0), ("42", "", 0), ("42", "I do not know", 0), (r"$\sqrt{2}$", r"$\sqrt{2}$", 1),
    ("3", "The answer is 3e8", 0), ("300000000", "It is 3e8.", 1), ("1e-07", "1e-07", 1), ("50", "50%", 1),
    (r"1.6\times10^{-19}", r"$9.1\times10^{-31}$", 0), (r"1.6\times10^{-19}", r"$1.6\times10^{-19}$", 1),
    ("42", r"\boxed{42}. The final answer is 43.", 0)])
def test_math_compares_the_values_of_expressions(answer, response, right):
    assert worth("math", response, answer=answer) == right


# Catches: the start of a long response in place of its end, which has the answer.
def test_math_reads_the_end_of_a_long_response():
    assert worth("math", "x " * 15_000 + r"\boxed{42}", answer="42") == 1


# Catches: a time limit that ends the run, because the exception of math-verify is not an `Exception`.
def test_expression_that_takes_too_long_has_no_number(monkeypatch):
    class Slow:
        is_number = True

        def evalf(self, digits):
            time.sleep(5)

    began = time.perf_counter()
    assert rewards._number(Slow()) is None and time.perf_counter() - began < 4


# Catches: the refusal of references within a schema.
def test_schema_may_refer_to_its_own_parts():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert [worth("json", x, schema=schema) for x in ('{"a": 1}', '{"a": "b"}')] == [1, 0]
    assert worth("json", "5", schema={"enum": [{"$ref": "#/nowhere"}, 5]}) == 1            # data, not a reference
    assert worth("json", '{"type": "object"}', schema={"$ref": "https://json-schema.org/draft/2020-12/schema"}) == 1


# Catches: a reward that fails, or takes minutes, for a text that a policy may write.
@pytest.mark.long("math")
@pytest.mark.parametrize("name", ["exact", "math", "json", "regex", "length"])
def test_hostile_texts_get_a_reward_quickly(name, capfd):
    began = time.perf_counter()
    made = task(name, answer="42", schema={"type": "integer"}, pattern="[0-9]+", max_words=5)
    for text in HOSTILE[:4] if name == "math" else HOSTILE:               # each takes the time limit
        assert 0 <= made.reward(made.train[0], text) <= 1
    assert time.perf_counter() - began < 15 and capfd.readouterr() == ("", "")


# Catches: JSON that only Python reads; a fence around it; a schema that is ignored, or fetched from the network.
def test_json_needs_valid_json_that_fits_the_schema():
    schema = {"type": "object", "required": ["name"], "properties": {"age": {"type": "integer"}}}
    for response, plain, valid in (('{"name": "x"}', 1, 1), ('{"name": "x", "age": "3"}', 1, 0), ("[1]", 1, 0),
                                   ('```json\n{"name": "x"}\n```', 0, 0), ("{'name': 1}", 0, 0), ("NaN", 0, 0),
                                   ("", 0, 0)):
        assert (worth("json", response), worth("json", response, schema=schema)) == (plain, valid)
    with pytest.raises(UserError, match="refers to http://localhost:1/x.json, which it does not contain"):
        worth("json", "1", schema={"$ref": "http://localhost:1/x.json"})
    with pytest.raises(UserError, match='the field "schema" refers to itself without end'):
        worth("json", "1", schema={"$ref": "#"})
    with pytest.raises(UserError, match='"schema" is not a JSON schema .*is not a .regex'):
        worth("json", '"a"', schema={"pattern": "("})


# Catches: a match anywhere in the response.
def test_regex_must_match_the_whole_response():
    responses = "12 apples\n", "12 apples!", "x 12 apples"
    assert [worth("regex", r, pattern="[0-9]+ apples") for r in responses] == [1, 0, 0]


# Catches: a sudden drop of the reward at the limit; a negative reward beyond twice the limit.
def test_length_reward_falls_linearly_beyond_the_limit():
    assert [worth("length", "w " * n, max_words=4) for n in (0, 4, 5, 6, 8, 100)] == [1, 1, 0.75, 0.5, 0, 0]


# Catches: a wrong field in one line that is found only in training.
@pytest.mark.parametrize(("reward", "row", "words"), [
    ("regex", {"pattern": "("}, r"prompt 1: the field \"pattern\" is '\(', which is not a regular expression"),
    ("regex", {"pattern": ["a"]}, "write a regular expression as a text"), ("regex", {}, 'has no field "pattern"'),
    ("json", {"schema": {"type": "objekt"}}, 'prompt 1: the field "schema" is not a JSON schema .*objekt'),
    ("json", {"schema": 5}, "is not a JSON schema"), ("length", {"max_words": "5"}, "\"max_words\" is '5'; write a"),
    ("length", {"max_words": 0}, "whole number of at least 1"), ("math", {"answer": " "}, '"answer" is empty'),
    ("exact,0.2*length", {"answer": "1"}, 'no field "max_words", which the reward length')])
def test_wrong_field_is_found_before_training(reward, row, words):
    with pytest.raises(UserError, match=words):
        task(reward, **row)


# Catches: a traceback for a missing library; a time limit that silently fails in a thread.
def test_missing_requirements_of_a_reward_are_named(monkeypatch):
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "math_verify", None)
        hidden.setitem(sys.modules, "jsonschema.exceptions", None)
        rewards._math_verify.cache_clear()
        rewards._validator.cache_clear()
        for name in "math", "json":
            with pytest.raises(UserError, match=r"needs .*type: pip install 'spinup-rl\[tasks\]'"):
                task(name, answer="1", schema={})
    errors = []

    def work():
        try:
            task("math", answer="1")
        except UserError as error:
            errors.append(str(error))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "works only in the main thread" in errors[0]


# Catches: a ready-made reward without a docstring for the documentation; a function with another name than its reward.
def test_ready_made_rewards_have_docstrings_and_their_own_names():
    for name, function in ready_made().items():
        assert function.__doc__.startswith("Return ") and function.__name__ == name


# Catches: a field that is checked only with a response, after the folder has been made.
@pytest.mark.parametrize(("reward", "row"), [
    ("math", {"answer": "\\text{}"}), ("exact", {"answer": " "}), ("json", {"schema": {"$ref": "#/nope"}}),
    ("json", {"schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}}}),
    ("json", {"schema": json.loads('{"items": ' * 200 + "{}" + "}" * 200)})])
def test_wrong_field_is_found_before_any_response(reward, row):
    with pytest.raises(UserError, match='the field "(answer|schema)"'):
        task(reward, **row)
