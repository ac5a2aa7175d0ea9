"""Interface of a task: prompts, a verifier and, for built-in tasks, a teacher."""
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from llm.faults import SHORT
from llm.policy.tokenizer import Messages, Tokenizer
from llm.tasks.check import problems_of
from llm.tasks.episodes import Episode, played
from llm.tasks.parts import scored

HELD_OUT = 10           # one of this many prompts is held out: never trained on
LARGEST = 2**31         # the numbers of problems are below twice this


@dataclass(frozen=True)
class Problem:
    """One prompt, with the data that its verifier needs.

    Attributes:
        prompt: the text that the policy reads; of a conversation, the last user turn.
        answer: a right answer, if there is one.
        data: anything else that the verifier needs.
        messages: the conversation that the policy reads instead of the prompt; None if there is none.
        turns: a whole conversation, if the teacher wrote all its assistant turns; None for one response.
    """

    prompt: str
    answer: str = ""
    data: Any = None
    messages: Messages | None = None
    turns: Messages | None = None


class Task:
    """A task: prompts, a verifier and, for imitation, a teacher. It is a text environment.

    Derive your own class from this one. Or write a class with at least `name`, `alphabet`, `max_tokens`, `problems`,
    `demonstration` and `reward`; `make_task` then adds the other defaults.

    Attributes:
        name: the name that you type after --task.
        alphabet: all characters of the task, for small character models with one token per character. None means
            ordinary text, for a model with its own tokenizer.
        max_tokens: longest response, with the end token.
        measure: the column of `progress.csv` that measures the policy.
        tool: tool(text) returns the text that the tool appends to the response so far; None (the usual case) if the
            response does not call it. The attribute is None if the task has no tool.
        gold: gold(problem, response) returns the true reward if `reward` is learned; None if it is unknown.
        open: open(problem) starts an `Episode`, for a task with several turns. Rewards then come from the episodes,
            and you need not write `reward`. None if a response is one turn.
        end_of_turn: the characters that end a turn of the policy, if the task has `open`; "" if each character of the
            alphabet is a turn.
        sums_turns: True if the reward of a response is the sum over its turns; False if another reward replaces it.
        form: a regular expression that a response of the required form matches; "" if any text will do.
        fewest: least number of responses to a prompt that `rewards` can compare.
        pairs: pairs(held_out) returns (place, problem, chosen response, rejected response) for each preference pair;
            None if the task has no pairs.
        show: show(problem, response) returns a drawing of a response for `spinup watch`; None if there is none.
        judge: the `RewardModel` that computes the rewards; None if there is none.
        uniform: True if the initial policy is a new model whose tokens all have nearly the same probability. There is
            no SFT run before the method. It makes exploration hard.
        train, held_out: all problems, if the task has a list of them.
        mixed: the tasks of a mixture.
        left_out: one sentence for each reason why lines of a file are not used.
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
    form: str = ""
    fewest: int = 1
    pairs: Callable[[bool], list[tuple[str, Problem, str, str]]] | None = None
    show: Callable[[Problem, str], str] | None = None
    judge: Any = None
    uniform: bool = False
    train: Sequence[Problem] = ()
    held_out: Sequence[Problem] = ()
    left_out: Sequence[str] = ()
    mixed: Sequence[Any] = ()

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        """Return `n` problems, held-out or not. A prompt may occur twice, but never in both sets."""
        raise NotImplementedError

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a teacher's response to imitate. Raise UserError if the task has no teacher."""
        raise NotImplementedError

    def reward(self, problem: Problem, response: str) -> float:
        """Return the reward of a response; 1 means solved. It must return a number quickly, whatever the policy wrote.

        A dict of numbers is a reward with parts: their sum is the reward, and each part has a column in the log.
        If the task has `open`, the response is replayed in a new episode. Raise Disagreement, a UserError, if the
        output of that episode differs.
        """
        if self.open is None:
            raise NotImplementedError
        return played(self, response, problem)[1]

    def answer_of(self, problem: Problem, response: str) -> str | None:
        """Return the final answer in a response, so that answers can be compared; None if there is none."""
        return response.strip() or None

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """Return the reward of each response; problems[i] belongs to responses[i].

        The responses to one problem, a group, are adjacent, and they have the same problem object.
        """
        name = f"`reward` of the task {self.name}"
        return [scored(self.reward(p, r), name, f"for the response {SHORT.repr(str(r))}")
                for p, r in zip(problems, responses, strict=True)]


