"""Held-out problems of a task: those of a run's log, and others for a later evaluation."""
import sys
from copy import deepcopy
from typing import Any

import numpy as np

from llm.tasks.check import problems_of
from llm.tasks.task import Problem, Task, Wrapped, stateful

EVALUATION = 20_000     # seed of the held-out problems and of the responses to them: the same for every row
CHECKED = (256, 16)     # problems of each kind that `repeated` compares; fewer if a task cannot give as many


def contents(p: Any) -> tuple[str, ...]:
    """Return the contents of a problem, which equal problems share."""
    with np.printoptions(threshold=sys.maxsize):                          # all numbers of a long array
        return p.prompt, *(repr(getattr(p, name, None)) for name in ("answer", "data", "messages"))


def distinct(problems: list[Any]) -> list[Any]:
    """Return these problems without duplicates, which occur if a task has few held-out problems."""
    return list({contents(p): p for p in problems}.values())


def repeated(task: Any) -> list[str]:
    """Return a warning if a user's own task trains on held-out problems; else [].

    The problems come from a copy, because a task may give its problems in order. Nothing is checked if the task has a
    state, cannot be copied, or cannot give enough problems.
    """
    while isinstance(task, Wrapped):
        task = task.task
    if mixed := getattr(task, "mixed", ()):
        return [sentence for part in mixed for sentence in repeated(part)]
    if type(task).__module__.startswith("llm.") or stateful(task):        # some of ours have a single problem
        return []
    for n in CHECKED:
        try:
            mine = deepcopy(task)
            train, held = (problems_of(mine, n, np.random.default_rng(0), side) for side in (False, True))
        except Exception:                                                 # an error of its code appears in the run
            continue
        known = set(map(contents, held))
        both = sum(contents(p) in known for p in train)
        return [f"{both} of {n} training problems are held-out problems too, so held-out numbers do not show how the "
                "policy generalises; if possible, let `problems` return different ones with held_out=True"] * (both > 0)
    return []


def held_out(task: Task, n: int, seed: int) -> list[Problem]:
    """Return `n` different held-out problems, or fewer if the task has fewer."""
    many = problems_of(task, 8 * n, np.random.default_rng(EVALUATION + 1 + seed), True)        # some may be equal
    return distinct(many)[:n]
