"""Tokenizers, from text to token ids and back: one token per character for small models, or Hugging Face's."""
import json
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from spinup.errors import UserError, nearest
from spinup.runs.files import disk_errors, write_json

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

        literal: encode the text of special tokens, such as <|im_end|>, as ordinary text.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of a response, up to the first id in `ends`."""

    def prompt(self, text: str | Messages) -> list[int]:
        """Return the ids that the policy reads for a prompt, or for a conversation that ends with the user's turn."""

    def turns(self, conversation: Messages) -> tuple[list[int], list[int], list[bool]]:
        """Return prompt, response and mask of a conversation; only a tokenizer with `chats` needs it."""

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

    def set_chat(self, system: str | None, arguments: Mapping[str, Any]) -> None:
        check_chats(self, system, arguments)

    def save(self, folder: Path) -> None:
        write_json(folder / CHARACTERS, {"alphabet": self.alphabet})


class HFTokenizer:
    """Tokenizer in a folder of Hugging Face's format, or in a GGUF file. It downloads nothing and runs no code.

    system, arguments: as in `Tokenizer`. Raise UserError if transformers is not installed, if it cannot open the
    tokenizer, or if `set_chat` refuses the last two.
    """

    def __init__(self, folder: str | Path, system: str | None = None, arguments: Mapping[str, Any] | None = None):
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise UserError(f"{folder} needs transformers; type: pip install 'spinup-rl[hf]'") from None
        path, inside = Path(folder), {}
        if path.is_file():
            path, inside = path.parent, {"gguf_file": path.name}
        elif not any(Path(folder, name).is_file() for name in FILES):     # transformers would create an empty one
            raise UserError(f"{folder} holds no tokenizer.json; fetch the whole folder of the model")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False,
                                                           **inside)
        except Exception as error:                                        # a damaged file raises a bare Exception
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"the tokenizer in {folder} cannot be opened ({reason}); fetch it again") from None
        self.vocab_size, self.chats = len(self.tokenizer), bool(self.tokenizer.chat_template)
        try:                                                  # a chat template is a program: it may raise anything
            found = self._ends(Path(folder))
        except UserError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"the chat template in {folder} cannot be used ({reason}); fetch it again") from None
        self.end, self.ends = found[0], frozenset(found)
        self.set_chat(system, arguments or {})

    def set_chat(self, system: str | None, arguments: Mapping[str, Any]) -> None:
        """Set the system prompt and the arguments of the chat template.

        Raise UserError without a chat template, or if the template has no argument of that name.
        """
        check_chats(self, system, arguments)
        self.system, self.arguments = system, dict(arguments)
        code = " ".join(re.findall(r"\{[{%].*?[%}]\}", str(self.tokenizer.chat_template), re.DOTALL))
        code = re.sub(r"'[^']*'|\"[^\"]*\"", "", code)                    # without texts, which are no arguments
        words = set(re.findall(r"\w+", code)) - {"messages", "add_generation_prompt"}
        for name in arguments:
            if name not in words:
                raise UserError(f"the model's chat template has no argument {name!r}.{nearest(name, words)}")

    def _ends(self, folder: Path) -> list[int]:
        """Return the ids that end a response; the first of these ids is written after a response.

        They are, in this order: the token that a chat template writes after the assistant's text; the tokenizer's
        eos_token; and the tokens in generation_config.json (or else in config.json), as in transformers. The template
        comes first because base models of Qwen2.5 have one, but use `<|endoftext|>` as eos_token.
        """
        found = []
        if self.tokenizer.chat_template:
            words, special = "the last words", {i for i, t in self.tokenizer.added_tokens_decoder.items() if t.special}
            chat = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": words}]
            tail = self.tokenizer.apply_chat_template(chat, tokenize=False).rpartition(words)[2]
            found += [i for i in self.encode(tail) if i in special][:1]
        found += [] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id]
        for file in (folder / "generation_config.json", folder / "config.json"):
            end = json.loads(file.read_text("utf-8")).get("eos_token_id") if file.is_file() else None
            if end is not None:
                found += end if isinstance(end, list) else [end]
                break
        if found:
            return found
        raise UserError(f"{folder} names no end token; add an eos_token to its tokenizer_config.json")

    def encode(self, text: str, literal: bool = False) -> list[int]:
        """Return the ids without the tokens that start a whole text, such as Llama's `<s>`."""
        return self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=literal)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without special tokens; spaces are not changed."""
        ids = list(takewhile(lambda i: i not in self.ends, ids))
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def prompt(self, text: str | Messages) -> list[int]:
        """Return the prompt as a user's turn of a chat, with the start of the assistant's turn.

        For a model without a chat template, return the ids of the text, or of the last turn.
        """
        if self.chats:
            return self._chat([{"role": "user", "content": text}] if isinstance(text, str) else text, True)
        return self.tokenizer.encode(last_turn(text))

    def _chat(self, turns: Messages, reply: bool) -> list[int]:
        """Return the ids of a conversation, with the system turn; `reply` adds the start of the assistant's next turn.

        Raise UserError if the chat template refuses the conversation.
        """
        if self.system is not None and turns[0]["role"] != "system":
            turns = [{"role": "system", "content": self.system}, *turns]
        try:                                                  # the template writes `<s>` itself: do not add another
            return self.tokenizer.apply_chat_template(turns, add_generation_prompt=reply, return_dict=True,
                                                      **self.arguments)["input_ids"]
        except Exception as error:                            # a template is a program: it may raise anything
            roles = ", ".join(turn["role"] for turn in turns)
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"the model's chat template refuses a conversation of the turns {roles} ({reason}); change "
                            "its turns, or --system and --template") from None

    def turns(self, conversation: Messages) -> tuple[list[int], list[int], list[bool]]:
        """Return prompt, response and mask of a conversation with several assistant turns, to imitate them all.

        The prompt is all before the first assistant turn that follows a user turn; the response is all after that. The
        mask is True for the tokens of assistant turns and their end tokens. Raise UserError if the chat template writes
        earlier turns differently when others follow.
        """
        prompt, ids, own, asked = [], [], [], False
        for i, turn in enumerate(conversation):
            asked = asked or turn["role"] == "user"
            if turn["role"] != "assistant" or not asked:
                continue
            before, after = self._chat(conversation[:i], True), self._chat(conversation[:i + 1], False)
            if before[:len(ids)] != ids or after[:len(before)] != before:
                raise UserError("the model's chat template changes earlier turns of a conversation when others follow, "
                                "so that no single text has all assistant turns; leave one assistant turn in each row")
            prompt = prompt or before
            last = max((at for at, token in enumerate(after) if token in self.ends), default=len(after) - 1)
            end = last + 1 if last >= len(before) else len(after)
            own += [False] * (len(before) - len(ids)) + [True] * (end - len(before)) + [False] * (len(after) - end)
            ids = after
        size = len(own) - own[::-1].index(True)                           # without the text after the last end token
        return prompt, ids[len(prompt):size], own[len(prompt):size]

    def save(self, folder: Path) -> None:
        """Write the tokenizer, and its end tokens, into a folder. Raise OSError if the disk is full."""
        with disk_errors(folder):
            self.tokenizer.save_pretrained(folder)
        ends = [self.end, *sorted(self.ends - {self.end})]
        write_json(Path(folder) / "generation_config.json", {"eos_token_id": ends})


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


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load the tokenizer in a model's folder, ours or Hugging Face's. Raise UserError if none can be opened."""
    file = Path(folder, CHARACTERS)
    if not file.is_file():
        return HFTokenizer(folder)
    try:
        alphabet = json.loads(file.read_text("utf-8"))["alphabet"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f'{file} is damaged; write {{"alphabet": "..."}} with the characters in their order') from None
    return CharTokenizer(alphabet)
