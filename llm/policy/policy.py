"""A trained language model as a person uses it: a prompt in, a response out."""
from collections.abc import Callable, Sequence
from typing import Any

import torch

from llm.policy.generate import Prompts, Responses, Sampler, Tool
from llm.policy.tokenizer import Tokenizer, encode_words
from llm.policy.transformer import Transformer
from spinup.errors import UserError


class LanguagePolicy:
    """A policy, its tokenizer and its sampling settings, ready to answer.

    Args:
        model, tokenizer: of a run or a checkpoint.
        max_tokens: the longest response.
        temperature: the one that it was trained at.
        seed: decides the responses.
        tool: of the task that it was trained on, as `llm.tasks.Task` has it.
        end_of_turn: of the task that it was trained on, where that has episodes. Nobody answers a turn here, so a
            response ends with the first one.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, max_tokens: int, temperature: float = 1.0,
                 seed: int = 0, tool: Callable[[str], str | None] | None = None, end_of_turn: str = ""):
        self.model, self.tokenizer = model, tokenizer
        self.max_tokens, self.temperature, self.tool, self.end_of_turn = max_tokens, temperature, tool, end_of_turn
        self.sampler = Sampler(model, tokenizer.ends)
        self.generator = torch.Generator(model.device).manual_seed(seed)

    def respond(self, prompt: str, samples: int = 1, greedy: bool = False, max_tokens: int = 0) -> list[str]:
        """`samples` responses to one prompt; `greedy` takes the likeliest token each time.

        max_tokens: of a response; 0 means as many as in training.
        UserError for less than that, or than one sample; and where `respond_all` has one.
        """
        for name, number, least in ("samples", samples, 1), ("max_tokens", max_tokens, 0):
            if number < least:
                raise UserError(f"{name} must be at least {least}, not {number}")
        return self.respond_all([prompt], samples, None if greedy else self.generator, max_tokens or self.max_tokens)

    def respond_all(self, prompts: Sequence[str], samples: int, generator: torch.Generator | None,
                    max_tokens: int) -> list[str]:
        """`samples` responses to each prompt, those of a prompt together.

        generator: None takes the likeliest token each time.
        UserError where a prompt is empty, or does not fit the model with its response.
        """
        rows = [self.tokenizer.prompt(p) for p in prompts]
        if not all(rows):
            raise UserError("a prompt is empty; write at least one character")
        check_context(max(map(len, rows)), max_tokens, self.model)
        tool = OneTurn(self.end_of_turn, self.tokenizer) if self.end_of_turn else for_tokens(self.tool, self.tokenizer)
        r = self.sampler(Prompts.of(rows, self.model.device), samples=samples, max_tokens=max_tokens,
                         generator=generator, temperature=self.temperature, tool=tool)
        return texts_of(r, self.tokenizer)


def texts_of(responses: Responses, tokenizer: Tokenizer) -> list[str]:
    """The text of each response."""
    rows = zip(responses.ids.tolist(), responses.lengths.tolist(), strict=True)
    return [tokenizer.decode(ids[:n]) for ids, n in rows]


class Turns:
    """The episode of one response, for tokens: a `Tool` of its own, which is told each turn and adds the observation.

    Args:
        dialogue: an `llm.tasks.episodes.Dialogue`, or anything with its `take`, `end`, `done`, `end_of_turn` and
            `name`.
    """

    def __init__(self, dialogue: Any, tokenizer: Tokenizer):
        self.dialogue, self.tokenizer = dialogue, tokenizer
        self.begin, self.turn = 0, ""                         # the first token of the present turn, and its text

    def __call__(self, tokens: list[int]) -> list[int] | None:
        dialogue = self.dialogue
        self.turn = self.tokenizer.decode(tokens[self.begin:])
        if tokens[-1] in self.tokenizer.ends:
            dialogue.end(self.turn, ended=True)
            return None
        if dialogue.end_of_turn not in self.turn:
            return None
        added = encode_words(self.tokenizer, dialogue.take(self.turn), dialogue.name)
        self.begin, self.turn = len(tokens) + len(added), ""
        return [self.tokenizer.end] if dialogue.done else added

    def finish(self) -> None:
        """The response is over; where the policy has not ended it, it was cut off in this turn."""
        self.dialogue.end(self.turn, ended=False)


class OneTurn:
    """A `Tool` that ends a response with its first turn, where nobody is there to answer it."""

    def __init__(self, end_of_turn: str, tokenizer: Tokenizer):
        self.end_of_turn, self.tokenizer = end_of_turn, tokenizer

    def __call__(self, tokens: list[int]) -> list[int] | None:
        return [self.tokenizer.end] if self.end_of_turn in self.tokenizer.decode(tokens) else None


def for_tokens(call: Callable[[str], str | None] | None, tokenizer: Tokenizer) -> Tool | None:
    """A task's tool, for tokens."""
    def tool(tokens: list[int]) -> list[int] | None:
        added = call(tokenizer.decode(tokens))
        return encode_words(tokenizer, added, "the tool of the task") if added else None
    return tool if call else None


def check_context(prompt: int, response: int, model: Transformer, setting: str = "--max-tokens") -> None:
    """UserError where a prompt and its response do not fit the model, because of that setting."""
    if prompt + response > model.shape.context:
        raise UserError(f"a prompt of {prompt} tokens and a response of {response} are longer than the model's context "
                        f"of {model.shape.context}; choose a smaller {setting} or shorter prompts")
