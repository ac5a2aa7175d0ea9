"""Suites of environments: every algorithm that supports an environment is trained in it with several seeds and
evaluated.

`suites.toml` lists the environments. As in a grid, the run folders show which runs are finished. So after an
interruption, the same command trains and evaluates only the missing runs.
"""
import json
import math
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from csv import DictWriter
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from io import StringIO
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from spinup import registry
from spinup.bench.against import check_peer, has
from spinup.bench.process import EPISODES, ONE_THREAD, child, in_turn
from spinup.errors import UserError, nearest
from spinup.registry import FAMILIES, Algorithm, algorithms, find, installed
from spinup.runs.config import RunConfig
from spinup.runs.display import number, quoted, tell_progress
from spinup.runs.files import read_json, write_json, write_whole
from spinup.runs.folders import check_writable, describe, lock, safe
from spinup.runs.offline import OfflineConfig
from spinup.runs.presets import configure
from spinup.runs.public import check_start
from spinup.runs.records import finished, read_result, read_run
from spinup.view.grid import Grid
from spinup.view.jobs import Job, check_job

EVALUATION = "evaluation.json"                              # of a run's final policy, beside its result.json
EACH = 4                # fewest evaluations per process; with fewer, its start takes longer than it saves


@cache
def suites() -> dict[str, dict[str, dict[str, float]]]:
    """Return the environments of each suite, with their steps and the returns of the normalised scores 0 and 1."""
    return tomllib.loads(Path(__file__).with_name("suites.toml").read_text(encoding="utf-8"))


def suite(name: str, *, seeds: Sequence[int], workers: int = 1, algos: Sequence[str] = (), envs: Sequence[str] = (),
          total_steps: int | None = None, against: str | None = None, log_dir: Path | None = None) -> int:
    """Train and evaluate every algorithm that supports an environment of a suite, with each seed; print a table of
    the training results, and the mean evaluations.

    Args:
        algos, envs: only these algorithms and environments; () means all of the suite.
        total_steps: steps of each run, instead of those of the suite.
        against: "sb3" also trains stable-baselines3, with its own defaults, where it has the algorithm.
        log_dir: the folder of the runs; `runs/suite_NAME` by default.

    Return the exit code: 0, 1 if a run failed, 130 after Ctrl-C, 143 or 129 after other signals. UserError, before any
    run starts, for an unknown name, for algorithms that support no environment of the suite, and for a folder that
    holds other runs.
    """
    folder = log_dir or Path("runs", f"suite_{name}")
    family = name if name in FAMILIES else ""
    there = suites()[name]
    if unknown := [env for env in envs if env not in there]:
        raise UserError(f"the suite {name} has no {unknown[0]}.{nearest(unknown[0], there)} It has {', '.join(there)}")
    check_writable(folder)
    steps = {env: total_steps or int(about["steps"]) for env, about in there.items() if not envs or env in envs}
    if against and name in FAMILIES:
        raise UserError(f"--against sb3 compares agents in environments; leave it out for {name}")
    for env in steps if against else ():
        check_peer(env)
    known = {**algorithms(family), **installed(family)}.values()
    found = [find(f"{family} {algo}".strip()) for algo in algos] or [
        a for a in known if not a.variant and a.about.get("rewards", True)]
    pairs = {(algorithm, env): config for env in steps
             for algorithm, config in serving(found, env, steps[env], folder, named=bool(algos)).items()}
    if not pairs:
        raise UserError(f"{', '.join(a.method for a in found)} cannot train in {', '.join(steps)} with these settings; "
                        "choose other --algos, or another --env")
    jobs = {(algorithm, env, seed): job_of(algorithm, env, config, seed)
            for seed in seeds for (algorithm, env), config in pairs.items()}
    folder.mkdir(parents=True, exist_ok=True)
    taken = lock(folder)                                                  # two suites would train the same runs
    try:
        code = Grid(list(jobs.values()), workers).run()
        if code < 128:                                                    # no signal
            done = [job.directory for job in jobs.values() if job.status == "finished"]
            code = max(code, evaluate(done, workers))
            print_evaluations(done)
        if code < 128 and against:
            peers = [(a.name, env, seed, read_result(job.directory)["steps"])
                     for (a, env, seed), job in jobs.items() if job.status == "finished"]
            code = max(code, beside(peers, folder, workers))
    finally:
        taken.release()
    print(f"to compare the algorithms, type: spinup bench report {quoted(describe(folder))}")
    return code


