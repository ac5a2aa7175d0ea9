"""Base of all wrappers: a task with another reward in training, and unchanged at evaluation."""
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np

from llm.tasks.check import demonstration_of, problems_of
from llm.tasks.options import check_options
from llm.tasks.parts import Score, is_right
from llm.tasks.task import Problem, Sampled, Task, Wrapped, tokens_in
from spinup.errors import UserError


class Drawn:
    """A problem drawn for training. Each draw makes a new object, so two draws of one prompt are two groups.

    All attributes are those of the task's own problem `of`, but a hint is added to the prompt.
    """

    def __init__(self, of: Problem, hint: str = ""):
        self.of, self.hint = of, hint
        if hint:
            self.prompt = of.prompt + hint

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("of", "hint"):
            raise AttributeError(name)
        return getattr(self.of, name)


class Shaped(Score):
    """A reward of a wrapper, with its parts. `right` says whether training regards the response as right."""

    right: bool


@dataclass
class Wrapper(Wrapped):
    """A task with another reward in training. Derive a wrapper from this class, and write `shape`.

    Held-out problems keep the reward of the task, so `held_out_accuracy` is the accuracy on the true task. The parts of
    the reward, one column each, are those of the task, those of the wrapper, and `right`: 1 if the task's own reward is
    1 or more.

    task: a `Task`, which may be a wrapper. Raise UserError for an option out of range, or for a task that does not fit.
    """

    task: InitVar[Any]

    needs_right = False         # True if the reward of a response depends on whether it is right
    changes_prompt = False      # True if the prompt in training is not the task's own prompt

    def __post_init__(self, task: Any) -> None:
        check_options(self, "wrapper")
        if not isinstance(task, Task):
            raise UserError(f"the wrapper {self.name} needs a task object; write "
                            f"{type(self).__name__}(make_task({str(task)!r}))")
        self.check(task)
        Wrapped.__init__(self, task)
        self.fewest = max(type(self).fewest, task.fewest)
        self.name = f"{self.name}-{task.name}"

    def check(self, task: Task) -> None:
        """Raise UserError if this wrapper does not fit a task."""
        kinds = [type(x).name for x in layers(task)]
        if self.name in kinds:
            raise UserError(f"{self.name} is given twice; write it once")
        if task.open is not None or task.pairs is not None:
            what = "has several turns" if task.open is not None else "has preference pairs"
            raise UserError(f"the task {task.name} {what}, and {self.name} rewards single responses; leave out "
                            f"{self.name}:")
        if self.needs_right and task.measure != "held_out_accuracy":
            raise UserError(f"{self.name} needs right and wrong answers, and the reward of {task.name} is a score; "
                            f"leave out {self.name}:")
        if changed := [type(x).name for x in layers(task) if x.changes_prompt]:
            raise UserError(f"{changed[0]} changes the prompt and must be the first wrapper; write "
                            f"{changed[0]}:{self.name}:TASK")

    def shape(self, problem: Any, responses: Sequence[str], rewards: Sequence[float],
              right: Sequence[bool]) -> tuple[list[float], dict[str, list[float]]]:
        """Return the rewards of a group, and the parts to log by name, one number per response.

        problem: the task's own problem. responses: those of the group. rewards: of the task inside. right: whether the
        responses are right, by the true reward or by the labels of `vote`.
        """
        raise NotImplementedError

    def labels(self, rewards: Sequence[float], parts: dict[str, list[float]], right: Sequence[bool]) -> Sequence[bool]:
        """Return whether training regards the responses of a group as right. rewards, parts: those of `shape`."""
        return right

    def end(self, problems: Sequence[Any], rewards: Sequence[float]) -> None:
        """Update the wrapper's state after a batch of training responses; `problems` are `Drawn`."""

    def draw(self, problem: Any, rng: np.random.Generator) -> Drawn:
        """Return a problem of the task as one to train on."""
        return Drawn(problem)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Any]:
        found = problems_of(self.task, n, rng, held_out)
        return found if held_out else [self.draw(p, rng) for p in found]

    def demonstration(self, problem: Any, rng: np.random.Generator) -> str:
        return demonstration_of(self.task, getattr(problem, "of", problem), rng)

    def reward(self, problem: Any, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Any], responses: Sequence[str]) -> list[float]:
        """Return the reward of each response; the responses to one problem, a group, are adjacent."""
        drawn = [isinstance(p, Drawn) for p in problems]
        inside = [p.of if yes else p for p, yes in zip(problems, drawn, strict=True)]
        texts = [self.whole(p, x) if yes else x for p, x, yes in zip(problems, responses, drawn, strict=True)]
        before, found = self.task.rewards(inside, texts), []
        for rows in groups(problems):
            given = [float(x) for x in before[rows]]
            right = [getattr(x, "right", is_right(x)) for x in before[rows]]
            rewards, parts = self.shape(inside[rows.start], texts[rows], given, right)
            labels = self.labels(rewards, parts, right)
            for i, old in enumerate(before[rows]):
                own = {name: x[i] for name, x in parts.items()}
                score = Shaped(rewards[i] if drawn[rows.start] else given[i],
                               {"right": float(is_right(old)), **getattr(old, "parts", {}), **own})
                score.right = bool(labels[i])
                found.append(score)
        if problems and all(drawn):
            self.end(problems, found)
        return found

    def whole(self, problem: Drawn, response: str) -> str:
        """Return the text to judge: the hint and the response."""
        return Sampled(problem.hint + response, tokens_in(response)) if problem.hint else response

    def own_state(self) -> dict[str, Any]:
        """Return the state of this wrapper that a checkpoint must hold; {} if it has none."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what `own_state` returned."""

    def state_dict(self) -> dict[str, Any]:
        """Return the states of this wrapper and of those inside, by name; {} if none has a state."""
        return {type(x).name: state for x in layers(self) if (state := x.own_state())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for x in layers(self):
            if type(x).name in state:
                x.load_own_state(state[type(x).name])


def layers(task: Any) -> list[Wrapper]:
    """Return the wrappers of a task, the outermost first."""
    found = []
    while isinstance(task, Wrapper):
        found.append(task)
        task = task.task
    return found


def innermost(task: Any) -> Any:
    """Return the task inside all wrappers: its prompts have no hints."""
    found = layers(task)
    return found[-1].task if found else task


def groups(problems: Sequence[Any]) -> Iterator[slice]:
    """Yield the rows of each group: adjacent rows with the same problem object."""
    start = 0
    for i in range(1, len(problems) + 1):
        if i == len(problems) or problems[i] is not problems[start]:
            yield slice(start, i)
            start = i
