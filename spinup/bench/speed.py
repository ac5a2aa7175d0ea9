"""Environment steps per second compared with a peer, including learning and logging.

Both libraries train with the same settings, number of steps and number of threads, in turn (A B B A A B). Every run has
its own process, so neither library benefits from warm caches or suffers from full memory. Seconds are those of the
training call, measured in that process. For both libraries, imports, making environments and building networks do not
count. The result is the ratio of the two runs of a pair, because a slow minute of the machine affects both runs.
Seconds alone say little about other machines.

An algorithm with a replay buffer first acts at random, many times faster than it learns. Only the steps after that
count: from the end of the first row of our `progress.csv` after `learning_starts` to the last step. Both libraries
count the same steps (`counted_from`). The ratio of whole runs is reported too.

If the run of a preset would take too long, only its beginning is timed. The distance between checkpoints is then the
same as in the whole run, a twentieth of the whole run (`checkpoint_steps`).
"""
import importlib
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from spinup.bench.process import ONE_THREAD, check_out, child, finish, work
from spinup.bench.tasks import BESIDE_SBX, counted_from, find_task, is_atari, with_steps
from spinup.errors import UserError
from spinup.machine import check_compile

NETWORKS_ALONE = ("gradient steps per second if a gradient step were only the forward and backward passes that the "
                  "method needs, at the same shapes. They are measured for two seconds in the process of the run, "
                  "after the run: spinup with its own layers, sb3 with torch's linear layers")


def speed(algo: str, env: str, *, against: str = "sb3", threads: int = 1, compile: bool = False,
          total_steps: int | None = None, rounds: int = 3, out: Path | None = None) -> int:
    """Run both `rounds` times and print the result; the last line is JSON, which is also written to `out`.

    Returns the exit code: 1 if the median ratio misses the goal. UserError, before any run: a task without settings
    here, a missing peer or compiler, a file that cannot be written.
    """
    task = find_task(algo, env, against)
    settings = with_steps(task.settings, total_steps)
    check_out(out)
    check_installed(env, compile, against)
    goals, notes = (task.sbx, BESIDE_SBX) if against == "sbx" else (task.goals, task.notes)
    goal = (task.compiled if compile and against == "sb3" else goals).get(threads)

    print(f"{algo} on {env}: {settings['total_steps']:,} steps, {rounds} {'pair' if rounds == 1 else 'pairs'}, "
          f"{'one thread' if threads == 1 else f'{threads} threads'} each{', compiled' if compile else ''}", flush=True)
    job = {"algo": algo, "env": env, "settings": settings, "compile": compile, "threads": threads,
           "against": against}
    environment = dict.fromkeys(ONE_THREAD, str(threads))
    limit = child("spinup.bench.speed", "limit", job, environment=environment)["steps_per_second"]
    print(f"the environment alone: {limit:,.0f} steps/s", flush=True)
    modules = {"spinup": "spinup.bench.speed", against: "spinup.bench.peers"}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in modules}
    for seed in range(1, rounds + 1):
        for name, module in [*modules.items()][::1 if seed % 2 else -1]:  # neither library is always the first
            runs[name].append(found := child(module, name, {**job, "seed": seed}, environment=environment))
            returned = "-" if found["return"] is None else f"{found['return']:.1f}"
            compiling = f", and {found['compile_seconds']:.1f} s of compilation" if found["compile_seconds"] else ""
            print(f"pair {seed}  {name:<6} {found['steps_per_second']:>8,.0f} steps/s   R100 {returned} "
                  f"({found['episodes']} episodes)   {found['seconds']:.1f} s{compiling}", flush=True)

    versions = {k: v for found in runs.values() for k, v in found[0].pop("versions").items()}
    rates, ratios = rates_and_ratios(runs, "steps_per_second")
    ratio = median(ratios)
    met = goal is None or ratio >= goal
    extra = {}
    print(", ".join(f"{name} {median(r):,.0f} steps/s ({median(r) / limit:.0%} of the environment alone)"
                    for name, r in rates.items()))
    print(f"ratios {', '.join(f'{r:.2f}' for r in ratios)}; median {ratio:.2f}, "
          + ("no goal is stated" if goal is None else f"goal {goal}: {'met' if met else 'missed'}"))
    if "learning_starts" in settings:
        _, whole = rates_and_ratios(runs, "whole_run_steps_per_second")
        extra = {"counted_from_step": counted_from(settings), "ratio_median_whole_run": round(median(whole), 3)}
        print(f"  counted from step {counted_from(settings):,} on, when both learn; ratio {median(whole):.2f} for "
              "whole runs")
    if all("networks_alone_per_second" in found[0] for found in runs.values()):
        alone, _ = rates_and_ratios(runs, "networks_alone_per_second")
        share = {name: round(median(run["steps_per_second"] * settings["update_ratio"] / pace for run, pace in zip(
            found, alone[name], strict=True)), 3) for name, found in runs.items()}
        extra |= {"networks_alone_per_second": alone, "networks_alone_share": share,
                  "networks_alone_is": NETWORKS_ALONE}
        print("  the networks alone: " + ", ".join(
            f"{name} {median(alone[name]):,.0f} gradient steps/s, {share[name]:.0%} of its time" for name in alone))
    print("\n".join(f"  {note}" for note in notes))
    return finish({
        "benchmark": "speed", "algorithm": algo, "env": env, "ratio_median": round(ratio, 3),
        "ratios": [round(r, 3) for r in ratios], "steps_per_second": rates, "environment_steps_per_second": limit,
        "compile_seconds": round(median(r["compile_seconds"] for r in runs["spinup"]), 2) if compile else None, **extra,
        "returns": {name: [run["return"] for run in found] for name, found in runs.items()}, "runs": runs,
        "steps": settings["total_steps"], "settings": {**settings, "threads": threads, "compile": compile},
        "versions": versions, "notes": notes, "goal": goal, "met": met}, out)


