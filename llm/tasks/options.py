"""Checks of the options of tasks."""
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

from spinup.errors import UserError
from spinup.runs.config import checked, flag


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
