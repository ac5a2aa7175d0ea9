"""A trained language model as a person uses it: a prompt in, a response out."""
import torch

from llm.policy.generate import Prompts, Sampler
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer


class LanguagePolicy:
    """What was learned, ready to answer.

    Args:
        model, tokenizer: of a run or a checkpoint.
        max_tokens: the longest response.
        temperature: the one that it was trained at.
        seed: decides the responses.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, max_tokens: int, temperature: float = 1.0,
                 seed: int = 0):
        self.model, self.tokenizer = model, tokenizer
        self.max_tokens, self.temperature = max_tokens, temperature
        self.sampler = Sampler(model, tokenizer.end)
        self.generator = torch.Generator(model.device).manual_seed(seed)

    def respond(self, prompt: str, samples: int = 1, greedy: bool = False, max_tokens: int = 0) -> list[str]:
        """`samples` responses to one prompt; `greedy` takes the likeliest token each time."""
        prompts = Prompts.of([self.tokenizer.prompt(prompt)], self.model.device)
        r = self.sampler(prompts, samples=samples, max_tokens=max_tokens or self.max_tokens,
                         generator=None if greedy else self.generator, temperature=self.temperature)
        rows = zip(r.ids.tolist(), r.lengths.tolist(), strict=True)
        return [self.tokenizer.decode(ids[:n]) for ids, n in rows]
