"""Tokenizers, from text to token ids and back: their interface, and one token per character for small models."""
import json
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from spinup.errors import UserError
from spinup.runs.files import write_json

CHARACTERS = "char_tokenizer.json"
FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")     # every tokenizer of Hugging Face has one of these


Messages = list[dict[str, str]]         # a conversation: turns with the keys "role" and "content"


class Tokenizer(Protocol):
    """Interface of a tokenizer.

    Attributes:
        end: the end token that is written after a response and learned.
        ends: all ids that end a response; `end` is one of them.
        vocab_size: all ids are below this number; a model's vocabulary may be larger.
        chats: whether a chat template turns conversations into ids.
        system: text of the system turn of every conversation that has none; None for the template's default.
        arguments: arguments of the chat template, by name.
    """

    end: int
    ends: frozenset[int]
    vocab_size: int
    chats: bool
    system: str | None
    arguments: dict[str, Any]

    def encode(self, text: str, literal: bool = False) -> list[int]:
        """Return the ids of a text without special tokens, because it may be in the middle of other text.

        literal: encode the text of special tokens, such as `<|im_end|>`, as ordinary text.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of a response, up to the first id in `ends`."""

    def prompt(self, text: str | Messages) -> list[int]:
        """Return the ids that the policy reads for a prompt, or for a conversation that ends with the user's turn."""

    def turns(self, conversation: Messages) -> tuple[list[int], list[int], list[bool]]:
        """Return prompt, response and mask of a conversation; only a tokenizer with `chats` needs it."""

    def today(self) -> dict[str, Any]:
        """Return the date as an argument of the chat template, if the template would write the current one."""

    def set_chat(self, system: str | None, arguments: Mapping[str, Any]) -> None:
        """Set the last two attributes. Raise UserError if the tokenizer or its chat template has no such thing."""

    def save(self, folder: Path) -> None:
        """Write the files that `load_tokenizer` reads."""


def last_turn(text: str | Messages) -> str:
    """Return the text, or the content of the last turn of a conversation."""
    return text if isinstance(text, str) else text[-1]["content"]


def encode_words(tokenizer: Tokenizer, text: str, name: str) -> list[int]:
    """Return the ids of a text from the user's code `name`. UserError, which names that code, if the text has none."""
    try:
        return tokenizer.encode(text, literal=True)           # so that a special token does not end the response
    except UserError as error:
        raise UserError(f"{name} returned {text!r}, where {error}") from None


class CharTokenizer:
    """One token per character: id 0 is the end token, 1 to n are the characters in the order of the alphabet."""

    end, ends, chats, system, arguments = 0, frozenset([0]), False, None, {}

    def __init__(self, alphabet: str):
        if not isinstance(alphabet, str) or not alphabet:
            raise UserError(f"an alphabet is a text of characters, not {alphabet!r}")
        self.alphabet, self.vocab_size = alphabet, len(alphabet) + 1
        self.ids = {character: i for i, character in enumerate(alphabet, 1)}
        if len(self.ids) < len(alphabet):
            raise UserError(f"the alphabet {alphabet!r} has a character twice; list each one once")

    def encode(self, text: str, literal: bool = False) -> list[int]:
        """Return the ids. Raise UserError, which names the first character that the alphabet lacks."""
        try:
            return [self.ids[character] for character in text]
        except KeyError as error:
            raise UserError(f"{error.args[0]!r} is not in the alphabet {self.alphabet!r}; leave it out, or use a task "
                            "and a model whose alphabet has it") from None

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.alphabet[i - 1] for i in takewhile(lambda i: i not in self.ends, ids))

    def prompt(self, text: str | Messages) -> list[int]:
        return self.encode(last_turn(text))

    def today(self) -> dict[str, Any]:
        return {}

    def set_chat(self, system: str | None, arguments: Mapping[str, Any]) -> None:
        check_chats(self, system, arguments)

    def save(self, folder: Path) -> None:
        write_json(folder / CHARACTERS, {"alphabet": self.alphabet})


def check_chats(tokenizer: Tokenizer, system: str | None, arguments: Mapping[str, Any]) -> None:
    """Raise UserError for a system prompt, or arguments of a chat template, if the tokenizer has no chat template."""
    if not tokenizer.chats and (system is not None or arguments):
        raise UserError(f"{'--template' if system is None else '--system'} needs a model with a chat template, which "
                        "this model does not have; leave it out, or choose another --model")


def template_arguments(text: str) -> dict[str, Any]:
    """Return the arguments in a text such as "enable_thinking=false,date=today".

    true, false, none and numbers become values, all else is text. Raise UserError for another form.
    """
    values = {"true": True, "false": False, "none": None}
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier():
            raise UserError(f"--template {text!r}: write arguments as name=value, separated by commas, such as "
                            "enable_thinking=false")
        if name in found:
            raise UserError(f"--template {text!r} has {name} twice; leave one of them out")
        number = re.fullmatch(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?", value)              # of JSON
        found[name] = values.get(value.lower(), json.loads(value) if number else value)
    return found


def tokens_with(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return all tokens that contain this text; none for an empty text. Raise UserError if no token contains it."""
    found = [i for i in range(tokenizer.vocab_size) if text in tokenizer.decode([i])] if text else []
    if text and not found:
        raise UserError(f"no token of this tokenizer contains --step {text!r}; choose a shorter one")
    return found
