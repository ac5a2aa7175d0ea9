"""Calls of the user's own code, whose errors are told in one sentence."""
import math
from collections.abc import Callable
from reprlib import Repr
from traceback import extract_tb
from typing import Any

from spinup.errors import UserError

LARGEST = 3e38          # in float32
SHORT = Repr()
SHORT.maxstring = SHORT.maxother = 80


def call(name: str, here: str, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`; UserError where it fails.

    name, here: which function, and with which arguments, for that sentence.
    """
    try:
        return function(*args)
    except (Exception, SystemExit) as error:
        last = extract_tb(error.__traceback__)[-1]                        # our own line where it is not Python's
        where = "" if last.filename == __file__ else f" ({last.filename}, line {last.lineno})"
        raise UserError(f"{name} failed {here}: {described(error)}{where}") from error


def finite(result: Any, name: str, here: str) -> float:
    """A result of the user's code as a number; UserError where it is no finite one."""
    try:
        number = math.nan if isinstance(result, str | bytes) else float(result)
    except Exception:                                                     # numpy and torch each have their own
        number = math.nan
    if not abs(number) <= LARGEST:
        raise UserError(f"{name} must return a finite number, and returned {SHORT.repr(result)} {here}")
    return number


def described(error: BaseException) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
