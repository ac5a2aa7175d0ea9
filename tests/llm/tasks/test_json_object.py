"""The task json: the parts of its reward, and prompts that are never in both sets."""
import numpy as np
import pytest

from llm.tasks.json_object import AGES, CITIES, NAMES, Json
from llm.tasks.task import Problem

TASK = Json()
ANNA = Problem("", data={"name": "Anna", "age": 31, "city": "Paris"})


# Catches: a full reward for text around the object, a number as a text, or a missing, repeated or extra key; a value
# that counts for another key; True that counts as the number 1.
@pytest.mark.parametrize(("response", "twelfths"), [
    ('{"name": "Anna", "age": 31, "city": "Paris"}', 12), ('\n{"city":"Paris",\n"age":31,"name":"Anna"} ', 12),
    ('{"name": "Anna", "age": 31, "city": "Rome"}', 10), ('{"name": "Anna", "age": "31", "city": "Paris"}', 10),
    ('{"name": "Anna", "age": 31.0, "city": "Paris"}', 10), ('{"name": "Paris", "age": 31, "city": "Anna"}', 8),
    ('{"name": "Anna", "age": 31}', 7), ('{"name": "Anna", "age": 31, "city": "Paris", "sex": 0}', 9), ("{}", 3),
    ('{"name": "Bob", "name": "Anna", "age": 31, "city": "Paris"}', 9), ('{"Name": "Anna"}', 3),
    ('{"name": {"a": [1]}, "age": [], "city": null}', 6), ('[{"name": "Anna", "age": 31, "city": "Paris"}]', 0),
    ('Here: {"name": "Anna", "age": 31, "city": "Paris"}', 0), ('{"name": "Anna", "age": 31, "city": "Par', 0),
    ('{"name": "Anna", "age": 31, "city": "Paris"}.', 0), ('"name"', 0), ("[]", 0), ("31", 0), ("", 0),
    ("[" * 10**5, 0), ('{"age":' + "9" * 5000 + "}", 0)])
def test_reward_counts_the_object_its_keys_and_its_values(response, twelfths):
    assert TASK.reward(ANNA, response) == twelfths / 12
    assert TASK.reward(Problem("", data={**ANNA.data, "age": 1}), response.replace("31", "true")) < 1


def test_prompts_contain_the_facts_and_are_never_in_both_sets():
    rng = np.random.default_rng(0)
    train, held_out = (TASK.problems(2000, rng, out) for out in (False, True))
    assert not {p.prompt for p in train} & {p.prompt for p in held_out}
    assert len(NAMES) * len(CITIES) * len(AGES) > 20_000 and len({p.prompt for p in train}) > 1800
    for problem in train[:100]:
        name, age, city = problem.data.values()
        assert problem.prompt.startswith(f"{name} is {age} years old and lives in {city}. ")
        assert TASK.reward(problem, TASK.demonstration(problem, rng)) == 1.0
