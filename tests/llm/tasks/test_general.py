"""The task general: questions that no method trains on, and answers that are found in a sentence."""
import re

import numpy as np
import pytest

from llm.tasks.general import QUESTIONS, General
from llm.tasks.task import Problem
from spinup.errors import UserError

TASK = General()


# Catches: an answer inside another word or number; an alternative answer without word boundaries.
@pytest.mark.parametrize(("question", "response", "earned"), [
    ("What is the capital of France?", "The capital of France is PARIS.", 1.0),
    ("What is the capital of France?", "Parisian", 0.0), ("What is the capital of France?", "", 0.0),
    ("How many days are in a week?", "7", 1.0), ("How many days are in a week?", "There are seven days.", 1.0),
    ("How many days are in a week?", "There are 17 days.", 0.0), ("What do we call frozen water?", "nice", 0.0),
    ("What is a baby dog called?", "Puppies.", 1.0), ("At what temperature in Celsius does water freeze?", "100", 0.0),
    ("At what temperature in Celsius does water freeze?", "100.0", 0.0),
    ("At what temperature in Celsius does water freeze?", "At 0.", 1.0),
    ("At what temperature in Celsius does water freeze?", "0.0 °C", 1.0),
    ("At what temperature in Celsius does water boil?", "It boils at 100C.", 1.0),
    ("At what temperature in Celsius does water boil?", "100ºC", 1.0),
    ("At what temperature in Celsius does water boil?", "1000", 0.0),
    ("What gas do plants take from the air?", "Plants take in CO₂.", 1.0),
    ("How many letters are in the English alphabet?", "twenty six", 1.0)])
def test_answers_are_whole_words(question, response, earned):
    assert TASK.reward(Problem(question), response) == earned


# Catches: a question that contains its own answer; a question that a method could train on.
def test_all_questions_are_held_out():
    rng = np.random.default_rng(0)
    assert {p.prompt for p in TASK.problems(40, rng, True)} == {*QUESTIONS} and len(QUESTIONS) == 40
    assert not any(re.search(rf"\b(?:{answer})\b", question, re.IGNORECASE) for question, answer in QUESTIONS.items())
    plain = {question: re.sub(r"\(\?:.*?\)\?|s\?", "", answer.replace("[- ]", "-")).split("|")[-1]
             for question, answer in QUESTIONS.items()}
    assert all(TASK.reward(Problem(q), answer) for q, answer in plain.items())
    for training in (lambda: TASK.problems(1, rng), lambda: TASK.demonstration(Problem("What do bees make?"), rng)):
        with pytest.raises(UserError, match="the task general has no"):
            training()
