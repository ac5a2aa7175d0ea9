"""One function that makes a task from what the user typed."""
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from llm.policy.load import load_reward_model
from llm.policy.scalar import RewardModel
from llm.tasks.pairs import PairTask, holds_pairs
from llm.tasks.task import REQUIRED, Problem, Task, Wrapped
from llm.tasks.tools import option
from llm.tasks.user import Reward, UserTask, as_reward, judge
from spinup.errors import UserError, nearest
from spinup.runs.config import check_names, parse

TASKS = {               # imported when asked for
    "copy": "llm.tasks.strings.Copy",
    "reverse": "llm.tasks.strings.Reverse",
    "sort": "llm.tasks.strings.Sort",
    "taste": "llm.tasks.taste.Taste",
    "addition": "llm.tasks.addition.Addition",
    "countdown": "llm.tasks.countdown.Countdown",
    "calculator": "llm.tasks.calculator.Calculator",
    "code": "llm.tasks.code.Code",
    "gsm8k": "llm.tasks.gsm8k.GSM8K"}


def make_task(text: str | Path | Task | list[str | dict[str, Any]], reward: str | Reward | None = None) -> Task:
    """A task.

    Args:
        text: a name ("reverse"), one with options ("reverse:length=8,symbols=12"), a JSONL file of prompts
            (`UserTask`) or of pairs of responses (`PairTask`), a list of either, or a task, which is returned as it is.
        reward: a function of prompt and response, "file.py:function", a `RewardModel`, or the folder of one's run;
            replaces the task's own verifier.

    UserError: there is no such task, option or file, or a value does not fit.
    """
    reward, own = as_judge(reward), False                                 # own: the task has the reward already
    if isinstance(text, list | Path) or (isinstance(text, str) and is_file(text)):
        task, own = (PairTask if holds_pairs(text) else UserTask)(text, reward), True
    else:
        task = adapted(make_builtin(text) if isinstance(text, str) else text)
    if isinstance(reward, RewardModel):
        return ModelJudged(task, reward, gold=task.pairs is None and not own)
    return task if reward is None or own else Judged(task, reward)


def adapted(task: Any) -> Task:
    """A task as it is, or an object of the same form with the defaults of a `Task` for the rest. UserError where it
    lacks one of `REQUIRED`."""
    kind = type(task)
    missing = [name for name in REQUIRED if not hasattr(task, name) or getattr(kind, name, 0) is getattr(Task, name, 1)]
    if missing:
        raise UserError(f"a task of type {kind.__name__} has no {missing[0]}; see llm.tasks.Task for its form")
    return task if isinstance(task, Task) else Wrapped(task)


def as_judge(reward: str | Reward | None) -> Reward | None:
    """The function or `RewardModel` that judges in place of the task, from what the user typed or gave."""
    if isinstance(reward, str) and Path(reward).is_dir():
        return load_reward_model(reward)
    return as_reward(reward)


def is_file(text: str) -> bool:
    """Whether a text names a file of prompts or pairs: not gsm8k:file=x.jsonl, but C:\\x.jsonl."""
    return text.endswith(".jsonl") and not re.match(r"\w\w+:", text)


def find_builtin(name: str) -> type:
    """The class of a task. UserError with the nearest name."""
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}.{nearest(name, TASKS)} There are {', '.join(TASKS)}, and any JSONL "
                        "file of prompts or pairs")
    module, _, cls_name = TASKS[name].rpartition(".")
    return getattr(importlib.import_module(module), cls_name)


def tool_of(task: Any) -> Callable[[str], str | None] | None:
    """The tool of a task as config.json has it. Most have none, and those are not made: their files may be gone."""
    name = task.partition(":")[0] if isinstance(task, str) else ""
    return make_builtin(task).tool if name in TASKS and find_builtin(name).tool else None


def make_builtin(text: str) -> Task:
    """The task of a name and its options. UserError with the nearest name."""
    name, _, rest = text.partition(":")
    cls = find_builtin(name)
    pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise UserError(f"--task {text}: options are written name=value, with commas between them")
    given = {key.strip(): typed.strip() for key, _, typed in pairs}
    check_names(given, [field.name for field in fields(cls)], f"the task {name} has no option")
    hints = get_type_hints(cls, include_extras=True)
    return cls(**{key: option(name, key, parse, hints[key], typed) for key, typed in given.items()})


class Judged(Wrapped):
    """A task whose responses are judged by a function of the user's, and which is otherwise the same."""

    def __init__(self, task: Task, function: Reward):
        super().__init__(task)
        self.function = function

    def reward(self, problem: Problem, response: str) -> float:
        return judge(self.function, problem.prompt, response)

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        return [self.reward(p, r) for p, r in zip(problems, responses, strict=True)]


class ModelJudged(Wrapped):
    """A task judged by a reward model; the reward of the task itself is then its `gold`, if it is known.

    gold: False where the task's own reward is no true reward.
    """

    def __init__(self, task: Task, model: RewardModel, gold: bool):
        super().__init__(task)
        self.judge, self.measure = model, "held_out_reward"
        self.gold = task.reward if gold else None

    def reward(self, problem: Problem, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """The reward model's number for each response."""
        return self.judge.judge([p.prompt for p in problems], responses)
