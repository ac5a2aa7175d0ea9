"""Parts of a file of checks: functions that a student writes, references for them, and known mistakes.

    exercise = Exercise(minutes=(10, 20), difficulty=2, hints=["...", "...", "...", "..."])
    returns = exercise.function("discounted_returns", [case(rew=tensor([1.0, 0.0, 2.0]), gamma=0.5), ...])

    @returns.reference                     # another method than the solution's, brute force if possible
    def _(rew, gamma): ...

    @returns.mistake("You sum from the front: ...")
    def _(rew, gamma): ...                 # code with this mistake

A student's function runs on every case. If its results differ from the reference, they are compared with every mistake.
If a mistake gives the same results, the check shows its message. Otherwise the message describes the difference.
"""
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

from torch import Tensor

from spinup.exercises.build import STILL
from spinup.exercises.explain import explain
from spinup.exercises.outcome import Case, Outcome, equal, failure, outcome

Check = Callable[[SimpleNamespace], None]
CLOSE = 1e-4            # relative and absolute tolerance of numbers


class Wrong(Exception):
    """Raised by a check. The message describes the mistake.

    Attributes:
        function: the name of the student's function with the mistake. line: its line in the student's file, 0 if
            unknown.
    """

    def __init__(self, message: str, function: str = "", line: int = 0):
        super().__init__(message)
        self.function, self.line = function, line


class Unfinished(Exception):
    """Raised where a check reads a function that is still to do."""


class Finished(SimpleNamespace):
    """A student's file without the functions that are still to do."""

    def __getattr__(self, name: str) -> Any:
        raise Unfinished(name)


def case(**inputs: Any) -> Case:
    """Inputs by name. The check also compares the gradients of tensors that require them."""
    return inputs


class StudentFunction:
    """A function of the student's file. Each call gets copies of its arguments.

    arguments: their names. line: the line of the file at which the last call returned or failed; 0 if unknown.
    """

    def __init__(self, name: str, arguments: list[str], function: Callable[..., Any], file: str):
        self.name, self.arguments, self.function, self.file, self.line = name, arguments, function, file, 0

    def outcome(self, inputs: Case) -> Outcome:
        """Call the function with copies of these inputs."""
        found = outcome(self.function, inputs, self.file)
        self.line = found.line
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the value of the function, without a gradient. Wrong if it raises an error."""
        given = {**dict(zip(self.arguments, args, strict=False)), **named}
        found = self.outcome({n: x.detach() if isinstance(x, Tensor) else x for n, x in given.items()})
        if found.error:
            raise Wrong(f"{self.name} raised {found.error.kind}: {found.error.message}", self.name, found.line)
        return found.value


def outcome_of(function: Callable[..., Any], inputs: Case) -> Outcome:
    """Call a student's function, a reference or a mistake with copies of these inputs."""
    return function.outcome(inputs) if isinstance(function, StudentFunction) else outcome(function, inputs)


