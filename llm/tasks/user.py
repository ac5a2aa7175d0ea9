"""Task of the user: prompts or conversations from a JSONL file or a list, and any reward function."""
import json
import math
from numbers import Real
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from llm.faults import SHORT
from llm.tasks.conversation import SURROGATE, fault_of_turns, split_turns, text_of
from llm.tasks.task import Problem, Task, is_held_out, key_of
from llm.tasks.user_reward import Reward, as_reward
from spinup.errors import UserError

SHAPE = '{"prompt": "..."}'
LONGEST = 14_000        # bits of a whole number that Python converts to a text
TAUGHT = ("demonstration", "completion")                # fields with the teacher's response


class UserTask(Task):
    """The user's prompts, and the reward of responses to them.

    Args:
        prompts: a JSONL file, where each line is an object with "prompt"; or a list of texts or of such objects.
            "answer" is a right answer. "demonstration" (or "completion", or else the answer) is the teacher's response.
            "prompt" or "messages" may be a conversation. If its last turn is an assistant turn, this turn is the
            demonstration. It is also the answer if there is no "answer".
        reward: a function of prompt, response and the fields that it names; or anything that `as_reward` accepts.
            Without a reward, every prompt needs an "answer". Then a response that equals the answer, apart from white
            space around it, earns 1.
        max_tokens: longest response, with the end token.
        alphabet: all characters, for a small character model. None means the characters of prompts and demonstrations,
            if every prompt has a demonstration. A model with its own tokenizer ignores it.

    `Problem.data` keeps all fields of a line except the prompt. Raise UserError for any fault of the file, prompts or
    reward.
    """

    def __init__(self, prompts: str | Path | list[str | dict[str, Any]], reward: str | Reward | None = None,
                 max_tokens: int = 256, alphabet: str | None = None):
        listed = isinstance(prompts, list)
        self.name = "user" if listed else Path(prompts).stem
        self.max_tokens, self.alphabet = max_tokens, alphabet
        rows = [(f"prompt {i}", row) for i, row in enumerate(prompts, 1)] if listed else read_jsonl(prompts)
        problems = [self.problem(where, row) for where, row in rows]
        self.function = as_reward(reward)
        missing = [where for (where, _), problem in zip(rows, problems, strict=True) if not problem.answer.strip()]
        if self.function is None and missing:
            raise UserError(f'{missing[0]} has no "answer" to compare with; add one to every prompt, or a reward '
                            "function with --reward file.py:function")
        for (where, _), problem in zip(rows, problems, strict=True):
            if self.function is not None:
                self.function.check(problem, where)
        shown = [taught(p) for p in problems]
        if alphabet is None and all(shown):
            self.alphabet = "".join(sorted(set("".join([*(p.prompt for p in problems), *shown]))))
        self.train, self.held_out = split(problems, "the list of prompts" if listed else str(prompts))

    def problem(self, where: str, row: Any) -> Problem:
        """Create a problem from the entry at `where`. Raise UserError unless it is a text, or an object with a prompt.
        """
        no_prompt = f"{where} has no text as its prompt; write {SHAPE}"
        row = {"prompt": row} if isinstance(row, str) else row
        if not isinstance(row, dict):
            raise UserError(no_prompt)
        # A table exports an empty cell as null.
        row = {k: v for k, v in row.items() if v is not None or k not in ("prompt", "messages")}
        if {"prompt", "messages"} <= row.keys():
            raise UserError(f'{where} has both "prompt" and "messages"; leave one of them out')
        if strange := [k for k in row if not isinstance(k, str)]:
            raise UserError(f"{where} has the key {strange[0]!r}, which is not a text; write {SHAPE}")
        key = "prompt" if "prompt" in row else "messages"
        prompt, messages, reply = row.get(key), None, ""
        if isinstance(prompt, list):
            if fault := fault_of_turns(prompt):
                raise UserError(f'{where}: "{key}" {fault}; correct it')
            messages, reply = split_turns(prompt)
            prompt = messages[-1]["content"]
        if not isinstance(prompt, str) or not prompt.strip():
            raise UserError(no_prompt)
        strange = "" if self.alphabet is None else "".join(sorted(set(prompt) - set(self.alphabet)))
        if strange:
            raise UserError(f"{where} uses {strange!r}, which is not in the alphabet; add it")
        answer = answer_of_row(where, row)
        data = {k: text_of(v) if k in TAUGHT else v for k, v in row.items() if k != key}
        for name in TAUGHT:
            if not isinstance(data.get(name), str | None):
                raise UserError(f'{where} has a "{name}" that is not a text; write {{"prompt": "...", "{name}": '
                                '"..."}')
        if "answer" in row:
            data["answer"] = answer
        if reply and data.get("demonstration") is None:
            data["demonstration"] = reply
        several = reply and any(turn["role"] == "assistant" for turn in messages)
        turns = [*messages, {"role": "assistant", "content": reply}] if several else None
        return Problem(prompt, reply if answer is None else str(answer), data, messages, turns)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return take(self.held_out if held_out else self.train, n, rng)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        text = taught(problem)
        if not text:
            raise UserError(f'there is no demonstration to imitate for {SHORT.repr(problem.prompt)}; give each prompt '
                            'a text as its "demonstration", or, to learn from rewards, add --model with the folder of '
                            'a trained model')
        return text

    def answer_of(self, problem: Problem, response: str) -> str | None:
        own = super().answer_of(problem, response)
        return own if self.function is None else self.function.answer_of(response, own)

    def reward(self, problem: Problem, response: str) -> float:
        if self.function is None:
            return float(response.strip() == problem.answer.strip() != "")
        return self.function(problem, response)


