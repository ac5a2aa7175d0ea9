"""A trained language model as a person uses it: a prompt in, a response out."""
from collections.abc import Callable, Sequence

import torch

from llm.policy.generate import Prompts, Responses, Sampler, Tool
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer
from spinup.errors import UserError


class LanguagePolicy:
    """What was learned, ready to answer.

    Args:
        model, tokenizer: of a run or a checkpoint.
        max_tokens: the longest response.
        temperature: the one that it was trained at.
        seed: decides the responses.
        tool: of the task that it was trained on, as `llm.tasks.Task` has it.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, max_tokens: int, temperature: float = 1.0,
                 seed: int = 0, tool: Callable[[str], str | None] | None = None):
        self.model, self.tokenizer = model, tokenizer
        self.max_tokens, self.temperature, self.tool = max_tokens, temperature, tool
        self.sampler = Sampler(model, tokenizer.end)
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
        r = self.sampler(Prompts.of(rows, self.model.device), samples=samples, max_tokens=max_tokens,
                         generator=generator, temperature=self.temperature, tool=for_tokens(self.tool, self.tokenizer))
        return texts_of(r, self.tokenizer)


def texts_of(responses: Responses, tokenizer: Tokenizer) -> list[str]:
    """The text of each response."""
    rows = zip(responses.ids.tolist(), responses.lengths.tolist(), strict=True)
    return [tokenizer.decode(ids[:n]) for ids, n in rows]


def for_tokens(call: Callable[[str], str | None] | None, tokenizer: Tokenizer) -> Tool | None:
    """A task's tool, for tokens."""
    def tool(tokens: list[int]) -> list[int] | None:
        added = call(tokenizer.decode(tokens))
        return tokenizer.encode(added) if added else None
    return tool if call else None


def check_context(prompt: int, response: int, model: Transformer, setting: str = "--max-tokens") -> None:
    """UserError where a prompt and its response do not fit the model, because of that setting."""
    if prompt + response > model.shape.context:
        raise UserError(f"a prompt of {prompt} tokens and a response of {response} are longer than the model's context "
                        f"of {model.shape.context}; choose a smaller {setting} or shorter prompts")
