"""Speed benchmark of sampling in new tokens per second, against `generate` of transformers."""
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm.bench.questions import PROMPT, SAMPLES, check_installed, save_model
from llm.policy.checkpoint import load_pretrained
from llm.policy.generate import Prompts, Sampler
from spinup.bench.process import check_out, finish
from spinup.errors import UserError
from spinup.runs.threads import limited

GOALS = {(16, 8): 2.0, (256, 8): 1.15}                    # by batch and new tokens


def speed_generate(*, batches: Iterable[int] = (16, 256), new: Iterable[int] = (8, 32), width: int = 128,
                   rounds: int = 30, out: Path | None = None) -> int:
    """Compare our sampler with `transformers.generate`, `rounds` alternating calls each; print a table, then JSON.

    Both sample eight responses per prompt from all tokens at temperature 1, with a cache. No response ends early.
    Return an exit code: 1 if a median ratio misses its goal. Raise UserError if a batch is not a multiple of the
    responses per prompt, if a library is missing, or if a file cannot be written.
    """
    batches, new = list(batches), list(new)
    for batch in batches:
        if batch < SAMPLES or batch % SAMPLES:
            raise UserError(f"--batch {batch} is not a multiple of {SAMPLES}, the responses per prompt; choose 16 or "
                            "256")
    if PROMPT + max(new) > 512:
        raise UserError(f"--new {max(new)} does not fit in the model's context of 512; choose at most {512 - PROMPT}")
    check_out(out)
    check_installed("transformers")
    with limited(1), tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        save_model(Path(folder, "model"), width)
        rows = sampling(Path(folder, "model"), batches, new, rounds)
    main = next((row for row in rows if (row["batch"], row["new"]) == (256, 8)), rows[0])
    return conclude(out, rows, main, f"batch {main['batch']}, {main['new']} new tokens", {"width": width}, {
        "rounds": rounds, "prompt_tokens": PROMPT, "samples": SAMPLES, "threads": 1})


def conclude(out: Path | None, rows: list[dict[str, Any]], main: dict[str, Any], which: str, about: dict[str, Any],
             settings: dict[str, Any]) -> int:
    """Print the result of a comparison with transformers as JSON, write it to `out`, and return the exit code.

    main: the row whose ratio represents all rows; `which` describes it. about: more entries of the result.
    """
    import transformers
    return finish({
        "benchmark": "speed", "algorithm": "generate", "against": "transformers", **about,
        "ratio_median": main["ratio_median"],
        "ratio_median_is": f"new tokens per second of spinup divided by those of transformers, {which}", "rows": rows,
        "settings": {**settings, "temperature": 1, "dtype": "float32"},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "notes": ["spinup reads a prompt once for all its responses and keeps the log-probabilities of its samples; "
                  "transformers reads it once per response and keeps none"],
        "goal": main["goal"], "met": all(row["met"] for row in rows)}, out)


def sampling(folder: Path, batches: list[int], new: list[int], rounds: int) -> list[dict[str, Any]]:
    """Time both samplers on the model in `folder`; print a line and return a row for each batch and length."""
    ours, theirs = both(folder)
    sampler, generator, rng = Sampler(ours, end=-1), torch.Generator().manual_seed(1), np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    parameters = [sum(p.numel() for p in m.parameters()) for m in (ours, theirs)]
    print(f"sampling, {parameters[0] / 1e6:.1f} M parameters, prompts of {PROMPT} tokens, {SAMPLES} responses each, "
          f"one thread, {rounds} alternating calls each\n"
          f"{'batch':>6}{'new':>5}{'spinup':>12}{'transformers':>14}   tokens/s")
    for batch in batches:
        ids = torch.from_numpy(rng.integers(1, ours.shape.vocab_size, (batch // SAMPLES, PROMPT)))
        prompts, seen = Prompts(ids, torch.full((len(ids),), PROMPT)), torch.ones_like(ids)
        for n in new:
            def spinup_call(prompts: Prompts = prompts, n: int = n) -> Tensor:
                return sampler(prompts, samples=SAMPLES, max_tokens=n, generator=generator).ids

            def peer_call(ids: Tensor = ids, seen: Tensor = seen, n: int = n) -> Tensor:
                return peer_sample(theirs, ids, seen, SAMPLES, n)
            rows.append({"batch": batch, "new": n,
                         **race(spinup_call, peer_call, batch, n, rounds, GOALS.get((batch, n))),
                         "parameters": dict(zip(("spinup", "transformers"), parameters, strict=True))})
    return rows


def both(folder: Path) -> tuple[Any, Any]:
    """Load the model in `folder` twice, in fp32: for our sampler and for transformers. No response ends early."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar
    disable_progress_bar()                                    # it would show the loading of weights
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    theirs.generation_config.eos_token_id, theirs.generation_config.pad_token_id = None, 0
    return load_pretrained(folder)[0], theirs


def peer_sample(model: Any, ids: Tensor, seen: Tensor, samples: int, new: int) -> Tensor:
    """Sample responses of `new` tokens with transformers, `[P * samples, new]`, to prompts `[P, L]`.

    seen: `[P, L]` 0 for padding, else 1.
    """
    return model.generate(ids, attention_mask=seen, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                          num_return_sequences=samples, max_new_tokens=new)[:, ids.shape[1]:]


def race(spinup_call: Callable[[], Tensor], peer_call: Callable[[], Tensor], batch: int, new: int, rounds: int,
         goal: float | None) -> dict[str, Any]:
    """Time both functions `rounds` times, in turn. Print a line, and return the speeds, ratios and the goal.

    Each function returns responses `[batch, new]`.
    """
    pairs = []
    for i in range(-2, rounds):                                           # two warm-up calls each
        pair = []
        for answer in (spinup_call, peer_call):
            began = time.perf_counter()
            answers = answer()
            pair.append(time.perf_counter() - began)
            assert answers.shape == (batch, new)
        if i >= 0:
            pairs.append(pair)
    ratio = median(b / a for a, b in pairs)
    paces = [batch * new / median(seconds) for seconds in zip(*pairs, strict=True)]
    met = goal is None or ratio >= goal
    print(f"{batch:>6}{new:>5}{paces[0]:>12,.0f}{paces[1]:>14,.0f}   ratio {ratio:.2f}"
          + (f", goal {goal}: {'met' if met else 'missed'}" if goal else ""), flush=True)
    return {"ratio_median": round(ratio, 3),
            "tokens_per_second": dict(zip(("spinup", "transformers"), map(round, paces), strict=True)),
            "ratios": [round(b / a, 3) for a, b in pairs], "goal": goal, "met": met}
