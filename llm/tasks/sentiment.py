"""Sentences that should sound positive: reinforcement learning with a lexicon as the reward.

Ziegler et al. 2019 (arXiv:1909.08593) first fine-tuned a language model with PPO for positive sentiment. Here
VADER (Hutto and Gilbert 2014) rates the sentiment: a lexicon of rated words, with rules for negation and emphasis.
"""
from dataclasses import dataclass

import numpy as np

from llm.tasks.sentence import WORDS
from llm.tasks.task import Problem, Task, draw
from spinup.errors import UserError

PLACES = ("at home", "at night", "at school", "at the market", "by the sea", "in a village", "in spring",
          "in the city", "in the morning", "in the mountains", "in the rain", "in winter", "near a forest", "on a farm",
          "on a journey", "on a table")


@dataclass
class Sentiment(Task):
    """For `Write one sentence about a train in the rain.`, the reward is VADER's compound score of the response.

    The score is between -1 (negative) and 1 (positive); 0 is neutral. It rates only words: a list of superlatives
    without meaning gets almost 1. So after long training, a policy can stop writing sentences.

    Raise UserError if the package vaderSentiment is missing.
    """

    name = "sentiment"
    alphabet = None
    max_tokens = 24
    measure = "held_out_reward"

    def __post_init__(self):
        try:
            from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
        except ModuleNotFoundError:
            raise UserError("the task sentiment needs vaderSentiment; type: pip install 'spinup-rl[tasks]'") from None
        self.analyzer = SentimentIntensityAnalyzer()

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            word, place = WORDS[rng.integers(len(WORDS))], PLACES[rng.integers(len(PLACES))]
            return Problem(f"Write one sentence about {'an' if word[0] in 'aeiou' else 'a'} {word} {place}.")
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        raise UserError("the task sentiment has no teacher, because a pretrained model can write already; use a method "
                        "that learns from rewards, such as grpo")

    def reward(self, problem: Problem, response: str) -> float:
        return self.analyzer.polarity_scores(response)["compound"]