def answer_of_row(where: str, row: dict[str, Any]) -> str | Real | None:
    """Return the answer of the entry at `where`. Raise UserError unless it is a text, a finite number or missing."""
    answer = row.get("answer")
    number = isinstance(answer, Real) and not isinstance(answer, bool) and abs(answer) < math.inf        # not NaN
    too_long = isinstance(answer, int) and answer.bit_length() > LONGEST
    if too_long or not (number or isinstance(answer, str | None)):
        raise UserError(f'{where} has an "answer" that is not a text or a finite number; write {{"prompt": '
                        '"...", "answer": "..."}')
    whole = number and abs(answer) < 2**53 and float(answer).is_integer()
    return int(answer) if whole else answer                               # a table often stores 42 as 42.0


def taught(problem: Problem) -> str | None:
    """Return the teacher's response of a row: its `demonstration`, or else its `completion`, or else its answer."""
    row = problem.data if isinstance(problem.data, dict) else {}
    return row.get("demonstration") or row.get("completion") or problem.answer


def read_jsonl(path: str | Path, shape: str = SHAPE) -> list[tuple[str, dict[str, Any]]]:
    """Return (file and line number, object) for each non-empty line. Raise UserError if a line is not a JSON object.

    shape: example of a correct line, for the error message.
    """
    rows, number = [], 0
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):                       # splitlines would also split inside a text
                if line.strip():
                    rows.append((f"{path}, line {number}", json.loads(line.rstrip(), object_pairs_hook=one_of_each)))
                    if not isinstance(rows[-1][1], dict):
                        raise UserError(f"{path}, line {number} is not a JSON object; write one such as {shape}")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({str(error.strerror).lower()}); give a JSONL file, with one object "
                        f"such as {shape} per line") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if not number:                                                    # the path, with a null character
            raise UserError(f"{str(path)!r} is not a path ({error}); give a JSONL file") from None
        reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise UserError(f"{path}, line {number} is not JSON ({reason}); write an object such as {shape}") from None
    return rows


def one_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON. ValueError if it has a key twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f'it has "{twice}" twice')
    return made


def split(problems: list[Problem], source: str) -> tuple[list[Problem], list[Problem]]:
    """Split problems into (training, held-out) problems. Neither list is empty, and no prompt is in both.

    `is_held_out` decides. If it leaves one list empty, the prompt with the smallest hash is held out. The order of the
    prompts does not matter. Raise UserError for fewer than two different prompts, or for a prompt that is not a text.
    """
    for problem in problems:
        if half := SURROGATE.search(problem.prompt + problem.answer + (taught(problem) or "")):
            raise UserError(f"{source} contains an unpaired surrogate, {half[0]!r}, in {SHORT.repr(problem.prompt)}; "
                            "remove it")
    prompts = {key_of(problem) for problem in problems}
    if len(prompts) < 2:
        raise UserError(f"{source} must contain at least two different prompts, because one is held out; it has "
                        f"{len(prompts)}")
    held = {prompt for prompt in prompts if is_held_out(prompt)}
    if not held or held == prompts:
        held = {min(prompts, key=lambda prompt: (crc32(prompt.encode()), prompt))}
    return [p for p in problems if key_of(p) not in held], [p for p in problems if key_of(p) in held]


def take(problems: list[Problem], n: int, rng: np.random.Generator) -> list[Problem]:
    """Return `n` problems in random order; no problem repeats before all have occurred."""
    rounds = -(-n // len(problems))
    return [problems[i] for _ in range(rounds) for i in rng.permutation(len(problems))][:n]
