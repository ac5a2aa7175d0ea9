"""Calls of the user's own code; an error there becomes one sentence."""
import math
from collections.abc import Callable
from contextlib import chdir
from reprlib import Repr
from traceback import extract_tb
from typing import Any

from spinup.errors import UserError

LARGEST = 3e38          # in float32
SHORT = Repr()
SHORT.maxstring = SHORT.maxother = 80


def call(name: str, here: str, function: Callable[..., Any], /, *args: Any, **fields: Any) -> Any:
    """Return `function(*args, **fields)`. Raise UserError if it fails.

    name, here: the function and its arguments, in words, for the error message.
    """
    try:
        with chdir("."):                                                  # returns to it if the function leaves it
            return function(*args, **fields)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:                                        # also SystemExit and CancelledError
        last = extract_tb(error.__traceback__)[-1]                        # this file, if the function is not Python
        where = "" if last.filename == __file__ else f" ({last.filename}, line {last.lineno})"
        raise UserError(f"{name} failed {here}: {described(error)}{where}") from error


def finite(result: Any, name: str, here: str) -> float:
    """Return a result of the user's code as a float. Raise UserError if it is not a finite number that float32 holds.
    """
    try:
        number = math.nan if isinstance(result, str | bytes) else float(result)
    except Exception:                                                     # numpy and torch raise their own types
        number = math.nan
    if LARGEST < abs(number) < math.inf:
        raise UserError(f"{name} returned {number:g}, but float32 holds at most {LARGEST:g}; divide its results")
    if not abs(number) <= LARGEST:
        raise UserError(f"{name} must return a finite number, but returned {SHORT.repr(result)} {here}")
    return number


def described(error: BaseException) -> str:
    """Type and message of an exception, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
