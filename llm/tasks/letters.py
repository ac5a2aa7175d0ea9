"""Count a letter in a word: a task in ordinary text, for a pretrained model such as smollm2."""
import re
from dataclasses import dataclass
from functools import partial

import numpy as np

from llm.tasks.sentence import WORDS as COMMON
from llm.tasks.task import Problem, Task, draw

WORDS = (*COMMON, "balloon", "berry", "bottle", "bubble", "butter", "butterfly", "button", "cabbage", "candy", "carpet",
         "carrot", "cheese", "cherry", "coffee", "cookie", "cottage", "cotton", "daffodil", "dinner", "dragon",
         "eleven", "engine", "feather", "flower", "forest", "freedom", "funny", "gallery", "garage", "giraffe",
         "goggles", "grass", "happy", "honey", "insect", "jelly", "kettle", "kitchen", "kitten", "letter", "lettuce",
         "lizard", "mammal", "marble", "meadow", "mitten", "monkey", "muffin", "mushroom", "necklace", "needle",
         "noodle", "nothing", "onion", "orange", "otter", "paddle", "paper", "parrot", "pebble", "pencil", "penguin",
         "pepper", "pillow", "pizza", "planet", "pocket", "potato", "pudding", "puppet", "puzzle", "rabbit", "raccoon",
         "ribbon", "rocket", "saddle", "salad", "school", "scissors", "seventeen", "sheep", "shell", "silver", "sister",
         "skill", "small", "spider", "spring", "squirrel", "strawberry", "street", "summer", "sunset", "sweater",
         "swimmer", "table", "teacher", "tomato", "tunnel", "turtle", "umbrella", "valley", "vanilla", "village",
         "wallet", "weather", "wheel", "winter", "wood", "wool", "yellow", "zebra")
COUNTS = {"zero": 0, "once": 1, "one": 1, "twice": 2, "two": 2, "three": 3, "four": 4}
NUMBER = re.compile(rf"[0-9]+|\b(?:{'|'.join(COUNTS)})\b", re.IGNORECASE)


@dataclass
class Letters(Task):
    """For `How many times does the letter r occur in the word strawberry?`, the answer is 3.

    The first number of a response counts, in digits or in words: `The letter "r" occurs three times.` earns 1. A wrong
    number earns 0. Half of the answers are 1, and the others are 2 to 4. So a policy that ignores the word can solve
    half of the problems.
    """

    name = "letters"
    alphabet = None
    max_tokens = 16

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make(once: bool) -> Problem:
            while True:
                word = WORDS[rng.integers(len(WORDS))]
                letter = word[rng.integers(len(word))]
                if (word.count(letter) == 1) == once:
                    break
            prompt = f"How many times does the letter {letter} occur in the word {word}?"
            return Problem(prompt, str(word.count(letter)))
        chosen = [bool(x) for x in rng.random(n) < 0.5]       # before the split, so that it holds for held-out ones too
        return [draw(1, held_out, partial(make, once))[0] for once in chosen]

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer

    def answer_of(self, problem: Problem, response: str) -> str | None:
        found = NUMBER.search(response)
        return None if found is None else str(COUNTS.get(found[0].lower(), found[0]))

    def reward(self, problem: Problem, response: str) -> float:
        return float(self.answer_of(problem, response) == problem.answer)