def serving(found: Sequence[Algorithm], env: str, steps: int, folder: Path,
            named: bool = False) -> dict[Algorithm, RunConfig]:
    """Return the algorithms that can train in an environment, or on a task, with their settings. Print why each of
    the other algorithms cannot. Without `named`, print nothing if the reason is the actions or the observations, or
    that the algorithm learns from a dataset. UserError if the environment cannot be made.
    """
    fit: dict[Algorithm, RunConfig] = {}
    for algorithm in found:
        kinds, about = set(registry.family(algorithm).kinds(env)), algorithm.about
        without = f"without {algorithm.method} in {env}:"
        unfit = [f"it supports only {' or '.join(about[key])} {key}" for key in ("actions", "observations")
                 if kinds and kinds.isdisjoint(about.get(key, kinds))]
        if issubclass(algorithm.load().Config, OfflineConfig):
            unfit = ["it learns from a dataset; `spinup bench paper offline` compares such algorithms"]
        if unfit:
            if named:
                print(without, unfit[0])
            continue
        name = safe(f"{algorithm.method}_{env}")
        settings = {"total_steps": steps, "threads": 1, "log_dir": str(folder), "exp_name": name, "quiet": True}
        try:
            config, _ = configure(algorithm, {algorithm.load().Config.SUBJECT: env, **settings})
            check_start(algorithm, config)
            fit[algorithm] = config
        except UserError as error:
            print(without, str(error).partition("; ")[0])                 # not the remedy, which can be another env
    return fit


def job_of(algorithm: Algorithm, env: str, config: RunConfig, seed: int) -> Job:
    """Return the run of one seed. UserError if its folder holds another run."""
    words = {config.SUBJECT: env, "total-steps": f"{config.total_steps}", "threads": "1", "seed": f"{seed}",
             "exp-name": config.exp_name, "log-dir": config.log_dir, "quiet": ""}
    directory = Path(config.log_dir, config.exp_name, f"{config.exp_name}_s{seed}")
    job = Job(algorithm.name, config.exp_name, seed, words, directory)
    check_job(job, replace(config, seed=seed), "choose another --log-dir")
    return job


