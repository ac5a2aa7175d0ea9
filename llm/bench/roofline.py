"""Roofline of language models: sampling as a share of memory bandwidth, training as a share of peak FLOP/s.

The model has random weights and a known shape. A sampling step reads all weights, and the keys and values of the whole
context of every row. The printed share is these bytes per second, divided by the peak bandwidth of the memory. Training
needs 6 FLOP per parameter and token, plus 6 x layers x width x length per token for causal attention. The share of the
device's peak is called MFU. Peaks are those of the manufacturer if the device is known; otherwise they are measured
with a large copy and a large matrix product.
"""
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from llm.algos import grpo
from llm.bench.questions import Questions, check_installed, never_end
from llm.policy.export import save_pretrained
from llm.policy.generate import Prompts, Sampler
from llm.policy.score import score
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from spinup.bench.process import check_out, finish
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.runs.threads import limited

SHAPES = {"0.5b": Shape(151_936, 1024, 24, 896, 14, 2, 64, 4864, rope_theta=1e6, qkv_bias=True),     # Qwen2.5-0.5B's
          "small": Shape(43, 1024, 4, 128, 4, 4, 32, 384)}
# Bytes per second, and FLOP/s of dense bf16, from the manufacturers. The first key in the device's name is used.
PEAKS = {"H200": (4.8e12, 989e12), "H100": (3.35e12, 989e12), "A100": (2.0e12, 312e12), "4090": (1.01e12, 165e12)}
# Devices whose names contain such a key, but whose peaks are others. The measured speed replaces these.
OTHERS = ("GH200", "H100 PCIe", "H100 NVL", "A100-SXM4-40GB", "A100-PCIE", "Laptop")
BATCHES = {"cuda": (1, 8, 64, 256, 1024), "cpu": (1, 8, 64, 256)}
CONTEXT, NEW = 512, 64                  # mean context of a step, in tokens; number of timed steps
ROWS = {"cuda": (16, 512), "cpu": (16, 256)}              # responses of a training step, and tokens of each
ANSWER = {"cuda": 128, "cpu": 8}                          # tokens of a response in the GRPO update
REPEATS = 3


def roofline(*, device: str = "auto", shape: str = "", batches: tuple[int, ...] = (), compile: bool = False,
             out: Path | None = None) -> int:
    """Measure on `device` and print; the last line is JSON. Return 0, because there is no goal.

    Args:
        shape: "0.5b" or "small"; the default is 0.5b on a GPU and small on a CPU.
        batches: rows sampled at a time; the default is up to 1024 on a GPU, if its memory allows.
        compile: compile the layers.
    Raise UserError for an unknown device, a shape too large for a CPU, or a file that cannot be written.
    """
    where = find_device(device, gpu_helps=True)
    kind = where.type
    if kind not in BATCHES:
        raise UserError(f"--device must be cuda or cpu, not {device!r}")
    shape = shape or {"cuda": "0.5b", "cpu": "small"}[kind]
    if shape == "0.5b" and kind == "cpu":
        raise UserError("--shape 0.5b needs a GPU; without one, type --shape small")
    check_out(out)
    check_installed("safetensors")                            # check first: the last part, minutes later, needs it
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    with limited(1):                                          # narrow models train on one CPU thread
        return measure(where, kind, shape, batches or BATCHES[kind], dtype, compile, out)


