"""The user's own preference pairs, from a JSONL file or a list."""
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm.tasks.conversation import SURROGATE, fault_of_turns, split_turns, text_of
from llm.tasks.task import Problem
from llm.tasks.user import UserTask, read_jsonl, split
from llm.tasks.user_reward import Reward, as_reward
from spinup.errors import UserError

SHAPE = '{"prompt": "...", "chosen": "...", "rejected": "..."}'
LONGEST = 256           # default limit of a response, in tokens
NOT_DATA = ("prompt", "demonstration", "completion")      # the demonstration is the chosen response
SHOWN = 5               # places that a message names if pairs are left out


class PairTask(UserTask):
    """The user's prompts, each with a chosen and a rejected response.

    Args:
        pairs: a JSONL file, where each line is an object with the texts "prompt", "chosen" and "rejected"; or a list of
            such objects. Several pairs may have the same prompt. Other fields reach the reward. "prompt" may be a
            conversation, and each response a list of one assistant turn. Without "prompt", both responses are
            conversations that differ in the last turn only.
        reward: as in `UserTask`. By default, the reward is 1 for the chosen response,
            apart from white space around it. This is only enough to see whether imitation works.
        max_tokens: longest response, with the end token; None means the longest response here in characters, up to 256.
        alphabet: all characters, for a small character model; None means all characters here. A model with its own
            tokenizer ignores it.

    Unusable pairs are left out; `left_out` has a sentence for each reason, which names them. Raise UserError if the
    file cannot be read or is not JSON, if no pair is left, or if there are fewer than two different prompts.
    """

    def __init__(self, pairs: str | Path | list[dict[str, Any]], reward: str | Reward | None = None,
                 max_tokens: int | None = None, alphabet: str | None = None):
        listed = isinstance(pairs, list)
        self.name, source = ("pairs", "the list of pairs") if listed else (Path(pairs).stem, str(pairs))
        rows = [(f"pair {i}", row) for i, row in enumerate(pairs, 1)] if listed else read_jsonl(pairs, SHAPE)
        self.function = as_reward(reward)
        problems, faulty, place = [], defaultdict(list), {}                # place of each problem, by its id()
        for where, row in rows:
            where = where.removeprefix(f"{source}, ")
            row = explicit(row)
            if fault := fault_of(row):
                faulty[fault].append(where)
            else:
                prompt, messages = row["prompt"], None
                if isinstance(prompt, list):
                    messages = split_turns(prompt)[0]
                    prompt = messages[-1]["content"]
                data = {key: x for key, x in row.items() if key not in NOT_DATA}
                problems.append(Problem(prompt, row["chosen"], data, messages))
                place[id(problems[-1])] = where
                if self.function is not None:
                    self.function.check(problems[-1], where)
        self.left_out = [left_out(places, fault) for fault, places in faulty.items()]
        if not problems:
            why = f" ({self.left_out[0]})" if faulty else ""
            raise UserError(f"{source} holds no pair to learn from{why}; write one such as {SHAPE} per line")
        texts = [text for p in problems for text in (p.answer, p.data["rejected"])]
        self.max_tokens = min(LONGEST, max(map(len, texts)) + 1) if max_tokens is None else max_tokens
        used = set("".join([*texts, *(p.prompt for p in problems)]))
        self.alphabet = "".join(sorted(used)) if alphabet is None else alphabet
        self.train, self.held_out = split(problems, source)
        self.places = [[place[id(p)] for p in side] for side in (self.train, self.held_out)]

    def pairs(self, held_out: bool = False) -> list[tuple[str, Problem, str, str]]:
        """Return (place, problem, chosen response, rejected response) of all training or held-out pairs, in order."""
        problems, places = self.held_out if held_out else self.train, self.places[held_out]
        return [(where, p, p.answer, p.data["rejected"]) for where, p in zip(places, problems, strict=True)]


def explicit(row: Any) -> Any:
    """Return a row whose chosen and rejected responses are texts, and whose prompt is a text or a conversation.

    In a row without prompt, both responses are whole conversations; the turns before the last one are the prompt. Rows
    of another form are returned unchanged.
    """
    if not isinstance(row, dict):
        return row
    sides = [row.get(name) for name in ("chosen", "rejected")]
    whole = row.get("prompt") is None and all(isinstance(x, list) and len(x) > 1 for x in sides)
    if whole and sides[0][:-1] == sides[1][:-1]:
        row = row | {"prompt": sides[0][:-1], "chosen": sides[0][-1:], "rejected": sides[1][-1:]}
    return row | {name: text_of(row[name]) for name in ("chosen", "rejected") if name in row}


def fault_of(row: Any) -> str:
    """Return the reason why a pair is unusable; empty for a usable pair."""
    for name in ("prompt", "chosen", "rejected"):
        text = row.get(name) if isinstance(row, dict) else None
        if name == "prompt" and isinstance(text, list):
            fault = fault_of_turns(text)
            if fault or text[-1]["role"] != "user":
                return f'"prompt" {fault or "does not end with a user turn"}'
            continue
        if name == "prompt" and text is None and isinstance(row, dict) and isinstance(row.get("chosen"), list):
            return '"prompt" is missing, and "chosen" and "rejected" do not differ in the last turn only'
        if text is None:
            return f'"{name}" is missing'
        if not isinstance(text, str):
            return f'"{name}" is not a text' + " or one assistant turn" * isinstance(text, list)
        if not text.strip():
            return f'"{name}" is empty'
        if SURROGATE.search(text):
            return f'"{name}" contains an unpaired surrogate'
    return "both responses are the same" if row["chosen"] == row["rejected"] else ""


def left_out(places: Sequence[str], fault: str) -> str:
    """Return a sentence about the pairs that are left out: their number, the first places, and the reason."""
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    pairs = "pair" if len(places) == 1 else "pairs"
    return f"left out: {len(places)} {pairs} ({', '.join(places[:SHOWN])}{more}), where {fault}"


def holds_pairs(given: str | Path | list[Any]) -> bool:
    """Return whether a file or a list starts with a pair and not with a prompt.

    False if the file cannot be read; code that reads all of it later reports the reason.
    """
    try:
        if isinstance(given, list):
            first = given[0] if given else None
        else:
            with open(given, encoding="utf-8-sig") as file:
                first = json.loads(next((line for line in file if line.strip()), "null"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and not first.keys().isdisjoint(("chosen", "rejected"))
