"""Tasks that a random policy does not solve: the first wrong symbol ends the response."""
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Annotated

import numpy as np

from llm.tasks.episodes import Episode
from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task
from spinup.runs.config import Range

SMALL = 1e-3            # reward of the chain's near end


class Symbols(Episode):
    """One response to a lock or chain: each symbol is a turn.

    wrong: the reward of a wrong symbol, which ends the response.
    """

    def __init__(self, code: str, wrong: float):
        self.code, self.wrong, self.right = code, wrong, 0

    def act(self, text: str) -> tuple[float, bool]:
        if text != self.code[self.right]:
            return (self.wrong if text else 0.0), True        # an end token has no text
        self.right += 1
        solved = self.right == len(self.code)
        return float(solved), solved


class OneCode(Task):
    """A task with one secret code, and one prompt, for training and evaluation."""

    end_of_turn = ""
    uniform = True
    wrong = 0.0

    def start(self, code: str, alphabet: str) -> None:
        """Set the code and the alphabet; its first symbol is the prompt."""
        self.secret, self.alphabet, self.max_tokens = code, alphabet, len(code)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return [Problem(self.alphabet[0], self.secret)] * n

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return self.secret

    def open(self, problem: Problem) -> Episode:
        """Start the episode of one response."""
        return Symbols(self.secret, self.wrong)


@dataclass
class Lock(OneCode):
    """A combination lock: only the whole code earns 1, and the first wrong symbol ends the response with 0.

    With 12 symbols and the end token, a uniform policy opens a lock of 6 positions in one response of 13^6 = 4.8
    million. The prompt is always `a`.
    """

    length: Annotated[int, Range(1, 100)] = 6       # positions of the code
    symbols: Annotated[int, Range(2, 26)] = 12      # different symbols, from a
    code: Annotated[int, Range(0, 10**6)] = 0       # number of the code: each one is another random code
    name = "lock"

    def __post_init__(self):
        check_options(self)
        letters = ascii_lowercase[:self.symbols]
        drawn = np.random.default_rng(self.code).integers(self.symbols, size=self.length)
        self.start("".join(letters[i] for i in drawn), letters)


@dataclass
class Chain(OneCode):
    """The chain of `spinup` in tokens: `length` times R earns 1. The first L earns .001 and ends the response.

    An end token before the far end earns 0. A uniform policy writes `length` times R in one response of 3^length. The
    prompt is always `L`.

    permuted: L and R are swapped at random positions, the same for all seeds. Then the code is not one symbol that a
        network finds easily.
    """

    length: Annotated[int, Range(1, 500)] = 20      # symbols up to the far end
    permuted: bool = False                          # swap L and R at random positions
    name = "chain"
    wrong = SMALL

    def __post_init__(self):
        check_options(self)
        swapped = np.random.default_rng(self.length).integers(2, size=self.length) * self.permuted
        self.start("".join("RL"[i] for i in swapped), "LR")
