"""What a task is: prompts, a verifier, and for tasks made here a teacher. An environment in the form of text."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from llm.policy.tokenizer import Tokenizer

HELD_OUT = 10           # one prompt in this many is never trained on


@dataclass(frozen=True)
class Problem:
    """One prompt, and what its verifier knows of it.

    Attributes:
        prompt: what the policy reads.
        answer: a right answer, where there is one.
        data: whatever else the verifier needs.
    """

    prompt: str
    answer: str = ""
    data: Any = None


class Task(Protocol):
    """What the algorithms ask of a task; every class in this folder has this form.

    Attributes:
        name: as it is typed after --task.
        alphabet: the characters of a task for small character models, each of them one token; None where prompts are
            ordinary text, which needs a model with a tokenizer of its own.
        max_tokens: the longest response, the end token included.
        tool: what a tool adds to a response that reads `text` so far, None (nearly always) where it was not called; or
            None instead of a function, where the task has no tool.

    It may also have:

    - measure: the column of `progress.csv` that tells how good a policy is; without it "held_out_accuracy".
    - rewards(problems, responses): all rewards at once, `[float]`.
    - gold(problem, response): what a response is truly worth, where `reward` is a guess that was learned.
    - pairs(held_out): (where it stands, problem, preferred response, other response) of each comparison, where these
      were given.
    """

    name: str
    alphabet: str | None
    max_tokens: int
    tool: Callable[[str], str | None] | None

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        """`n` problems, of the held-out ones or of the others; the same prompt may come twice, but never in both."""

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """What a teacher answers, to be imitated; UserError where the task has no teacher."""

    def reward(self, problem: Problem, response: str) -> float:
        """What a response is worth; 1 is solved. Whatever the policy wrote, this returns a number, and soon."""


def judge_all(task: Task, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
    """What each response is worth; all at once where the task has `rewards`, as where a model judges them."""
    if hasattr(task, "rewards"):
        return task.rewards(problems, responses)
    return [float(task.reward(p, r)) for p, r in zip(problems, responses, strict=True)]


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the held-out ones: decided by its characters alone, so no list can forget it."""
    return crc32(prompt.encode()) % HELD_OUT == 0


def draw(n: int, held_out: bool, make: Callable[[], Problem]) -> list[Problem]:
    """`n` problems from `make`, those of the other side thrown away."""
    found: list[Problem] = []
    while len(found) < n:
        problem = make()
        if is_held_out(problem.prompt) == held_out:
            found.append(problem)
    return found


def longest_prompt(task: Task, tokenizer: Tokenizer) -> int:
    """Tokens of the longest prompt: of all where a task has a list of them, else of eight that are drawn."""
    listed = [*getattr(task, "train", ()), *getattr(task, "held_out", ())]
    return max(len(tokenizer.prompt(p.prompt)) for p in listed or task.problems(8, np.random.default_rng(0)))