def rates_and_ratios(runs: dict[str, list[dict[str, Any]]], key: str) -> tuple[dict[str, list[float]], list[float]]:
    """Return the numbers of each side, and for each pair the ratio of ours to the peer's."""
    rates = {name: [run[key] for run in found] for name, found in runs.items()}
    ours, theirs = rates.values()
    return rates, [a / b for a, b in zip(ours, theirs, strict=True)]


def check_installed(env: str, compile: bool, against: str = "sb3") -> None:
    """UserError with the command to type if a package or the compiler is missing."""
    if compile:
        check_compile()
    needed = {"stable_baselines3": ("stable-baselines3", "bench")}
    if against == "sbx":
        needed |= {"sbx": ("sbx-rl", "sbx")}
    if is_atari(env):
        needed |= {"ale_py": ("ale-py", "atari"), "cv2": ("OpenCV", "atari")}
    for module, (name, extra) in needed.items():
        if find_spec(module) is None:
            raise UserError(f"this benchmark needs {name}; type: pip install 'spinup-rl[{extra}]'")


def run_spinup(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train as a user would: other settings have their defaults, and files and progress lines are written."""
    import torch
    import torch.utils.tensorboard

    from spinup.bench.passes import networks_alone
    from spinup.runs.files import read_json
    from spinup.runs.log import read_progress
    torch.set_num_threads(job["threads"])
    algorithm, s = importlib.import_module(f"spinup.algos.{job['algo']}"), job["settings"]
    config = algorithm.Config(env=job["env"], seed=job["seed"], threads=job["threads"], compile=job["compile"],
                              log_dir=folder, **s)
    started = time.perf_counter()
    run = algorithm.train(config)
    whole_call = time.perf_counter() - started
    result, progress = read_json(run.directory / "result.json"), read_progress(run.directory)
    first, before = progress["steps"].index(counted_from(s)) if counted_from(s) else 0, (0, 0.0)
    compile_seconds = above_pace(progress, result["seconds"], first) if job["compile"] else 0.0
    if counted_from(s):                                                   # compilation was before that
        before = counted_from(s), progress["wall_seconds"][first]
    return report(result["steps"], result["seconds"], whole_call, result["returns"],
                  read_json(run.directory / "config.json")["versions"], compile_seconds, before
                  ) | networks_alone(job["algo"], job["env"], s, plain=False)


def above_pace(progress: dict[str, list[float]], seconds: float, row: int = 0) -> float:
    """Seconds by which a row was slower than the rows after it: the compilation time."""
    steps, clock = [0.0, *progress["steps"]], [0.0, *progress["wall_seconds"]]             # before each row
    pace = (seconds - clock[row + 1]) / (steps[-1] - steps[row + 1])      # seconds per step
    return max(0.0, clock[row + 1] - clock[row] - (steps[row + 1] - steps[row]) * pace)


def report(steps: int, seconds: float, whole_call: float, returns: list[float], versions: dict[str, str],
           compile_seconds: float = 0.0, before: tuple[int, float] = (0, 0.0)) -> dict[str, Any]:
    """Return the measurements of one run.

    steps, seconds: of the whole training run, with compilation. before: the steps and seconds at the beginning that do
    not count. In the result, `seconds` and `steps_per_second` are of the part that counts, without compilation.
    `whole_run_steps_per_second` is of the whole run, with compilation. `whole_call_seconds` includes making
    environments and networks.
    """
    counted = seconds - before[1] - (0 if before[0] else compile_seconds)
    return {"steps": steps, "seconds": round(counted, 3), "steps_per_second": round((steps - before[0]) / counted, 1),
            "seconds_before": round(before[1], 3),
            "whole_run_steps_per_second": round(steps / seconds, 1),
            "compile_seconds": round(compile_seconds, 2), "whole_call_seconds": round(whole_call, 3),
            "return": round(sum(returns) / len(returns), 2) if returns else None, "episodes": len(returns),
            "versions": versions}


def run_limit(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of our environments with random actions, measured for a second: an upper bound for training."""
    import numpy as np

    from spinup.envs import make
    env = make(job["env"], job["settings"]["num_envs"], 1)
    actions = [np.stack([env.action_space.sample() for _ in range(env.num_envs)]) for _ in range(1000)]
    env.reset()
    steps, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < 1:
        for action in actions:
            env.step(action)
        steps += len(actions) * env.num_envs
    return {"steps_per_second": round(steps / seconds)}


if __name__ == "__main__":
    work({"spinup": run_spinup, "limit": run_limit})
