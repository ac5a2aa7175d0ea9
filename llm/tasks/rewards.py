"""Ready-made rewards: `--reward NAME` uses the function of that name. Its keyword arguments are fields of a row.

A reward here must return a number quickly for any response. It raises UserError only for a field that it cannot use.
Before training, the reward is called once for each row, with an empty response.
"""
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from json import dumps, loads
from typing import Any

from llm.faults import SHORT
from spinup.errors import UserError

SECONDS = 1             # limit for one step of math-verify, in seconds
LONGEST = 20_000        # characters of a response that `math` reads, from its end
TINY = 1e-6             # math-verify rounds differences to six places
MARKED = re.compile(r"\$|\\boxed|\\\(|\\\[")           # LaTeX
EXPONENT = re.compile(r"(?<![\w.])\d{1,20}(?:\.\d{1,20})?[eE][+-]?\d{1,2}(?!\w)")


def exact(prompt: str, response: str, *, answer: Any) -> float:
    """Return 1 if the response equals the field `answer`, apart from white space around it; else 0. Raise UserError if
    the answer is empty."""
    if not str(answer).strip():
        raise UserError('the field "answer" is empty, so an empty response would be right; write the right response')
    return float(response.strip() == str(answer).strip())


def math(prompt: str, response: str, *, answer: Any) -> float:
    r"""Return 1 if the expression that the response gives is mathematically equal to the field `answer`; else 0.

    `0.5` equals `\frac{1}{2}`, and `50%` equals both `50` and `0.5`. Numbers may differ by 1e-6, or by a relative
    1e-6 if both are below 1e-6. The expression is the last one in `\boxed{...}` or after words such as "the final
    answer is", or else the last one. The library math-verify compares the two expressions. A comparison that takes too
    long gives 0. The time limit uses a signal, so the reward works only in the main thread. Raise UserError in
    another thread, without the library, or if the answer is not an expression.
    """
    text = str(answer).strip()
    if not text:
        raise UserError('the field "answer" is empty; write an expression such as 42')
    _, verify = _math_verify()
    if threading.current_thread() is not threading.main_thread():
        raise UserError("the reward math works only in the main thread, because its time limit uses a signal; start "
                        "the training in the main thread")
    gold = _expression(text)
    if not gold:
        raise UserError(f'the field "answer" is {SHORT.repr(text)}, which is not an expression; write one such as 42')
    found = _said(response)
    return float(verify(list(gold), found, timeout_seconds=SECONDS) and not _both_tiny_and_different(gold[0], found[0]))


def _said(response: str) -> list[Any]:
    """Return what math-verify reads in a response: an expression and its text; [] if there is none."""
    parse, _ = _math_verify()
    return parse(_written_out(response[-LONGEST:]), parsing_timeout=SECONDS) if response.strip() else []


def _written_out(text: str) -> str:
    """Return the text with 3e8 written as 300000000, because math-verify would read only the 3. In LaTeX, `e` is a
    number."""
    return text if MARKED.search(text) else EXPONENT.sub(lambda found: format(Decimal(found[0]), "f"), text)


def _both_tiny_and_different(a: Any, b: Any) -> bool:
    """Return whether two expressions are different numbers so close to 0 that math-verify takes them for equal."""
    x, y = (_number(each) for each in (a, b))
    if x is None or y is None or max(abs(x), abs(y)) > TINY:
        return False
    return abs(x - y) > TINY * max(abs(x), abs(y))


def _number(expression: Any) -> complex | None:
    """Return the value of an expression; None if it is not a number, or if its value takes too long to compute."""
    from math_verify.errors import TimeoutException
    from math_verify.utils import timeout
    try:
        return timeout(SECONDS)(lambda: complex(expression.evalf(15)))() if expression.is_number else None
    except (Exception, TimeoutException):                                 # the latter is a BaseException
        return None


def _expression_in(response: str) -> str | None:
    """Return the expression that `math` reads in a response, as text; None if there is none. Equal numbers, such as
    1/2 and 0.5, give the same text."""
    found = _said(response)
    value = _number(found[0]) if found else None
    if not found or value is None:
        return str(found[0]) if found else None
    return f"{value:.6g}" if abs(value) < TINY else f"{value:.6f}"        # as math-verify rounds


