"""Rewards of the user: functions, texts and weights, and the verifier that they describe."""
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, isfunction, signature
from numbers import Real
from pathlib import Path
from typing import Any

from llm.faults import SHORT, call, finite
from llm.tasks import rewards
from llm.tasks.parts import Score, scored
from llm.tasks.source import import_file, named_in
from spinup.errors import UserError, nearest

Reward = Callable[..., float | dict[str, float]]
WEIGHTED = re.compile(r"(?:(?P<weight>[-+]?[\d.]+(?:e[-+]?\d+)?)\s*\*\s*)?(?P<what>.*)", re.IGNORECASE | re.DOTALL)
LARGEST = 1_000_000     # largest weight, and smallest negative one
FORM = "write it as a function of (prompt, response), or (prompt, response, *, answer) with the fields that it needs"


def row_of(problem: Any) -> dict[str, Any]:
    """Return the fields of a problem by name: its row, `answer` and, for a conversation, `messages`."""
    data, messages = getattr(problem, "data", None), getattr(problem, "messages", None)
    answer = getattr(problem, "answer", "")
    row = data if isinstance(data, dict) else {}
    row = {name: x for name, x in row.items() if name != "answer" or x is not None}          # null: no answer
    return ({"answer": answer} if answer else {}) | row | ({"messages": messages} if messages else {})


@dataclass
class Term:
    """A reward function, its weight, and the fields that it takes.

    Attributes:
        name: name of the function, and of its part of a sum.
        needed: names of the fields that the function requires.
        optional: names of the fields that have a default.
        taken: names of the first two parameters of a function with `**row`; None for a function without it.
    """

    name: str
    weight: float
    function: Reward
    needed: Sequence[str] = ()
    optional: Sequence[str] = ()
    taken: Sequence[str] | None = None

    @property
    def ready(self) -> bool:
        """Return whether the function is a ready-made reward."""
        return getattr(self.function, "__module__", "") == rewards.__name__

    def fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return those fields of a row that the function takes."""
        if self.taken is not None:
            return {name: x for name, x in row.items() if name not in self.taken}
        return {name: row[name] for name in (*self.needed, *self.optional) if name in row}


class Verifier:
    """Reward of the user: a function, or a weighted sum of functions, where each function is a part of the reward.

    The number of a part is the result of its function, without the weight. If a function returns parts, these parts
    replace it. `verifier(problem, response)` returns the reward.
    """

    def __init__(self, terms: Sequence[Term]):
        self.terms = terms
        self.alone = len(terms) == 1 and terms[0].weight == 1
        names = [term.name for term in terms]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"two rewards have the name {name}; rename one of the functions")

    @property
    def needs_fields(self) -> bool:
        """Return whether `check` can fail."""
        return any(term.needed or term.ready for term in self.terms)

    def __call__(self, problem: Any, response: str) -> float:
        """Return the reward of a response. Raise UserError, with prompt and response, if a function fails."""
        row, total, parts = row_of(problem), 0.0, {}
        for term in self.terms:
            self.check_needed(term, row, f"the prompt {SHORT.repr(problem.prompt)}")
            one = self.score(term, problem.prompt, response, row)
            total += term.weight * one
            for name, x in (one.parts if isinstance(one, Score) else {term.name: one}).items():
                if name in parts:
                    raise UserError(f"two rewards have a part named {name}; rename one of them")
                parts[name] = x
        # Rounded, because 0.7 + 0.2 + 0.1 is a little less than 1, and a reward of 1 means solved.
        return one if self.alone else Score(round(finite(total, "the sum of the rewards", ""), 9), parts)

    def score(self, term: Term, prompt: str, response: str, row: Mapping[str, Any]) -> float:
        """Return the result of one function. Raise UserError if it fails or returns no finite number."""
        name = "the reward function" if self.alone else f"the reward {term.name}"
        here = f"for the prompt {SHORT.repr(prompt)} and the response {SHORT.repr(response)}"
        if term.ready:
            return term.function(prompt, response, **term.fields(row))
        return scored(call(name, here, term.function, prompt, response, **term.fields(row)), name, here)

    def answer_of(self, response: str, otherwise: str | None) -> str | None:
        """Return the expression that `math` reads in a response; without `math`, the task's own answer, `otherwise`."""
        if any(term.function is rewards.math for term in self.terms):
            return rewards._expression_in(response)
        return otherwise

    def check(self, problem: Any, where: str) -> None:
        """Raise UserError, before training, if a problem lacks a field or a ready-made reward cannot use its fields.

        where: the problem's line, for the error message.
        """
        row = row_of(problem)
        for term in self.terms:
            self.check_needed(term, row, where)
            if term.ready:
                try:
                    self.score(term, problem.prompt, "", row)
                except UserError as error:
                    raise UserError(f"{where}: {error}") from None

    def check_needed(self, term: Term, row: Mapping[str, Any], where: str) -> None:
        """Raise UserError if a row lacks a field that the function requires."""
        for name in term.needed:
            if name not in row:
                default = "" if term.ready else ", or give the parameter a default"
                raise UserError(f'{where} has no field "{name}", which the reward {term.name} requires; add the field'
                                f"{default}")


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
    return Verifier([as_term(item) for item in items])


def as_term(item: Any) -> Term:
    """Return the term for a function, a text such as "0.2*length", or a (weight, function) pair.

    Raise UserError for anything else.
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
