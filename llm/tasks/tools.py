"""What tasks share: whose characters a text holds where a tool wrote some of them, and the checking of options."""
from collections.abc import Callable
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from typing import Any, get_type_hints

from llm.tasks.task import Task
from spinup.errors import UserError
from spinup.runs.config import checked, flag


def pieces(task: Task, text: str) -> list[tuple[bool, str]]:
    """A response cut where the policy hands over to the task's tool and back: (whether the policy wrote it, text)."""
    return [(mine, "".join(c for _, c in piece)) for mine, piece in groupby(zip(replay(task, text), text, strict=True),
                                                                            itemgetter(0))]


def replay(task: Task, text: str) -> list[bool]:
    """For each character of a response, whether the policy wrote it (True) or the task's tool (False).

    The tool is asked again after every character of the policy's, as it is while a response is generated, so the mask
    cannot disagree with it. A text may end in the middle of what the tool wrote: the limit on its length cut it there.
    ValueError: the text does not go on as the tool does.
    """
    if task.tool is None:
        return [True] * len(text)
    own: list[bool] = []
    while len(own) < len(text):
        own.append(True)
        added = task.tool(text[:len(own)]) or ""
        found = text[len(own):len(own) + len(added)]
        if not added.startswith(found):
            raise ValueError(f"after {text[:len(own)]!r} the tool writes {added!r}, and the text has {found!r}")
        own += [False] * len(found)
    return own


def check_options(task: Any) -> None:
    """Every field of a task as its type wants it; UserError for one of another type or out of its range."""
    hints = get_type_hints(type(task), include_extras=True)
    for field in fields(task):
        setattr(task, field.name, option(task.name, field.name, checked, hints[field.name], getattr(task, field.name)))


def option(task: str, name: str, read: Callable[[str, Any, Any], Any], hint: Any, value: Any) -> Any:
    """`read(name, hint, value)`, its UserError worded for an option of a task, which is no flag of the command line."""
    try:
        return read(name, hint, value)
    except UserError as error:
        raise UserError(f"in the task {task}, {str(error).replace(flag(name), name, 1)}") from None
