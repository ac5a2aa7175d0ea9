"""Conversations in the rows of a file: lists of turns, as chat models and Hugging Face's datasets have them."""
import re
from typing import Any

from llm.policy.tokenizer import Messages

ROLES = ("system", "user", "assistant")
SURROGATE = re.compile("[\ud800-\udfff]")                 # allowed in JSON, but not in UTF-8
TURNS = '[{"role": "user", "content": "..."}]'


def fault_of_turns(given: Any) -> str:
    """Return why a value is not a conversation, as the end of a sentence; "" if it is a conversation."""
    if not isinstance(given, list) or not given:
        return f"is not a list of turns such as {TURNS}"
    for i, turn in enumerate(given, 1):
        role, content = (turn.get(key) if isinstance(turn, dict) else None for key in ("role", "content"))
        if role not in ROLES:
            return f"has the role {role!r} in turn {i}, but only {', '.join(ROLES)} are supported"
        if not isinstance(content, str) or not (content.strip() or role == "system"):
            return f"has no text as the content of turn {i}"
        if SURROGATE.search(content):
            return f"contains an unpaired surrogate in turn {i}"
        if role == "system" and i > 1:
            return f"has a system turn in place {i}, but only the first turn can be a system turn"
    if given[-1]["role"] == "system" or all(turn["role"] != "user" for turn in given):
        return "has no user turn to reply to"
    if [turn["role"] for turn in given[-2:]] == ["assistant", "assistant"]:
        return "ends with two assistant turns, but a user turn must come before the last one"
    return ""


def split_turns(given: list[dict[str, Any]]) -> tuple[Messages, str]:
    """Split a conversation into its turns up to the last user turn, and the assistant's reply; "" without a reply."""
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in given]
    return (turns[:-1], turns[-1]["content"]) if turns[-1]["role"] == "assistant" else (turns, "")


def text_of(value: Any) -> Any:
    """Return the content of a list of one assistant turn; return any other value unchanged."""
    one = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
    return value[0].get("content") if one and value[0].get("role") == "assistant" else value
