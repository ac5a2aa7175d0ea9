"""Runs that a grid or a suite wants: one per combination of settings, checked against its folder."""
import csv
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.runs.config import Natural, RunConfig
from spinup.runs.convert import parse
from spinup.runs.folders import check_exp_name, check_writable, describe, safe, writable
from spinup.runs.records import read_result
from spinup.runs.resuming import check_same
from spinup.view.process import Process

OURS = ("seed", "exp-name", "log-dir", "quiet")         # flags that the grid sets itself


@dataclass
class Job:
    """One run of a grid or a suite. `status` is waiting, running, finished, failed or interrupted."""

    algo: str                                           # the algorithm's name on the command line
    variant: str                                        # the experiment's name
    seed: int
    flags: dict[str, str]
    directory: Path
    total_steps: int = 0
    status: str = "waiting"
    config: RunConfig | None = None
    process: Process | None = None                      # or a task of Ray, which has the same methods
    told: int = 0                                       # interruptions passed on to the run
    began: float = 0.0                                  # monotonic seconds and steps when this grid started it
    began_at: int = 0

    def steps(self) -> int:
        """Return the number of steps in its last row."""
        if self.status == "finished":
            return self.total_steps
        try:
            with open(self.directory / "progress.csv", newline="") as file:
                return int(list(csv.DictReader(file))[-1]["steps"])
        except (OSError, LookupError, ValueError, TypeError, csv.Error):  # no start or no complete row yet
            return 0

    def result(self) -> dict[str, Any]:
        """Read its result.json."""
        return read_result(self.directory)


def expand(settings: dict[str, list[str]]) -> list[dict[str, str]]:
    """Return every combination of one value per setting; the last setting varies fastest. A bare flag has the value
    ""."""
    values = [list(dict.fromkeys(v)) or [""] for v in settings.values()]                   # run each value once
    return [dict(zip(settings, combination, strict=True)) for combination in itertools.product(*values)]


def plan(algo: str, settings: dict[str, list[str]]) -> list[Job]:
    """Return the runs of a grid, variant by variant. UserError for names that are invalid or clash."""
    for flag in ("exp-name", "log-dir"):
        if len(settings.get(flag, [""])) != 1:
            raise UserError(f"--{flag} takes one value in a grid: all variants are stored in it")
    root = Path(settings.get("log-dir", [RunConfig.log_dir])[0]).expanduser()
    texts = settings.get("seed") or [str(RunConfig.seed)]
    seeds = list(dict.fromkeys(parse("seed", Natural, text) for text in texts))
    varied = {k: v for k, v in settings.items() if k not in OURS}
    subject = varied.get("env") or varied.get("task") or []
    base = settings.get("exp-name", [""])[0] or safe("_".join([algo, *(subject if len(subject) == 1 else []), "grid"]))
    check_exp_name(base)
    jobs, names = [], {}
    for flags in expand(varied):
        name = "_".join([base, *(safe(f"{k}{v}") for k, v in flags.items() if len(set(varied[k])) > 1)])
        if names.setdefault(name.lower(), flags) is not flags:
            raise UserError(f"two variants would both be called {name}; give values that differ in letters and digits")
        check_exp_name(name)
        for seed in seeds:
            own = {"exp-name": name, "log-dir": str(root), "seed": str(seed), "quiet": ""}
            jobs.append(Job(algo, name, seed, {**flags, **own}, root / name / f"{name}_s{seed}"))
    return jobs


def check_job(job: Job, config: RunConfig, advice: str = "choose another --exp-name") -> None:
    """Set the run's steps, and whether it is finished. UserError, with the advice, if its folder holds another run."""
    job.config, job.total_steps = config, config.total_steps
    if (job.directory / "config.json").exists():
        check_same(job.directory, job.algo, config, {"log_dir", "quiet"}, advice)
    if job.result().get("status") == "finished":
        job.status = "finished"
        return
    check_writable(Path(config.log_dir))
    if not writable(job.directory):
        raise UserError(f"{describe(job.directory)} cannot be written to; choose another --log-dir or --exp-name")
