"""Checks of task options."""
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

from spinup.errors import UserError
from spinup.runs.convert import checked, flag


def check_options(task: Any, kind: str = "task") -> None:
    """Convert every field of a task to its type. Raise UserError for a wrong type or a value out of range.

    kind: what it is, for the error message.
    """
    hints, what = get_type_hints(type(task), include_extras=True), f"the {kind} {task.name}"
    for field in fields(task):
        setattr(task, field.name, option(what, field.name, checked, hints[field.name], getattr(task, field.name)))


def option(what: str, name: str, read: Callable[[str, Any, Any], Any], hint: Any, value: Any) -> Any:
    """Return `read(name, hint, value)`. Its UserError names the option of `what`, such as "the task
    addition", instead of a flag."""
    try:
        return read(name, hint, value)
    except UserError as error:
        raise UserError(f"in {what}, {str(error).replace(flag(name), name, 1)}") from None
