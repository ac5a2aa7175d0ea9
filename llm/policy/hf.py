"""Tokenizers of Hugging Face, and the tokenizer in the folder of any model."""
import json
import re
import time
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from llm.policy.tokenizer import CHARACTERS, FILES, CharTokenizer, Messages, Tokenizer, check_chats, last_turn
from spinup.errors import UserError, nearest
from spinup.runs.files import disk_errors, write_json


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
        if (path / "tokenizer.json").is_file() and not inside:
            self._as_in(path / "tokenizer.json")
        if getattr(self.tokenizer, "add_eos_token", False):   # then no response would follow a prompt
            self.tokenizer.add_eos_token = False
        self.vocab_size, self.chats = len(self.tokenizer), bool(self.tokenizer.chat_template)
        self.anchor = ""
        try:                                                  # a chat template is a program: it may raise anything
            found = self._ends(Path(folder))
        except UserError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"the chat template in {folder} cannot be used ({reason}); fetch it again") from None
        self.end, self.ends = found[0], frozenset(found)
        if self.decode(self.encode("x") * 2) != "xx":         # SentencePiece writes a space before the first word
            self.anchor = "\n"
        self.set_chat(system, arguments or {})

    def today(self) -> dict[str, Any]:
        """Return the date as an argument of the chat template, if the template would write the current one.

        Llama 3.2's template does. A run keeps the date of its start, so that its prompts stay the same.
        """
        code = str(self.tokenizer.chat_template)
        return {"date_string": time.strftime("%d %b %Y")} if "strftime_now" in code and "date_string" in code else {}

    def set_chat(self, system: str | None, arguments: Mapping[str, Any]) -> None:
        """Set the system prompt and the arguments of the chat template.

        Raise UserError without a chat template, or if the template has no argument of that name.
        """
        check_chats(self, system, arguments)
        self.system, self.arguments = system, dict(arguments)
        code = " ".join(re.findall(r"\{[{%].*?[%}]\}", str(self.tokenizer.chat_template), re.DOTALL))
        code = re.sub(r"'[^']*'|\"[^\"]*\"", "", code)                    # without texts, which are not arguments
        words = set(re.findall(r"\w+", code)) - {"messages", "add_generation_prompt"}
        for name in arguments:
            if name not in words:
                raise UserError(f"the model's chat template has no argument {name!r}.{nearest(name, words)}")

    def _as_in(self, file: Path) -> None:
        """Split text into words as tokenizer.json says, and add no token that the files lack.

        transformers replaces these rules by those of the class in tokenizer_config.json. For SmolLM2 this would drop
        the rule that each digit is a token. The class may also add a token: that of Qwen2 does so if the file has no
        `<|endoftext|>`. Then PreTrainedTokenizerFast is used, which adds only tokens that the files name.
        """
        from tokenizers import Tokenizer as Rules
        from transformers import PreTrainedTokenizerFast
        rules = Rules.from_file(str(file))
        if len(self.tokenizer) > rules.get_vocab_size():
            self.tokenizer = PreTrainedTokenizerFast.from_pretrained(file.parent, local_files_only=True)
        if hasattr(self.tokenizer, "backend_tokenizer"):
            for name in ("normalizer", "pre_tokenizer", "decoder"):
                setattr(self.tokenizer.backend_tokenizer, name, getattr(rules, name))

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
        """Return the ids without what starts a whole text: tokens such as Llama's `<s>`, and SentencePiece's space."""
        def ids(text: str) -> list[int]:
            return self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=literal)
        return ids(self.anchor + text)[len(ids(self.anchor)) if self.anchor else 0:]

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
