"""Parsing and checks of the options of a task."""
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

from spinup.errors import UserError, check_names
from spinup.runs.convert import checked, flag, parse


def check_options(task: Any, kind: str = "task") -> None:
    """Convert every field of a task to its type. Raise UserError for a wrong type or a value out of range.

    kind: what it is, for the error message.
    """
    hints, what = get_type_hints(type(task), include_extras=True), f"the {kind} {task.name}"
    for field in fields(task):
        setattr(task, field.name, option(what, field.name, checked, hints[field.name], getattr(task, field.name)))


def read_pairs(text: str, typed: str, what: str, noun: str, hints: dict[str, Any]) -> dict[str, Any]:
    """Return options such as "length=8,symbols=12" by name, converted to their types.

    Args:
        text: the text after --task, for the error message; `typed` is the part of it with the options.
        what: the owner of the options, such as "the task addition".
        noun: "option" or "setting".
        hints: the type of each option.

    Raise UserError for an unknown option, a wrong value, or text without =.
    """
    pairs = [part.partition("=") for part in typed.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise UserError(f"--task {text}: write {noun}s as name=value, separated by commas")
    given = {name.strip(): value.strip() for name, _, value in pairs}
    check_names(given, list(hints), f"{what} has no {noun}")
    return {name: option(what, name, parse, hints[name], value) for name, value in given.items()}


def option(what: str, name: str, read: Callable[[str, Any, Any], Any], hint: Any, value: Any) -> Any:
    """Return `read(name, hint, value)`. Its UserError names the option of `what`, such as "the task
    addition", instead of a flag."""
    try:
        return read(name, hint, value)
    except UserError as error:
        raise UserError(f"in {what}, {str(error).replace(flag(name), name, 1)}") from None
