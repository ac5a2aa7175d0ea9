"""Create a task from a name, a file or an object that the user gives."""
import importlib
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from llm.faults import SHORT, described
from llm.policy.load import load_reward_model
from llm.policy.scalar import RewardModel
from llm.tasks.check import check_task, problems_of
from llm.tasks.names import split_wrapper, task_names, without_wrappers, wrapper_names
from llm.tasks.options import read_pairs
from llm.tasks.pairs import PairTask, holds_pairs
from llm.tasks.source import import_file, named_in
from llm.tasks.task import REQUIRED, Problem, Task, Wrapped, input_of
from llm.tasks.user import UserTask
from llm.tasks.user_reward import Reward, Verifier, as_reward
from llm.tasks.wrappers.wrapper import Wrapper
from spinup.errors import UserError, nearest

# A class of the user: package.module:Class or file.py:Class, then a colon and its options.
OWN = re.compile(r"(?P<place>.+?\.py|[A-Za-z_]\w*(?:\.\w+)*):(?P<cls>[A-Za-z_]\w*)(?::(?P<options>.*))?")


def make_task(text: str | Path | Task | list[str | dict[str, Any]], reward: str | Reward | list | None = None) -> Task:
    """Create a task.

    Args:
        text: a name ("reverse"), a name with options ("reverse:length=8,symbols=12"), your own class
            ("package.module:Class", "file.py:Class:option=3"), a wrapper with options, a colon and one of these
            ("length,coef=0.2:reverse"), a JSONL file of prompts (`UserTask`) or of preference
            pairs (`PairTask`), a list of either, or a task object, which is returned unchanged.
        reward: a function of prompt and response, "file.py:function", the name of a ready-made reward, a weighted sum
            such as "exact,0.2*length", a list (see `as_reward`), a `RewardModel`, or the run folder of a reward model.
            It replaces the task's own verifier.

    Raise UserError if there is no such task, option or file, or if a value does not fit.
    """
    if isinstance(text, str) and (wrapped := split_wrapper(text)):
        name, options, inside = wrapped
        cls = pkgutil.resolve_name(wrapper_names()[name])
        return cls(make_task(inside, reward), **read_options(cls, options, text, f"{name},name=value:{inside}"))
    if isinstance(text, Wrapper) and reward is not None:
        raise UserError(f"the wrapper {type(text).name} shapes the reward of the task inside; give the reward to that "
                        f"task, as in {type(text).__name__}(make_task(TASK, reward))")
    reward, own = as_judge(reward), False                                 # own: the task already uses this reward
    if isinstance(text, list | Path) or (isinstance(text, str) and is_file(text)):
        task, own = adapted((PairTask if holds_pairs(text) else UserTask)(text, reward)), True
    elif isinstance(text, str):
        verifier = None if isinstance(reward, RewardModel) else reward
        task = adapted(make_named(text, verifier))
        own = verifier is not None and getattr(task, "takes_reward", False)
    else:
        task = adapted(text)
    if isinstance(reward, RewardModel):
        return ModelJudged(task, reward, gold=task.pairs is None and not own)
    if reward is None or own:
        return task
    if reward.needs_fields:
        for problem in [*task.train, *task.held_out] or problems_of(task, 1, np.random.default_rng(0)):
            reward.check(problem, f"the prompt {SHORT.repr(problem.prompt)} of the task {task.name}")
    return Judged(task, reward)


def adapted(task: Any) -> Task:
    """Return a `Task` unchanged; give any other object the defaults of a `Task`.

    Raise UserError if it lacks an attribute in `REQUIRED`, or if an attribute has another form.
    """
    kind = type(task)
    if isinstance(task, type):
        raise UserError(f"a task must be an object, not the class {task.__name__}; write {task.__name__}()")
    needed = [name for name in REQUIRED if name != "reward" or not getattr(task, "open", None)]
    missing = [name for name in needed if not hasattr(task, name)         # or only inherits the one of `Task`
               or (hasattr(Task, name) and getattr(getattr(task, name), "__func__", None) is getattr(Task, name))]
    if missing:
        raise UserError(f"a task of type {kind.__name__} has no {missing[0]}; see llm.tasks.Task for what a task needs")
    task = task if isinstance(task, Task) else Wrapped(task)
    check_task(task, kind.__name__)
    return task


def as_judge(reward: Any) -> Verifier | RewardModel | None:
    """Return the verifier or `RewardModel` that replaces the task's reward, from the user's `reward`."""
    if isinstance(reward, str) and Path(reward).is_dir():
        return load_reward_model(reward)
    return reward if isinstance(reward, RewardModel) else as_reward(reward)


def is_file(text: str) -> bool:
    """Return whether a text names a file of prompts or pairs: C:\\x.jsonl does, gsm8k:file=x.jsonl does not."""
    return text.endswith(".jsonl") and not re.match(r"\w\w+:", text) and not is_own(text)


def is_own(text: str) -> bool:
    """Return whether a text names a user's class: package.module:Class or file.py:Class, with or without options."""
    return (own := OWN.fullmatch(text)) is not None and own["place"].partition(":")[0] not in task_names()


def find_class(text: str) -> tuple[type, str]:
    """Return the task class that a text names, and the text of its options. Raise UserError if there is none."""
    if is_own(text):
        own = OWN.fullmatch(text)
        return find_own(own["place"], own["cls"]), own["options"] or ""
    name, _, options = text.partition(":")
    if name not in task_names():
        raise UserError(no_task(name))
    return pkgutil.resolve_name(task_names()[name]), options


