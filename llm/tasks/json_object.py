"""The facts of a sentence as a JSON object: a task in ordinary text, for a pretrained model such as smollm2."""
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from llm.tasks.task import Problem, Task, draw

NAMES = ("Adam", "Alex", "Alice", "Andrew", "Anna", "Ben", "Bob", "Carl", "Daniel", "David", "Edward", "Elizabeth",
         "Emily", "Frank", "George", "Henry", "Jack", "Jacob", "James", "Jane", "Jim", "John", "Joseph", "Louis",
         "Luke", "Maria", "Martin", "Mary", "Max", "Paul", "Peter", "Robert", "Rose", "Sam", "Sarah", "Simon",
         "Thomas", "Tom", "Victor", "William")
CITIES = ("Boston", "Cambridge", "Chicago", "London", "Oxford", "Paris", "Rome", "Washington")
AGES = range(18, 90)


@dataclass
class Json(Task):
    """For `Anna is 31 years old and lives in Paris. Write this as a JSON object with the keys name, age and city.`, the
    answer is `{"name": "Anna", "age": 31, "city": "Paris"}`. White space and the order of the keys do not matter.

    A response earns a quarter if it is a single JSON object. It earns a quarter if this object has exactly the three
    keys, and a sixth for each right value. A reward of 1 means solved.
    """

    name = "json"
    alphabet = None
    max_tokens = 28         # with its end token, smollm2's answer has 20 tokens on one line, and 26 or 27 on five lines

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            name, age, city = (kinds[rng.integers(len(kinds))] for kinds in (NAMES, AGES, CITIES))
            facts = {"name": name, "age": age, "city": city}
            prompt = (f"{name} is {age} years old and lives in {city}. Write this as a JSON object with the keys name, "
                      "age and city.")
            return Problem(prompt, json.dumps(facts), facts)
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer

    def answer_of(self, problem: Problem, response: str) -> str | None:
        pairs = pairs_in(response)
        return None if pairs is None else json.dumps(sorted(pairs, key=str))

    def reward(self, problem: Problem, response: str) -> float:
        pairs = pairs_in(response)
        if pairs is None:
            return 0.0
        exact = sorted(key for key, _ in pairs) == sorted(problem.data)
        right = sum(dict(pairs).get(key) == value and type(dict(pairs)[key]) is type(value)
                    for key, value in problem.data.items())
        return (3 + 3 * exact + 2 * right) / 12


def pairs_in(text: str) -> tuple[tuple[str, Any], ...] | None:
    """Return the keys and values of a text that is one JSON object and nothing else; None for any other text."""
    try:
        found = json.loads(text, object_pairs_hook=tuple)                 # a dict would hide a key that occurs twice
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, tuple) else None
