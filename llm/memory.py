"""Memory of a run: an estimate before it starts, and out-of-memory errors as one sentence that names settings."""
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn import Module

from llm.config import LanguageConfig
from llm.policy.generate import CACHES
from llm.policy.policy import LanguagePolicy
from llm.policy.score import CHUNK
from llm.policy.shape import Shape
from llm.policy.tokenizer import Messages, Tokenizer
from llm.policy.transformer import Transformer
from spinup import errors
from spinup.errors import UserError
from spinup.machine import free_memory
from spinup.runs import ranks
from spinup.runs.config import Natural
from spinup.runs.convert import checked
from spinup.runs.records import read_run

PIECE = 16              # first suggestion for --micro-batch
SIZES = (16, 8, 4, 2)   # automatic micro-batches of a pretrained model; even sizes split no pair; PPO: at most 8
LOGITS = 4              # tensors over the vocabulary that a backward pass holds, in fp32
GB = 1e9
EVALUATED = 8 * GB      # KV caches of an evaluation
LIBRARIES = 0.6 * GB    # Python with torch and transformers, in the memory of the CPU


def needed(shape: Shape, parameters: int, cfg: LanguageConfig, size: int, prompt: int, response: int,
           rows: int, cuda: bool = False, judge: int = 0, adapters: int = 0) -> dict[str, float]:
    """Estimate the bytes that a run needs, by purpose. Their sum is its peak.

    - weights, gradients and Adam of each trained model. Adam has two moments in fp32. With bf16 weights it also has a
      copy of the weights in fp32. With `shard`, each process has its share of these. With `fsdp`, it has its share of
      all models and their gradients, and while it samples, all weights of the policy.
      With adapters, only they have gradients and moments, and all models share the frozen weights.
    - frozen models: the reference policy, the reward model, and other models that do not learn. With adapters, a value
      function that copies the reward model has frozen weights of its own.
    - KV caches of all responses that this process samples at once: 2 * layers * kv_heads * head_size numbers per token.
    - activations, attention mask and logits of a micro-batch. For the backward pass, a layer keeps its inputs, its
      projections, and the outputs of its MLP. Keys and values of a prompt are repeated for each of its responses.
    - a second process that samples: its weights and caches, and Python with torch.
    - libraries: Python with torch and transformers, unless the model is on a GPU.

    Args:
        parameters: number of parameters of the policy.
        size: responses per micro-batch.
        prompt, response: longest lengths, in tokens.
        rows: most responses that this process samples at once.
        cuda: whether the run uses a GPU.
        judge: number of parameters of the reward model that scores the responses; they are in fp32.
        adapters: number of parameters of the adapters, if only they learn.
    """
    each = 4 if cfg.dtype == "float32" or (cfg.dtype == "auto" and not cuda) else 2            # bytes of a weight
    trained, frozen = cfg.MODELS
    keys = 2 * shape.kv_heads * shape.head_size                                               # numbers per token
    prompts = -(-size // max(1, getattr(cfg, "samples", 1)))
    tokens = size * response + prompts * prompt
    kept = 4 * shape.width + 4 * shape.hidden + (3 * shape.heads + 2 * shape.kv_heads) * shape.head_size
    layers = 1 if cfg.gradient_checkpointing else shape.layers
    activations = layers * (tokens * kept + size * (prompt + response) * keys) + shape.layers * tokens * shape.width
    activations += size * response * (prompt + response)                                      # the mask, of all layers
    logits = LOGITS * min(size * response * shape.vocab_size, CHUNK)
    learning = trained * (adapters or parameters)
    shared, size_of_run = parameters - adapters if adapters else 0, ranks.wanted(cfg.workers)
    share = size_of_run if cfg.fsdp else 1
    cache = CACHES * (prompt + response) * shape.layers * keys * (each if cuda else 4)        # of one response
    second = getattr(cfg, "lag", 0) and cfg.engine == "own"
    return {"weights": (shared + learning) * each // share, "gradients": learning * each // share,
            "Adam": learning * (8 if each == 4 else 12) // (size_of_run if cfg.shard else share),
            "frozen models": (0 if adapters else frozen * parameters * each) // share + judge * (
                4 + (each if adapters and trained > 1 else 0)),
            "weights for sampling": parameters * each * cfg.fsdp,
            "KV caches": rows * cache,
            "second process": second * (parameters * each + cfg.sampled * cache + (0 if cuda else LIBRARIES)),
            "activations and logits": activations * each * trained + logits * 4,
            "libraries": 0 if cuda else LIBRARIES}


def too_large(cfg: LanguageConfig, parts: dict[str, float], there: float) -> str:
    """Return the message for a model that does not fit, with advice.

    parts: memory that the run needs with the smallest micro-batch, in bytes. there: memory that is available.
    """
    added = ["--lora 16"] * (not cfg.lora)
    if "--gradient-checkpointing" in cfg.LEAN and not cfg.gradient_checkpointing:
        added.append("--gradient-checkpointing")
    advice = f"add {' or '.join(added)}, " if added else ""
    whole, lower = sum(parts.values()), "--model or --max-tokens"
    if parts["KV caches"] > whole / 2:
        names = ("--prompts", "--samples") if hasattr(cfg, "prompts") else ()
        lower = ", ".join(["--model", "--max-tokens", *names]) + " or --held-out"
    return (f"training {cfg.model} needs about {whole / GB:.1f} GB of memory, and {there / GB:.1f} GB are available; "
            f"choose a smaller {lower}, {advice}or use a device with more memory")