def no_task(name: str) -> str:
    """Return an error message for an unknown name; it lists the tasks."""
    names, wrappers = task_names(), wrapper_names()
    if name.partition(",")[0] in wrappers:
        return f"{name} is a wrapper; write the task that it wraps after a colon, as in {name}:reverse"
    return (f"there is no task {name!r}.{nearest(name, {**names, **wrappers})} A task is {', '.join(names)}, a JSONL "
            "file of prompts or pairs, or your own class, as package.module:Class or file.py:Class; one of "
            f"{', '.join(wrappers)} and a colon before it change its reward")


def find_own(place: str, name: str) -> type:
    """Return the class `name` of a module or of a file that ends in .py. Raise UserError if there is none."""
    given = f"--task {place}:{name}"
    if place.endswith(".py"):
        module = import_file(place, given)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):   # another import is missing
                raise UserError(f"{given}: {place} cannot be imported: {described(error)}") from error
            raise UserError(no_task(place) if "." not in place else f"{given}: there is no module {error.name!r}; "
                            f"install its package, or give its file, as in --task path/tasks.py:{name}") from None
        except (Exception, SystemExit) as error:
            raise UserError(f"{given}: {place} cannot be imported: {described(error)}") from error
    return named_in(module, place, name, given, "write the name of a class")


def speaking_task(task: Any) -> Task | None:
    """Create a task from its entry in config.json, if it has a tool or episodes; else return None.

    Other tasks are not created, because their files may no longer exist.
    """
    if not isinstance(task, str):
        return None
    task = without_wrappers(task)
    if not (is_own(task) or task.partition(":")[0] in task_names()):
        return None
    cls, _ = find_class(task)
    return adapted(make_named(task)) if getattr(cls, "tool", None) or getattr(cls, "open", None) else None


def make_named(text: str, reward: Verifier | None = None) -> Any:
    """Create a task from a name with options. Raise UserError for an unknown task or option, or a missing option.

    reward: for a mixture, which gives it to its tasks.
    """
    cls, typed = find_class(text)
    if getattr(cls, "reads_text", False):                                 # its first option has no name
        return built(text, cls, typed, **({"reward": reward} if getattr(cls, "takes_reward", False) else {}))
    values = read_options(cls, typed, text, f"{text.removesuffix(':')}:name=value")
    return built(text, cls, **values)


def read_options(cls: type, typed: str, text: str, shape: str) -> dict[str, Any]:
    """Return the options of a task or wrapper by name, from `typed`, the part of `text` after its name.

    Raise UserError for an unknown option, a missing one or a wrong value. shape: how to write them, for the message.
    """
    hints = option_hints(cls)
    inside = {"task": hints.pop("task")} if issubclass(cls, Wrapper) else {}
    what = f"the {'wrapper' if inside else 'task'} {getattr(cls, 'name', text)}"
    values = read_pairs(text, typed, what, "option", hints)
    try:
        signature(cls).bind(**values, **inside)
    except TypeError as error:
        raise UserError(f"--task {text}: {error}; write its options as {shape}") from None
    return values


def built(text: str, cls: type, /, *args: Any, **options: Any) -> Any:
    """Create a task. Raise UserError if the constructor of a user's class fails."""
    try:
        return cls(*args, **options)
    except UserError:
        raise
    except Exception as error:
        if not is_own(text):
            raise
        raise UserError(f"the task {text} cannot be created: {described(error)}") from error


def option_hints(cls: type) -> dict[str, Any]:
    """Return the type of each option of a task, from dataclass fields or constructor arguments.

    An argument without a type has the type of its default, or else is text.
    """
    hints = get_type_hints(cls if is_dataclass(cls) else cls.__init__ if isinstance(cls, type) else cls,
                           include_extras=True)
    parameters = signature(cls).parameters.values()
    defaults = {p.name: str if p.default in (p.empty, None) else type(p.default) for p in parameters}
    return {name: hints.get(name, kind) for name, kind in defaults.items()}


class Judged(Wrapped):
    """A task with the reward of the user; all else is unchanged."""

    def __init__(self, task: Task, function: Verifier):
        super().__init__(task)
        self.function, self.sums_turns = function, False

    def answer_of(self, problem: Problem, response: str) -> str | None:
        return self.function.answer_of(response, self.task.answer_of(problem, response))

    def reward(self, problem: Problem, response: str) -> float:
        return self.function(problem, response)

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        return [self.reward(p, r) for p, r in zip(problems, responses, strict=True)]


class ModelJudged(Wrapped):
    """A task whose reward comes from a reward model; its own reward becomes `gold`, the true reward, if known.

    gold: False if the task's own reward is not a true reward.
    """

    def __init__(self, task: Task, model: RewardModel, gold: bool):
        super().__init__(task)
        self.judge, self.measure, self.sums_turns = model, "held_out_reward", False
        self.gold = self.true_reward if gold and task.open is None else None                 # no replay of episodes

    def true_reward(self, problem: Problem, response: str) -> float:
        """Return the task's own reward."""
        return self.task.rewards([problem], [response])[0]

    def reward(self, problem: Problem, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        """Return the reward model's reward of each response."""
        return self.judge.judge([input_of(p) for p in problems], responses)
