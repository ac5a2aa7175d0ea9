"""Reward functions: the fields that they take, and weighted sums of rewards."""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.faults import SHORT, call, finite
from llm.tasks import rewards
from llm.tasks.parts import Score, scored
from spinup.errors import UserError

Reward = Callable[..., float | dict[str, float]]


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
