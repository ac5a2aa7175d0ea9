"""Memory benchmark of `--fsdp`: an update of GRPO with a real model in one process, and in two that divide the model.

Both sides train on the same tokens, which a process of its own samples first. Type: python -m llm.bench.fsdp

Reported for each side, as the maximum over its processes:

- bytes of the weights, gradients and moments of the policy;
- peak of the resident memory (RSS) during an update, with the libraries and a divided or whole reference policy;
- peak of the resident memory from the first line on, which includes loading the model and sampling.

The gradients of both sides are compared, weight by weight.
"""
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm.algos.grpo import Config, group_advantage
from llm.learn import Loss, backward, logp_under
from llm.policy import fsdp
from llm.policy.generate import Prompts, Responses, Sampler
from llm.policy.load import Start, load_model
from llm.rollout import Batch, sample
from llm.tasks.check import problems_of
from llm.tasks.make import make_task
from spinup.algos.ppo import clipped_surrogate
from spinup.bench.process import ONE_THREAD, answer, check_out, child, finish
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import k2
from spinup.core.masked import aggregate
from spinup.machine import git_revision
from spinup.runs import ranks
from spinup.runs.files import read_json, write_json
from spinup.runs.records import versions
from spinup.runs.workers import Workers

SETTINGS = {"model": "smollm2", "task": "sentence", "prompts": 4, "samples": 4, "max_tokens": 24, "micro_batch": 2,
            "kl_coef": 0.05, "threads": 1, "quiet": True}
SIDES = {"one_process": {}, "two_processes": {"workers": 2, "fsdp": True}}
GOALS = {"held": 0.55, "peak_of_update": 0.75}            # two processes / one
ERROR = 1e-4                                              # of a gradient, relative to the largest element of its weight
OUT = Path("docs/benchmarks/memory_fsdp_smollm2.json")


def peak() -> int:
    """Peak of this process's resident memory, in bytes, since its start or the last `forget_peak`."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def forget_peak() -> None:
    """Let `peak` start from the memory that is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def tokens(cfg: Config, start: Start, model: torch.nn.Module) -> Batch:
    """Sample a batch from a model, with fixed random numbers."""
    task = make_task(cfg.task, None)
    problems = problems_of(task, cfg.prompts, np.random.default_rng(cfg.seed))
    return sample(Sampler(model, start.tokenizer.ends), task, start.tokenizer, problems, samples=cfg.samples,
                  max_tokens=cfg.max_tokens, generator=torch.Generator().manual_seed(cfg.seed))


def loss(logp: Tensor, part: Responses, adv: Tensor, logp_ref: Tensor, denominator: int) -> Loss:
    """Compute the loss of `llm.algos.grpo` with a KL penalty, `[]`, from log-probabilities `[B, T]`."""
    each, stats = clipped_surrogate(logp, part.logp, adv, (0.2, 0.2), part.mask)
    each = each + SETTINGS["kl_coef"] * k2(logp, logp_ref, part.mask)
    return aggregate(each, part.mask, mode="sequence", denominator=denominator), stats


def measure(cfg: Config, folder: str) -> None:
    """Make two updates with the batch in `folder`, and write what was measured there, one file for each rank."""
    torch.set_num_threads(1)
    stored = torch.load(Path(folder, "batch.pt"), weights_only=True)
    responses = Responses(**stored["responses"])
    batch = Batch([], Prompts(**stored["prompts"]), responses, [], torch.zeros(len(responses.ids)))
    start = load_model(cfg.model)
    model, reference = start.model, start.reference()
    optimizer = (fsdp.DividedAdam(model, lr=1e-6, eps=1e-5, max_grad_norm=1.0) if cfg.fsdp
                 else FlatAdam(model.parameters(), lr=1e-6, eps=1e-5, max_grad_norm=1.0))
    with Workers(cfg.workers, cfg).together(measure, cfg, folder):
        if cfg.fsdp:
            _, divided, reference = fsdp.divide({"model": model, "optimizer": optimizer}, model, reference)
            with divided.gathered() as twin:
                tokens(cfg, start, twin)
        else:
            tokens(cfg, start, model)
        adv = group_advantage(torch.randn(len(batch.rewards), generator=torch.Generator().manual_seed(1)), cfg.samples)
        rows = torch.arange(len(batch.rewards))

        def gradient() -> None:
            logp_ref = logp_under(reference, cfg, batch)
            optimizer.zero_grad()
            backward(model, cfg, batch, rows, loss, adv[:, None], logp_ref, denominator=len(rows))

        gradient()
        error = compared(model, Path(folder, "gradient"))
        held = sum(fsdp.own(x).nbytes for p in model.parameters() for x in (p, p.grad)) + sum(
            x.nbytes for kept in (optimizer.kept().values() if cfg.fsdp else [(optimizer.first, optimizer.second)])
            for x in kept)
        optimizer.step()
        all_along = peak()
        forget_peak()
        gradient()
        optimizer.step()
        write_json(Path(folder, f"{cfg.workers}_{ranks.rank()}.json"),
                   {"held": held, "peak_of_update": peak(), "peak_of_process": max(peak(), all_along), "error": error})


def compared(model: torch.nn.Module, folder: Path) -> float:
    """Write the gradients of one process to a folder. Of several, return the largest difference from those files,
    relative to the largest element of each."""
    largest = 0.0
    folder.mkdir(exist_ok=True)
    for name, p in model.named_parameters():
        if ranks.size() == 1:
            torch.save(p.grad.clone(), folder / name)
        else:
            one, two = torch.load(folder / name, weights_only=True), fsdp.whole(p.grad)
            largest = max(largest, float((two - one).abs().max() / one.abs().max()))
    return largest


def sampled(cfg: Config, folder: str) -> None:
    """Sample the batch of both sides, and write it to `folder`."""
    start = load_model(cfg.model)
    batch = tokens(cfg, start, start.model)
    torch.save({"prompts": vars(batch.prompts), "responses": vars(batch.responses)}, Path(folder, "batch.pt"))


def part(side: str, folder: str) -> dict[str, Any]:
    """Run one side, or sample the tokens, in this process. Return what was measured."""
    cfg = Config(**SETTINGS, **SIDES.get(side, {}))
    (measure if side in SIDES else sampled)(cfg, folder)
    found = [read_json(file) for file in sorted(Path(folder).glob(f"{cfg.workers}_*.json"))]
    return {"ranks": found, **{name: max(x[name] for x in found) for name in (found or [{}])[0]}}


def main(out: Path = OUT) -> int:
    """Run both sides, print the result as JSON, and write it to `out`. Return an exit code: 1 if a goal is missed."""
    check_out(out)
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        child("llm.bench.fsdp", "tokens", folder, environment=ONE_THREAD)
        found = {side: child("llm.bench.fsdp", side, folder, environment=ONE_THREAD) for side in SIDES}
    one, two = found.values()
    ratios = {name: round(two[name] / one[name], 3) for name in (*GOALS, "peak_of_process")}
    return finish({"benchmark": "memory", "command": "python -m llm.bench.fsdp", "ratios": ratios, "goals": GOALS,
                   "gradient_error": two["error"], "gradient_goal": ERROR, **found, "settings": SETTINGS,
                   "unit": "bytes; peaks are resident memory with the libraries, the largest of a side's processes",
                   "machine": "two cores; other processes ran at the same time",
                   "versions": versions(), "git": git_revision(),
                   "met": two["error"] <= ERROR and all(ratios[name] <= GOALS[name] for name in GOALS)}, out)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        answer(partial(part, *sys.argv[2:]))
    else:
        sys.exit(main())
