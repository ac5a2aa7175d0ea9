"""Costs of an update of GRPO by model size: memory and seconds, computed from the shapes of public models.

Nothing here is measured. Memory is the estimate that a run prints before it starts (`llm.memory.needed`). Seconds
assume two shares that a model of 0.5 B parameters reached on an H200: of the peak FLOP/s in learning, and of the memory
bandwidth in sampling. All models get the same shares. The command prints them.
"""
from pathlib import Path
from typing import Any

import torch

from llm.algos import grpo
from llm.bench.roofline import PEAKS, SHAPES, bytes_a_step, flop_a_token
from llm.memory import GB, needed
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from spinup.bench.process import check_out, finish
from spinup.errors import UserError, nearest

QWEN = {"rope_theta": 1e6, "qkv_bias": True}
MODELS = {
    "SmolLM2-135M": Shape(49_152, 8192, 30, 576, 9, 3, 64, 1536, rope_theta=1e5),
    "Qwen2.5-0.5B": SHAPES["0.5b"],
    "Qwen2.5-1.5B": Shape(151_936, 32_768, 28, 1536, 12, 2, 128, 8960, **QWEN),
    "Qwen2.5-3B": Shape(151_936, 32_768, 36, 2048, 16, 2, 128, 11_008, **QWEN),
    "Qwen2.5-7B": Shape(152_064, 32_768, 28, 3584, 28, 4, 128, 18_944, tied=False, **QWEN)}
PROMPT, RESPONSE = 128, 256             # tokens of a prompt and of a response
# Shares of peak FLOP/s and of memory bandwidth, measured on an H200 with the 0.5B shape, compiled, and 64 rows.
LEARNING, SAMPLING = 0.24, 0.17


def costs(*, gpu: str = "H100", out: Path | None = None) -> int:
    """Print a table, then JSON as the last line. Return 0, because there is no goal.

    gpu: a name in `PEAKS`. Raise UserError for another name, or for a file that cannot be written.
    """
    if gpu not in PEAKS:
        raise UserError(f"there is no GPU {gpu!r} here.{nearest(gpu, PEAKS)} Choose one of {', '.join(PEAKS)}")
    check_out(out)
    cfg = grpo.Config(task="reverse", prompts=8, samples=8, micro_batch=16, dtype="bfloat16",
                      gradient_checkpointing=True)
    rows = [{"model": name, **cost(shape, cfg, *PEAKS[gpu])} for name, shape in MODELS.items()]
    print(f"computed, not measured: GRPO on one {gpu} in bf16, {cfg.prompts} prompts of {PROMPT} tokens with "
          f"{cfg.samples} responses of {RESPONSE} tokens, micro-batch {cfg.micro_batch} with gradient checkpointing; "
          f"learning at {LEARNING:.0%} of peak FLOP/s, sampling at {SAMPLING:.0%} of memory bandwidth\n"
          f"{'model':<14}{'parameters':>12}{'memory':>11}{'sampling':>10}{'learning':>10}")
    for row in rows:
        print(f"{row['model']:<14}{row['parameters'] / 1e6:>10,.0f} M{row['memory_gb']:>8,.1f} GB"
              f"{row['sampling_seconds']:>8.1f} s{row['learning_seconds']:>8.1f} s")
    return finish({"benchmark": "costs", "device": gpu, "rows": rows, "measured": False,
                   "assumed": {"share_of_peak": LEARNING, "share_of_bandwidth": SAMPLING},
                   "settings": {"prompts": cfg.prompts, "samples": cfg.samples, "prompt_tokens": PROMPT,
                                "response_tokens": RESPONSE, "micro_batch": cfg.micro_batch, "dtype": cfg.dtype,
                                "gradient_checkpointing": True}, "goal": None, "met": True}, out)


def cost(shape: Shape, cfg: grpo.Config, bandwidth: float, flops: float) -> dict[str, Any]:
    """Return parameters, memory in GB, and seconds of sampling and learning of one update.

    `bytes_a_step` is the number of bytes that a sampling step reads. Learning needs 8 FLOP per parameter and
    token instead of 6, because gradient checkpointing computes the forward pass twice.
    """
    with torch.device("meta"):                                            # counts parameters without allocating memory
        parameters = sum(p.numel() for p in Transformer(shape).parameters())
    responses = cfg.prompts * cfg.samples
    memory = needed(shape, parameters, cfg, cfg.micro_batch, PROMPT, RESPONSE, responses, cuda=True)
    read = RESPONSE * bytes_a_step(shape, parameters, 2, responses, PROMPT + RESPONSE // 2)
    tokens = cfg.prompts * PROMPT + responses * RESPONSE
    work = flop_a_token(shape, parameters, PROMPT + RESPONSE) * tokens * 8 / 6
    return {"parameters": parameters, "memory_gb": round(sum(memory.values()) / GB, 2),
            "sampling_seconds": round(read / (SAMPLING * bandwidth), 2),
            "learning_seconds": round(work / (LEARNING * flops), 2)}
