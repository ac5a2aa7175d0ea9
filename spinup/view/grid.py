"""Every combination of several settings, one process a run, as many at a time as are wanted.

What is done is read from the folders of the runs, so the same command again does what is missing, whatever stopped it.
"""
import csv
import itertools
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spinup.errors import UserError
from spinup.runs.config import Natural, RunConfig, parse
from spinup.runs.display import duration, number, pace, short
from spinup.runs.folders import check_exp_name, check_same, check_writable, describe, read_result, writable
from spinup.view.statistics import interval, range_of

POLL = 0.2                                              # seconds between looks at the processes
OURS = ("seed", "exp-name", "log-dir", "quiet")         # flags that the grid gives itself


@dataclass
class Job:
    """One run of the grid. `status` is one of waiting, running, finished, failed, interrupted."""

    variant: str                                        # the experiment's name
    seed: int
    flags: dict[str, str]
    directory: Path
    total_steps: int = 0
    status: str = "waiting"
    process: subprocess.Popen | None = None
    words: IO[str] | None = None                        # its stderr: a file, for a pipe that nobody reads fills up
    told: int = 0                                       # interruptions passed on to it

    def steps(self) -> int:
        """Environment steps done, as its last row says."""
        if self.status == "finished":
            return self.total_steps
        try:
            with open(self.directory / "progress.csv", newline="") as file:
                return int(list(csv.DictReader(file))[-1]["steps"])
        except (OSError, IndexError, ValueError, TypeError):              # not begun, or no whole row yet
            return 0

    def result(self) -> dict[str, Any]:
        """The contents of result.json."""
        return read_result(self.directory)


def grid(algo: str, settings: dict[str, list[str]], *, workers: int,
         check: Callable[[dict[str, str]], RunConfig]) -> int:
    """Run every combination of `settings` that is not finished, at most `workers` at a time, then print a table.

    Args:
        algo: the algorithm's name, as the command line takes it.
        settings: flag without its dashes -> the values given, as text; no value for a bare flag. `seed`, `exp-name` and
            `log-dir` are flags too; a name is made where none is given.
        check: the Config of a run with these flags ("" for a bare one), asked once a variant; UserError if not fit.

    Returns the exit code: 0, 1 where a run failed, 130 after Ctrl-C.
    UserError, before anything is started: settings that do not fit, or folders that hold runs of other settings.
    """
    jobs = plan(algo, settings)
    configs = {job.variant: check(job.flags) for job in reversed(jobs)}
    for job in jobs:
        check_job(algo, job, replace(configs[job.variant], seed=job.seed))
    return Grid(algo, jobs, workers).run()


def expand(settings: dict[str, list[str]]) -> list[dict[str, str]]:
    """Every combination of one value of each setting, the last varying fastest; a bare flag has the value ""."""
    values = [list(dict.fromkeys(v)) or [""] for v in settings.values()]                   # given twice, run once
    return [dict(zip(settings, combination, strict=True)) for combination in itertools.product(*values)]


def plan(algo: str, settings: dict[str, list[str]]) -> list[Job]:
    """The runs of a grid, variant by variant. UserError for names that cannot be, or would clash."""
    for flag in ("exp-name", "log-dir"):
        if len(settings.get(flag, [""])) != 1:
            raise UserError(f"--{flag} takes one value in a grid: all variants go below it")
    root = Path(settings.get("log-dir", [RunConfig.log_dir])[0])
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
            jobs.append(Job(name, seed, {**flags, **own}, root / name / f"{name}_s{seed}"))
    return jobs


def safe(name: str) -> str:
    """`name` as every file system takes it."""
    return re.sub(r"[^\w.,+=-]+", "-", name).strip(".-")


def check_job(algo: str, job: Job, config: RunConfig) -> None:
    """Note the run's steps, and whether it is finished. UserError where its folder holds a run of other settings."""
    job.total_steps = config.total_steps
    if (job.directory / "config.json").exists():
        check_same(job.directory, algo, config, {"log_dir", "quiet"}, "choose another --exp-name")
    if job.result().get("status") == "finished":
        job.status = "finished"
        return
    check_writable(Path(config.log_dir))
    if not writable(job.directory):
        raise UserError(f"{describe(job.directory)} cannot be written to; choose another --log-dir or --exp-name")


