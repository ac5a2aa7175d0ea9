"""The verifier that a user's reward describes: functions, texts and weights."""
import math
import re
from inspect import Parameter, isfunction, signature
from numbers import Real
from pathlib import Path
from typing import Any

from llm.faults import SHORT
from llm.tasks import rewards
from llm.tasks.source import import_file, named_in
from llm.tasks.verifier import Reward, Term, Verifier
from spinup.errors import UserError, nearest

WEIGHTED = re.compile(r"(?:(?P<weight>[-+]?[\d.]+(?:e[-+]?\d+)?)\s*\*\s*)?(?P<what>.*)", re.IGNORECASE | re.DOTALL)
LARGEST = 1_000_000     # largest weight, and smallest negative one
FORM = "write it as a function of (prompt, response), or (prompt, response, *, answer) with the fields that it needs"


def ready_made() -> dict[str, Reward]:
    """Return the ready-made rewards by name: the public functions of `llm.tasks.rewards`."""
    return {name: f for name, f in vars(rewards).items()
            if isfunction(f) and f.__module__ == rewards.__name__ and not name.startswith("_")}


def as_reward(reward: Any) -> Verifier | None:
    """Return the verifier that a user's `reward` describes; None for None.

    reward: a function; a text such as "file.py:function" or "exact,0.2*length"; or a list of functions, such texts and
    (weight, function) pairs. Raise UserError for anything else.
    """
    if reward is None or isinstance(reward, Verifier):
        return reward
    listed = isinstance(reward, list | tuple)
    items = list(reward) if listed else reward.split(",") if isinstance(reward, str) else [reward]
    if not items:
        raise UserError("the list of rewards is empty; write one reward or more, such as ['exact', (0.2, 'length')]")
    return Verifier([as_term(item, len(items) > 1) for item in items])


def as_term(item: Any, several: bool) -> Term:
    """Return the term for a function, a text such as "0.2*length", or a (weight, function) pair.

    several: True if the term is one of a sum. Raise UserError for anything else.
    """
    weight = 1.0
    if isinstance(item, list | tuple) and len(item) == 2:
        weight, item = item
        if not isinstance(weight, Real) or not abs(weight) <= LARGEST:
            raise UserError(f"the weight of a reward must be a number of at most {LARGEST:,}, not "
                            f"{SHORT.repr(weight)}; write a pair such as (0.2, 'length')")
    if isinstance(item, str):
        given = item.strip()
        found = WEIGHTED.fullmatch(given)
        try:
            weight *= float(found["weight"] or 1)
        except ValueError:
            weight = math.inf
        if not abs(weight) <= LARGEST:
            raise UserError(f"--reward {given}: {found['weight']} is not a weight; write a number of at most "
                            f"{LARGEST:,}, as in 0.2*length")
        name, function = found["what"].rpartition(":")[2], load_reward(found["what"])
        return described_by(function, f"--reward {given}", name, weight)
    if not callable(item):
        raise UserError(f"the reward must be a function of prompt and response, not {SHORT.repr(item)}")
    return described_by(item, "the reward function", getattr(item, "__name__", type(item).__name__).strip("<>"), weight)


def described_by(function: Reward, given: str, name: str, weight: float) -> Term:
    """Return the term of a function. The signature of the function decides which fields it gets.

    Raise UserError, which starts with `given`, unless its first two parameters can be the prompt and the response.
    """
    try:
        parameters = list(signature(function).parameters.values())
    except ValueError:                                                    # some built-in functions have no signature
        return Term(name, weight, function)
    places = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    kinds = {p.kind for p in parameters}
    more = [p for p in (*places[2:], *(p for p in parameters if p.kind == Parameter.KEYWORD_ONLY))
            if p.kind != Parameter.POSITIONAL_ONLY or p.default is p.empty]
    if (len(places) < 2 and Parameter.VAR_POSITIONAL not in kinds) or any(
            p.kind == Parameter.POSITIONAL_ONLY for p in more):
        raise UserError(f"{given} takes {signature(function)}; {FORM}")
    needed, optional = ([p.name for p in more if (p.default is p.empty) == required] for required in (True, False))
    first = [p.name for p in places[:2] if p.kind != Parameter.POSITIONAL_ONLY]
    return Term(name, weight, function, needed, optional, first if Parameter.VAR_KEYWORD in kinds else None)


def load_reward(text: str) -> Reward:
    """Return the ready-made reward of this name, or the function at "file.py:function".

    Raise UserError if there is no such reward.
    """
    if text in ready_made():
        return ready_made()[text]
    file, _, name = text.rpartition(":")
    if Path(file).suffix != ".py" or not name.isidentifier():
        if Path(text).is_dir() and text:
            raise UserError(f"--reward {text} is a reward model, which cannot have a weight or be one of several "
                            "rewards; give it alone, or call llm.load in a reward function of your own")
        if "/" in text and not Path(text).exists() and not file:
            raise UserError(f"--reward {text} does not exist; train a reward model there first, or write "
                            "file.py:function")
        raise UserError(f"--reward must be file.py:function, or one of {', '.join(ready_made())}, not "
                        f"{text!r}.{nearest(text, ready_made())}")
    given = f"--reward {text}"
    return named_in(import_file(file, given), file, name, given, "name one that takes a prompt and a response")
