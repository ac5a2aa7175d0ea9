"""Held-out problems of a task: those of a run's log, and others for a later evaluation."""
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from llm.tasks.check import problems_of
from llm.tasks.task import Problem, Task, Wrapped

EVALUATION = 20_000     # seed of the held-out problems and of the responses to them: the same for every row
CHECKED = 256           # first training problems of a run that `Overlap` compares


def contents(p: Any) -> tuple[str, ...]:
    """Return the contents of a problem, which equal problems share."""
    with np.printoptions(threshold=sys.maxsize):                          # all numbers of a long array
        return p.prompt, *(repr(getattr(p, name, None)) for name in ("answer", "data", "messages"))


def distinct(problems: list[Any]) -> list[Any]:
    """Return these problems without duplicates, which occur if a task has few held-out problems."""
    return list({contents(p): p for p in problems}.values())


def of_user(task: Any) -> bool:
    """Return whether a task, or each part of a mixture, is a user's own."""
    while isinstance(task, Wrapped):
        task = task.task
    if mixed := getattr(task, "mixed", ()):
        return all(map(of_user, mixed))
    return not type(task).__module__.startswith("llm.")


class Overlap:
    """Held-out problems among the training problems of a user's own task. Our own tasks are not checked, because some
    of them have a single problem.

    Args:
        task: the task.
        held_out: the held-out problems of a run.
    """

    def __init__(self, task: Any, held_out: Sequence[Any]):
        self.known = set(map(contents, held_out)) if of_user(task) else set()
        self.left = CHECKED

    def check(self, problems: list[Any], say: Callable[[str], None]) -> list[Any]:
        """Return these training problems. If some of them are held out, call `say` with a warning. Only the first
        `CHECKED` problems of a run are compared."""
        some = problems[:self.left] if self.known else []
        self.left -= len(some)
        if both := sum(contents(p) in self.known for p in some):
            say(f"{both} of {len(some)} training problems are held-out problems too, so held-out numbers do not show "
                "how the policy generalises; if possible, let `problems` return different ones with held_out=True")
        return problems


def held_out(task: Task, n: int, seed: int) -> list[Problem]:
    """Return `n` different held-out problems, or fewer if the task has fewer."""
    many = problems_of(task, 8 * n, np.random.default_rng(EVALUATION + 1 + seed), True)        # some may be equal
    return distinct(many)[:n]