class Grid:
    """The runs under way, and what is shown of them: a bar on a terminal, a line for each run that ends in a pipe."""

    def __init__(self, algo: str, jobs: list[Job], workers: int):
        self.algo, self.jobs, self.workers, self.console, self.signals = algo, jobs, workers, Console(), 0
        self.total_steps, self.steps_before = sum(j.total_steps for j in jobs), sum(j.steps() for j in jobs)
        self.started = time.monotonic()

    def run(self) -> int:
        """Work until all have ended; returns the exit code."""
        done = self.count("finished")
        self.say(f"{len(self.jobs)} runs in {len({j.variant for j in self.jobs})} variants"
                 f"{f', {done} of them finished earlier' if done else ''}; {self.workers} at a time")
        with self.signals_caught(), self.shown() as live:
            while self.count("running") or (self.count("waiting") and not self.signals):
                for job in self.jobs:
                    if job.status == "running":
                        self.look_at(job)
                    elif job.status == "waiting" and not self.signals and self.count("running") < self.workers:
                        self.start(job)
                if live is not None:
                    live.update(self.bar(), refresh=True)
                time.sleep(POLL)
        self.table()
        if self.signals and self.count("waiting") + self.count("interrupted"):
            self.say("interrupted; what was under way is saved, and the same command goes on with it")
            return 130
        return 1 if self.count("failed") else 0

    def count(self, status: str) -> int:
        """Number of runs with that status."""
        return sum(j.status == status for j in self.jobs)

    def start(self, job: Job) -> None:
        """Begin the run, or resume it where its folder holds one."""
        if (job.directory / "config.json").exists():
            words = ["resume", str(job.directory)]
        else:
            flags = (f"--{flag}={value}" if value else f"--{flag}" for flag, value in job.flags.items())
            words = [*self.algo.split(), *flags]                          # "llm grpo" is two words
        job.words = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # In a group of its own: a terminal's Ctrl-C would reach it beside ours, and a second one stops a run unsaved.
        # Windows cannot pass Ctrl-C on to another group; there the console tells both, once.
        own_group = {} if sys.platform == "win32" else {"process_group": 0}
        job.process = subprocess.Popen([sys.executable, "-m", "spinup", *words], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=job.words, **own_group)
        job.status = "running"

    def look_at(self, job: Job) -> None:
        """Pass an interruption on, once; note how the run ended, if it has."""
        if job.told < self.signals and sys.platform != "win32":
            job.told = self.signals
            job.process.send_signal(signal.SIGINT)
        if job.process.poll() is None:
            return
        job.words.seek(0)
        lines = job.words.read().strip().splitlines() or [f"it ended with {job.process.returncode}"]
        job.words.close()
        result = job.result()
        if job.process.returncode == 0 and result.get("status") == "finished":
            measure = result["measure"]
            job.status, said = "finished", f"{short(measure)} {show(result[measure])}"
        elif self.signals:
            job.status, said = "interrupted", "interrupted"
        else:
            job.status, said = "failed", f"failed: {lines[-1]}"
        self.say(f"{self.progress()}   {job.directory.name}   {said}")

    def progress(self) -> str:
        """Such as `2/6 runs   12 s left`."""
        ended = self.count("finished") + self.count("failed")
        done = sum(j.steps() for j in self.jobs) - self.steps_before
        coming = sum(j.total_steps - j.steps() for j in self.jobs if j.status != "failed")
        passed = time.monotonic() - self.started
        left = f"   {duration(passed * coming / done)} left" if done > 0 and coming else ""
        return f"{ended}/{len(self.jobs)} runs{'   stopping' if self.signals else left}"

    def bar(self) -> Table:
        """Show the progress of the whole grid and the runs in progress."""
        line = Table.grid(padding=(0, 1))
        under_way = ", ".join(j.directory.name for j in self.jobs if j.status == "running")
        line.add_row(ProgressBar(total=self.total_steps, completed=sum(j.steps() for j in self.jobs), width=40),
                     self.progress(), Text(under_way, "dim", overflow="ellipsis", no_wrap=True))
        return line

    def say(self, text: str, style: str = "") -> None:
        """Prints a line at once."""
        self.console.print(Text(text, style), soft_wrap=True)
        sys.stdout.flush()

    @contextmanager
    def shown(self) -> Iterator[Live | None]:
        """A bar that stays below what is printed, in a terminal; None elsewhere."""
        if not self.console.is_terminal:
            yield None
            return
        with Live(self.bar(), console=self.console, auto_refresh=False, transient=True) as live:
            yield live

    @contextmanager
    def signals_caught(self) -> Iterator[None]:
        """Count interruptions. A closed terminal is one: the runs, in their own groups, would train on unseen."""
        kinds = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        before = {kind: signal.signal(kind, self.note) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def note(self, *_: Any) -> None:
        """Counts a Ctrl-C."""
        self.signals += 1

    def table(self) -> None:
        """A line for each variant; numbers are of its finished runs."""
        measures = dict.fromkeys(j.result()["measure"] for j in self.jobs if j.status == "finished")
        name = " or ".join(map(short, measures)) or "result"
        rows = [("variant", "seeds", name, "95 % interval", "steps/s", "status")]
        for variant in dict.fromkeys(j.variant for j in self.jobs):
            rows.append(summary(variant, [j for j in self.jobs if j.variant == variant]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for i, row in enumerate(rows):
            cells = [f"{cell:{'<' if k in (0, 1, 5) else '>'}{widths[k]}}" for k, cell in enumerate(row)]
            self.say("  ".join(cells).rstrip(), "" if i else "bold")
        of = "of the last 100 training episodes" if list(measures) == ["return_mean_100"] else "at the end"
        self.say(f"{name}: {of} of a run, averaged over its finished seeds")


def summary(variant: str, jobs: list[Job]) -> tuple[str, ...]:
    """The cells of one variant."""
    results = [j.result() for j in jobs if j.status == "finished"]
    returns = [r[r["measure"]] for r in results if r[r["measure"]] is not None]
    within = range_of(results[0]["measure"] if results else "")
    between = " to ".join(map(number, interval(returns, within) or ())) or "-"
    states = {s: n for s in ("finished", "failed", "interrupted", "waiting") if (n := sum(j.status == s for j in jobs))}
    return (variant, ",".join(str(j.seed) for j in jobs), show(float(np.mean(returns)) if returns else None), between,
            pace(np.mean([r["steps_per_second"] for r in results])) if results else "-",
            "finished" if list(states) == ["finished"] else ", ".join(f"{n} {s}" for s, n in states.items()))


def show(value: float | None) -> str:
    """A number as the table has it; a dash where there is none."""
    return number(math.nan if value is None else value)