FORM = sorted({*Task.__annotations__, *(name for name in vars(Task) if not name.startswith("_"))})
REQUIRED = ("name", "alphabet", "max_tokens", "problems", "demonstration", "reward")


class Wrapped(Task):
    """A wrapper with the attributes of another task, or the defaults of `Task`. Subclasses change some of them."""

    def __init__(self, task: Any):
        self.task = task
        own = {name for cls in type(self).__mro__ if issubclass(cls, Wrapped) for name in vars(cls)}
        for name in FORM:
            if name not in own and hasattr(task, name):
                setattr(self, name, getattr(task, name))


class Sampled(str):
    """A response of the policy as text. `tokens` is the number of tokens that the policy wrote, end token included."""

    tokens: int

    def __new__(cls, text: str, tokens: int) -> "Sampled":
        """Create a response of this many tokens."""
        response = super().__new__(cls, text)
        response.tokens = tokens
        return response


def tokens_in(response: str) -> int:
    """Return the length of a response in tokens; of a text that was not sampled, in characters."""
    return getattr(response, "tokens", len(response))


def stateful(task: Any) -> dict[str, Any]:
    """Return the part of a run that holds the state of a task: {} if it has none."""
    return {"task": task} if hasattr(task, "state_dict") and task.state_dict() else {}


def input_of(problem: Any) -> str | Messages:
    """Return what the policy reads for a problem: its conversation, or else its prompt."""
    return getattr(problem, "messages", None) or problem.prompt


def as_text(problem: Any) -> str:
    """Return the prompt of a problem as text; of a conversation with several turns, all turns with their roles."""
    given = input_of(problem)
    if isinstance(given, str) or len(given) == 1:
        return problem.prompt
    return "\n".join(f"{turn['role']}: {turn['content']}" for turn in given)


def key_of(problem: Any) -> str:
    """Return a text that identifies what the policy reads: the prompt, or the conversation as JSON."""
    given = input_of(problem)
    return given if isinstance(given, str) else json.dumps(given)


def is_held_out(prompt: str) -> bool:
    """Return whether a prompt is held out. This depends only on its characters, so no list is needed."""
    return crc32(prompt.encode()) % HELD_OUT == 0


def draw(n: int, held_out: bool, make: Callable[[], Problem]) -> list[Problem]:
    """Return `n` problems from `make`, all held out or all not; others are discarded."""
    found: list[Problem] = []
    while len(found) < n:
        problem = make()
        if is_held_out(problem.prompt) == held_out:
            found.append(problem)
    return found


def numbered(n: int, rng: np.random.Generator, held_out: bool) -> list[Problem]:
    """Return `n` problems with the prompt `?` and a random number as their data; odd numbers are held out."""
    return [Problem("?", data=int(number)) for number in rng.integers(LARGEST, size=n) * 2 + held_out]


def longest_prompt(task: Task, tokenizer: Tokenizer, hinted: bool = False) -> int:
    """Return the length of the longest prompt, in tokens: of all listed problems, or else of eight random ones. Of a
    mixture, it is the longest one of its tasks. With hints, which `hinted` says of a task in a mixture, a prompt may be
    longer by its answer."""
    listed, inner = [*task.train, *task.held_out], task
    while isinstance(inner, Wrapped):
        inner, hinted = inner.task, hinted or getattr(inner, "changes_prompt", False)
    some = listed or problems_of(inner if hinted else task, 8, np.random.default_rng(0))
    found = [len(tokenizer.prompt(input_of(p))) + (len(tokenizer.encode(getattr(p, "answer", ""))) if hinted else 0)
             for p in some]
    return max(found + [longest_prompt(part, tokenizer, hinted) for part in task.mixed])


def speech(task: Task | None) -> dict[str, Any]:
    """Return the settings of a `LanguagePolicy` that depend on its training task."""
    if task is None:
        return {}
    return {"tool": task.tool, "end_of_turn": task.end_of_turn if task.open else None}
