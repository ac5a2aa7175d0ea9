"""Problems of reasoning-gym (Stojanovski et al. 2025, arXiv:2505.24760): about a hundred generators with verifiers."""
import inspect
import re
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from llm.tasks.options import read_pairs
from llm.tasks.task import Problem, Task, is_held_out
from spinup.errors import UserError, nearest
from spinup.runs.config import Count

ASK = "Provide your answer between <answer> and </answer> tags."
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
RUNS_CODE = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(")
PATIENCE = 1000         # most consecutive problems on the wrong side of the split
SIZE = 10_000           # default number of problems; some generators make all of them at once
SIMPLE = {int, float, bool, str, type(None)}


class ReasoningGym(Task):
    """The problems of one generator of reasoning-gym: `rg:leg_counting`, or `rg:leg_counting,max_animals=3`.

    The reward is the generator's own score, from 0 to 1; 1 means solved. The answer is the text between the last
    <answer> and </answer>, as in reasoning-gym's own experiments. Without these tags it is the whole response. An
    answer that the generator cannot read scores 0.

    Args:
        text: the name of a generator, then its own settings and `max_tokens`, separated by commas. `size` is the number
            of problems. One problem in ten is held out.

    Raise UserError without reasoning-gym, for an unknown generator or setting, for an invalid value, and for a
    generator whose score runs responses as Python code.
    """

    name = "rg"
    alphabet = None
    reads_text = True

    def __init__(self, text: str):
        try:
            from reasoning_gym.factory import DATASETS
        except ModuleNotFoundError as error:
            missing = error.name.partition(".")[0]
            raise UserError(f"the task rg needs {missing}; type: pip install 'spinup-rl[rg]'") from None
        generator, _, typed = text.partition(",")
        generator = generator.strip()
        if generator not in DATASETS:
            raise UserError(no_generator(generator, sorted(DATASETS)))
        cls, config = DATASETS[generator]
        if RUNS_CODE.search(inspect.getsource(cls.score_answer)):
            raise UserError(f"--task rg:{generator}: its score runs responses as Python code; choose another generator")
        settings = read_pairs(f"rg:{text}", typed, f"the task rg:{generator}", "setting", hints_of(config))
        self.name, self.max_tokens = f"rg_{generator}", settings.pop("max_tokens", 64)
        try:
            self.data = cls(config(**{"seed": 0, "size": SIZE, **settings}))
        except (AssertionError, ValueError) as error:
            raise UserError(f"--task rg:{text}: {error}; choose other settings") from None
        if not len(self.data):
            raise UserError(f"--task rg:{text} has no problems; choose a size of at least 2")

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        found, missed = [], 0
        while len(found) < n:
            entry = self.data[int(rng.integers(len(self.data)))]
            prompt = f"{entry['question'].strip()}\n{ASK}"
            if is_held_out(prompt) == held_out:
                found.append(Problem(prompt, entry["answer"] or "", entry))
                missed = 0
            elif (missed := missed + 1) == PATIENCE:
                raise UserError(f"the task {self.name} has too few different problems to hold some out; choose other "
                                "settings or another generator")
        return found

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        if not problem.answer:
            raise UserError(f"the task {self.name} has no teacher, because reasoning-gym gives no answers to its "
                            "problems; use a method that learns from rewards, such as grpo")
        return f"<answer>{problem.answer}</answer>"

    def answer_of(self, problem: Problem, response: str) -> str | None:
        return (ANSWER.findall(response) or [response])[-1].strip() or None

    def reward(self, problem: Problem, response: str) -> float:
        try:
            return float(self.data.score_answer(self.answer_of(problem, response) or "", problem.data))
        except Exception:                                                 # a few generators raise on unusual answers
            return 0.0


def no_generator(name: str, names: list[str]) -> str:
    """Return an error message for an unknown or a missing generator."""
    if not name:
        return "the task rg needs a generator; write one such as rg:leg_counting"
    return f"reasoning-gym has no generator {name!r}.{nearest(name, names)} See github.com/open-thought/reasoning-gym"


def hints_of(config: type) -> dict[str, Any]:
    """Return the types of those settings that a user can write in a command: numbers, texts, and yes or no."""
    hints = get_type_hints(config)
    simple = {field.name: hints[field.name] for field in fields(config) if not {*kinds(hints[field.name])} - SIMPLE}
    return {name: hint for name, hint in simple.items() if name != "seed"} | {"max_tokens": Count}


def kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types in a hint: the members of a union, str for a Literal, or the hint itself."""
    if get_origin(hint) is Literal:
        return (str,)
    return get_args(hint) or (hint,)
