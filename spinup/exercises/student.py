"""Checks the functions of a student's file, which run in another process."""
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from spinup.exercises.checks import Wrong
from spinup.exercises.outcome import Case, Failure, Outcome
from spinup.exercises.process import Late, Process, Stopped
from spinup.exercises.source import Entry, lines, signatures, todo
from spinup.exercises.wire import Malformed

TAMPERING = ("its process sent something other than the results of its functions. That is tampering with the check, "
             "and it has no effect: the verdict is made in another process, from the numbers that the functions return")


class Function:
    """A function of the student, which runs in another process."""

    def __init__(self, name: str, arguments: list[str], ask: Callable[[dict[str, Any]], Any]):
        self.name, self.arguments, self.ask = name, arguments, ask
        self.line = 0                                                     # the last line of the last call

    def run(self, inputs: Case) -> Outcome:
        """Run the function on these inputs. Stopped if its process ended."""
        found = read(self.ask({"function": self.name, "inputs": inputs}), inputs)
        self.line = found.line
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the value of the function, without a gradient. Stopped if it fails."""
        given = {**dict(zip(self.arguments, args, strict=False)), **named}
        found = self.run({n: x.detach() if isinstance(x, Tensor) else x for n, x in given.items()})
        if found.error:
            raise Stopped(f"{self.name} raised {found.error.kind}: {found.error.message}", found.line)
        return found.value


def functions(entry: Entry, ask: Callable[[dict[str, Any]], Any]) -> SimpleNamespace:
    """Return the functions of an exercise by name; `ask` runs them."""
    return SimpleNamespace(**{n: Function(n, arguments, ask) for n, arguments in signatures(entry.text).items()})


def read(found: Any, inputs: Case) -> Outcome:
    """Read the outcome in an answer. Stopped if the answer reports it; Malformed if it is not an answer to these
    inputs."""
    refuse(found)
    leaves = [x for x in inputs.values() if isinstance(x, Tensor) and x.requires_grad]
    try:
        error = Failure(*map(str, found["error"])) if found["error"] else None
        outcome = Outcome(found["value"], error, tuple(found["gradients"]), dict(found["inputs"]), (), found["line"])
        fits = [isinstance(g, Tensor) and g.shape == x.shape for g, x in zip(outcome.gradients, leaves, strict=True)]
    except (TypeError, KeyError, ValueError) as wrong:
        raise Malformed(str(wrong)) from None
    if not all(fits) or type(outcome.line) is not int:
        raise Malformed("the gradients belong to other inputs")
    return outcome


def refuse(found: Any) -> None:
    """Raise Stopped if an answer reports that the file cannot be run, or stopped; Late if it reports that time is up.
    """
    if not isinstance(found, dict):
        return
    line = found.get("line")
    line = line if type(line) is int else 0
    if "stopped" in found:
        raise Stopped(str(found["stopped"]), line)
    if "late" in found:
        raise Late(str(found["late"]), line)


def judge(entry: Entry, process: Process, text: str, level: str) -> float:
    """Check the functions of a process at a level; return the time in seconds. Stopped with a description of the fault.

    text: the Python code of the file.
    """
    exercise = entry.checks
    try:
        refuse(process.next())
        start = time.perf_counter()
        student = functions(entry, process.ask)
        if level == "property":
            exercise.check(student, level, todo(text))
        else:
            refuse(process.next())
        return time.perf_counter() - start
    except Malformed:
        raise Stopped(TAMPERING) from None
    except Wrong as error:
        line = error.line or getattr(getattr(student, error.function, None), "line", 0)
        raise Stopped(str(error), line or lines(text).get(error.function, 0)) from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        raise Stopped(f"what it returns cannot be used ({said})") from error
