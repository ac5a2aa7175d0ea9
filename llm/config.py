"""Settings of every training run of a language model: task, model, and how responses are sampled."""
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from llm.policy.tokenizer import Tokenizer
from llm.tasks.names import without_wrappers
from spinup.errors import UserError
from spinup.registry import Algorithm
from spinup.runs.config import Count, Natural, NonNegative, Positive, Processes, Range, RunConfig, Size, Unit

SHAPE = ("layers", "width", "heads", "sft_accuracy")                    # settings of a run without a given model
FEW = 32                # pairs of a pretrained model sampled at a time: its caches of keys and values are large
Depth = Annotated[int, Range(1, 1024)]  # number of layers, or of heads per layer
Rank = Annotated[int, Range(0, 1024)]   # of the matrices of an adapter
Lag = Annotated[int, Range(0, 1)]       # updates between the weights that sample a batch and those that learn from it


def at_once(samples: int) -> int:
    """Return the number of responses that a pretrained model samples at once, with `samples` for each prompt, before a
    run that learns from stored responses."""
    return max(FEW, samples)


@dataclass(kw_only=True)
class LanguageConfig(RunConfig):
    """Settings of a task and of the model that is trained on it."""

    FAMILY: ClassVar[str] = "llm"
    SUBJECT: ClassVar[str] = "task"
    # The flag that sets the length of a response; messages name it.
    LENGTH: ClassVar[str] = "--max-tokens"
    # The flags that reduce the memory of an update.
    LEAN: ClassVar[tuple[str, ...]] = ("--micro-batch", "--gradient-checkpointing", "--max-tokens")
    AUTOMATIC: ClassVar[frozenset[str]] = frozenset({"micro_batch"})
    # Models of the policy's size in memory: those that learn, and frozen ones (the reference policy).
    MODELS: ClassVar[tuple[int, int]] = (1, 1)
    # True if responses are of older weights or of another program than the learner's; importance weights correct this.
    off_policy: ClassVar[bool] = False
    ONLY_WITH = {"lora_alpha": "lora"}

    task: str | object = "reverse"       # a name as in reverse:length=8, a JSONL of prompts or pairs, or a Task object
    reward: str | object = ""            # file.py:function, names as in exact,0.2*length, or the run of a reward model
    model: str = ""                      # initial policy: run, checkpoint, GGUF file or smollm2; empty: a small one
    system: str | None = None            # system prompt of conversations without one; none: that of the model's run
    template: str = ""                   # arguments of the model's chat template, as in enable_thinking=false
    total_steps: Count = 300             # updates of the run; the SFT run before it does not count
    max_tokens: Natural = 0              # longest response in tokens, end token included; 0 = the task's limit
    temperature: Positive = 1.0          # sampling temperature; above 1: more unlikely tokens; scoring uses it too
    held_out: Size = 256                 # sampled responses to held-out problems per row of progress.csv
    adam_eps: Positive = 1e-5            # epsilon of Adam; damps gradients below it; PPO's code 1e-5, TRL 1e-8
    micro_batch: Natural = 0             # responses per pass; 0 = all; with a pretrained model as many as fit, up to 16
    gradient_checkpointing: bool = False  # recompute activations in the backward pass: a third slower, far less memory
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # of weights, with fp32 copies; auto: bfloat16 on CUDA only
    compile: bool = False                # compile the layers: a minute or two once, then faster updates on a GPU
    workers: Processes = 1               # processes that share the responses, in most methods; torchrun's number wins
    shard: bool = False                  # divide Adam's moments and fp32 copies among the processes, to save memory
    fsdp: bool = False                   # divide weights, gradients and moments among the processes: larger models fit
    lora: Rank = 0                       # rank of adapters, trained in place of the weights; 0 = train all weights
    lora_alpha: Positive = 32.0          # adapters are multiplied by alpha / rank; larger: each step changes more
    layers: Depth = 4                    # layers of a new small model
    width: Size = 64                     # width of a new small model; 64 with 4 layers: 0.2 M parameters, 128: 0.9 M
    heads: Depth = 4                     # attention heads of a new small model; width / heads must be even

    @property
    def given_reward(self) -> Any:
        """Return the setting `reward`; None if it is empty, so that the task's own reward counts."""
        return None if isinstance(self.reward, str) and not self.reward else self.reward

    def __post_init__(self):
        super().__post_init__()
        if self.lora and not self.model:
            raise UserError("--lora trains adapters beside the weights of a given model; add --model, or leave out "
                            "--lora")

    @classmethod
    def preset_names(cls, value: Any, algorithm: Algorithm, kinds: Sequence[str] = ()) -> list[str]:
        """Names of a task's presets, for this method alone and for all methods of its file.

        Options and wrappers of the task do not matter. A pretrained model has its own presets, because the others are
        tuned for small character models.
        """
        if not isinstance(value, str):
            return []
        task = without_wrappers(value).partition(":")[0]
        if "pretrained" in kinds:
            return [f"{task} pretrained {algorithm.method}", f"{task} pretrained"]
        return [f"{task} {algorithm.method}", task]

    @property
    def responses(self) -> int:
        """Number of responses that an update learns from."""
        return 64

    @property
    def sampled(self) -> int:
        """Largest number of responses that the method samples at once."""
        return self.responses

    @property
    def evaluated(self) -> int:
        """Largest number of responses that a row of the log needs: the sampled ones, and the greedy ones."""
        return 2 * self.held_out

    @property
    def updates_per_row(self) -> int:
        """Updates between two rows of a pretrained model's log.

        There are at most 10 rows after the first one. The responses of all rows are at most a sixth of those that the
        run learns from. Evaluating a response takes up to as long as learning from one, because its prompt is read for
        it alone and the reference policy reads it too. So evaluation takes at most a seventh of the time.
        """
        rows = self.total_steps * self.responses // (6 * self.evaluated) - 1                # one is before any update
        return math.ceil(self.total_steps / max(1, min(10, rows)))

    def response_tokens(self, task: Any) -> int:
        """Longest response to a task (any object with `max_tokens`), in tokens, end token included."""
        return self.max_tokens or int(task.max_tokens)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise UserError if a setting does not fit the model's tokenizer."""


