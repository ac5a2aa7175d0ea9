"""Settings of every training of a language model: its task, its model, how responses are drawn."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from llm.policy.tokenizer import Tokenizer
from spinup.errors import UserError
from spinup.registry import Algorithm
from spinup.runs.config import Count, Natural, NonNegative, Positive, Range, RunConfig, Size, Unit

Depth = Annotated[int, Range(1, 1024)]  # layers, and heads of each


@dataclass(kw_only=True)
class LanguageConfig(RunConfig):
    """Settings of a task and of the model that works on it."""

    FAMILY: ClassVar[str] = "llm"
    SUBJECT: ClassVar[str] = "task"
    # The flag that makes a response too long, for messages.
    LENGTH: ClassVar[str] = "--max-tokens"

    task: str | object = "reverse"       # such as reverse:length=8; a JSONL of prompts or of pairs; in Python a task
    reward: str | Callable = ""          # file.py:function of prompt and response, or a reward model's run
    model: str = ""                      # the folder of a run or a checkpoint to begin with; without one, a small model
    total_steps: Count = 300             # updates of the whole run, those of imitation before it not counted
    max_tokens: Natural = 0              # the longest response, end token included; 0 means as long as the task says
    temperature: Positive = 1.0          # above 1 draws less likely tokens; sampling and scoring use the same
    held_out: Size = 256                 # answers drawn for a row, to problems that are never trained on
    adam_eps: Positive = 1e-5            # gradients below it step less than lr; 1e-5 as in PPO's code, in TRL 1e-8
    micro_batch: Natural = 0             # responses in one pass of scoring or learning; 0 = all; fewer take less memory
    checkpointing: bool = False          # recompute activations in the backward pass: a third slower, far less memory
    layers: Depth = 4                    # of a small model made here
    width: Size = 64                     # of a small model made here; 64 and 4 layers are 0.2 M parameters, 128 0.9 M
    heads: Depth = 4                     # of a small model made here; must divide its width into even parts

    @classmethod
    def preset_names(cls, value: Any, algorithm: Algorithm) -> list[str]:
        """Those of the task, whatever its options, for this method alone or for all of its file."""
        if not isinstance(value, str):
            return []
        task = value.partition(":")[0]
        return [f"{task} {algorithm.method}", task]

    def response_tokens(self, task: Any) -> int:
        """The longest response to a task (anything with `max_tokens`), the end token included."""
        return self.max_tokens or int(task.max_tokens)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """UserError where a setting does not fit the model's tokenizer."""


@dataclass(kw_only=True)
class LearningConfig(LanguageConfig):
    """Settings of every method that learns from rewards."""

    prompts: Size = 32                   # different prompts in an update; more are less noise, and take longer
    samples: Size = 8                    # responses to each prompt, which are compared with each other
    start_accuracy: Unit = 0.3           # where imitation stops; .15 to .5 leaves something to learn


@dataclass(kw_only=True)
class PreferenceConfig(LanguageConfig):
    """Settings of every method that learns from pairs of responses, of which one was preferred."""

    pairs: Count = 2000                  # comparisons of the initial policy's responses; a file is taken whole
    noise: NonNegative = 0.0             # of comparisons: a is preferred to b with probability sigmoid((a - b) / noise)
    batch: Size = 64                     # pairs in an update
    start_accuracy: Unit = 0.3           # where imitation stops; .15 to .5 leaves something to learn
    warmup: Natural = 10                 # updates in which the learning rate grows to lr
    anneal: bool = True                  # then it falls linearly to a tenth
    max_grad_norm: Positive = 1.0        # longer gradients are scaled down to this

    def __post_init__(self):
        super().__post_init__()
        if self.micro_batch % 2:
            raise UserError(f"--micro-batch {self.micro_batch} would cut a pair; choose an even number of responses, "
                            f"such as {self.micro_batch + 1}")
