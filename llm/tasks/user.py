"""The user's own task: prompts from a JSONL file or a list, and any reward(prompt, response) -> float."""
import json
import math
import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np

from llm.faults import SHORT, call, described, finite
from llm.tasks.task import Problem, Task, is_held_out
from spinup.errors import UserError, nearest

Reward = Callable[[str, str], float]
SHAPE = '{"prompt": "..."}'
SURROGATE = re.compile("[\ud800-\udfff]")                 # allowed in JSON, but not in UTF-8


class UserTask(Task):
    """The user's prompts, and the reward of responses to them.

    Args:
        prompts: a JSONL file, where each line is an object with "prompt"; or a list of texts or of such objects.
            "answer" is a right answer. "demonstration" (or "completion", or else the answer) is the teacher's response.
        reward: `reward(prompt, response)`, or "file.py:function". Without it, every prompt needs an "answer", and the
            reward is 1 for a response that equals it, apart from white space around it.
        max_tokens: longest response, with the end token.
        alphabet: all characters, for a small character model. None means those of prompts and demonstrations, if every
            prompt has a demonstration. A model with its own tokenizer ignores it.

    Other fields of a line are kept in `Problem.data`. Raise UserError for any fault of the file, prompts or reward.
    """

    def __init__(self, prompts: str | Path | list[str | dict[str, Any]], reward: str | Reward | None = None,
                 max_tokens: int = 256, alphabet: str | None = None):
        listed = isinstance(prompts, list)
        self.name = "user" if listed else Path(prompts).stem
        self.max_tokens, self.alphabet = max_tokens, alphabet
        rows = [(f"prompt {i}", row) for i, row in enumerate(prompts, 1)] if listed else read_jsonl(prompts)
        problems = [self.problem(where, row) for where, row in rows]
        self.function = as_reward(reward)
        missing = [where for (where, _), problem in zip(rows, problems, strict=True) if not problem.answer]
        if self.function is None and missing:
            raise UserError(f'{missing[0]} has no "answer" to compare with; add one to every prompt, or a reward '
                            "function with --reward file.py:function")
        shown = [p.data.get("demonstration", p.data.get("completion", p.answer)) for p in problems]
        if alphabet is None and all(isinstance(text, str) and text for text in shown):
            self.alphabet = "".join(sorted(set("".join([*(p.prompt for p in problems), *shown]))))
        self.train, self.held_out = split(problems, "the list of prompts" if listed else str(prompts))

    def problem(self, where: str, row: Any) -> Problem:
        """Create a problem from the entry at `where`. Raise UserError unless it is a text, or an object with a prompt.
        """
        row = {"prompt": row} if isinstance(row, str) else row
        prompt = row.get("prompt") if isinstance(row, dict) else None
        if not isinstance(prompt, str) or not prompt.strip():
            raise UserError(f"{where} has no text as its prompt; write {SHAPE}")
        strange = "" if self.alphabet is None else "".join(sorted(set(prompt) - set(self.alphabet)))
        if strange:
            raise UserError(f"{where} uses {strange!r}, which is not in the alphabet; add it")
        answer = row.get("answer")
        number = isinstance(answer, Real) and not isinstance(answer, bool) and abs(answer) < math.inf        # not NaN
        if not (number or isinstance(answer, str | None)):
            raise UserError(f'{where} has an "answer" that is not a text or a finite number; write {{"prompt": '
                            '"...", "answer": "..."}')
        return Problem(prompt, "" if answer is None else str(answer), {k: v for k, v in row.items() if k != "prompt"})

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return take(self.held_out if held_out else self.train, n, rng)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        text = problem.data.get("demonstration", problem.data.get("completion", problem.answer))
        if not isinstance(text, str) or not text:
            raise UserError(f'a small model needs a demonstration for {SHORT.repr(problem.prompt)}; give each prompt a '
                            'text as its "demonstration", or add --model with the folder of a trained model')
        return text

    def reward(self, problem: Problem, response: str) -> float:
        if self.function is None:
            return float(response.strip() == problem.answer.strip())
        return judge(self.function, problem.prompt, response)


