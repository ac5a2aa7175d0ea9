"""Task, model and tokenizer for the benchmarks of language models."""
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import ascii_letters
from typing import Any
from zlib import crc32

import numpy as np
import torch

from llm.config import LanguageConfig
from llm.policy.export import save_pretrained
from llm.policy.load import fresh
from llm.policy.transformer import Transformer
from llm.tasks.task import Problem, Task, draw
from spinup.errors import UserError

ALPHABET = ascii_letters[:42]                             # with the end token, 43 tokens
PROMPT, NEW, PROMPTS, SAMPLES = 7, 8, 32, 8               # tokens per prompt and per response; prompts, samples each


@dataclass
class Questions(Task):
    """Random characters as prompts, and a different reward for every response; a task without a teacher.

    Attributes:
        half: True gives a reward of 0 to all responses if the prompt starts with every second character. Then half of
            all groups have zero variance.
    """

    half: bool = False
    alphabet: str = ALPHABET
    max_tokens: int = NEW
    name = "questions"

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        """Return prompts of random letters; they have no answer."""
        def make() -> Problem:
            return Problem("".join(self.alphabet[i] for i in rng.integers(len(self.alphabet), size=PROMPT)))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Raise UserError, because there is nothing to imitate."""
        raise UserError("this benchmark's task has no demonstrations for SFT; add --model with the folder of a model")

    def reward(self, problem: Problem, response: str) -> float:
        """Return a number in [0, 1) that depends only on prompt and response; with `half`, 0 for half of the prompts.
        """
        if self.half and self.alphabet.index(problem.prompt[0]) % 2 == 0:
            return 0.0
        return crc32((problem.prompt + response).encode()) / 2**32


def save_model(folder: Path, width: int) -> None:
    """Save one of this library's small models, with random weights; its responses never end early."""
    start = fresh(LanguageConfig(width=width), Questions())
    never_end(start.model)
    save_pretrained(folder, start.model, start.tokenizer)


def never_end(model: Transformer) -> None:
    """Make token 0, the end token, so unlikely that it is never sampled.

    Set the first entry of every token's embedding to 1, and that of the end token to -4. The first entry of every state
    is then large. The output head is tied to the embedding, so the end token gets a very low logit.
    """
    with torch.no_grad():
        model.embed.weight[:, 0] = 1.0
        model.embed.weight[0, 0] = -4.0


def check_installed(name: str) -> None:
    """Raise UserError if a package is not installed."""
    if find_spec(name) is None:
        raise UserError(f"this benchmark needs {name}; type: pip install 'spinup-rl[bench]'")


def peer_tokenizer() -> Any:
    """Create our character tokenizer as a Hugging Face tokenizer with the same ids."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    end = "<end>"
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate([end, *ALPHABET])}, unk_token=end))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end)
