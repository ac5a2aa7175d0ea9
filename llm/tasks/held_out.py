"""Held-out problems of a task: those of a run's log, and others for a later evaluation."""
from typing import Any

import numpy as np

from llm.tasks.check import problems_of
from llm.tasks.task import Problem, Task
from llm.tasks.wrappers.wrapper import innermost

EVALUATION = 20_000     # seed of the held-out problems and of the responses to them: the same for every row


def contents(p: Any) -> tuple[str, ...]:
    """Return the contents of a problem, which equal problems share."""
    return p.prompt, getattr(p, "answer", ""), repr(getattr(p, "data", None)), repr(getattr(p, "messages", None))


def distinct(problems: list[Any]) -> list[Any]:
    """Return these problems without duplicates, which occur if a task has few held-out problems."""
    return list({contents(p): p for p in problems}.values())


def repeated(task: Task, problems: list[Any]) -> list[str]:
    """Return a sentence if training problems of a user's own task are among these held-out ones; else []."""
    inside = innermost(task)
    if type(getattr(inside, "task", inside)).__module__.startswith("llm."):
        return []                                                # a few of ours have a single problem, such as bandits
    held, n = set(map(contents, problems)), len(problems)
    both = sum(contents(p) in held for p in problems_of(task, n, np.random.default_rng(0)))
    return [f"{both} of {n} training problems are held-out problems too, so held-out numbers do not show how the "
            "policy generalises; let `problems` return different problems with held_out=True"] if both else []


def held_out(task: Task, n: int, seed: int) -> list[Problem]:
    """Return `n` different held-out problems, or fewer if the task has fewer."""
    many = problems_of(task, 8 * n, np.random.default_rng(EVALUATION + 1 + seed), True)        # some may be equal
    return distinct(many)[:n]