def read_jsonl(path: str | Path, shape: str = SHAPE) -> list[tuple[str, dict[str, Any]]]:
    """Return (file and line number, object) for each non-empty line. Raise UserError if a line is not a JSON object.

    shape: example of a correct line, for the error message.
    """
    rows = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):                       # splitlines would also split inside a text
                if line.strip():
                    rows.append((f"{path}, line {number}", json.loads(line)))
                    if not isinstance(rows[-1][1], dict):
                        raise UserError(f"{path}, line {number} is not a JSON object; write one such as {shape}")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({str(error.strerror).lower()}); give a JSONL file, with one object "
                        f"such as {shape} per line") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}, line {number} is not JSON ({error}); write an object such as {shape}") from None
    return rows


def split(problems: list[Problem], source: str) -> tuple[list[Problem], list[Problem]]:
    """Split problems into (training, held-out) problems. Neither list is empty, and no prompt is in both.

    `is_held_out` decides. If it leaves one list empty, the prompt with the smallest hash is held out; the order of the
    prompts does not matter. Raise UserError for fewer than two different prompts, or for a prompt that is not a text.
    """
    for problem in problems:
        if half := SURROGATE.search(problem.prompt + problem.answer):
            raise UserError(f"{source} contains an unpaired surrogate, {half[0]!r}, in {SHORT.repr(problem.prompt)}; "
                            "remove it")
    prompts = {problem.prompt for problem in problems}
    if len(prompts) < 2:
        raise UserError(f"{source} must contain at least two different prompts, because one is held out; it has "
                        f"{len(prompts)}")
    held = {prompt for prompt in prompts if is_held_out(prompt)}
    if not held or held == prompts:
        held = {min(prompts, key=lambda prompt: (crc32(prompt.encode()), prompt))}
    return [p for p in problems if p.prompt not in held], [p for p in problems if p.prompt in held]


def take(problems: list[Problem], n: int, rng: np.random.Generator) -> list[Problem]:
    """Return `n` problems in random order; no problem repeats before all have occurred."""
    rounds = -(-n // len(problems))
    return [problems[i] for _ in range(rounds) for i in rng.permutation(len(problems))][:n]


def judge(function: Reward, prompt: str, response: str) -> float:
    """Return the reward of the user's function. Raise UserError, with prompt and response, if it is not finite."""
    here = f"for the prompt {SHORT.repr(prompt)} and the response {SHORT.repr(response)}"
    return finite(call("the reward function", here, function, prompt, response), "the reward function", here)


def as_reward(reward: str | Reward | None) -> Reward | None:
    """Return a reward function: `reward` itself, or the function that "file.py:function" names.

    Raise UserError for anything that cannot be called with a prompt and a response.
    """
    function = load_reward(reward) if isinstance(reward, str) else reward
    if function is None:
        return None
    if not callable(function):
        raise UserError(f"the reward must be a function of prompt and response, not {SHORT.repr(function)}")
    try:
        takes = signature(function)
    except ValueError:                                                    # some built-in functions have no signature
        return function
    try:
        takes.bind("prompt", "response")
    except TypeError:
        name = f"--reward {reward}" if isinstance(reward, str) else "the reward function"
        raise UserError(f"{name} takes {takes}; write it as a function of (prompt, response)") from None
    return function


def load_reward(text: str) -> Reward:
    """Import the file in "file.py:function" and return the function. Raise UserError if this fails."""
    file, _, name = text.rpartition(":")
    if Path(file).suffix != ".py" or not name.isidentifier():
        raise UserError(f"--reward must be written file.py:function, not {text!r}")
    given = f"--reward {text}"
    return named_in(import_file(file, given), file, name, given, "name one that takes a prompt and a response")


def import_file(file: str, given: str) -> ModuleType:
    """Import a Python file of the user. Raise UserError, which starts with `given`, if this fails."""
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{given}: there is no file {file}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)                                           # the file may import its neighbours
    spec = spec_from_file_location(f"of_the_user_{path.stem}", path)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module                                       # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"{given}: {file} cannot be imported: {described(error)}") from error
    return module


def named_in(module: ModuleType, place: str, name: str, given: str, advice: str) -> Any:
    """Return the function or class of that name in a module of the user.

    place: the module or its file, as the user typed it. Raise UserError, which starts with `given`, if it is missing.
    """
    if not hasattr(module, name):
        names = [key for key, item in vars(module).items() if callable(item) and not key.startswith("_")]
        raise UserError(f"{given}: there is no {name!r} in {place}.{nearest(name, names)}")
    if not callable(getattr(module, name)):
        raise UserError(f"{given}: {name} is not a function; {advice}")
    return getattr(module, name)
