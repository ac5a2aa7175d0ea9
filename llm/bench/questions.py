"""The task, the model and the tokenizer of the benchmarks of language models."""
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import ascii_letters
from typing import Any
from zlib import crc32

import numpy as np
import torch

from llm.config import LanguageConfig
from llm.policy.checkpoint import save_pretrained
from llm.policy.load import fresh
from llm.policy.transformer import Transformer
from llm.tasks.task import Problem, Task, draw
from spinup.errors import UserError

ALPHABET = ascii_letters[:42]                             # with the end token, 43 tokens
PROMPT, NEW, PROMPTS, SAMPLES = 7, 8, 32, 8               # tokens of a prompt and of an answer; a batch


@dataclass
class Questions(Task):
    """Random characters, and a reward that no two answers to them share; a task without a teacher.

    Attributes:
        half: prompts that begin with every other character earn 0 whatever the answer: half of all groups have no
            contrast.
    """

    half: bool = False
    alphabet: str = ALPHABET
    max_tokens: int = NEW
    name = "questions"

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        """Prompts of random letters; they have no answer."""
        def make() -> Problem:
            return Problem("".join(self.alphabet[i] for i in rng.integers(len(self.alphabet), size=PROMPT)))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """UserError: there is nothing to imitate."""
        raise UserError("the task of this benchmark has no teacher; give --model a folder")

    def reward(self, problem: Problem, response: str) -> float:
        """A number in [0, 1) that follows from prompt and response alone; 0 for half of the prompts with `half`."""
        if self.half and self.alphabet.index(problem.prompt[0]) % 2 == 0:
            return 0.0
        return crc32((problem.prompt + response).encode()) / 2**32


def save_model(folder: Path, width: int) -> None:
    """A small model as this library makes it, with random weights, whose answers never end early."""
    start = fresh(LanguageConfig(width=width), Questions())
    never_end(start.model)
    save_pretrained(folder, start.model, start.tokenizer)


def never_end(model: Transformer) -> None:
    """Make token 0, the end, too unlikely ever to be drawn.

    The first entry of every state is made the same, far above the others, and that of the end token's row negative.
    """
    with torch.no_grad():
        model.embed.weight[:, 0] = 1.0
        model.embed.weight[0, 0] = -4.0


def check_installed(name: str) -> None:
    """UserError where a package is not installed."""
    if find_spec(name) is None:
        raise UserError(f"this benchmark needs {name}; type: pip install 'spinup-rl[bench]'")


def peer_tokenizer() -> Any:
    """Our character tokenizer as one of Hugging Face's: the same ids."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    end = "<end>"
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate([end, *ALPHABET])}, unk_token=end))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end)