def measure(where: torch.device, kind: str, shape: str, batches: tuple[int, ...], dtype: torch.dtype,
            compile: bool, out: Path | None) -> int:
    """Print the peak and the measured speed of the machine, and write them to `out`. Return an exit code."""
    name = torch.cuda.get_device_name(where) if kind == "cuda" else f"CPU ({os.cpu_count()} cores), one thread"
    copied, multiplied = copy_pace(where), product_pace(where, dtype)
    stated = stated_peaks(name)
    bandwidth, flops = stated or (copied, multiplied)
    torch.manual_seed(1)
    model = Transformer(SHAPES[shape]).to(where, dtype)
    if compile:
        model.compile_layers()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"random weights of shape {shape}, {parameters / 1e6:,.1f} M parameters, {str(dtype)[6:]}, on {name}"
          f"{', compiled' if compile else ''}\n"
          + ("this does not measure a GPU; a small model fits in the CPU's caches, so the shares can exceed 100 %\n"
             if kind == "cpu" else "")
          + f"peak: {bandwidth / 1e9:,.0f} GB/s, {flops / 1e12:,.3g} TFLOP/s "
            f"({'from the manufacturer' if stated else 'measured'}); a large copy reaches "
            f"{copied / 1e9:,.0f} GB/s, a large matrix product {multiplied / 1e12:,.3g} TFLOP/s\n\n"
            f"sampling with {CONTEXT} tokens of context\n"
            f"{'batch':>7}{'tokens/s':>12}{'ms/step':>11}{'of bandwidth':>14}", flush=True)

    sampled = []
    for batch in batches:
        seconds = fitting(sampling_step, model, batch)
        if seconds is None:
            print(f"{batch:>7}   does not fit in memory")
            break
        size = bytes_a_step(SHAPES[shape], parameters, dtype.itemsize, batch, CONTEXT)
        share = size / seconds / bandwidth
        sampled.append({"batch": batch, "tokens_per_second": round(batch / seconds), "step_seconds": seconds,
                        "bytes_per_step": size, "bandwidth_share": round(share, 4)})
        print(f"{batch:>7}{batch / seconds:>12,.0f}{seconds * 1e3:>11.3f}{share:>14.1%}", flush=True)

    rows, length = ROWS[kind]
    seconds, trained = fitting(training_step, model, rows, length), None
    del model                                                             # the run below creates its own
    if seconds is not None:
        pace, each = rows * length / seconds, flop_a_token(SHAPES[shape], parameters, length)
        trained = {"rows": rows, "length": length, "tokens_per_second": round(pace), "step_seconds": seconds,
                   "flop_per_token": each, "mfu": round(pace * each / flops, 4)}
        print(f"\ntraining on {rows} rows of {length} tokens: {pace:,.0f} tokens/s, MFU {trained['mfu']:.1%}")
    else:
        print(f"\ntraining on {rows} rows of {length} tokens does not fit in memory")

    split = fitting(partial(grpo_step, compile=compile), where, SHAPES[shape], dtype, ANSWER[kind])
    if split is not None:
        print(f"one GRPO update, {split['answers']} responses of {split['tokens_each']:.0f} tokens: "
              f"{split['seconds']:.3f} s, of which "
              + ", ".join(f"{phase} {share:.0%}" for phase, share in split["shares"].items()))
    return finish({
        "benchmark": "roofline", "device": name, "kind": kind, "shape": shape, "parameters": parameters,
        "dtype": str(dtype)[6:], "compiled": compile, "context": CONTEXT,
        "peaks": {"bytes_per_second": bandwidth, "flop_per_second": flops, "stated": stated is not None,
                  "copy_bytes_per_second": copied, "product_flop_per_second": multiplied},
        "sampling": sampled, "training": trained, "grpo_step": split,
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda}, "goal": None, "met": True}, out)


def stated_peaks(name: str) -> tuple[float, float] | None:
    """Return the manufacturer's peaks of a device; None if they are not in `PEAKS`."""
    if any(other in name for other in OTHERS):
        return None
    return next((peaks for word, peaks in PEAKS.items() if word in name), None)


