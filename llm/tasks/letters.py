"""Count a letter in a word: a task in ordinary text, for a pretrained model such as smollm2."""
import re
from dataclasses import dataclass

import numpy as np

from llm.tasks.sentence import WORDS as COMMON
from llm.tasks.task import Problem, Task, draw

WORDS = (*COMMON, "balloon", "berry", "bottle", "butter", "butterfly", "carrot", "cheese", "cherry", "coffee", "cotton",
         "dinner", "feather", "flower", "forest", "giraffe", "grass", "kitchen", "letter", "orange", "paper", "parrot",
         "pepper", "pillow", "potato", "puppet", "rabbit", "ribbon", "saddle", "school", "sheep", "squirrel",
         "strawberry", "summer", "table", "teacher", "tomato", "umbrella", "village", "winter", "yellow")
COUNTS = {"zero": 0, "once": 1, "one": 1, "twice": 2, "two": 2, "three": 3, "four": 4}
NUMBER = re.compile(rf"[0-9]+|\b(?:{'|'.join(COUNTS)})\b", re.IGNORECASE)


@dataclass
class Letters(Task):
    """For `How many times does the letter r occur in the word strawberry?`, the answer is 3.

    The first number of a response counts, in digits or in words: `The letter "r" occurs three times.` earns 1. A wrong
    number earns 0. Half of the answers are 1, and the others are 2 or 3. So a policy that ignores the word can solve
    half of the problems.
    """

    name = "letters"
    alphabet = None
    max_tokens = 16

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            once = rng.random() < 0.5
            while True:
                word = WORDS[rng.integers(len(WORDS))]
                letter = word[rng.integers(len(word))]
                if (word.count(letter) == 1) == once:
                    break
            prompt = f"How many times does the letter {letter} occur in the word {word}?"
            return Problem(prompt, str(word.count(letter)))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.answer

    def reward(self, problem: Problem, response: str) -> float:
        found = NUMBER.search(response)
        return float(found is not None and str(COUNTS.get(found[0].lower(), found[0])) == problem.answer)
