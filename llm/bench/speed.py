"""Speed benchmarks in new tokens per second: GRPO against TRL's trainer, sampling against transformers.

Both GRPO implementations start from the same weights in one folder. They have the same kind of prompts, the same
response length, one gradient step per batch, and one thread. Runs alternate (A B A B), each in its own process. Timing
starts after the first row of our `progress.csv` and ends with the last step, over the same steps for both. The size of
a reward does not affect speed. So the reward is a digest of prompt and response, and a group has no equal rewards.
"""
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from llm.algos import grpo
from llm.bench.questions import (
    NEW,
    PROMPT,
    PROMPTS,
    SAMPLES,
    Questions,
    check_installed,
    peer_tokenizer,
    save_model,
)
from llm.bench.roofline import product_pace
from llm.policy.checkpoint import load_pretrained
from llm.policy.generate import Prompts, Sampler
from llm.run import Run
from llm.tasks.task import Problem
from spinup.bench.process import ONE_THREAD, check_out, child, finish
from spinup.errors import UserError
from spinup.runs.files import read_json

LR = 1e-6                                                 # TRL's default: the policies hardly change, so work is equal
GOALS = {64: 1.4, 128: 1.2}                               # by width, if no group has zero variance
HALF_GOAL = 2.0                                           # if half of the groups have zero variance
GENERATE_GOALS = {(16, 8): 2.0, (256, 8): 1.15}           # by batch and new tokens
NOTES = (
    "spinup reads a prompt once for its eight responses; trl reads it once per response, in sampling and in training",
    "spinup skips groups with equal rewards in the backward pass; trl computes their gradient, which is 0",
    "spinup trains on the log-probabilities from sampling; in effect trl does the same (one update per batch, so it "
    "computes nothing twice)",
    "spinup writes progress.csv, TensorBoard files and twenty checkpoints, and responds to held-out prompts for each "
    "row; trl logs every ten steps, writes no checkpoint before the end and evaluates nothing",
    "gradient checkpointing, which trl switches on by default, is off in both; both use fp32")


