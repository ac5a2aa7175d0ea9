"""The form of a task: prompts, a verifier, and for tasks made here a teacher."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from llm.policy.tokenizer import Tokenizer
from llm.tasks.check import problems_of
from llm.tasks.episodes import Episode, played

HELD_OUT = 10           # one prompt in this many is never trained on


@dataclass(frozen=True)
class Problem:
    """One prompt, and what its verifier needs.

    Attributes:
        prompt: the text that the policy reads.
        answer: a right answer, where there is one.
        data: anything else that the verifier needs.
    """

    prompt: str
    answer: str = ""
    data: Any = None


class Task:
    """A task: prompts, a verifier and, for imitation, a teacher. An environment in the form of text.

    A class of one's own is derived from this one, or has at least `name`, `alphabet`, `max_tokens`, `problems`,
    `demonstration` and `reward`: `make_task` then adds the defaults of the rest.

    Attributes:
        name: as it is typed after --task.
        alphabet: the characters of a task for small character models, each of them one token; None where prompts are
            ordinary text, which needs a model with a tokenizer of its own.
        max_tokens: the longest response, the end token included.
        measure: the column of `progress.csv` that tells how good a policy is.
        tool: the text that a tool adds to a response that reads `text` so far, None (nearly always) where it was not
            called; or None instead of a function, where the task has no tool.
        gold: gold(problem, response) is the true reward, where `reward` was learned; None where it is not known.
        open: open(problem) begins an `Episode`, for a task of several turns; None where a response is one turn. Then
            rewards come from the episodes, and `reward` need not be written.
        end_of_turn: the characters that end a turn of the policy's, where the task has `open`.
        sums_turns: whether the rewards of an episode's turns are that of the response; False where another judge has
            replaced them.
        pairs: pairs(held_out) gives (where it stands, problem, preferred response, other response) of each comparison;
            None where the task has none.
        judge: the `RewardModel` that judges responses; None where none does.
        train, held_out: all problems, where the task has a list of them.
        left_out: a sentence for each reason why lines of a file are not used.
    """

    name: str
    alphabet: str | None
    max_tokens: int
    measure: str = "held_out_accuracy"
    tool: Callable[[str], str | None] | None = None
    gold: Callable[[Problem, str], float] | None = None
    open: Callable[[Problem], Episode] | None = None
    end_of_turn: str = "\n"
    sums_turns: bool = True
    pairs: Callable[[bool], list[tuple[str, Problem, str, str]]] | None = None
    judge: Any = None
    train: Sequence[Problem] = ()
    held_out: Sequence[Problem] = ()
    left_out: Sequence[str] = ()

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        """`n` problems, of the held-out ones or of the others; the same prompt may come twice, but never in both."""
        raise NotImplementedError

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """The response of a teacher, to be imitated; UserError where the task has no teacher."""
        raise NotImplementedError

    def reward(self, problem: Problem, response: str) -> float:
        """The reward of a response; 1 is solved. Whatever the policy wrote, this returns a number, and soon.

        Where the task has `open`, the response is played again in a new episode. Disagreement, a UserError, where that
        goes on in another way.
        """
        if self.open is None:
            raise NotImplementedError
        return played(self, response, problem)[1]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """The reward of each response to the problem beside it."""
        return [float(self.reward(p, r)) for p, r in zip(problems, responses, strict=True)]


FORM = sorted({*Task.__annotations__, *(name for name in vars(Task) if not name.startswith("_"))})
REQUIRED = ("name", "alphabet", "max_tokens", "problems", "demonstration", "reward")


class Wrapped(Task):
    """Another task, with everything that a `Task` has; a subclass changes some of it. Defaults where it lacks some."""

    def __init__(self, task: Any):
        self.task = task
        own = {name for cls in type(self).__mro__ if issubclass(cls, Wrapped) for name in vars(cls)}
        for name in FORM:
            if name not in own and hasattr(task, name):
                setattr(self, name, getattr(task, name))


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the held-out ones: decided by its characters alone, so no list can forget it."""
    return crc32(prompt.encode()) % HELD_OUT == 0


def draw(n: int, held_out: bool, make: Callable[[], Problem]) -> list[Problem]:
    """`n` problems from `make`, those of the other side thrown away."""
    found: list[Problem] = []
    while len(found) < n:
        problem = make()
        if is_held_out(problem.prompt) == held_out:
            found.append(problem)
    return found


def longest_prompt(task: Task, tokenizer: Tokenizer) -> int:
    """Tokens of the longest prompt: of all where a task has a list of them, else of eight that are drawn."""
    listed = [*task.train, *task.held_out]
    return max(len(tokenizer.prompt(p.prompt)) for p in listed or problems_of(task, 8, np.random.default_rng(0)))


def speech(task: Task | None) -> dict[str, Any]:
    """The settings of a `LanguagePolicy` that depend on the task that it was trained on."""
    if task is None:
        return {}
    return {"tool": task.tool, "end_of_turn": task.end_of_turn if task.open else ""}
