"""Conversion of a value, or of a text of the command line, to the type of a setting."""
import json
import math
import re
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from spinup.errors import UserError, nearest

HUGE = 1e30                                                               # of a setting; fp32 ends at 3e38
LARGEST = 2**63                                                           # torch's whole numbers have 64 bits
TRUTH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


def checked(name: str, hint: Any, value: Any) -> Any:
    """Return `value` with the type `hint`. A whole number becomes a float if `hint` is float, and a number of numpy
    or torch becomes one of Python. UserError if the value does not fit."""
    origin, args = get_origin(hint), get_args(hint)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):    # numpy is not imported: help must be fast
        value = value.item()
    if origin is Annotated:
        value = checked(name, args[0], value)
        for limit in args[1:]:
            if not limit.holds(value):
                raise UserError(f"{flag(name)} must be {limit}, not {value}")
        return value
    if origin is Literal:
        if value not in args:
            words = [str(a) for a in args]
            near = nearest(str(value), words)
            raise UserError(f"{flag(name)} must be one of {', '.join(words)}, not {value!r}.{near}")
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        if object in args or (Callable in args and (callable(value) or hasattr(value, "num_envs"))):
            return value                                                  # the last: a vector environment
        if Callable in args and hasattr(value, "step"):
            raise UserError(f"{flag(name)} must be text or a function that makes the environment, such as lambda: "
                            f"gymnasium.make('CartPole-v1'); {value!r} is an environment")
        return checked(name, next(a for a in args if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{flag(name)} must be a list such as [64, 64], not {value!r}")
        if not value:
            raise UserError(f"{flag(name)} must be numbers such as 64,64, not {value!r}")
        return tuple(checked(name, args[0], v) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**1023 else checked(name, hint, math.inf)
    if hint is int and isinstance(value, int | float) and abs(value) >= LARGEST:
        raise UserError(f"{flag(name)} must be below 2^63, which is 9.2e18; choose a smaller number")
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(hint, str(hint))
        raise UserError(f"{flag(name)} must be {kind}, not {value!r}")
    if hint is float and not math.isfinite(value):
        raise UserError(f"{flag(name)} must be a finite number, not {value}")
    if hint is float and abs(value) > HUGE:
        raise UserError(f"{flag(name)} must be from {-HUGE:g} to {HUGE:g}, not {value:g}")
    return value


def parse(name: str, hint: Any, text: str) -> Any:
    """Convert `text`, from the command line, to a value of type `hint`. UserError if that is impossible.

    1e6 and 100_000 are whole numbers, 64,64 is a tuple, none is None, and yes, on and 1 are true.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return checked(name, hint, parse(name, args[0], text))
    if origin in (Union, UnionType):
        if type(None) in args and text.lower() == "none":
            return None
        return parse(name, next(a for a in args if a is not type(None)), text)
    if origin is tuple:
        parts = text.strip().strip("()[]").removesuffix(",").split(",")
        return tuple(parse(name, args[0], part) for part in parts) if text.strip("()[], ") else ()
    if hint in (int, float):
        try:
            number = int(text) if re.fullmatch(r"[+-]?[\d_]{1,300}", text.strip()) else float(text)
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise UserError(f"{flag(name)} must be {kind}, not {text[:40]!r}") from None
        return checked(name, hint, number)
    return checked(name, hint, TRUTH.get(text.lower(), text) if hint is bool else text)


def flag(name: str) -> str:
    """Return the command-line flag of a field."""
    return "--" + name.replace("_", "-")


def in_text(value: Any) -> str:
    """Return a setting as the command line takes it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, bool) else f"{value}"
