"""Short questions of general knowledge: they show what a pretrained model forgets while it learns something else."""
import re
from dataclasses import dataclass
from unicodedata import normalize

import numpy as np

from llm.tasks.task import Problem, Task
from llm.tasks.user import take
from spinup.errors import UserError

QUESTIONS = {           # a question, and a regular expression that every correct response contains
    "What is the capital of France?": "paris",
    "What is the capital of Italy?": "rome",
    "What is the capital of Japan?": "tokyo",
    "What is the capital of Australia?": "canberra",
    "What is the capital of Canada?": "ottawa",
    "On which continent is Egypt?": "africa",
    "On which continent is Brazil?": "south america",
    "Which is the largest ocean?": "pacific",
    "Which is the largest planet of the solar system?": "jupiter",
    "Which planet is closest to the sun?": "mercury",
    "How many planets are in the solar system?": "eight|8",
    "How many days are in a week?": "seven|7",
    "How many months are in a year?": "twelve|12",
    "How many minutes are in an hour?": "sixty|60",
    "How many legs does a spider have?": "eight|8",
    "How many sides does a triangle have?": "three|3",
    "How many letters are in the English alphabet?": "26|twenty[- ]six",
    "What is the opposite of hot?": "cold|cool",
    "What is the opposite of big?": "small|little|tiny",
    "What is the opposite of up?": "down",
    "What is the plural of mouse?": "mice",
    "What is the past tense of go?": "went",
    "What colour is the sky on a clear day?": "blue",
    "What colour is grass?": "green",
    "What colour do you get if you mix blue and yellow?": "green",
    "What is water made of?": "hydrogen|h2o",
    "What gas do plants take from the air?": "carbon dioxide|co2",
    "At what temperature in Celsius does water boil?": "100(?:°?C)?",
    "At what temperature in Celsius does water freeze?": r"(?<![0-9.])0(?:\.0+)?(?:°?C)?(?![0-9]|\.[0-9])|zero",
    "What do bees make?": "honey",
    "Which animal is known as the king of the jungle?": "lion",
    "What is a baby dog called?": "pupp(?:y|ies)|pup",
    "What is a baby cat called?": "kittens?",
    "Which animal gives us wool?": "sheep|goats?|lambs?",
    "Who wrote Romeo and Juliet?": "shakespeare",
    "Who painted the Mona Lisa?": "da vinci|leonardo",
    "Which language is spoken in Brazil?": "portuguese",
    "Which season comes after winter?": "spring",
    "Which month comes after March?": "april",
    "What do we call frozen water?": "ice"}


@dataclass
class General(Task):
    """Forty fixed questions, such as `What is the capital of France?`; a response that contains the answer earns 1.

    All questions are held out, so no method trains on them. Evaluate a model before and after its training: if it
    solves fewer questions afterwards, it has forgotten something.

    Raise UserError for training problems and demonstrations.
    """

    name = "general"
    alphabet = None
    max_tokens = 24

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        if not held_out:
            raise UserError("the task general has no problems to train on; type `spinup llm eval DIR --task general`")
        return take([Problem(question) for question in QUESTIONS], n, rng)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        raise UserError("the task general has no demonstrations, because it is for evaluation only")

    def reward(self, problem: Problem, response: str) -> float:
        plain = normalize("NFKC", response.replace("º", "°"))             # CO₂ becomes CO2
        return float(re.search(rf"\b(?:{QUESTIONS[problem.prompt]})\b", plain, re.IGNORECASE) is not None)
