"""Speed benchmark in new tokens per second: GRPO against TRL's trainer, with small models.

Both GRPO implementations start from the same weights in one folder. They have the same kind of prompts, the same
response length, one gradient step per batch, and one thread. Runs alternate (A B A B), each in its own process. Timing
starts after the first row of our `progress.csv` and ends with the last step, over the same steps for both. The size of
a reward does not affect speed. So the reward is a digest of prompt and response, and a group has no equal rewards.
"""
import json
import sys
import tempfile
import time
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
from llm.run import Run
from llm.tasks.task import Problem, Task
from spinup.bench.process import ONE_THREAD, answer, check_out, child, finish
from spinup.errors import UserError
from spinup.runs.files import read_json

LR = 1e-6                                                 # TRL's default: the policies hardly change, so work is equal
GOALS = {64: 1.4, 128: 1.2}                               # by width, if no group has zero variance
HALF_GOAL = 2.0                                           # if half of the groups have zero variance
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


def compare(runs: dict[str, list[dict[str, Any]]], goal: float | None, flops: float, trained: float,
            read: float = PROMPT / SAMPLES / NEW) -> dict[str, Any]:
    """Summarise the pairs of one case.

    flops: FLOP/s of a large product. trained: share of responses trained on. read: prompt tokens per new token.
    """
    def ratio(of: str) -> list[float]:
        return [round(a[of] / b[of], 3) for a, b in zip(runs["spinup"], runs["trl"], strict=True)]
    ratios, whole = ratio("tokens_per_second"), ratio("tokens_per_second_with_evaluation")
    work = runs["spinup"][0]["parameters"] * (2 + 6 * trained) * (1 + read)      # FLOP a new token
    return {"ratio_median": median(ratios), "ratios": ratios, "goal": goal,
            "met": goal is None or median(ratios) >= goal,
            "ratio_median_with_evaluation": median(whole), "ratios_with_evaluation": whole,
            "evaluation_share": round(median(r["evaluation_seconds"] / (r["seconds"] + r["evaluation_seconds"])
                                             for r in runs["spinup"]), 3),
            "tokens_per_second": {name: [r["tokens_per_second"] for r in found] for name, found in runs.items()},
            "limit": round(flops / work),
            "zero_variance": {name: median(r["zero_variance"] for r in found) for name, found in runs.items()},
            "rewards": {name: median(r["reward"] for r in found) for name, found in runs.items()}, "runs": runs}


def call(name: str, job: dict[str, Any] | None = None, module: str = "llm.bench.speed") -> dict[str, Any]:
    """Run one of the functions at the end of a file, by default of this one, in its own process.

    It uses `job["threads"]` threads, by default one.
    """
    threads = dict.fromkeys(ONE_THREAD, str((job or {}).get("threads", 1)))
    return child(module, name, job or {}, environment={**threads, "HF_HUB_OFFLINE": "1"})


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
    skipped = first_row(job["steps"])
    ran = train_trl(folder, job, Questions(job["half"]), PROMPTS, peer_tokenizer())
    groups = np.array(ran["rewards"]).reshape(-1, SAMPLES)[skipped * PROMPTS:]    # responses to one prompt are adjacent
    seconds = ran["moments"][-1] - ran["moments"][skipped - 1]
    return report(job["steps"] - skipped, sum(ran["lengths"][skipped * PROMPTS * SAMPLES:]), seconds, seconds,
                  ran["parameters"], (np.ptp(groups, axis=1) == 0).mean(), groups.mean(), ran["versions"])


def train_trl(folder: str, job: dict[str, Any], task: Task, prompts: int, tokenizer: Any, bf16: bool = False,
              **more: Any) -> dict[str, Any]:
    """Train with TRL's GRPOTrainer on `prompts` problems an update. bf16 and `more` are settings of its GRPOConfig.

    Return the moment at the end of each update, in seconds, and the reward and the length of each response, in order.
    Add the number of parameters and the versions.
    """
    import transformers
    import trl
    from datasets import Dataset
    torch.set_num_threads(job.get("threads", 1))
    moments: list[float] = []
    rewards: list[float] = []
    lengths: list[int] = []

    def reward(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        values = [task.reward(Problem(p), c) for p, c in zip(prompts, completions, strict=True)]
        rewards.extend(values)
        lengths.extend(map(len, completion_ids))
        return values

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            moments.append(time.perf_counter())

    problems = task.problems(prompts * job["steps"], np.random.default_rng(job["seed"]))
    trainer = trl.GRPOTrainer(
        model=job["model"], reward_funcs=reward, processing_class=tokenizer, callbacks=[Clock()],
        train_dataset=Dataset.from_list([{"prompt": p.prompt} for p in problems]),
        args=trl.GRPOConfig(
            output_dir=folder, per_device_train_batch_size=prompts * SAMPLES, num_generations=SAMPLES,
            max_completion_length=task.max_tokens, max_steps=job["steps"], learning_rate=LR,
            lr_scheduler_type="constant", beta=0.0, epsilon=0.2, loss_type="grpo", max_grad_norm=1.0, bf16=bf16,
            gradient_checkpointing=False, use_cpu=True, report_to="none", seed=job["seed"], **more))
    trainer.train()
    return {"moments": moments, "rewards": rewards, "lengths": lengths,
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "versions": {"trl": trl.__version__, "transformers": transformers.__version__}}


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
    """Floating-point operations per second of a large product, by default in fp32 on one thread."""
    torch.set_num_threads(job.get("threads", 1))
    return {"flops": product_pace(torch.device("cpu"), getattr(torch, job.get("dtype", "float32")))}


if __name__ == "__main__":
    work = {"spinup": run_spinup, "trl": run_trl, "limit": run_limit}[sys.argv[2]]
    answer(lambda: work(sys.argv[1], json.loads(sys.argv[3])))
