"""Benchmark of the held-out accuracy of the methods of `llm`, and of the time to reach it.

It runs the same commands as a user, then an evaluation. The initial policy of each run comes from an ordinary run of
`sft`; its seconds are counted separately. The final evaluation uses new held-out problems.
"""
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llm.tasks.make import make_task
from spinup.bench.process import check_out, finish, finished_run, in_turn, revisions, spinup, versions_of
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.files import read_json
from spinup.runs.folders import safe
from spinup.runs.log import read_progress
from spinup.runs.presets import configure
from spinup.runs.resuming import HOW, check_same

MEASURE = "held_out_accuracy"
PROBLEMS = 1000         # problems of the final evaluation, with eight responses each
SOON, LATE = 60, 120    # seconds of learning from rewards
ACTOR_CRITIC = ("ppo", "vapo")                  # these train two models, so they have no goal for the first minute


def accuracy(method: str, task: str, *, seeds: list[int], workers: int = 1, threads: int = 1,
             log_dir: Path = Path("runs"), out: Path | None = None) -> int:
    """Train a method on a task with each seed; evaluate and print the initial and the final policy, also as JSON.

    Return an exit code: 1 if a goal is missed. Finished runs are not repeated; unfinished ones are resumed. Raise
    UserError for a task without right answers.
    """
    check_out(out)
    if make_task(task).measure != MEASURE:
        raise UserError(f"--task {task} has no correct answers to count; choose another, such as reverse")
    name = safe(f"bench_llm_{method}_{task}")
    wanted, _ = configure(find(f"llm {method}"), {"task": task, "threads": threads}, "auto")
    for seed in seeds:
        folder = log_dir / name / f"{name}_s{seed}"
        if (folder / "config.json").exists():
            check_same(folder, f"llm {method}", replace(wanted, seed=seed), HOW - {"threads"},
                       "choose another --log-dir")
    runs = in_turn(lambda seed: one(method, task, seed, name, threads, log_dir), seeds, workers)
    for r in runs:
        print(f"seed {r['seed']}: {r['start']['held_out_accuracy']:.3f} -> {r['end']['held_out_accuracy']:.3f} "
              f"(pass@8 {r['start']['pass@8']:.3f} -> {r['end']['pass@8']:.3f}) in {r['seconds']:.0f} s after "
              f"{r['start_seconds']:.0f} s of SFT; accuracy at {SOON} s: {r['soon']}", flush=True)
    folders = [log_dir / name / f"{name}_s{seed}" for seed in seeds]
    config = read_json(folders[0] / "config.json")
    goal, met = goals(method, task, runs)
    words = f"--seeds {' '.join(map(str, seeds))}" + (f" --threads {threads}" if threads > 1 else "")
    return finish({
        "command": f"spinup bench accuracy {method} --task {task} {words}", "settings": config["config"],
        "parameters": config["parameters"], "versions": versions_of(folders),
        "git": revisions(folders),
        "start": [r["start"]["held_out_accuracy"] for r in runs], "end": [r["end"]["held_out_accuracy"] for r in runs],
        "seconds": [r["seconds"] for r in runs], "goal": goal, "met": met}, out, runs=runs)


def one(method: str, task: str, seed: int, name: str, threads: int, log_dir: Path) -> dict[str, Any]:
    """Run one seed; evaluate its initial and its final policy."""
    folder = finished_run(f"llm {method}", task, seed, name, log_dir, "--threads", str(threads))
    config, result, progress = (read_json(folder / "config.json"), read_json(folder / "result.json"),
                                read_progress(folder))
    start = Path(config["start"])
    evaluated = {key: json.loads(spinup("eval", str(where.absolute()), "--episodes", str(PROBLEMS), "--json"))
                 for key, where in (("start", start), ("end", folder))}
    seconds, held_out = progress["wall_seconds"], progress["held_out_accuracy"]
    before = [a for a, s in zip(held_out, seconds, strict=True) if s <= SOON]
    return {"seed": seed, **evaluated, "seconds": result["seconds"],
            "start_seconds": read_json(start / "result.json")["seconds"],
            "soon": before[-1] if before else None,
            "curve": {key: progress[key] for key in ("steps", "wall_seconds", "held_out_accuracy", "held_out_greedy",
                                                     "reward", "kl_to_initial", "entropy", "tokens_per_second")}}


def goals(method: str, task: str, runs: list[dict[str, Any]]) -> tuple[str, bool]:
    """Return the goal for every seed, in words, and whether all seeds reach it."""
    start = np.array([r["start"]["held_out_accuracy"] for r in runs])
    end = np.array([r["end"]["held_out_accuracy"] for r in runs])
    seconds = np.array([r["seconds"] for r in runs])

    def within(x: np.ndarray, low: Any = 0.0, high: float = math.inf) -> bool:
        return bool(((x >= low) & (x <= high)).all())
    if task == "reverse":
        if method in ACTOR_CRITIC:
            return (f"initial accuracy .2 to .5; final accuracy .97 within {LATE} s",
                    within(start, .2, .5) and within(end, .97) and within(seconds, high=LATE))
        soon = np.array([r["soon"] or 0.0 for r in runs])
        return (f"initial accuracy .2 to .5; .95 in the last row before {SOON} s; final accuracy .97 within {LATE} s",
                within(start, .2, .5) and within(soon, .95) and within(end, .97) and within(seconds, high=LATE))
    if task == "addition":
        teacher = make_task(task).teacher_accuracy
        total = seconds + [r["start_seconds"] for r in runs]
        return (f"SFT accuracy within .05 of the teacher's {teacher:.3f}; final accuracy .3 above it, all within 240 s",
                within(abs(start - teacher), high=.05) and within(end, teacher + .3) and within(total, high=240))
    if task == "countdown":
        return ("initial accuracy .15 to .35; at least doubled within 300 s",
                within(start, .15, .35) and within(end, 2 * start) and within(seconds, high=300))
    return "", True
