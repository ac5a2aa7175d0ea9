"""Text to token ids and back: a token a character for the models made here, and the tokenizers of Hugging Face."""
import json
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from spinup.errors import UserError
from spinup.runs.files import write_json

CHARACTERS = "char_tokenizer.json"
FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")     # one of which each of Hugging Face's tokenizers has


class Tokenizer(Protocol):
    """The form of a tokenizer.

    Attributes:
        end: the id that is written, and taught, behind a response.
        ends: every id that ends a response; `end` is one of them.
        vocab_size: ids are below it; a model may have more.
    """

    end: int
    ends: frozenset[int]
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """The ids of a text and nothing more: it may stand in the middle of others."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a response, which stops at the first of `ends`."""

    def prompt(self, text: str) -> list[int]:
        """The ids that the policy reads for a prompt."""

    def save(self, folder: Path) -> None:
        """Write what `load_tokenizer` reads."""


def encode_words(tokenizer: Tokenizer, text: str, name: str) -> list[int]:
    """The ids of a text which the user's code `name` has returned; UserError, which names it, where there are none."""
    try:
        return tokenizer.encode(text)
    except UserError as error:
        raise UserError(f"{name} returned {text!r}, where {error}") from None


class CharTokenizer:
    """A token a character: id 0 is the end, 1 to n are the characters in the order of the alphabet."""

    end, ends = 0, frozenset([0])

    def __init__(self, alphabet: str):
        if not isinstance(alphabet, str) or not alphabet:
            raise UserError(f"an alphabet is a text of characters, not {alphabet!r}")
        self.alphabet, self.vocab_size = alphabet, len(alphabet) + 1
        self.ids = {character: i for i, character in enumerate(alphabet, 1)}
        if len(self.ids) < len(alphabet):
            raise UserError(f"the alphabet {alphabet!r} has a character twice; give each once")

    def encode(self, text: str) -> list[int]:
        """UserError naming the first character that the alphabet lacks."""
        try:
            return [self.ids[character] for character in text]
        except KeyError as error:
            raise UserError(f"{error.args[0]!r} is not in the alphabet {self.alphabet!r}; leave it out or add it "
                            "there") from None

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.alphabet[i - 1] for i in takewhile(lambda i: i not in self.ends, ids))

    def prompt(self, text: str) -> list[int]:
        return self.encode(text)

    def save(self, folder: Path) -> None:
        write_json(folder / CHARACTERS, {"alphabet": self.alphabet})


class HFTokenizer:
    """The tokenizer in a folder of Hugging Face's. Nothing is downloaded, and no code of the folder's is run.

    UserError where transformers is not installed, or the folder holds no tokenizer that it can open.
    """

    def __init__(self, folder: str | Path):
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise UserError(f"{folder} needs transformers; type: pip install 'spinup-rl[hf]'") from None
        if not any(Path(folder, name).is_file() for name in FILES):       # transformers would make an empty one
            raise UserError(f"{folder} holds no tokenizer.json; fetch the whole folder of the model")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:                                        # a damaged file raises a bare Exception
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"the tokenizer in {folder} cannot be opened ({reason}); fetch it again") from None
        self.folder, self.vocab_size = Path(folder).resolve(), len(self.tokenizer)
        found = self._ends(Path(folder))
        self.end, self.ends = found[0], frozenset(found)

    def _ends(self, folder: Path) -> list[int]:
        """The token that a chat template writes after an assistant's words, the end of a text, and those that
        generation_config.json names, or without it config.json, as in transformers. The first is the one to write.

        The end of a text is not asked first: Qwen2.5's base models have the template, and `<|endoftext|>` as that.
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
        raise UserError(f"{folder} names no token that ends a text; put an eos_token into its tokenizer_config.json")

    def encode(self, text: str) -> list[int]:
        """Without what the tokenizer puts in front of a whole text, such as Llama's `<s>`."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Iterable[int]) -> str:
        """Special tokens are left out, and the spaces left as they were written."""
        ids = list(takewhile(lambda i: i not in self.ends, ids))
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def prompt(self, text: str) -> list[int]:
        """A user's turn of the model's chat and the opening of the assistant's; of a model without chat the text."""
        if self.tokenizer.chat_template:                                  # writes its own `<s>`: no second one
            chat = [{"role": "user", "content": text}]
            return self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
        return self.tokenizer.encode(text)

    def save(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(folder)


def tokens_with(text: str, tokenizer: Tokenizer) -> list[int]:
    """The tokens that hold this text, perhaps among more; UserError where it is a text and none does."""
    found = [i for i in range(tokenizer.vocab_size) if text in tokenizer.decode([i])] if text else []
    if text and not found:
        raise UserError(f"no token of this tokenizer holds --step {text!r}; choose a shorter one")
    return found


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer in a model's folder, ours or Hugging Face's; UserError where it holds none that can be opened."""
    file = Path(folder, CHARACTERS)
    if not file.is_file():
        return HFTokenizer(folder)
    try:
        alphabet = json.loads(file.read_text("utf-8"))["alphabet"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f'{file} is damaged; write {{"alphabet": "..."}} with the characters in their order') from None
    return CharTokenizer(alphabet)
