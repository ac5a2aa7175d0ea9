"""Checks of task options."""
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

from spinup.errors import UserError
from spinup.runs.config import checked, flag


def check_options(task: Any) -> None:
    """Convert every field of a task to its type. Raise UserError for a wrong type or a value out of range."""
    hints = get_type_hints(type(task), include_extras=True)
    for field in fields(task):
        setattr(task, field.name, option(task.name, field.name, checked, hints[field.name], getattr(task, field.name)))


def option(task: str, name: str, read: Callable[[str, Any, Any], Any], hint: Any, value: Any) -> Any:
    """Return `read(name, hint, value)`. Its UserError names the option of the task instead of a flag."""
    try:
        return read(name, hint, value)
    except UserError as error:
        raise UserError(f"in the task {task}, {str(error).replace(flag(name), name, 1)}") from None