@dataclass
class Function:
    """Description of a function that the student writes: its cases, reference and mistakes.

    Attributes:
        name: its name in the student's file.
        cases: inputs; the first case is small enough to solve by hand.
        right: the reference.
        mistakes: messages, each with code that has the mistake.
        extremes: messages, each with a case that only this mistake gets wrong; used when all other cases are correct.
        close: the relative and absolute tolerance of a number.
        view: converts a returned value that is not a tensor or number for the comparison; a network comes as a `Net`.
    """

    name: str
    cases: list[Case]
    close: float = CLOSE
    view: Callable[[Any], Any] | None = None
    right: Callable[..., Any] | None = None
    mistakes: list[tuple[str, Callable[..., Any]]] = field(default_factory=list)
    extremes: list[tuple[str, Case]] = field(default_factory=list)

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the correct function, written in another way than the solution."""
        self.right = function
        return function

    def mistake(self, message: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: a known wrong solution and the message for it."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.mistakes.append((message, function))
            return function
        return register

    def extreme(self, message: str, **inputs: Any) -> None:
        """Add an extreme case and the message for a function that is correct in all other cases."""
        self.extremes.append((message, inputs))

    def compare(self, function: Callable[..., Any]) -> None:
        """Raise Wrong if the function differs from the reference. The message is that of the first mistake with the
        same values and gradients as the function. If there is none, and some values are wrong, it is that of the first
        mistake with the same values: a missing detach often comes with another mistake."""
        expected, got = ([self.seen(outcome_of(f, inputs)) for inputs in self.cases] for f in (self.right, function))
        wrong = [g for e, g in zip(expected, got, strict=True) if not self.same(e, g)]
        if not wrong:
            self.compare_extremes(function)
            return
        for same in (self.same, self.same_value):
            if all(map(same, expected, got)):
                break
            for message, mistaken in self.mistakes:
                if all(same(self.seen(outcome_of(mistaken, c)), g) for c, g in zip(self.cases, got, strict=True)):
                    raise Wrong(message, self.name, wrong[0].line)
        message, at = explain(self.name, self.cases, expected, got, self.close)
        raise Wrong(message, self.name, got[at].line)

    def compare_extremes(self, function: Callable[..., Any]) -> None:
        """Raise Wrong if the function differs from the reference in an extreme case."""
        for message, inputs in self.extremes:
            expected, got = (self.seen(outcome_of(f, inputs)) for f in (self.right, function))
            if not self.same(expected, got):
                said, _ = explain(self.name, [inputs], [expected], [got], self.close)
                raise Wrong(f"{message} Here {said}", self.name, got.line)

    def seen(self, found: Outcome) -> Outcome:
        """Return an outcome with the value to compare."""
        if self.view is not None and found.value is not None:
            try:
                found.value = self.view(found.value)
            except Exception as error:
                found.error = failure(error)
        return found

    def same(self, one: Outcome, other: Outcome) -> bool:
        """Return whether two outcomes are equal: errors by kind, values and gradients within `close`."""
        return self.same_value(one, other) and equal(one.gradients, other.gradients, self.close) and (
            one.changed == other.changed)

    def same_value(self, one: Outcome, other: Outcome) -> bool:
        """Return whether two outcomes have the same error, or the same value within `close`."""
        if one.error or other.error:
            return bool(one.error and other.error) and one.error.kind == other.error.kind
        return equal(one.value, other.value, self.close)


@dataclass
class Exercise:
    """An exercise without its text.

    Attributes:
        minutes: the shortest and longest time it takes. difficulty: 1 to 5.
        hints: four hints: the idea, where to look, the steps in words, all but the last step.
        kind: "implement", or "bug hunt" if the student gets code that runs but is wrong.
        functions, properties, probes, learnings: the checks. A property gets the student's functions by name and raises
            Wrong. A probe trains with them on the smallest environment that shows the mistake. Learning trains for
            minutes; passing the exercise does not depend on it.
    """

    minutes: tuple[int, int]
    difficulty: int
    hints: list[str]
    kind: str = "implement"
    functions: list[Function] = field(default_factory=list)
    properties: list[Check] = field(default_factory=list)
    probes: list[Check] = field(default_factory=list)
    learnings: list[Check] = field(default_factory=list)

    def function(self, name: str, cases: list[Case], close: float = CLOSE,
                 view: Callable[[Any], Any] | None = None) -> Function:
        """Add a function that the student writes, with the cases that compare it."""
        self.functions.append(Function(name, cases, close, view))
        return self.functions[-1]

    def property(self, check: Check) -> Check:
        """Decorator: a check that cases cannot express. It raises Wrong."""
        self.properties.append(check)
        return check

    def probe(self, check: Check) -> Check:
        """Decorator: a tiny training run of some seconds. It raises Wrong."""
        self.probes.append(check)
        return check

    def learning(self, check: Check) -> Check:
        """Decorator: a real training run of some minutes. It raises Wrong."""
        self.learnings.append(check)
        return check

    def check(self, student: SimpleNamespace, level: str, todo: Mapping[str, int] = MappingProxyType({})) -> None:
        """Check the functions at a level: "property", "probe" or "learning". Raise Wrong for the first mistake.

        todo: lines of unfinished functions by name. Only the functions before the first of them are checked. Each
            property is checked up to the place where it reads another function.
        """
        if level == "property":
            done: dict[str, None] = {}                                    # each name once, also with two sets of cases
            for function in self.functions:
                if function.name in todo:
                    break
                function.compare(getattr(student, function.name))
                done[function.name] = None
            if todo:
                left = {*todo, *(function.name for function in self.functions)} - done.keys()
                finished = Finished(**{n: x for n, x in vars(student).items() if n not in left})
                for check in self.properties:
                    with suppress(Unfinished):
                        check(finished)
                name, line = next(iter(todo.items()))
                raise Wrong(STILL + correct([*done]), name, line)
        for check in {"property": self.properties, "probe": self.probes, "learning": self.learnings}[level]:
            check(student)


def correct(names: list[str]) -> str:
    """Say that these functions are correct, as the end of a sentence; "" if there are none."""
    if len(names) < 2:
        return f"; {names[0]} is correct" if names else ""
    return f"; {', '.join(names[:-1])} and {names[-1]} are correct"