def json(prompt: str, response: str, *, schema: Any = None) -> float:
    """Return 1 if the whole response is JSON; else 0. If the row has a `schema`, the JSON must be valid against it.

    Raise UserError for a wrong schema, or without the library jsonschema.
    """
    valid = None if schema is None else _validator(dumps(schema))
    try:
        value = loads(response, parse_constant=_refuse)
        return float(valid is None or valid(value))
    except (ValueError, ArithmeticError, RecursionError):
        return 0.0


def regex(prompt: str, response: str, *, pattern: str) -> float:
    """Return 1 if the regular expression in the field `pattern` matches the whole response, apart from white space
    around it; else 0.

    A pattern with nested repetitions, such as `(a+)+b`, can take very long. Raise UserError for a wrong pattern.
    """
    if not isinstance(pattern, str):
        raise UserError(f'the field "pattern" is {SHORT.repr(pattern)}; write a regular expression as a text')
    return float(_compiled(pattern).fullmatch(response.strip()) is not None)


def length(prompt: str, response: str, *, max_words: int) -> float:
    """Return 1 for up to `max_words` words. With more words, the reward falls linearly and is 0 at twice this number.

    Raise UserError unless the field `max_words` is a whole number of at least 1.
    """
    if not isinstance(max_words, int) or isinstance(max_words, bool) or max_words < 1:
        raise UserError(f'the field "max_words" is {SHORT.repr(max_words)}; write a whole number of at least 1')
    return min(1.0, max(0.0, 2 - len(response.split()) / max_words))


@lru_cache(1)
def _math_verify() -> tuple[Any, Any]:
    """Import math-verify and return its functions `parse` and `verify`. Raise UserError if it is not installed."""
    try:
        from math_verify import parse, verify
    except ImportError:
        raise UserError("the reward math needs math-verify; type: pip install 'spinup-rl[tasks]'") from None
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)           # it reports every time limit
    return parse, verify


@lru_cache(100_000)
def _expression(answer: str) -> tuple[Any, ...]:
    """Parse an answer into expressions; () if it contains none."""
    plain = _written_out(answer) if EXPONENT.fullmatch(answer) else answer
    return tuple(_math_verify()[0](plain if MARKED.search(plain) else f"${plain}$", parsing_timeout=SECONDS))


@lru_cache(10_000)
def _validator(schema: str) -> Any:
    """Return the function that checks a value against a schema. Raise UserError for a wrong schema."""
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from jsonschema_specifications import REGISTRY
        from referencing import Registry, Resource
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012
    except ImportError:
        raise UserError("the reward json needs jsonschema; type: pip install 'spinup-rl[tasks]'") from None
    rules = loads(schema)
    try:
        cls = validator_for(rules)
        cls.check_schema(rules)
    except (SchemaError, AttributeError, TypeError, RecursionError) as error:
        reason = getattr(error, "message", str(error))
        raise UserError(f'the field "schema" is not a JSON schema ({reason}); write one such as '
                        '{"type": "object"}') from None
    validator = cls(rules, registry=Registry())                           # it downloads nothing

    def valid(value: Any) -> bool:
        try:
            return validator.is_valid(value)
        except Unresolvable as error:
            raise _missing(error.ref) from None
    resource = Resource.from_contents(rules, default_specification=DRAFT202012) if isinstance(rules, dict) else None
    for reference in _references(rules):
        try:
            REGISTRY.with_resource(resource.id() or "", resource).resolver(resource.id() or "").lookup(reference)
        except Unresolvable:
            raise _missing(reference) from None
    try:
        valid({})
    except RecursionError:
        raise UserError('the field "schema" refers to itself without end; correct its "$ref"') from None
    return valid


def _missing(reference: str) -> UserError:
    """Return the error for a reference of a schema to something that it does not contain."""
    return UserError(f'the field "schema" refers to {reference}, which it does not contain; write the whole schema '
                     "into the row")


def _references(schema: Any) -> Iterator[str]:
    """Yield the references in a schema, without those in parts that have a name of their own, `$id`."""
    parts = schema if isinstance(schema, list) else []
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        parts = [part for name, part in schema.items() if name not in ("enum", "const", "default", "examples")]  # data
    for part in parts:
        if not (isinstance(part, dict) and "$id" in part):
            yield from _references(part)


@lru_cache(10_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression. Raise UserError if it is not one."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):   # of [[ and the like
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f'the field "pattern" is {SHORT.repr(pattern)}, which is not a regular expression ({error}); '
                        "correct it") from None


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which are not JSON. Raise ValueError."""
    raise ValueError(constant)