def fit(cfg: LanguageConfig, model: Transformer, prompt: int, response: int, resumed: bool = False,
        judge: Module | None = None) -> None:
    """Set the micro-batch of a pretrained model, if it is automatic, and print the memory that the run needs.

    The micro-batch becomes the largest of 16, 8, 4 and 2 that fits, except in a resumed run. With a value function,
    which keeps activations too, it is at most 8.
    prompt, response: longest lengths, in tokens. judge: the reward model of the task, already loaded. Raise UserError
    if the available memory is too small, or if `--fsdp` under torchrun has no `--micro-batch`: the processes could
    choose different ones.
    """
    if cfg.fsdp and not (cfg.micro_batch or resumed) and ranks.wanted(1) > 1:
        raise UserError("with --fsdp under torchrun, the processes could choose different micro-batches; set the same "
                        f"one for all, such as --micro-batch {SIZES[1]}")
    cuda = model.device.type == "cuda"
    gc.collect()                                              # an earlier run in this process
    if cuda:
        torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(model.device)[0] if cuda else free_memory()
    if not cuda and ranks.rank() == 0:                        # the other ranks load their models later
        free //= ranks.wanted(cfg.workers)
    parameters, judges = (sum(p.numel() for p in m.parameters()) if m is not None else 0 for m in (model, judge))
    adapters = sum(p.numel() for p in model.parameters() if p.requires_grad) if cfg.lora else 0
    loaded = sum(p.numel() * p.element_size() for p in model.parameters()) + 4 * judges
    loaded += 0 if cuda else LIBRARIES
    own = cfg.prompts if cfg.off_policy else cfg.sampled      # beside an engine, only greedy responses to the prompts
    there, rows = free + loaded, max(own, 2 * cfg.held_out)               # see `Run.evaluate`

    def parts(size: int) -> dict[str, float]:
        return needed(model.shape, parameters, cfg, size, prompt, response, rows, cuda, judges, adapters)

    wholes = {size: sum(parts(size).values()) for size in SIZES if size * cfg.MODELS[0] <= SIZES[0]}
    fitting = next((size for size, whole in wholes.items() if whole <= there), 0)
    if not fitting:
        raise UserError(too_large(cfg, parts(SIZES[-1]), there))
    cfg.micro_batch = cfg.micro_batch or (0 if resumed else fitting)
    found = parts(size := cfg.micro_batch or cfg.responses)
    if not cfg.quiet:
        print(f"memory: {', '.join(f'{name} {x / GB:.2f}' for name, x in found.items() if x)} (micro-batch {size} of "
              f"at most {prompt + response} tokens); about {(whole := sum(found.values())) / GB:.1f} GB of "
              f"{there / GB:.1f} GB", flush=True)
        if whole > there:
            print("this may be too much; a smaller --micro-batch needs less memory", flush=True)


def problems_at_once(policy: LanguagePolicy, prompts: Sequence[str | Messages], samples: int, most: int) -> int:
    """Return the number of prompts, at most `most`, for which an evaluation samples `samples` responses at once. The KV
    caches then take at most `EVALUATED` bytes. With less memory, print a line, because each response then gets
    different random numbers."""
    model, longest = policy.model, policy.max_tokens + max(len(policy.tokenizer.prompt(p)) for p in prompts)
    free = torch.cuda.mem_get_info(model.device)[0] if model.device.type == "cuda" else free_memory()
    each = CACHES * longest * model.shape.layers * 2 * model.shape.kv_heads * model.shape.head_size * 4 * samples
    usual, fitting = (max(1, min(most, len(prompts), int(x // each))) for x in (EVALUATED, free / 2))
    if fitting < usual:
        print(f"little memory: {fitting} problems at a time; with more memory, the sampled responses would differ",
              file=sys.stderr)
    return min(usual, fitting)


def as_before(cfg: LanguageConfig, directory: Path, tokenizer: Tokenizer) -> None:
    """Give a resumed run the micro-batch in its `config.json`, unless the settings name one, and its arguments of the
    chat template, such as the date of its start.

    Raise UserError if the micro-batch is damaged.
    """
    begun = read_run(directory)
    cfg.micro_batch = cfg.micro_batch or checked("micro_batch", Natural, begun["config"].get("micro_batch", 0))
    if tokenizer.chats:
        tokenizer.set_chat(begun.get("system"), begun.get("template") or {})


def out_of_memory(error: BaseException | None, cfg: LanguageConfig) -> UserError | None:
    """Return the UserError that replaces an out-of-memory error; None for any other error."""
    if not errors.out_of_memory(error):
        return None
    piece = min(PIECE, cfg.micro_batch // 4 * 2 if cfg.micro_batch else PIECE)                # even: splits no pair
    added = [f"--micro-batch {piece}"] * (piece > 1) + ["--gradient-checkpointing"] * (not cfg.gradient_checkpointing)
    added = [flag for flag in added if flag.split()[0] in cfg.LEAN]
    lowered = [flag for flag in cfg.LEAN if flag not in ("--micro-batch", "--gradient-checkpointing")]
    advice = f"add {' '.join(added)}, or lower" if added else "lower"
    return UserError(f"not enough memory for these settings; {advice} {' or '.join(lowered)}")


@contextmanager
def enough_memory(cfg: LanguageConfig) -> Iterator[None]:
    """Raise a UserError if the block runs out of memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if told := out_of_memory(error, cfg):
            raise told from None
        raise