@dataclass(kw_only=True)
class LearningConfig(LanguageConfig):
    """Settings of every method that learns from rewards."""

    prompts: Size = 32                   # different prompts per update; more: less noise, but slower
    samples: Size = 8                    # responses per prompt; the method compares them with each other
    sft_accuracy: Unit = 0.3             # held-out accuracy that ends SFT; .15 to .5 leaves room to learn; 0 = never
    warmup: Natural = 50                 # updates until lr is reached; with 10, one run of GRPO in 3 collapsed
    anneal: bool = True                  # decay lr linearly to a tenth over the run
    max_grad_norm: Positive = 1.0        # largest gradient norm; larger gradients are scaled down

    @property
    def responses(self) -> int:
        """Number of responses that an update learns from."""
        return self.prompts * self.samples


@dataclass(kw_only=True)
class EngineConfig(LearningConfig):
    """Settings of every method that can learn from responses of other weights, or of a sampling engine."""

    ABOUT = "methods with importance weights"

    engine: str = "own"                  # program that samples: own, or a vLLM server such as http://localhost:8000
    engine_timeout: Positive = 600.0     # time limit for a response of the server, in seconds
    lag: Lag = 0                         # 1 = sample the next batch during an update, in a second process or a server
    max_weight: Positive = 2.0           # largest importance weight of a token; larger: less bias, more variance

    def __post_init__(self):
        super().__post_init__()
        if self.engine != "own":
            check_address(self.engine)
        elif self.engine_timeout != type(self).engine_timeout:
            raise UserError("--engine-timeout is for a server; add --engine, such as --engine http://localhost:8000")
        if self.max_weight != type(self).max_weight and not self.off_policy:
            raise UserError("--max-weight limits importance weights, which are 1 here; add --lag 1 or --engine")
        if self.off_policy and self.workers > 1:
            raise UserError("--engine and --lag work with one process that learns; leave out --workers")

    @property
    def off_policy(self) -> bool:
        """Return whether responses are of older weights or of another program than the learner's."""
        return self.engine != "own" or self.lag > 0


def check_address(text: str) -> None:
    """Raise UserError unless a text is the address of a server, without a path."""
    found = re.fullmatch(r"https?://(?:\w[\w-]*(?:\.\w[\w-]*)*|\[[\da-fA-F:]+\])(?::(\d{1,5}))?/?", text, re.ASCII)
    if not found or not 0 < int(found[1] or 1) < 2**16:
        raise UserError(f"--engine must be own, or the address of a server, as in http://localhost:8000, not {text!r}")


@dataclass(kw_only=True)
class GroupConfig(LearningConfig):
    """Settings of every method that compares the responses to one prompt."""

    minibatches: Count = 1               # minibatches per epoch, one gradient step each

    def __post_init__(self):
        super().__post_init__()
        if self.samples == 1:
            raise UserError("a group needs at least two responses to compare, and --samples 1 gives only one; choose 2 "
                            "or more")
        if self.minibatches > self.responses:
            raise UserError(f"--minibatches {self.minibatches} is more than the responses per update, --prompts "
                            f"{self.prompts} x --samples {self.samples} = {self.responses}; choose at most "
                            f"{self.responses}")


@dataclass(kw_only=True)
class PreferenceConfig(LanguageConfig):
    """Settings of every method that learns from preference pairs."""

    pairs: Count = 2000                  # pairs of responses of the initial policy; a file of pairs is used completely
    noise: NonNegative = 0.0             # noise of comparisons: P(a preferred to b) = sigmoid((a - b) / noise)
    batch: Size = 64                     # preference pairs per update
    sft_accuracy: Unit = 0.3           # held-out accuracy that ends SFT; .15 to .5 leaves room to learn; 0 = never
    warmup: Natural = 10                 # updates in which the learning rate rises linearly to lr
    anneal: bool = True                  # decay lr linearly to a tenth over the run
    max_grad_norm: Positive = 1.0        # largest gradient norm; larger gradients are scaled down

    def __post_init__(self):
        super().__post_init__()
        if self.micro_batch % 2:
            raise UserError(f"--micro-batch {self.micro_batch} would split a pair; choose an even number of responses, "
                            f"such as {self.micro_batch + 1}")

    @property
    def responses(self) -> int:
        """Number of responses that an update learns from."""
        return 2 * self.batch

    @property
    def sampled(self) -> int:
        """Largest number of responses that the method samples at once."""
        return max(2 * FEW, getattr(self, "samples", 0) * self.batch, getattr(self, "calibration", 0))

    @property
    def evaluated(self) -> int:
        """Largest number of responses that a row needs.

        The responses of held-out pairs, at most `8 * held_out`, count as a third each, because they are only scored.
        """
        return 2 * self.held_out + 8 * self.held_out // 3
