"""Environment steps per second beside a peer's, learning and logging included.

Both train with the same settings for the same number of steps, on as many threads, in turn (A B A B A B), every run in
a process of its own, so that neither finds the other's warm caches or a fuller memory. Seconds are those of the
training call, measured in that process: imports, making environments and building networks come before the clock
starts, for both. The figure is the ratio of the two runs of a pair, which a slow minute of the machine hits together;
seconds alone say little about anybody else's machine.

A method that learns from a replay first acts at random, many times as fast as it learns. Of its runs only the steps
after that count: from the end of the first row of our `progress.csv` that follows `learning_starts` to the last step,
the same steps for both (`counted_from`). The ratio of whole runs is stated beside it.

Where a preset's run would take too long, its beginning is timed, and its checkpoints come as often as in the whole run,
every twentieth of it (`checkpoint_steps`).
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from spinup.errors import UserError, nearest

ON_POLICY = {"gamma": 0.99, "lam": 0.95, "value_coef": 0.5, "max_grad_norm": 0.5, "anneal": True}
MLP = {**ON_POLICY, "clip_ratio": 0.2, "clip_value": 0.2, "hidden": (64, 64)}
DQN = {"num_envs": 1, "gamma": 0.99, "replay_size": 10_000, "double": False, "max_grad_norm": 10.0}
CHEETAH = {"total_steps": 7000, "num_envs": 1, "learning_starts": 1000, "replay_size": 1_000_000, "batch_size": 256,
           "update_every": 1, "update_ratio": 1.0, "gamma": 0.99, "tau": 0.005, "hidden": (256, 256),
           "checkpoint_steps": 15_000}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Task:
    """What is run, and the ratio to be reached."""

    settings: dict[str, Any]            # fields of the algorithm's Config
    goals: dict[int, float]             # by threads, eager; where there is none, none is missed
    notes: tuple[str, ...]              # where the two do not do the same work
    compiled: dict[int, float] = field(default_factory=dict)              # the same with the update step compiled, the
                                                                          # seconds of compiling left out


EVALUATED_ONCE = ("spinup scores a rollout in one batch after collecting it; stable-baselines3 evaluates value and "
                  "log-probability at every step")
FILES = ("spinup writes progress.csv, TensorBoard and checkpoints; stable-baselines3 TensorBoard, as many rows, and no "
         "checkpoint")
WHOLE = "spinup writes twenty checkpoints in a run"
BEGINNING = ("what is timed is the beginning of the preset's run of {:,} steps, in which spinup writes twenty "
             "checkpoints: one here, at the end")
CHEETAH_BEGINS, PONG_BEGINS = BEGINNING.format(300_000), BEGINNING.format(10_000_000)
VALUE = ("value_coef weighs half the squared error in spinup and all of it in stable-baselines3, and only spinup takes "
         "the larger of clipped and unclipped value error: returns may differ, the work does not")
REPLAY = (
    "spinup writes progress.csv and TensorBoard two hundred times, and checkpoints, its replay among them; "
    "stable-baselines3 TensorBoard, a row every four episodes, and no checkpoint: it keeps no replay on disk",
    "spinup looks at the loss of each gradient step for NaN; stable-baselines3 reads it for its log",
    "neither evaluates its policy while it trains")
ONEDNN = ("where products are large, spinup computes them by oneDNN, which torch ships and does not use for them by "
          "itself; stable-baselines3 takes torch's linear layer, by MKL. That is part of what is compared")
ATARI = ("the same preprocessing (4 frames skipped, 84 x 84, 4 stacked, rewards clipped), spinup's by ale-py's own "
         "vectorised environment, stable-baselines3's by its wrappers, one copy after the other",
         "each process is confined to as many cores as threads: the emulator would take all of them",
         "an environment step is one of the agent's: four frames")
TASKS = {
    ("ppo", "CartPole-v1"): Task(
        {**MLP, "total_steps": 300_000, "num_envs": 4, "rollout_steps": 128, "minibatches": 4, "epochs": 4,
         "lr": 2.5e-4, "entropy_coef": 0.01}, {1: 2.8}, (
         EVALUATED_ONCE, FILES, WHOLE, VALUE,
         "spinup steps its own vectorised copy of CartPole; stable-baselines3 Gymnasium's, one copy after the other"),
        {1: 4.0}),
    ("ppo", "HalfCheetah-v5"): Task(
        {**MLP, "total_steps": 100_000, "num_envs": 1, "rollout_steps": 2048, "minibatches": 32, "epochs": 10,
         "lr": 3e-4, "entropy_coef": 0.0, "normalise_obs": True, "normalise_reward": True}, {1: 2.5}, (
         EVALUATED_ONCE, FILES, WHOLE, VALUE,
         "spinup updates its normalisers once a rollout; stable-baselines3 (VecNormalize) at every step"), {1: 3.5}),
    ("ppo", "PongNoFrameskip-v4"): Task(
        {**ON_POLICY, "clip_ratio": 0.1, "clip_value": 0.1, "total_steps": 20_480, "num_envs": 8, "rollout_steps": 128,
         "minibatches": 4, "epochs": 4, "lr": 2.5e-4, "entropy_coef": 0.01, "checkpoint_steps": 500_000},
        {1: 1.6, 2: 1.6}, (EVALUATED_ONCE, FILES, PONG_BEGINS, VALUE, ONEDNN, *ATARI)),
    ("dqn", "CartPole-v1"): Task(
        {**DQN, "total_steps": 100_000, "learning_starts": 10_000, "batch_size": 128, "update_every": 10,
         "update_ratio": 0.1, "target_every": 50, "lr": 2.5e-4, "epsilon": 0.05, "explore": 0.5, "hidden": (120, 84)},
        {1: 2.0}, (*REPLAY, WHOLE, "spinup steps its own copy of CartPole; stable-baselines3 Gymnasium's")),
    ("dqn", "PongNoFrameskip-v4"): Task(
        {**DQN, "total_steps": 9000, "learning_starts": 1000, "batch_size": 32, "update_every": 4,
         "update_ratio": 0.25, "target_every": 250, "lr": 1e-4, "epsilon": 0.01, "explore": 0.1,
         "checkpoint_steps": 500_000}, {1: 1.6, 2: 1.6}, (
         *REPLAY, PONG_BEGINS, ONEDNN, *ATARI, "spinup keeps each frame once; stable-baselines3, as it comes, each "
         "observation twice, four frames each")),
    ("td3", "HalfCheetah-v5"): Task(
        {**CHEETAH, "lr": 1e-3, "explore_noise": 0.1, "target_noise": 0.2, "noise_clip": 0.5, "policy_delay": 2},
        {1: 1.25, 2: 1.6}, (
         *REPLAY, CHEETAH_BEGINS, ONEDNN,
         "only stable-baselines3 computes the critic's gradient in the actor's step, where nobody uses it")),
    ("sac", "HalfCheetah-v5"): Task(
        {**CHEETAH, "lr": 3e-4, "alpha": 1.0, "learn_alpha": True, "target_entropy": -1.0},
        {1: 1.25, 2: 1.6}, (
         *REPLAY, CHEETAH_BEGINS, ONEDNN,
         "only stable-baselines3 computes the critics' gradients in the actor's step, where nobody uses them")),
}
NETWORKS_ALONE = ("gradient steps a second if they were nothing but the passes of the networks that the method cannot "
                  "do without, forward and backward, at the same shapes, measured for two seconds in the process of "
                  "the run after it: spinup's with its own layers, sb3's with torch's linear layers")


def speed(algo: str, env: str, *, against: str = "sb3", threads: int = 1, compile: bool = False,
          total_steps: int | None = None, rounds: int = 3, out: Path | None = None) -> int:
    """Run both `rounds` times and print what came out; the last line is JSON, which `out` receives too.

    Returns the exit code: 1 where the median ratio misses the goal.
    UserError, before any run: a task without settings here, a missing peer or compiler, a file that cannot be written.
    """
    task = find_task(algo, env, against)
    settings = with_steps(task.settings, total_steps)
    check_out(out)
    check_installed(env, compile)
    goal = (task.compiled if compile else task.goals).get(threads)

    print(f"{algo} on {env}: {settings['total_steps']:,} steps, {rounds} {'pair' if rounds == 1 else 'pairs'}, "
          f"{'one thread' if threads == 1 else f'{threads} threads'} each{', compiled' if compile else ''}", flush=True)
    job = {"algo": algo, "env": env, "settings": settings, "compile": compile, "threads": threads}
    environment = dict.fromkeys(ONE_THREAD, str(threads))
    limit = child("spinup.bench.speed", "limit", job, environment=environment)["steps_per_second"]
    print(f"the environment alone: {limit:,.0f} steps/s", flush=True)
    modules, runs = {"spinup": "spinup.bench.speed", "sb3": "spinup.bench.peers"}, {"spinup": [], "sb3": []}
    for seed in range(1, rounds + 1):
        for name, module in modules.items():
            runs[name].append(found := child(module, name, {**job, "seed": seed}, environment=environment))
            returned = "-" if found["return"] is None else f"{found['return']:.1f}"
            compiling = f", and {found['compile_seconds']:.1f} s of compiling" if found["compile_seconds"] else ""
            print(f"pair {seed}  {name:<6} {found['steps_per_second']:>8,.0f} steps/s   R100 {returned} "
                  f"({found['episodes']} episodes)   {found['seconds']:.1f} s{compiling}", flush=True)

    versions = {k: v for found in runs.values() for k, v in found[0].pop("versions").items()}
    rates, ratios = rates_and_ratios(runs, "steps_per_second")
    ratio = median(ratios)
    met, extra = goal is None or ratio >= goal, {}
    print(", ".join(f"{name} {median(r):,.0f} steps/s ({median(r) / limit:.0%} of the environment alone)"
                    for name, r in rates.items()))
    print(f"ratios {', '.join(f'{r:.2f}' for r in ratios)}; median {ratio:.2f}, "
          + ("no goal is stated" if goal is None else f"goal {goal}: {'met' if met else 'missed'}"))
    if "learning_starts" in settings:
        _, whole = rates_and_ratios(runs, "whole_run_steps_per_second")
        extra = {"counted_from_step": counted_from(settings), "ratio_median_whole_run": round(median(whole), 3)}
        print(f"  counted from step {counted_from(settings):,} on, when both learn; {median(whole):.2f} for whole runs")
    if "networks_alone_per_second" in runs["spinup"][0]:
        alone, _ = rates_and_ratios(runs, "networks_alone_per_second")
        share = {name: round(median(run["steps_per_second"] * settings["update_ratio"] / pace for run, pace in zip(
            found, alone[name], strict=True)), 3) for name, found in runs.items()}
        extra |= {"networks_alone_per_second": alone, "networks_alone_share": share,
                  "networks_alone_is": NETWORKS_ALONE}
        print("  the networks alone: " + ", ".join(
            f"{name} {median(alone[name]):,.0f} gradient steps/s, {share[name]:.0%} of its time" for name in alone))
    print("\n".join(f"  {note}" for note in task.notes))
    return finish({
        "benchmark": "speed", "algorithm": algo, "env": env, "ratio_median": round(ratio, 3),
        "ratios": [round(r, 3) for r in ratios], "steps_per_second": rates, "environment_steps_per_second": limit,
        "compile_seconds": round(median(r["compile_seconds"] for r in runs["spinup"]), 2) if compile else None, **extra,
        "returns": {name: [run["return"] for run in found] for name, found in runs.items()}, "runs": runs,
        "steps": settings["total_steps"], "settings": {**settings, "threads": threads, "compile": compile},
        "versions": versions, "notes": task.notes, "goal": goal, "met": met}, out)


def rates_and_ratios(runs: dict[str, list[dict[str, Any]]], key: str) -> tuple[dict[str, list[float]], list[float]]:
    """Each side's numbers, and pair by pair ours over the peer's."""
    rates = {name: [run[key] for run in found] for name, found in runs.items()}
    return rates, [a / b for a, b in zip(rates["spinup"], rates["sb3"], strict=True)]


def with_steps(settings: dict[str, Any], total_steps: int | None) -> dict[str, Any]:
    """The settings with as many steps for both: whole batches, or whole updates. UserError for too few."""
    s, wanted = settings, total_steps or settings["total_steps"]
    if "learning_starts" in s:
        batch, least = s["update_every"], s["learning_starts"] * 11 // 10
        why = f"leaves too little after the {s['learning_starts']} before learning"
    else:
        batch = s["num_envs"] * s["rollout_steps"]
        least, why = 2 * batch, f"is less than two batches of {batch} steps"
    if wanted < least:
        raise UserError(f"--total-steps {wanted} {why}; choose at least {least}")
    return {**s, "total_steps": wanted // batch * batch}


def check_installed(env: str, compile: bool) -> None:
    """UserError, with the line to type, where something is missing."""
    if compile:
        from spinup.machine import find_compiler
        if find_compiler() is None:
            raise UserError("--compile needs a C++ compiler; `spinup doctor` says how to install one")
    needed = {"stable_baselines3": ("stable-baselines3", "bench")}
    if is_atari(env):
        needed |= {"ale_py": ("ale-py", "atari"), "cv2": ("OpenCV", "atari")}
    for module, (name, extra) in needed.items():
        if find_spec(module) is None:
            raise UserError(f"this benchmark needs {name}; type: pip install 'spinup-rl[{extra}]'")


def is_atari(env: str) -> bool:
    """Whether an id is of the Atari games that benchmarks use."""
    return env.endswith("NoFrameskip-v4")


def counted_from(settings: dict[str, Any]) -> int:
    """The step after which the clock counts: 0, or where a replay is filled first, that of the first row after it."""
    if "learning_starts" not in settings:
        return 0
    from spinup.runs.training import Training
    every = settings["update_every"]
    row = max(1, round(settings["total_steps"] // every / Training.epochs)) * every
    return (settings["learning_starts"] // row + 1) * row


def find_task(algo: str, env: str, against: str = "sb3") -> Task:
    """The settings of this comparison. UserError where none are known."""
    if against != "sb3":
        raise UserError(f"--against must be sb3, not {against!r}")
    if (algo, env) not in TASKS:
        names = [e for a, e in TASKS if a == algo]
        raise UserError(f"there is no speed benchmark of {algo} on {env}.{nearest(env, names)} "
                        f"There is: {', '.join(f'{a} --env {e}' for a, e in TASKS)}")
    return TASKS[algo, env]


def check_out(out: Path | None) -> None:
    """UserError where the result could not be written: better now than after the runs."""
    if out is not None and (out.is_dir() or not os.access(out.absolute().parent, os.W_OK)):
        raise UserError(f"--out {out} cannot be written; give a file in a folder that exists")


def finish(result: dict[str, Any], out: Path | None, **details: Any) -> int:
    """Print the result as the last line, write it, with more `details`, to `out`; the exit code."""
    if out is not None:
        from spinup.runs.files import write_json
        write_json(out.absolute(), {**result, **details})
    print(json.dumps(result), flush=True)
    return 0 if result["met"] else 1


def child(module: str, *arguments: Any, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """What a fresh Python process, `python -m module FOLDER arguments`, prints last, as JSON.

    FOLDER is its own and goes with it. UserError or RuntimeError with its words where it fails.
    """
    words = [a if isinstance(a, str) else json.dumps(a) for a in arguments]
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        cold = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor"))}                  # else only one compiles
        done = subprocess.run([sys.executable, "-m", module, folder, *words], capture_output=True, encoding="utf-8",
                              env={**os.environ, "PYTHONIOENCODING": "utf-8", **cold, **(environment or {})})
    if done.returncode == 2 and done.stderr.strip():
        raise UserError(done.stderr.strip().splitlines()[-1].removeprefix("spinup: "))
    if done.returncode:
        raise RuntimeError(f"{module} {words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def run_spinup(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train as a user would: what is not in the settings is as it comes, files and plain lines of display included."""
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
    if counted_from(s):                                                   # what was compiled, was before that
        before = counted_from(s), progress["wall_seconds"][first]
    return report(result["steps"], result["seconds"], whole_call, result["returns"],
                  read_json(run.directory / "config.json")["versions"], compile_seconds, before,
                  networks_alone(job["algo"], job["env"], s, plain=False))


