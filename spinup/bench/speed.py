"""Environment steps per second beside a peer's, learning and logging included.

Both train with the same settings for the same number of steps, one thread each, in turn (A B A B A B), every run in a
process of its own, so that neither finds the other's warm caches or a fuller memory. Seconds are those of the training
call, measured in that process: imports, making environments and building networks come before the clock starts, for
both. The figure is the ratio of the two runs of a pair, which a slow minute of the machine hits together; seconds alone
say little about anybody else's machine.
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from spinup.errors import UserError, nearest

SHARED = {"gamma": 0.99, "lam": 0.95, "clip_ratio": 0.2, "clip_value": 0.2, "value_coef": 0.5, "max_grad_norm": 0.5,
          "hidden": (64, 64), "anneal": True}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Task:
    """What is run, and the ratio to be reached."""

    settings: dict[str, Any]        # fields of the algorithm's Config
    goal: float                     # eager
    goal_compiled: float            # with the update step compiled, the seconds of compiling left out
    notes: tuple[str, ...]          # where the two do not do the same work


EVALUATED_ONCE = ("spinup scores a rollout in one batch after collecting it; stable-baselines3 evaluates value and "
                  "log-probability at every step")
FILES = ("spinup writes progress.csv, TensorBoard and twenty checkpoints; stable-baselines3 TensorBoard, as many rows, "
         "and no checkpoint")
VALUE = ("value_coef weighs half the squared error in spinup and all of it in stable-baselines3, and only spinup takes "
         "the larger of clipped and unclipped value error: returns may differ, the work does not")
TASKS = {
    ("ppo", "CartPole-v1"): Task(
        {**SHARED, "total_steps": 300_000, "num_envs": 4, "rollout_steps": 128, "minibatches": 4, "epochs": 4,
         "lr": 2.5e-4, "entropy_coef": 0.01}, 2.8, 4.0, (
         EVALUATED_ONCE, FILES, VALUE,
         "spinup steps its own vectorised copy of CartPole; stable-baselines3 Gymnasium's, one copy after the other")),
    ("ppo", "HalfCheetah-v5"): Task(
        {**SHARED, "total_steps": 100_000, "num_envs": 1, "rollout_steps": 2048, "minibatches": 32, "epochs": 10,
         "lr": 3e-4, "entropy_coef": 0.0, "normalise_obs": True, "normalise_reward": True}, 2.5, 3.5, (
         EVALUATED_ONCE, FILES, VALUE,
         "spinup updates its normalisers once a rollout; stable-baselines3 (VecNormalize) at every step")),
}


def speed(algo: str, env: str, *, against: str = "sb3", compile: bool = False, total_steps: int | None = None,
          rounds: int = 3, out: Path | None = None) -> int:
    """Run both `rounds` times and print what came out; the last line is JSON, which `out` receives too.

    Returns the exit code: 1 where the median ratio misses the goal.
    UserError, before any run: a task without settings here, a missing peer or compiler, a file that cannot be written.
    """
    task = find_task(algo, env, against)
    settings = dict(task.settings)
    batch = settings["num_envs"] * settings["rollout_steps"]
    settings["total_steps"] = (total_steps or settings["total_steps"]) // batch * batch     # as many steps for both
    if settings["total_steps"] < 2 * batch:
        raise UserError(f"--total-steps {total_steps} is less than two batches of {batch} steps; "
                        f"choose at least {2 * batch}")
    check_out(out)
    if compile:
        from spinup.runs.doctor import find_compiler
        if find_compiler() is None:
            raise UserError("--compile needs a C++ compiler; `spinup doctor` says how to install one")
    if find_spec("stable_baselines3") is None:
        raise UserError("this benchmark needs stable-baselines3; type: pip install 'spinup-rl[bench]'")

    print(f"{algo} on {env}: {settings['total_steps']:,} steps, {rounds} {'pair' if rounds == 1 else 'pairs'}, "
          f"one thread each{', compiled' if compile else ''}", flush=True)
    job = {"algo": algo, "env": env, "settings": settings, "compile": compile}
    limit = child("spinup.bench.speed", "limit", job, environment=ONE_THREAD)["steps_per_second"]
    print(f"the environment alone: {limit:,.0f} steps/s", flush=True)
    ours, theirs = [], []
    for seed in range(1, rounds + 1):
        for name, runs in (("spinup", ours), ("sb3", theirs)):
            runs.append(found := child("spinup.bench.speed", name, {**job, "seed": seed}, environment=ONE_THREAD))
            returned = "-" if found["return"] is None else f"{found['return']:.1f}"
            compiling = f", and {found['compile_seconds']:.1f} s of compiling" if found["compile_seconds"] else ""
            print(f"pair {seed}  {name:<6} {found['steps_per_second']:>8,.0f} steps/s   R100 {returned} "
                  f"({found['episodes']} episodes)   {found['seconds']:.1f} s{compiling}", flush=True)

    runs, versions = {"spinup": ours, "sb3": theirs}, {**ours[0].pop("versions"), **theirs[0].pop("versions")}
    rates = {name: [run["steps_per_second"] for run in found] for name, found in runs.items()}
    ratios = [a / b for a, b in zip(rates["spinup"], rates["sb3"], strict=True)]
    ratio, goal = median(ratios), task.goal_compiled if compile else task.goal
    print(", ".join(f"{name} {median(r):,.0f} steps/s ({median(r) / limit:.0%} of the environment alone)"
                    for name, r in rates.items()))
    print(f"ratios {', '.join(f'{r:.2f}' for r in ratios)}; median {ratio:.2f}, goal {goal}: "
          f"{'met' if ratio >= goal else 'missed'}")
    print("\n".join(f"  {note}" for note in task.notes))
    return finish({
        "benchmark": "speed", "algorithm": algo, "env": env, "ratio_median": round(ratio, 3),
        "ratios": [round(r, 3) for r in ratios], "steps_per_second": rates, "environment_steps_per_second": limit,
        "compile_seconds": round(median(run["compile_seconds"] for run in ours), 2) if compile else None,
        "returns": {name: [run["return"] for run in found] for name, found in runs.items()}, "runs": runs,
        "steps": settings["total_steps"], "settings": {**settings, "threads": 1, "compile": compile},
        "versions": versions, "notes": task.notes, "goal": goal, "met": ratio >= goal}, out)


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

    from spinup.runs.files import read_json
    from spinup.runs.log import read_progress
    torch.set_num_threads(1)
    algorithm = importlib.import_module(f"spinup.algos.{job['algo']}")
    config = algorithm.Config(env=job["env"], seed=job["seed"], threads=1, compile=job["compile"], log_dir=folder,
                              **job["settings"])
    started = time.perf_counter()
    run = algorithm.train(config)
    whole_call = time.perf_counter() - started
    result = read_json(run.directory / "result.json")
    compile_seconds = above_pace(read_progress(run.directory), result["seconds"]) if job["compile"] else 0.0
    return report(result["steps"], result["seconds"] - compile_seconds, whole_call, result["returns"],
                  read_json(run.directory / "config.json")["versions"], compile_seconds)


def above_pace(progress: dict[str, list[float]], seconds: float) -> float:
    """Seconds that a run's first row took above the pace of the later ones: what compiling, a part of it, has cost."""
    first_steps, first_seconds, steps = progress["steps"][0], progress["wall_seconds"][0], progress["steps"][-1]
    return max(0.0, first_seconds - first_steps * (seconds - first_seconds) / (steps - first_steps))


