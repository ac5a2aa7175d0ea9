"""Held-out problems of a task: those of a run's log, and others for a later evaluation."""
from typing import Any

import numpy as np

from llm.tasks.check import problems_of
from llm.tasks.task import Problem, Task

EVALUATION = 20_000     # seed of the held-out problems and of the responses to them: the same for every row


def distinct(problems: list[Any]) -> list[Any]:
    """Return these problems without duplicates, which occur if a task has few held-out problems."""
    def key(p: Any) -> tuple[str, ...]:
        return p.prompt, getattr(p, "answer", ""), repr(getattr(p, "data", None)), repr(getattr(p, "messages", None))
    return list({key(p): p for p in problems}.values())


def held_out(task: Task, n: int, seed: int) -> list[Problem]:
    """Return `n` different held-out problems, or fewer if the task has fewer."""
    many = problems_of(task, 8 * n, np.random.default_rng(EVALUATION + 1 + seed), True)        # some may be equal
    return distinct(many)[:n]
