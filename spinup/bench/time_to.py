"""Training time in seconds until the mean return of the last twenty episodes reaches a target, with the preset.

The run is that of a user, `spinup.ALGO(ENV, seed=S)`, in a new process, with all outputs on. After each update the
benchmark reads the finished episodes. When the mean of the last twenty first reaches the target, it stops the run with
the signal of Ctrl-C. The time comes from result.json. It includes the last update and its checkpoint.
"""
import json
import math
import signal
import sys
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

from spinup.bench.process import answer, check_out, child, finish
from spinup.envs.ids import full_id
from spinup.registry import find
from spinup.runs.presets import configure
from spinup.runs.public import check_start
from spinup.runs.run import Run

WINDOW = 20                                                               # episodes
GOALS = {("ppo", "CartPole-v1", 475.0): 2.5}                              # median seconds


def time_to(algo: str, env: str, *, target: float, seeds: list[int], out: Path | None = None) -> int:
    """Train once per seed until the mean of the last 20 training episodes reaches `target`. Print seconds and steps.

    The last line is JSON, which is also written to `out`. Returns the exit code: 1 if the median misses the goal.
    Without a goal, 1 if a seed never reaches the target.
    """
    check_out(out)
    algorithm, env = find(algo), full_id(env)
    config, _ = configure(algorithm, {"env": env})
    check_start(algorithm, config)
    goal = GOALS.get((algo, env, float(target)))
    print(f"{algo} on {env}: training until the mean return of {WINDOW} episodes is {target:g}", flush=True)
    runs = []
    for seed in seeds:
        runs.append(run := child("spinup.bench.time_to", str(target), {"algo": algo, "env": env, "seed": seed}))
        missed = "" if run["reached"] else "   not reached"
        print(f"seed {seed}  {run['seconds']:.2f} s   {run['steps']:,} steps{missed}", flush=True)
    middle = median(run["seconds"] if run["reached"] else math.inf for run in runs)
    met = middle <= goal if goal else all(run["reached"] for run in runs)
    found = f"{middle:.2f} s" if math.isfinite(middle) else "not reached"
    print(f"median {found}{f', goal {goal} s: ' + ('met' if met else 'missed') if goal else ''}")
    seconds, steps = ([run[key] if run["reached"] else None for run in runs] for key in ("seconds", "steps"))
    return finish({"benchmark": "time-to", "algorithm": algo, "env": env, "target": target, "window": WINDOW,
                   "seeds": seeds, "seconds": seconds, "steps": steps,
                   "median_seconds": middle if math.isfinite(middle) else None, "settings": runs[0]["settings"],
                   "versions": runs[0]["versions"], "goal": goal, "met": met}, out)


def stop_at(target: float) -> list[bool]:
    """Stop the next training run in this process once the mean return of WINDOW episodes in a row reaches `target`.

    Return a list. It gets an entry when this happens.
    """
    reached: list[bool] = []
    recent: deque[float] = deque(maxlen=WINDOW)
    after = Run.after_update

    def after_and_look(run: Run) -> None:
        seen = len(run.pending)
        after(run)
        for episode_return, _ in run.pending[seen:]:
            recent.append(episode_return)
            if not reached and len(recent) == WINDOW and sum(recent) / WINDOW >= target:
                reached.append(True)
                signal.raise_signal(signal.SIGINT)                        # once: a second one would end it unsaved

    Run.after_update = after_and_look
    return reached


def run_until(folder: str, target: float, algo: str, env: str, seed: int) -> dict[str, Any]:
    """Train in this process with the public function and the preset of `env`, and stop at the target."""
    from spinup.runs.files import read_json
    from spinup.runs.public import trainer
    reached = stop_at(target)
    directory = trainer(algo)(env, seed=seed, log_dir=folder, exp_name="bench").directory
    result, config = read_json(directory / "result.json"), read_json(directory / "config.json")
    settings = {k: v for k, v in config["config"].items() if k not in ("seed", "log_dir", "exp_name")}
    return {"reached": bool(reached), "seconds": result["seconds"], "steps": result["steps"], "settings": settings,
            "versions": config["versions"]}


if __name__ == "__main__":
    answer(lambda: run_until(sys.argv[1], float(sys.argv[2]), **json.loads(sys.argv[3])))