def speed_grpo(*, width: int = 64, total_steps: int | None = None, rounds: int = 3, out: Path | None = None) -> int:
    """Compare the speed of GRPO with TRL's, with zero variance in no group and in half of them; print JSON last.

    Return an exit code: 1 if a median ratio misses its goal. Before any run, raise UserError for an unknown width, too
    few steps, a missing peer, or a file that cannot be written.
    """
    steps = total_steps or grpo.Config.total_steps
    if width not in GOALS:
        raise UserError(f"--width must be one of {', '.join(map(str, GOALS))}, not {width}")
    if steps < 2:
        raise UserError(f"--total-steps {steps} leaves no update to measure after the first row; choose at least 2")
    check_out(out)
    check_installed("trl")
    print(f"grpo, width {width}: {steps:,} updates of {PROMPTS * SAMPLES} responses of {NEW} tokens, {rounds} "
          f"{'pair' if rounds == 1 else 'pairs'}, one thread each", flush=True)
    flops = call("limit")["flops"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        save_model(Path(folder, "model"), width)
        for case, half, goal in (("equal work", False, GOALS[width]), ("half", True, HALF_GOAL)):
            runs: dict[str, list[dict[str, Any]]] = {"spinup": [], "trl": []}
            for seed in range(1, rounds + 1):
                for name in runs:
                    job = {"model": str(Path(folder, "model")), "half": half, "steps": steps, "seed": seed}
                    runs[name].append(run := call(name, job))
                    print(f"{case}, pair {seed}  {name:<6} {run['tokens_per_second']:>8,.0f} tokens/s   "
                          f"{run['zero_variance']:.0%} of groups with zero variance   {run['seconds']:.1f} s"
                          + (f", and {run['evaluation_seconds']:.1f} s of evaluation"
                             if run["evaluation_seconds"] else ""), flush=True)
            found[case] = compare(runs, goal, flops, 0.5 if half else 1.0)
    for case, x in found.items():
        print(f"{case}: " + ", ".join(f"{name} {median(r):,.0f} tokens/s ({median(r) / x['limit']:.0%} of the limit)"
                                      for name, r in x["tokens_per_second"].items()))
        print(f"  ratios {', '.join(f'{r:.2f}' for r in x['ratios'])}; median {x['ratio_median']:.2f}, goal "
              f"{x['goal']}: {'met' if x['met'] else 'missed'}; {x['ratio_median_with_evaluation']:.2f} with spinup's "
              f"evaluation, which takes {x['evaluation_share']:.0%} of its time")
    print("\n".join(f"  {note}" for note in NOTES))
    first = found["equal work"]["runs"]
    return finish({
        "benchmark": "speed", "algorithm": "grpo", "against": "trl", "width": width,
        "ratio_median": found["equal work"]["ratio_median"],
        "ratio_median_is": "new tokens per second of spinup divided by those of trl, if no group has zero variance; "
                           "without spinup's held-out evaluation, with its logging and checkpoints",
        "limit_is": "new tokens per second if only matrix products took time: prompts read once, 2 FLOP per parameter "
                    "to sample and 6 to train, at the speed of a large matrix product",
        "goal": GOALS[width], **found,
        "parameters": {name: runs[0]["parameters"] for name, runs in first.items()},
        "architecture": "4 layers, 4 heads, each with its own keys, hidden size 3 x width, 43 tokens, tied embeddings, "
                        "no biases: Qwen2 without those of query, key and value (LlamaForCausalLM); fp32",
        "answers": f"all have {NEW} tokens, because these weights never sample the end token",
        "steps": steps, "settings": {"prompts": PROMPTS, "samples": SAMPLES, "prompt_tokens": PROMPT, "max_tokens": NEW,
                                     "lr": LR, "kl_coef": 0, "clip": 0.2, "epochs": 1, "average": "sequence",
                                     "threads": 1, "dtype": "float32"},
        "versions": {**first["spinup"][0]["versions"], **first["trl"][0]["versions"]}, "notes": NOTES,
        "met": all(x["met"] for x in found.values())}, out)


def compare(runs: dict[str, list[dict[str, Any]]], goal: float, flops: float, trained: float) -> dict[str, Any]:
    """Summarise the pairs of one case. flops: FLOP/s of a large product. trained: share of responses trained on."""
    def ratio(of: str) -> list[float]:
        return [round(a[of] / b[of], 3) for a, b in zip(runs["spinup"], runs["trl"], strict=True)]
    ratios, whole = ratio("tokens_per_second"), ratio("tokens_per_second_with_evaluation")
    work = runs["spinup"][0]["parameters"] * (2 + 6 * trained) * (1 + PROMPT / SAMPLES / NEW)   # FLOP a new token
    return {"ratio_median": median(ratios), "ratios": ratios, "goal": goal, "met": median(ratios) >= goal,
            "ratio_median_with_evaluation": median(whole), "ratios_with_evaluation": whole,
            "evaluation_share": round(median(r["evaluation_seconds"] / (r["seconds"] + r["evaluation_seconds"])
                                             for r in runs["spinup"]), 3),
            "tokens_per_second": {name: [r["tokens_per_second"] for r in found] for name, found in runs.items()},
            "limit": round(flops / work),
            "zero_variance": {name: median(r["zero_variance"] for r in found) for name, found in runs.items()},
            "rewards": {name: median(r["reward"] for r in found) for name, found in runs.items()}, "runs": runs}


def call(name: str, job: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run one of the functions at the end of this file in its own process."""
    return child("llm.bench.speed", name, job or {}, environment={**ONE_THREAD, "HF_HUB_OFFLINE": "1"})


def run_spinup(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train as a user would: all other settings keep their defaults, also evaluation, files and display."""
    result = grpo.train(grpo.Config(
        task=Questions(job["half"]), model=job["model"], prompts=PROMPTS, samples=SAMPLES, total_steps=job["steps"],
        lr=LR, warmup=0, anneal=False, threads=1, device="cpu", seed=job["seed"], log_dir=folder))
    rows, about = result.progress, read_json(result.directory / "config.json")
    each = np.diff(rows["steps"])                                         # updates per row, without the first row
    seconds = sum(sum(rows[f"{phase}_seconds"][1:]) for phase in ("rollout", "reward", "update"))
    whole = rows["wall_seconds"][-1] - rows["wall_seconds"][0]
    return report(sum(each), each @ rows["length"][1:] * PROMPTS * SAMPLES, seconds, whole, about["parameters"],
                  np.average(rows["zero_variance"][1:], weights=each), np.average(rows["reward"][1:], weights=each),
                  about["versions"])


def run_trl(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train with TRL's GRPOTrainer at the same settings; all other settings keep their defaults."""
    import transformers
    import trl
    from datasets import Dataset
    torch.set_num_threads(1)
    task, steps, skipped = Questions(job["half"]), job["steps"], first_row(job["steps"])
    rewards: list[float] = []

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        values = [task.reward(Problem(p), c) for p, c in zip(prompts, completions, strict=True)]
        rewards.extend(values)
        return values

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            moments.append((time.perf_counter(), state.num_input_tokens_seen))

    moments: list[tuple[float, int]] = []
    problems = task.problems(PROMPTS * steps, np.random.default_rng(job["seed"]))
    trainer = trl.GRPOTrainer(
        model=job["model"], reward_funcs=reward, processing_class=peer_tokenizer(), callbacks=[Clock()],
        train_dataset=Dataset.from_list([{"prompt": p.prompt} for p in problems]),
        args=trl.GRPOConfig(
            output_dir=folder, per_device_train_batch_size=PROMPTS * SAMPLES, num_generations=SAMPLES,
            max_completion_length=NEW, max_steps=steps, learning_rate=LR, lr_scheduler_type="constant", beta=0.0,
            epsilon=0.2, loss_type="grpo", max_grad_norm=1.0, bf16=False, gradient_checkpointing=False, use_cpu=True,
            report_to="none", seed=job["seed"]))
    trainer.train()
    (began, read), (ended, read_by_then) = moments[skipped - 1], moments[-1]
    steps -= skipped
    groups = np.array(rewards).reshape(-1, SAMPLES)[skipped * PROMPTS:]   # responses to one prompt are adjacent
    versions = {"trl": trl.__version__, "transformers": transformers.__version__}
    answered = read_by_then - read - steps * PROMPTS * SAMPLES * PROMPT   # trl also counts every response's prompt
    return report(steps, answered, ended - began, ended - began,
                  sum(p.numel() for p in trainer.model.parameters()), (np.ptp(groups, axis=1) == 0).mean(),
                  groups.mean(), versions)


def first_row(steps: int) -> int:
    """Updates of the first row of our `progress.csv`; both sides skip them as warm-up."""
    return max(1, round(steps / Run.epochs))


def report(steps: float, tokens: float, seconds: float, whole: float, parameters: int, zero_variance: float,
           reward: float, versions: dict[str, str]) -> dict[str, Any]:
    """Results of one run after its first row. whole: seconds with evaluation; seconds: without it."""
    return {"steps": int(steps), "tokens": round(tokens), "seconds": round(seconds, 3),
            "evaluation_seconds": round(whole - seconds, 3), "tokens_per_second": round(tokens / seconds, 1),
            "tokens_per_second_with_evaluation": round(tokens / whole, 1), "parameters": parameters,
            "zero_variance": round(float(zero_variance), 3), "reward": round(float(reward), 4), "versions": versions}


def run_limit(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Floating-point operations per second of a large product, on one thread."""
    torch.set_num_threads(1)
    return {"flops": product_pace(torch.device("cpu"), torch.float32)}


def speed_generate(*, batches: Iterable[int] = (16, 256), new: Iterable[int] = (8, 32), width: int = 128,
                   rounds: int = 30, out: Path | None = None) -> int:
    """Compare our sampler with `transformers.generate`, `rounds` alternating calls each; print a table, then JSON.

    Both sample from all tokens at temperature 1, with a cache, eight responses per prompt. No response ends early.
    Return an exit code: 1 if a median ratio misses its goal. Raise UserError if a batch is not a multiple of the
    responses per prompt, if a peer is missing, or if a file cannot be written.
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
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
            save_model(Path(folder, "model"), width)
            rows = sampling(Path(folder, "model"), batches, new, rounds)
    finally:
        torch.set_num_threads(threads)
    import transformers
    main = next((row for row in rows if (row["batch"], row["new"]) == (256, 8)), rows[0])
    return finish({
        "benchmark": "speed", "algorithm": "generate", "against": "transformers", "width": width,
        "ratio_median": main["ratio_median"],
        "ratio_median_is": f"new tokens per second of spinup divided by those of transformers, batch {main['batch']}, "
                           f"{main['new']} new tokens", "rows": rows,
        "settings": {"rounds": rounds, "prompt_tokens": PROMPT, "samples": SAMPLES, "temperature": 1, "threads": 1,
                     "dtype": "float32"},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "notes": ["spinup reads a prompt once for its eight responses and keeps the log-probabilities of its samples; "
                  "transformers reads it once per response and keeps none"],
        "goal": main["goal"], "met": all(row["met"] for row in rows)}, out)


def sampling(folder: Path, batches: list[int], new: list[int], rounds: int) -> list[dict[str, Any]]:
    """Time both samplers on the model in `folder`; print a line and return a row for each batch and length."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar
    disable_progress_bar()                                    # of loading weights
    ours, _ = load_pretrained(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    theirs.generation_config.eos_token_id, theirs.generation_config.pad_token_id = None, 0
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
            def spinup_call(prompts: Prompts = prompts, n: int = n) -> torch.Tensor:
                return sampler(prompts, samples=SAMPLES, max_tokens=n, generator=generator).ids

            def peer_call(ids: torch.Tensor = ids, seen: torch.Tensor = seen, n: int = n) -> torch.Tensor:
                return theirs.generate(ids, attention_mask=seen, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                                       num_return_sequences=SAMPLES, max_new_tokens=n)[:, PROMPT:]
            pairs = []
            for i in range(-2, rounds):                                   # two warm-up calls each
                pair = []
                for answer in (spinup_call, peer_call):
                    began = time.perf_counter()
                    answers = answer()
                    pair.append(time.perf_counter() - began)
                    assert answers.shape == (batch, n)
                if i >= 0:
                    pairs.append(pair)
            ratio, goal = median(b / a for a, b in pairs), GENERATE_GOALS.get((batch, n))
            paces = [batch * n / median(seconds) for seconds in zip(*pairs, strict=True)]
            rows.append({"batch": batch, "new": n, "ratio_median": round(ratio, 3),
                         "tokens_per_second": dict(zip(("spinup", "transformers"), map(round, paces), strict=True)),
                         "ratios": [round(b / a, 3) for a, b in pairs], "goal": goal,
                         "met": goal is None or ratio >= goal,
                         "parameters": dict(zip(("spinup", "transformers"), parameters, strict=True))})
            print(f"{batch:>6}{n:>5}{paces[0]:>12,.0f}{paces[1]:>14,.0f}   ratio {ratio:.2f}"
                  + (f", goal {goal}: {'met' if rows[-1]['met'] else 'missed'}" if goal else ""), flush=True)
    return rows


if __name__ == "__main__":
    work = {"spinup": run_spinup, "trl": run_trl, "limit": run_limit}[sys.argv[2]]
    print(json.dumps(work(sys.argv[1], json.loads(sys.argv[3]))))