def evaluate(directories: Sequence[Path], workers: int) -> int:
    """Evaluate the final policy of each run once, as `spinup eval DIR --json` does, into its `evaluation.json`. Print
    the reason for each policy that cannot be evaluated, and return 1 if there is one, else 0. UserError if a process
    is killed."""
    coming = [directory for directory in directories if read_evaluation(directory) is None]
    tell = tell_progress(f"evaluating {len(coming)} policies", len(coming), bool(coming))
    processes = min(workers, len(coming) // EACH)
    with ProcessPoolExecutor(processes, get_context("spawn")) if processes > 1 else nullcontext() as pool:
        jobs = [pool.submit(evaluation, each) for each in coming] if pool else []
        found = (job.result() for job in as_completed(jobs)) if pool else map(evaluation, coming)
        failed = 0
        try:
            for done, (directory, text, why) in enumerate(found, 1):
                if why:
                    print(f"not evaluated: {describe(directory)}: {why}", file=sys.stderr)
                    failed = 1
                else:
                    write_evaluation(directory, text)
                tell(done)
        except BrokenProcessPool:
            raise UserError("a process that evaluated policies was killed, perhaps because the memory was full; type "
                            "the same command with fewer --workers") from None
    return failed


def measured(directory: Path, measure: str) -> float | None:
    """Return the result of a run's evaluation: the mean return, or the measure of a language model. None without an
    evaluation. UserError if its file is damaged."""
    evaluation = read_evaluation(directory)
    if evaluation is None:
        return None
    try:
        found = float(evaluation["mean"] if "mean" in evaluation else evaluation[measure])
    except (TypeError, ValueError, KeyError):
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{directory / EVALUATION} is not the evaluation of a run; delete it")
    return found


def print_evaluations(directories: Sequence[Path]) -> None:
    """Print the mean evaluation of each algorithm in each environment, over its runs."""
    found: dict[str, list[float]] = {}
    for directory in directories:
        value = measured(directory, read_result(directory)["measure"])
        if value is not None:
            found.setdefault(directory.parent.name, []).append(value)
    for name, values in found.items():
        n = len(values)
        print(f"{name:<40} {number(sum(values) / n):>10}   mean evaluation of {n} run{'s' * (n != 1)}")


def evaluation(directory: Path) -> tuple[Path, str, str]:
    """Return the folder, what `spinup eval DIR --json` prints, and "", or "" and the reason why it cannot."""
    try:
        algorithm = find(read_run(directory)["algorithm"], run=directory)
        return directory, registry.family(algorithm).evaluate(directory, episodes=EPISODES, stochastic=False, seed=0,
                                                              as_json=True, device="cpu"), ""
    except UserError as error:
        return directory, "", str(error)


def write_evaluation(directory: Path, found: str) -> None:
    """Write what `spinup eval DIR --json` printed into the folder of the run, with the steps of the policy."""
    write_json(directory / EVALUATION, {**json.loads(found), "directory": directory.name,
                                        "steps": read_result(directory)["steps"]})


def read_evaluation(directory: Path) -> dict[str, Any] | None:
    """Return the evaluation of a run's final policy; None without one, if the run has made more steps since, or if the
    evaluation has fewer than EPISODES episodes. UserError if the file is damaged."""
    path = directory / EVALUATION
    if not path.exists():
        return None
    found = read_json(path, advice := f"delete {path}")
    episodes = found.get("episodes", EPISODES) if isinstance(found, dict) else ""
    if not isinstance(episodes, int | float):
        raise UserError(f"{path} is not the evaluation of a run; {advice}")
    steps = read_result(directory).get("steps")
    return found if found.get("steps", steps) == steps and episodes >= EPISODES else None


def beside(runs: Sequence[tuple[str, str, int, int]], folder: Path, workers: int) -> int:
    """Train stable-baselines3 for each (algorithm, environment, seed, steps), where it has the algorithm, into a folder
    that `spinup plot` and `spinup bench report` read. Finished runs of the same steps and version are not repeated.
    Print the reason for each run that fails, and return 1 if there is one, else 0."""
    coming = [run for run in runs if has(run[0])]
    tell, done = tell_progress(f"stable-baselines3: {len(coming)} runs", len(coming), bool(coming)), count(1)

    def one(run: tuple[str, str, int, int]) -> int:
        algo, env, seed, steps = run
        name = safe(f"sb3_{algo}_{env}")
        directory = folder / name / f"{name}_s{seed}"
        about = read_run(directory) if finished(directory) else {}
        wanted = steps, version("stable-baselines3")
        if (about.get("asked"), about.get("versions", {}).get("stable-baselines3")) != wanted:
            directory.mkdir(parents=True, exist_ok=True)
            for old in ("result.json", "progress.csv", EVALUATION):       # of other steps, or another version
                (directory / old).unlink(missing_ok=True)
            job = {"algo": algo, "env": env, "seed": seed, "total_steps": steps, "against": "sb3"}
            try:
                write_peer(directory, child("spinup.bench.peers", "returns", job, environment=ONE_THREAD), steps)
            except (UserError, RuntimeError) as error:
                write_json(directory / "config.json", {"algorithm": f"sb3 {algo}",
                                                       "config": {"env": env, "seed": seed}})
                write_json(directory / "result.json", {"status": "failed", "steps": 0})
                print(f"failed: {name} with seed {seed}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
                return 1
        tell(next(done))
        return 0

    return max(in_turn(one, coming, workers), default=0)


def write_peer(directory: Path, found: dict[str, Any], asked: int) -> None:
    """Write the files of a run of `spinup.bench.peers.returns` that was asked for this many steps; `result.json` is the
    last."""
    curve, text = found["curve"], StringIO()
    writer = DictWriter(text, list(curve))
    writer.writeheader()
    writer.writerows(dict(zip(curve, row, strict=True)) for row in zip(*curve.values(), strict=True))
    write_json(directory / "config.json", {
        "algorithm": f"sb3 {found['algo']}", "measure": "return_mean_100", "versions": found["versions"], "git": None,
        "asked": asked,
        "config": {"env": found["env"], "seed": found["seed"], "total_steps": found["steps"]}})
    write_whole(directory / "progress.csv", text.getvalue().encode())
    write_json(directory / EVALUATION, {"episodes": EPISODES, "mean": found["E100"],
                                        "returns": found["evaluation_returns"]})
    write_json(directory / "result.json", {
        "status": "finished", "steps": found["steps"], "seconds": found["seconds"],
        "steps_per_second": found["steps"] / max(found["seconds"], 1e-3), "peak_memory": found["peak_memory"],
        "measure": "return_mean_100", "return_mean_100": found["R100"], "returns": found["training_returns"]})