def fitting(measured: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or None if the GPU runs out of memory; then free its cached memory."""
    try:
        return measured(*arguments)
    except torch.OutOfMemoryError:
        return None
    except UserError as error:                                            # a run raises it for OutOfMemoryError
        if not isinstance(error.__cause__ or error.__context__, torch.OutOfMemoryError):
            raise
        return None
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def clock(device: torch.device) -> float:
    """Wait until the device has finished its work, and return the time in seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def best(device: torch.device, work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the seconds of the fastest of several calls, after one warm-up call."""
    found = []
    for _ in range(repeats + 1):
        began = clock(device)
        work()
        found.append(clock(device) - began)
    return min(found[1:])


def copy_pace(device: torch.device) -> float:
    """Bytes per second of a large copy, read plus written."""
    x = torch.ones(2**28 if device.type == "cuda" else 2**26, device=device)                 # 1 GB; 256 MB
    y = torch.empty_like(x)
    return 2 * x.numel() * x.element_size() / best(device, lambda: y.copy_(x))


def product_pace(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a large matrix product."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = torch.ones(2, n, n, device=device, dtype=dtype)
    return 2 * n**3 / best(device, lambda: a @ b)


def bytes_a_step(shape: Shape, parameters: int, size: int, rows: int, context: int) -> int:
    """Bytes that a sampling step must read: all weights once, and the keys and values of `context` tokens of every row.

    An embedding that is not tied to the output head does not count, because a step reads only a few of its rows.
    size: bytes per number.
    """
    return size * (parameters - looked_up(shape) + rows * context * 2 * shape.layers * shape.kv_heads * shape.head_size)


def looked_up(shape: Shape) -> int:
    """Number of weights of an embedding that is not tied to the output head; 0 for a tied one."""
    return 0 if shape.tied else shape.vocab_size * shape.width


def flop_a_token(shape: Shape, parameters: int, length: int) -> int:
    """FLOP of the forward and backward pass per token, for `length` tokens, with causal attention."""
    return 6 * (parameters - looked_up(shape)) + 6 * shape.layers * shape.heads * shape.head_size * length


def sampling_step(model: Transformer, batch: int) -> float:
    """Seconds of one sampler step for `batch` rows, with the choice of the token, at a mean context of CONTEXT.

    It is the difference between a long and a short call, so the time to read the prompt cancels.
    """
    device, sampler = model.device, Sampler(model, end=-1)
    prompts = Prompts.of([[1] * (CONTEXT - NEW // 2)], device)
    generator = torch.Generator(device).manual_seed(1)

    def seconds(tokens: int) -> float:
        began = clock(device)
        sampler(prompts, samples=batch, max_tokens=tokens, generator=generator)
        return clock(device) - began
    for tokens in (1, NEW + 1):                                           # allocate memory; on CUDA record the step
        seconds(tokens)
    return median(seconds(NEW + 1) - seconds(1) for _ in range(REPEATS)) / NEW


def training_step(model: Transformer, rows: int, length: int) -> float:
    """Seconds to score responses, run the backward pass and take an optimiser step."""
    device, optimizer = model.device, FlatAdam(model.parameters(), lr=1e-6, max_grad_norm=1.0)
    ids = torch.randint(1, model.shape.vocab_size, (rows, length), device=device)
    prompts, of = Prompts.of([[1]] * rows, device), torch.arange(rows, device=device)

    def step() -> None:
        optimizer.zero_grad()
        logp, _ = score(model, prompts, of, ids)
        (-logp.mean()).backward()
        optimizer.step()
    return best(device, step, REPEATS)


def grpo_step(device: torch.device, shape: Shape, dtype: torch.dtype, tokens: int, *,
              prompts: int = grpo.Config.prompts, samples: int = grpo.Config.samples,
              threads: int = 1, compile: bool = False) -> dict[str, Any]:
    """Break down the seconds of an update in a short run of `grpo`, without the first update.

    tokens: length of each response. The alphabet has a character for every token of the shape, so that every response
    has a text and a reward.
    """
    alphabet = "".join(map(chr, range(0x10000, 0x10000 + shape.vocab_size - 1)))
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        model, steps = Transformer(shape).to(dtype), 4
        never_end(model)
        save_pretrained(Path(folder, "model"), model, CharTokenizer(alphabet))
        rows = grpo.train(grpo.Config(
            task=Questions(alphabet=alphabet, max_tokens=tokens), model=str(Path(folder, "model")), total_steps=steps,
            prompts=prompts, samples=samples, lr=1e-6, warmup=0, anneal=False, held_out=32, threads=threads,
            micro_batch=32 if device.type == "cuda" else 0, device=str(device), checkpoint_steps=steps, compile=compile,
            tensorboard=False, quiet=True, log_dir=folder)).progress
    phases = {phase: float(np.median(rows[f"{phase}_seconds"][1:])) for phase in ("rollout", "reward", "update")}
    seconds = sum(phases.values())
    answers = prompts * samples
    return {"seconds": round(seconds, 4), "answers": answers, "tokens_each": float(np.mean(rows["length"][1:])),
            "shares": {phase: round(s / seconds, 3) for phase, s in phases.items()},
            "tokens_per_second": round(answers * float(np.mean(rows["length"][1:])) / seconds)}
