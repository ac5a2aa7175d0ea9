"""Test-time reinforcement learning (TTRL, Zuo et al. 2025, arXiv:2504.16084): rewards without labels.

The most common answer in a group of responses replaces the label:

    R_i = 1 if answer_i = majority(answer_1 .. answer_G), else 0

If the most common answer is right, this is the true reward. If it is wrong, the policy learns the wrong answer.

The paper trains on the prompts of the test set, without their answers: `vote,on=test:TASK`. The held-out accuracy is
then that of prompts which the run has seen without their answers.
"""
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from llm.tasks.task import Task
from llm.tasks.wrappers.wrapper import Wrapper
from spinup.errors import UserError


def votes(answers: Sequence[str | None]) -> list[bool]:
    """Return whether each answer is the majority answer: the most common one, of several the one that is first.

    None is no answer: it has no vote, and it is never the majority answer. If there are several answers
    and all differ, there is no majority answer.
    """
    counts = Counter(answer for answer in answers if answer is not None)
    agreed = counts and (len(counts) == 1 or max(counts.values()) > 1)
    majority = counts.most_common(1)[0][0] if agreed else None
    return [answer is not None and answer == majority for answer in answers]


@dataclass
class Vote(Wrapper):
    """Reward 1 for the most common answer of the group, else 0. No label is used for it.

    The parts `agreement`, the share of the majority answer, and `majority_right` are logged; the latter does use the
    labels. Each method must sample several responses to a prompt.
    """

    on: Literal["train", "test"] = "train"      # prompts to learn from; test: the held-out ones, as in the paper
    name = "vote"
    needs_right = True
    fewest = 3                                  # of two answers that differ, the first would be the majority

    def check(self, task: Task) -> None:
        if isinstance(task, Wrapper) and task.changes_prompt:
            raise UserError(f"vote uses no answers, and {type(task).name} show them; leave out one of the two")
        super().check(task)
        if isinstance(task, Wrapper):
            raise UserError(f"vote replaces the reward of {type(task).name}; write {type(task).name}:vote:TASK")

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Any]:
        if held_out or self.on == "train":
            return super().problems(n, rng, held_out)
        return [self.draw(p, rng) for p in super().problems(n, rng, held_out=True)]

    def shape(self, problem: Any, responses: Sequence[str], rewards: Sequence[float],
              right: Sequence[bool]) -> tuple[list[float], dict[str, list[float]]]:
        chosen = votes([self.task.answer_of(problem, x) for x in responses])
        n, majority_right = len(chosen), any(a and b for a, b in zip(chosen, right, strict=True))
        return [float(x) for x in chosen], {"agreement": [sum(chosen) / n] * n,
                                            "majority_right": [float(majority_right)] * n}

    def labels(self, rewards: Sequence[float], parts: dict[str, list[float]], right: Sequence[bool]) -> Sequence[bool]:
        return [x >= 1 for x in rewards]