def above_pace(progress: dict[str, list[float]], seconds: float, row: int = 0) -> float:
    """Seconds that a row took above the pace of the later ones: what compiling, a part of it, has cost."""
    steps, clock = [0.0, *progress["steps"]], [0.0, *progress["wall_seconds"]]             # as it stood before each row
    pace = (seconds - clock[row + 1]) / (steps[-1] - steps[row + 1])      # seconds a step
    return max(0.0, clock[row + 1] - clock[row] - (steps[row + 1] - steps[row]) * pace)


def report(steps: int, seconds: float, whole_call: float, returns: list[float], versions: dict[str, str],
           compile_seconds: float = 0.0, before: tuple[int, float] = (0, 0.0),
           networks_alone_per_second: float | None = None) -> dict[str, Any]:
    """One run.

    steps, seconds: of all the training, with compiling. before: those of them that do not count.
    In the result `seconds`, and `steps_per_second`, are of what counts, without compiling; `whole_run_steps_per_second`
    is of all; `whole_call_seconds` has environments, networks and curve too.
    """
    counted = seconds - before[1] - (0 if before[0] else compile_seconds)
    alone = {} if networks_alone_per_second is None else {"networks_alone_per_second": networks_alone_per_second}
    return {"steps": steps, "seconds": round(counted, 3), "steps_per_second": round((steps - before[0]) / counted, 1),
            "seconds_before": round(before[1], 3),
            "whole_run_steps_per_second": round(steps / (seconds - compile_seconds), 1),
            "compile_seconds": round(compile_seconds, 2), "whole_call_seconds": round(whole_call, 3),
            "return": round(sum(returns) / len(returns), 2) if returns else None, "episodes": len(returns),
            "versions": versions, **alone}


def run_limit(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of our environments alone, acting at random for a second: what a training cannot exceed."""
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


def work(functions: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]]) -> None:
    """What a process that `child` started does: `FOLDER NAME JOB`, on as many cores as threads where games are played.

    ale-py's emulator has as many threads as there are cores, whatever torch was told.
    """
    folder, name, job = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if is_atari(job["env"]) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:job["threads"]])
    print(json.dumps(functions[name](folder, job)))


if __name__ == "__main__":
    work({"spinup": run_spinup, "limit": run_limit})
