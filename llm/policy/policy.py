"""A trained language model that takes a prompt and returns a response."""
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from llm.faults import SHORT
from llm.policy.generate import Prompts, Responses, Sampler, Tool
from llm.policy.tokenizer import Messages, Tokenizer, encode_words
from llm.policy.transformer import Transformer
from llm.tasks.conversation import ROLES, SURROGATE, TURNS
from spinup.errors import UserError


class LanguagePolicy:
    """A policy with its tokenizer and its sampling settings.

    Args:
        model, tokenizer: those of a run or a checkpoint.
        max_tokens: longest response, in tokens.
        temperature: the temperature of its training.
        seed: random seed of the responses.
        tool: the tool of its training task, as in `llm.tasks.Task`.
        end_of_turn: the end of a turn in its training task, "" if each character is a turn; None without episodes.
            Here nothing replies to a turn, so a response ends with the first turn.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, max_tokens: int, temperature: float = 1.0,
                 seed: int = 0, tool: Callable[[str], str | None] | None = None, end_of_turn: str | None = None):
        self.model, self.tokenizer = model, tokenizer
        self.max_tokens, self.temperature, self.tool, self.end_of_turn = max_tokens, temperature, tool, end_of_turn
        self.sampler = Sampler(model, tokenizer.ends)
        self.generator = torch.Generator(model.device).manual_seed(seed)

    def respond(self, prompt: str | Messages, samples: int = 1, greedy: bool = False, max_tokens: int = 0) -> list[str]:
        """Sample `samples` responses to one prompt; `greedy` always takes the most likely token.

        prompt: a text, or a conversation: a list of {"role": "system", "user" or "assistant", "content": text} that
            ends with the user's turn. A model without a chat template reads the last turn only.
        max_tokens: longest response; 0 means the limit of the training.

        Raise UserError for a prompt that is neither, for a negative `max_tokens`, for less than one sample, and
        wherever `respond_all` raises it.
        """
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not isinstance(turns, list) or not turns or not all(
                isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
                for turn in turns):
            raise UserError(f"the prompt is {SHORT.repr(prompt)}; give a text, or a list of turns such as {TURNS}")
        if any(SURROGATE.search(turn["content"]) for turn in turns):
            raise UserError("the prompt contains an unpaired surrogate; remove it")
        for name, number, least in ("samples", samples, 1), ("max_tokens", max_tokens, 0):
            if not isinstance(number, int) or number < least:
                raise UserError(f"{name} must be a whole number of at least {least}, not {number!r}")
        return self.respond_all([prompt], samples, None if greedy else self.generator, max_tokens or self.max_tokens)

    def respond_all(self, prompts: Sequence[str | Messages], samples: int, generator: torch.Generator | None,
                    max_tokens: int) -> list[str]:
        """Sample `samples` responses to each prompt; those of one prompt are adjacent.

        generator: random number generator; None always takes the most likely token.
        Raise UserError if a prompt is empty, or if prompt and response do not fit the model's context.
        """
        rows = [self.tokenizer.prompt(p) for p in prompts]
        if not all(rows):
            raise UserError("a prompt is empty; write at least one character")
        check_context(max(map(len, rows)), max_tokens, self.model)
        responses = len(rows) * samples
        if self.end_of_turn is not None:
            tool = [OneTurn(self.end_of_turn, self.tokenizer) for _ in range(responses)]
        else:
            tool = for_tokens(self.tool, self.tokenizer, responses)
        r = self.sampler(Prompts.of(rows, self.model.device), samples=samples, max_tokens=max_tokens,
                         generator=generator, temperature=self.temperature, tool=tool)
        return texts_of(r, self.tokenizer)


def texts_of(responses: Responses, tokenizer: Tokenizer) -> list[str]:
    """Return the text of each response."""
    rows = zip(responses.ids.tolist(), responses.lengths.tolist(), strict=True)
    return [tokenizer.decode(ids[:n]) for ids, n in rows]


class Growing:
    """Text of one response that grows. Each call decodes only the new tokens, after a few earlier ones as their
    context."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.text, self.read = "", 0                          # text of the first `read` tokens
        self.context = 0                                      # first token of the context

    def __call__(self, tokens: list[int]) -> str:
        """Return the text of all tokens so far, which begin with those of the last call."""
        known = self.tokenizer.decode(tokens[self.context:self.read])
        new = self.tokenizer.decode(tokens[self.context:])[len(known):]
        if not new or new.endswith("\ufffd"):                 # the last character may not be complete
            return self.text + new
        self.text, self.context, self.read = self.text + new, self.read, len(tokens)
        return self.text


class Turns:
    """The episode of one response as a `Tool`: it passes each turn to the episode and adds the observation.

    Args:
        dialogue: an `llm.tasks.episodes.Dialogue`, or any object with its `take`, `end`, `done`, `end_of_turn` and
            `name`.
    """

    def __init__(self, dialogue: Any, tokenizer: Tokenizer):
        self.dialogue, self.tokenizer = dialogue, tokenizer
        self.begin, self.turn = 0, ""                         # first token of the current turn, and its text
        self.text = Growing(tokenizer)

    def __call__(self, tokens: list[int]) -> list[int] | None:
        dialogue = self.dialogue
        self.turn = self.text(tokens[self.begin:])
        if tokens[-1] in self.tokenizer.ends:
            dialogue.end(self.turn, ended=True)
            return None
        if dialogue.end_of_turn not in self.turn:
            return None
        added = encode_words(self.tokenizer, dialogue.take(self.turn), dialogue.name)
        self.begin, self.turn = len(tokens) + len(added), ""
        self.text = Growing(self.tokenizer)
        return [self.tokenizer.end] if dialogue.done else added

    def finish(self) -> None:
        """End the response. If the policy has not ended it, it was cut off in this turn."""
        self.dialogue.end(self.turn, ended=False)


class OneTurn:
    """A `Tool` that ends a response after its first turn, because nothing replies to it."""

    def __init__(self, end_of_turn: str, tokenizer: Tokenizer):
        self.end_of_turn, self.end, self.text = end_of_turn, tokenizer.end, Growing(tokenizer)

    def __call__(self, tokens: list[int]) -> list[int] | None:
        return [self.end] if self.end_of_turn in self.text(tokens) else None


def for_tokens(call: Callable[[str], str | None] | None, tokenizer: Tokenizer, rows: int) -> list[Tool] | None:
    """Wrap a task's tool, which works on text, to work on tokens: one `Tool` for each of the responses, `rows`."""
    def tool(text: Growing, tokens: list[int]) -> list[int] | None:
        added = call(text(tokens))
        return encode_words(tokenizer, added, "the tool of the task") if added else None
    return [partial(tool, Growing(tokenizer)) for _ in range(rows)] if call else None


def check_context(prompt: int, response: int, model: Transformer, setting: str = "--max-tokens") -> None:
    """Raise UserError, which names `setting`, if a prompt and its response do not fit the model's context."""
    if prompt + response > model.shape.context:
        raise UserError(f"a prompt of {prompt} tokens and a response of {response} together exceed the model's context "
                        f"of {model.shape.context}; choose a smaller {setting} or shorter prompts")
