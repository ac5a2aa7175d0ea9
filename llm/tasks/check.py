"""Checks of a task's attributes, when it is created, and of its problems and demonstrations, when they are used."""
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from llm.faults import SHORT
from llm.tasks.parts import scored
from spinup.errors import UserError
from spinup.runs.folders import LONGEST

MEASURE = re.compile(r"held_out_(accuracy|greedy|reward(_\w+)?)")


def check_task(task: Any, kind: str) -> None:
    """Raise UserError if an attribute of a task, of the user's class `kind`, does not fit `llm.tasks.Task`."""
    def check(name: str, right: bool, wanted: str) -> None:
        if not right:
            raise UserError(f"a task of type {kind} has the {name} {SHORT.repr(getattr(task, name))}; give it {wanted}")

    alphabet, end = task.alphabet, task.end_of_turn
    check("name", isinstance(task.name, str) and is_folder(task.name), "a name that a folder can have, such as guess")
    check("alphabet", alphabet is None or (isinstance(alphabet, str) and alphabet != ""),
          "a text of all its characters, or None for ordinary text")
    check("measure", isinstance(task.measure, str) and MEASURE.fullmatch(task.measure),
          "held_out_accuracy, held_out_reward, or held_out_reward_ and the name of a part")
    check("max_tokens", isinstance(task.max_tokens, Integral) and not isinstance(task.max_tokens, bool)
          and task.max_tokens >= 1, "a whole number of at least 1")
    if task.open is not None:
        check("open", callable(task.open), "a method open(problem) that starts an episode")
        check("end_of_turn", isinstance(end, str) and bool(end or alphabet) and set(end) <= set(alphabet or end),
              "characters of its alphabet, so that a turn can end" if alphabet else "a text, such as a new line")


def is_folder(name: str) -> bool:
    """Return whether a single folder can have that name."""
    return Path(name).name == name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= LONGEST


@contextmanager
def whose(name: str) -> Iterator[None]:
    """Add a note with the function's name to an error of a task's function; the traceback does not change."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{name} raised this error")
        raise


def problems_of(task: Any, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Any]:
    """Return `n` problems of a task. Raise UserError if its `problems` returns another number or other objects."""
    name = f"`problems` of the task {task.name}"
    with whose(name):
        found = task.problems(n, rng, held_out)
    if not isinstance(found, list | tuple) or len(found) != n:
        given = len(found) if isinstance(found, list | tuple) else SHORT.repr(found)
        raise UserError(f"{name} must return a list of {n} problems, but returned {given}")
    for problem in found:
        if not isinstance(getattr(problem, "prompt", None), str):
            raise UserError(f"{name} must return objects such as llm.tasks.Problem(prompt), where prompt is a text, "
                            f"but returned {SHORT.repr(problem)}")
    return list(found)


def demonstration_of(task: Any, problem: Any, rng: np.random.Generator) -> str:
    """Return the teacher's response to a problem. Raise UserError if it is not a text."""
    name = f"`demonstration` of the task {task.name}"
    with whose(name):
        text = task.demonstration(problem, rng)
    if not isinstance(text, str):
        raise UserError(f"{name} must return a text, but returned {SHORT.repr(text)} for the prompt "
                        f"{SHORT.repr(problem.prompt)}")
    return text


def rewards_of(task: Any, problems: Sequence[Any], responses: Sequence[str]) -> list[float]:
    """Return the rewards of responses, one response for each problem. Raise UserError if `rewards` returns another
    number of them, or anything but finite numbers and dicts of parts."""
    name, n = f"`rewards` of the task {task.name}", len(responses)
    with whose(name):
        found = task.rewards(problems, responses)
    several = isinstance(found, list | tuple) or (isinstance(found, np.ndarray) and found.ndim > 0)
    if not several or len(found) != n:
        given = len(found) if several else SHORT.repr(found)
        raise UserError(f"{name} must return a list or an array of {n} rewards, one for each response, but returned "
                        f"{given}")
    return [scored(reward, name, f"for the response {SHORT.repr(str(response))}")
            for reward, response in zip(found, responses, strict=True)]