def run_sb3(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train stable-baselines3 in its usual form: make_vec_env, Monitor, DummyVecEnv, TensorBoard, CPU."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    from spinup.envs.make import quiet_mujoco
    torch.set_num_threads(1)
    quiet_mujoco()                                                        # or its log is left in the user's folder
    s = job["settings"]
    batch = s["num_envs"] * s["rollout_steps"]
    updates = s["total_steps"] // batch
    started = time.perf_counter()
    env = make_vec_env(job["env"], n_envs=s["num_envs"], seed=job["seed"])
    if s.get("normalise_obs"):
        env = VecNormalize(env, norm_obs=True, norm_reward=s["normalise_reward"], gamma=s["gamma"])
    model = stable_baselines3.PPO(
        "MlpPolicy", env, learning_rate=lambda left: s["lr"] * left, n_steps=s["rollout_steps"],
        batch_size=batch // s["minibatches"], n_epochs=s["epochs"], gamma=s["gamma"], gae_lambda=s["lam"],
        clip_range=s["clip_ratio"], clip_range_vf=s["clip_value"], ent_coef=s["entropy_coef"], vf_coef=s["value_coef"],
        max_grad_norm=s["max_grad_norm"],
        policy_kwargs={"net_arch": list(s["hidden"]), "activation_fn": torch.nn.Tanh},     # Adam's eps is 1e-5 in both
        tensorboard_log=folder, verbose=0, seed=job["seed"], device="cpu")
    training = time.perf_counter()
    model.learn(s["total_steps"], log_interval=max(1, round(updates / 200)))               # as many rows as ours
    seconds = time.perf_counter() - training
    whole_call, returns = time.perf_counter() - started, [episode["r"] for episode in model.ep_info_buffer]
    versions = {"stable-baselines3": stable_baselines3.__version__}
    return report(model.num_timesteps, seconds, whole_call, returns, versions)


def report(steps: int, seconds: float, whole_call: float, returns: list[float], versions: dict[str, str],
           compile_seconds: float = 0.0) -> dict[str, Any]:
    """One run. `seconds`: training, without compiling; `whole_call_seconds`: with environments, networks and curve."""
    return {"steps": steps, "seconds": round(seconds, 3), "steps_per_second": round(steps / seconds, 1),
            "compile_seconds": round(compile_seconds, 2), "whole_call_seconds": round(whole_call, 3),
            "return": round(sum(returns) / len(returns), 2) if returns else None, "episodes": len(returns),
            "versions": versions}


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


if __name__ == "__main__":
    work = {"spinup": run_spinup, "sb3": run_sb3, "limit": run_limit}[sys.argv[2]]
    print(json.dumps(work(sys.argv[1], json.loads(sys.argv[3]))))
