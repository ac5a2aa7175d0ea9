"""One function that makes a task from what the user typed."""
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from llm.policy.load import load_reward_model
from llm.policy.scalar import RewardModel
from llm.tasks.check import check_task
from llm.tasks.names import task_names
from llm.tasks.options import option
from llm.tasks.pairs import PairTask, holds_pairs
from llm.tasks.task import REQUIRED, Problem, Task, Wrapped
from llm.tasks.user import Reward, UserTask, as_reward, import_file, judge, named_in
from spinup.errors import UserError, nearest
from spinup.runs.config import check_names, parse

# A class of the user's: package.module:Class or file.py:Class, and behind another colon its options.
OWN = re.compile(r"(?P<place>.+?\.py|[A-Za-z_]\w*(?:\.\w+)*):(?P<cls>[A-Za-z_]\w*)(?::(?P<options>.*))?")


def make_task(text: str | Path | Task | list[str | dict[str, Any]], reward: str | Reward | None = None) -> Task:
    """A task.

    Args:
        text: a name ("reverse"), one with options ("reverse:length=8,symbols=12"), a class of one's own
            ("package.module:Class", "file.py:Class:option=3"), a JSONL file of prompts (`UserTask`) or of pairs of
            responses (`PairTask`), a list of either, or a task, which is returned as it is.
        reward: a function of prompt and response, "file.py:function", a `RewardModel`, or the folder of one's run;
            replaces the task's own verifier.

    UserError: there is no such task, option or file, or a value does not fit.
    """
    reward, own = as_judge(reward), False                                 # own: the task has the reward already
    if isinstance(text, list | Path) or (isinstance(text, str) and is_file(text)):
        task, own = adapted((PairTask if holds_pairs(text) else UserTask)(text, reward)), True
    else:
        task = adapted(make_named(text) if isinstance(text, str) else text)
    if isinstance(reward, RewardModel):
        return ModelJudged(task, reward, gold=task.pairs is None and not own)
    return task if reward is None or own else Judged(task, reward)


def adapted(task: Any) -> Task:
    """A task as it is, or an object of the same form with the defaults of a `Task` for the rest. UserError where it
    lacks one of `REQUIRED`, or has another form."""
    kind = type(task)
    if isinstance(task, type):
        raise UserError(f"a task must be an object, not the class {task.__name__}; write {task.__name__}()")
    needed = [name for name in REQUIRED if name != "reward" or not getattr(task, "open", None)]
    missing = [name for name in needed if not hasattr(task, name)         # or has that of `Task`, which does nothing
               or (hasattr(Task, name) and getattr(getattr(task, name), "__func__", None) is getattr(Task, name))]
    if missing:
        raise UserError(f"a task of type {kind.__name__} has no {missing[0]}; see llm.tasks.Task for its form")
    task = task if isinstance(task, Task) else Wrapped(task)
    check_task(task, kind.__name__)
    return task


def as_judge(reward: str | Reward | None) -> Reward | None:
    """The function or `RewardModel` that judges in place of the task, from what the user typed or gave."""
    if isinstance(reward, str) and Path(reward).is_dir():
        return load_reward_model(reward)
    return as_reward(reward)


def is_file(text: str) -> bool:
    """Whether a text names a file of prompts or pairs: not gsm8k:file=x.jsonl, but C:\\x.jsonl."""
    return text.endswith(".jsonl") and not re.match(r"\w\w+:", text) and not is_own(text)


def is_own(text: str) -> bool:
    """Whether a text names a class of the user's: package.module:Class or file.py:Class, with or without options."""
    return (own := OWN.fullmatch(text)) is not None and own["place"] not in task_names()


def find_class(text: str) -> tuple[type, str]:
    """The class of the task that a text names, and the text of its options. UserError where there is none."""
    if is_own(text):
        own = OWN.fullmatch(text)
        return find_own(own["place"], own["cls"]), own["options"] or ""
    name, _, options = text.partition(":")
    if name not in task_names():
        raise UserError(no_task(name))
    module, _, cls = task_names()[name].rpartition(".")
    return getattr(importlib.import_module(module), cls), options


def no_task(name: str) -> str:
    """A sentence that says which tasks there are."""
    names = task_names()
    return (f"there is no task {name!r}.{nearest(name, names)} There are {', '.join(names)}, any JSONL file of prompts "
            "or pairs, and package.module:Class or file.py:Class of a class of your own")


def find_own(place: str, name: str) -> type:
    """The class `name` of a module or of a file that ends in .py. UserError where there is none."""
    given = f"--task {place}:{name}"
    if place.endswith(".py"):
        module = import_file(place, given)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):   # it imports what is not there
                raise
            raise UserError(no_task(place) if "." not in place else f"{given}: there is no module {error.name!r}; "
                            f"install its package, or give its file, as in --task path/tasks.py:{name}") from None
    return named_in(module, place, name, given, "write the name of a class")


def tool_of(task: Any) -> Callable[[str], str | None] | None:
    """The tool of a task as config.json has it."""
    made = speaking_task(task)
    return made.tool if made else None


def speaking_task(task: Any) -> Task | None:
    """A task as config.json has it, where the policy does not write responses alone: it has a tool or episodes. Others
    are not made: their files may be gone."""
    if not isinstance(task, str) or not (is_own(task) or task.partition(":")[0] in task_names()):
        return None
    cls, _ = find_class(task)
    return adapted(make_named(task)) if getattr(cls, "tool", None) or getattr(cls, "open", None) else None


def make_named(text: str) -> Any:
    """The task of a name and its options. UserError where there is no such task or option, or one is missing."""
    cls, typed = find_class(text)
    pairs = [part.partition("=") for part in typed.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise UserError(f"--task {text}: options are written name=value, with commas between them")
    given, hints, name = {key.strip(): x.strip() for key, _, x in pairs}, option_hints(cls), getattr(cls, "name", text)
    check_names(given, list(hints), f"the task {name} has no option")
    values = {key: option(name, key, parse, hints[key], x) for key, x in given.items()}
    try:
        signature(cls).bind(**values)
    except TypeError as error:
        raise UserError(f"--task {text}: {error}; write its options as {text.removesuffix(':')}:name=value") from None
    return cls(**values)


def option_hints(cls: type) -> dict[str, Any]:
    """The type of each option of a task: of a dataclass's fields, else of the constructor's arguments. Without a type,
    that of the default, or text."""
    hints = get_type_hints(cls if is_dataclass(cls) else cls.__init__ if isinstance(cls, type) else cls,
                           include_extras=True)
    parameters = signature(cls).parameters.values()
    defaults = {p.name: str if p.default in (p.empty, None) else type(p.default) for p in parameters}
    return {name: hints.get(name, kind) for name, kind in defaults.items()}


class Judged(Wrapped):
    """A task whose responses are judged by a function of the user's, and which is otherwise the same."""

    def __init__(self, task: Task, function: Reward):
        super().__init__(task)
        self.function, self.sums_turns = function, False

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
        self.judge, self.measure, self.sums_turns = model, "held_out_reward", False
        self.gold = task.reward if gold and task.open is None else None   # a played episode cannot be played again

    def reward(self, problem: Problem, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """The reward model's number for each response."""
        return self.judge.judge([p.prompt for p in problems], responses)
