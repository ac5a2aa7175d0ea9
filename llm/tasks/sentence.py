"""One short sentence with two given words: a task in ordinary text, for a pretrained model such as smollm2."""
import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from llm.tasks.task import Problem, Task, draw
from spinup.errors import UserError

WORDS = ("apple", "banana", "bell", "boat", "book", "bread", "bridge", "candle", "cat", "chair", "cloud", "clock",
         "coat", "dog", "drum", "fish", "garden", "glass", "hammer", "horse", "island", "kite", "ladder", "lamp",
         "lemon", "mirror", "mountain", "piano", "river", "shovel", "spoon", "stone", "train", "tree", "violin",
         "window")
PAIRS = tuple(combinations(WORDS, 2))
LONGEST = 12            # words of a sentence


@dataclass
class Sentence(Task):
    """For `Write one short sentence about a banana and a shovel.`, a response earns up to four quarters: one for each
    word that it contains, one if it is a single sentence, and one if it has at most 12 words.

    A reward of 1 means solved. The reward has a hole: "A banana and a shovel." is no sentence and earns 1.
    """

    name = "sentence"
    alphabet = None
    max_tokens = 24

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            pair = PAIRS[int(rng.integers(len(PAIRS)))]
            return Problem("Write one short sentence about a {} and a {}.".format(*pair), data=pair)
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        raise UserError("the task sentence has no teacher, because a pretrained model can write already; use a method "
                        "that learns from rewards, such as grpo")

    def reward(self, problem: Problem, response: str) -> float:
        text = response.strip()
        named = [re.search(rf"\b{word}s?\b", text, re.IGNORECASE) is not None for word in problem.data]
        single = re.fullmatch(r"[^.!?]+[.!?]", text) is not None
        return 0.25 * (sum(named) + single + (0 < len(text.split()) <= LONGEST))
