"""A reward for responses of the required form, beside the reward for right answers, as in DeepSeek-R1 (2025,
arXiv:2501.12948, section 2.2.2)."""
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llm.tasks.task import Task
from llm.tasks.wrappers.wrapper import Wrapper
from spinup.errors import UserError
from spinup.runs.config import Unit


@dataclass
class Bonus(Wrapper):
    """A reward for something besides right answers. Derive from it, and write `bonus`."""

    coef: Unit = 0.1                    # weight of the bonus beside the reward, with mode=add
    mode: Literal["add", "times"] = "add"       # times: reward * bonus, if it is above 0

    def bonus(self, problem: Any, response: str) -> float:
        """Return the bonus of a response, from 0 to 1."""
        raise NotImplementedError

    def shape(self, problem: Any, responses: Sequence[str], rewards: Sequence[float],
              right: Sequence[bool]) -> tuple[list[float], dict[str, list[float]]]:
        earned = [self.bonus(problem, x) for x in responses]
        shaped = [x + self.coef * more if self.mode == "add" else x * more if x > 0 else x
                  for x, more in zip(rewards, earned, strict=True)]
        return shaped, {type(self).name: earned}

    def labels(self, rewards: Sequence[float], parts: dict[str, list[float]], right: Sequence[bool]) -> Sequence[bool]:
        """Return, with mode=times, whether a response is right and has the whole bonus."""
        whole = [x >= 1 or self.mode == "add" for x in parts[type(self).name]]
        return [a and b for a, b in zip(right, whole, strict=True)]


@dataclass
class Format(Bonus):
    """A bonus of 1 for a response of the required form, else 0.

    pattern: a regular expression that must match the whole response; empty: the `form` of the task. In --task, it can
    contain neither a comma nor a colon. Raise UserError without a form, or for a pattern that is not valid.
    """

    pattern: str = ""                   # regular expression of the form; empty: that of the task
    name = "format"

    def check(self, task: Task) -> None:
        super().check(task)
        self.pattern = self.pattern or task.form
        if not self.pattern:
            raise UserError(f"the task {task.name} has no form of its own; write format,pattern=REGULAR_EXPRESSION:T")
        try:
            self.matches = re.compile(self.pattern, re.DOTALL).fullmatch
        except re.error as error:
            raise UserError(f"the pattern {self.pattern!r} of format is not a regular expression ({error}); correct "
                            "it") from None

    def bonus(self, problem: Any, response: str) -> float:
        return float(self.matches(response) is not None)
