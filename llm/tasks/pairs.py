"""The user's own preferences: pairs of responses to a prompt, of which one was chosen, from a JSONL file or a list."""
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm.tasks.task import Problem
from llm.tasks.user import SURROGATE, Reward, UserTask, as_reward, read_jsonl, split
from spinup.errors import UserError

SHAPE = '{"prompt": "...", "chosen": "...", "rejected": "..."}'
LONGEST = 256           # tokens of a response, unless more are asked for
SHOWN = 5               # places that are named where pairs are left out


class PairTask(UserTask):
    """Prompts of the user's, each with a response that was preferred and one that was not.

    Args:
        pairs: a JSONL file, each line an object with "prompt", "chosen" and "rejected", all of them texts; or a list of
            such objects. A prompt may come in several. Other fields are not read.
        reward: `reward(prompt, response)`, or "file.py:function". Without one a response is worth 1 where it equals the
            chosen one, but for white space around it: enough to see imitation succeed, and no more.
        max_tokens: the longest response, the end token included; None takes the longest here in characters, up to 256.
        alphabet: every character used, for a small character model; None takes those here. A model with its own
            tokenizer does not look at it.

    Pairs that nothing can be learned from are left out: `left_out` says in a sentence each which ones, and why.
    UserError: a file that cannot be read or is not JSON, no pair that is left, or fewer than two different prompts.
    """

    def __init__(self, pairs: str | Path | list[dict[str, Any]], reward: str | Reward | None = None,
                 max_tokens: int | None = None, alphabet: str | None = None):
        listed = isinstance(pairs, list)
        self.name, source = ("pairs", "the list of pairs") if listed else (Path(pairs).stem, str(pairs))
        rows = [(f"pair {i}", row) for i, row in enumerate(pairs, 1)] if listed else read_jsonl(pairs, SHAPE)
        self.function = as_reward(reward)
        problems, faulty = [], defaultdict(list)
        for where, row in rows:
            where = where.removeprefix(f"{source}, ")
            if fault := fault_of(row):
                faulty[fault].append(where)
            else:
                data = {"rejected": row["rejected"], "where": where}
                problems.append(Problem(row["prompt"], row["chosen"], data))
        self.left_out = [left_out(places, fault) for fault, places in faulty.items()]
        if not problems:
            why = f" ({self.left_out[0]})" if faulty else ""
            raise UserError(f"{source} holds no pair to learn from{why}; write one such as {SHAPE} a line")
        texts = [text for p in problems for text in (p.answer, p.data["rejected"])]
        self.max_tokens = min(LONGEST, max(map(len, texts)) + 1) if max_tokens is None else max_tokens
        used = set("".join([*texts, *(p.prompt for p in problems)]))
        self.alphabet = "".join(sorted(used)) if alphabet is None else alphabet
        self.train, self.held_out = split(problems, source)

    def pairs(self, held_out: bool = False) -> list[tuple[str, Problem, str, str]]:
        """(where it stands, problem, preferred response, other response) of each pair on one side, in their order."""
        return [(p.data["where"], p, p.answer, p.data["rejected"]) for p in (self.held_out if held_out else self.train)]


def fault_of(row: Any) -> str:
    """Why nothing can be learned from a pair; empty where something can."""
    for name in ("prompt", "chosen", "rejected"):
        text = row.get(name) if isinstance(row, dict) else None
        if text is None:
            return f'"{name}" is missing'
        if not isinstance(text, str):
            return f'"{name}" is no text' + " but a list; conversations are not read" * isinstance(text, list)
        if not text.strip():
            return f'"{name}" is empty'
        if SURROGATE.search(text):
            return f'"{name}" holds half of a character'
    return "both responses are the same" if row["chosen"] == row["rejected"] else ""


def left_out(places: Sequence[str], fault: str) -> str:
    """Sentence about the pairs that are left out: their number, the first lines, and the reason."""
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    pairs = "pair" if len(places) == 1 else "pairs"
    return f"left out: {len(places)} {pairs} ({', '.join(places[:SHOWN])}{more}), where {fault}"


def holds_pairs(given: str | Path | list[Any]) -> bool:
    """Whether a file, or a list, begins with a pair and not with a prompt. What cannot be read holds none: who reads
    all of it says why."""
    try:
        if isinstance(given, list):
            first = given[0] if given else None
        else:
            with open(given, encoding="utf-8-sig") as file:
                first = json.loads(next((line for line in file if line.strip()), "null"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and not first.keys().isdisjoint(("chosen", "rejected"))
