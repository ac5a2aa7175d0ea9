"""Grid of runs: every combination of several settings, one process per run, some of them in parallel.

The run folders show which runs are finished. So the same command runs only what is missing, after any interruption.
"""
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spinup import signals
from spinup.runs.config import RunConfig
from spinup.runs.display import Screen, duration, number, pace, short
from spinup.runs.flags import in_words
from spinup.runs.folders import in_use
from spinup.view.jobs import Job, check_job, plan
from spinup.view.process import Process
from spinup.view.statistics import interval, range_of

POLL = 0.2                                              # seconds between checks of the processes


def grid(algo: str, settings: dict[str, list[str]], *, workers: int,
         check: Callable[[dict[str, str]], RunConfig], ray: str = "") -> int:
    """Run every combination of `settings` that is not finished, at most `workers` at a time. Then print a table.

    Args:
        algo: the algorithm's name on the command line.
        settings: flag without dashes -> its values as text; no value for a flag without one. `seed`, `exp-name` and
            `log-dir` are flags too; without a name, the grid makes one.
        check: returns the Config for these flags ("" for a flag without a value); called once per variant; UserError if
            a flag is wrong.
        ray: address of a Ray cluster that trains the runs; "local" starts Ray, "" = processes of this machine.

    Returns the exit code: 0, 1 if a run failed, 130 after Ctrl-C, 143 or 129 after other signals.
    UserError, before any run starts: the settings are wrong, or folders hold runs with other settings.
    """
    jobs = plan(algo, settings)
    flags = {job.variant: job.flags for job in reversed(jobs)}            # of the first seed of each variant
    configs = {variant: check(its) for variant, its in flags.items()}
    for job in jobs:
        check_job(job, replace(configs[job.variant], seed=job.seed))
    if not ray:
        return Grid(jobs, workers).run()
    from spinup.view import on_ray
    with on_ray.connected(ray):
        on_ray.check(configs.values())
        return Grid(jobs, workers, on_ray.Task).run()


class Grid:
    """The runs in progress and their display: a progress bar in a terminal, else a line per finished run."""

    def __init__(self, jobs: list[Job], workers: int,
                 launch: Callable[[list[str], Path, RunConfig], Process] = Process):
        self.jobs, self.workers, self.launch = jobs, workers, launch
        self.console, self.signals = Screen(), 0
        self.total_steps = sum(j.total_steps for j in jobs)
        self.seconds: dict[str, list[tuple[float, int]]] = {}             # (seconds, steps) of runs, by variant
        self.elsewhere: set[Path] = set()                                 # folders that other processes train in

    def run(self) -> int:
        """Run until all runs have ended; return the exit code."""
        done = self.count("finished")
        how = self.workers if self.launch is Process else f"on Ray, at most {min(self.workers, len(self.jobs))}"
        variants = len({j.variant for j in self.jobs})
        self.say(f"{len(self.jobs)} run{'s' * (len(self.jobs) != 1)} in {variants} variant{'s' * (variants != 1)}"
                 f"{f', {done} of them finished earlier' if done else ''}; {how} at a time")
        with self.signals_caught(), self.shown() as live:
            while self.count("running") or (self.count("waiting") and not self.signals):
                for job in self.jobs:
                    if job.status == "running":
                        self.look_at(job)
                    elif job.status == "waiting" and not self.signals and self.busy() < self.workers:
                        self.start_unless_in_use(job)
                if live is not None:
                    live.update(self.bar(), refresh=True)
                time.sleep(POLL)
        self.table()
        if self.signals and self.count("waiting") + self.count("interrupted"):
            self.say("interrupted; the runs in progress are saved, and the same command resumes them")
            return signals.exit_code()
        return 1 if self.count("failed") else 0

    def count(self, status: str) -> int:
        """Number of runs with that status."""
        return sum(j.status == status for j in self.jobs)

    def busy(self) -> int:
        """Number of runs that train now: those of this grid, and those that it waits for."""
        awaited = [j.directory for j in self.jobs if j.status == "waiting" and j.directory in self.elsewhere]
        return self.count("running") + sum(map(in_use, awaited))

    def start_unless_in_use(self, job: Job) -> None:
        """Start the run, or wait while another process trains it, such as a run of a grid that was killed."""
        if in_use(job.directory):
            self.wait(job)
        elif job.directory in self.elsewhere and job.result().get("status") == "finished":
            self.finish(job)
        else:
            self.start(job)

    def wait(self, job: Job) -> None:
        """Leave the run to the process that trains it, and say so once."""
        job.status = "waiting"
        if job.directory not in self.elsewhere:
            self.elsewhere.add(job.directory)
            self.say(f"{self.progress()}   {job.directory.name}   waiting for the process that trains it")

    def start(self, job: Job) -> None:
        """Start the run, or resume it if its folder holds one."""
        words = [*job.algo.split(), *in_words(job.flags)]                 # "llm grpo" is two words
        job.began, job.began_at = time.monotonic(), job.steps()
        job.process = self.launch(words, job.directory, job.config)
        job.status = "running"

    def look_at(self, job: Job) -> None:
        """Pass an interruption on, once. Record the result of the run if it has ended."""
        if job.told < self.signals:
            job.told = self.signals
            job.process.interrupt()
        if (code := job.process.poll()) is None:
            return
        self.seconds.setdefault(job.variant, []).append((time.monotonic() - job.began, job.steps() - job.began_at))
        lines = job.process.errors().strip().splitlines() or [f"it ended with exit code {code}"]
        if code == 0 and job.result().get("status") == "finished":
            self.finish(job)
        elif self.signals:
            self.end(job, "interrupted", "interrupted")
        elif in_use(job.directory):                                       # another grid was faster
            self.wait(job)
        else:
            self.end(job, "failed", f"failed: {lines[-1]}")

    def finish(self, job: Job) -> None:
        """Record that a run has finished, and show its result."""
        result = job.result()
        measure = result["measure"]
        self.end(job, "finished", f"{short(measure)} {show(result[measure])}")

    def end(self, job: Job, status: str, said: str) -> None:
        """Record how a run has ended, and say it."""
        job.status = status
        self.say(f"{self.progress()}   {job.directory.name}   {said}")

    def progress(self) -> str:
        """Describe the progress, such as `2/6 runs   12 s left`."""
        ended = self.count("finished") + self.count("failed")
        seconds = self.left()
        left = f"   {duration(seconds)} left" if seconds else ""
        return f"{ended}/{len(self.jobs)} runs{'   stopping' if self.signals else left}"

    def left(self) -> float:
        """Estimate the seconds until all runs have ended, from steps of the same variant, else of all; 0 if unknown."""
        now = time.monotonic()
        known = {variant: list(pairs) for variant, pairs in self.seconds.items()}
        for job in self.jobs:
            if job.status == "running":
                known.setdefault(job.variant, []).append((now - job.began, job.steps() - job.began_at))
        cost = {}
        for variant, pairs in known.items():
            steps = sum(n for _, n in pairs)
            if steps > 0:
                cost[variant] = sum(s for s, _ in pairs) / steps
        if not cost:
            return 0.0
        other = sum(cost.values()) / len(cost)
        coming = [(j.total_steps - j.steps()) * cost.get(j.variant, other) for j in self.jobs
                  if j.status in ("waiting", "running")]
        return sum(coming) / max(1, min(self.workers, len(coming)))

    def bar(self) -> Table:
        """Show the progress of the whole grid and the runs in progress."""
        line = Table.grid(padding=(0, 1))
        under_way = ", ".join(j.directory.name for j in self.jobs if j.status == "running")
        line.add_row(ProgressBar(total=self.total_steps, completed=sum(j.steps() for j in self.jobs), width=40),
                     self.progress(), Text(under_way, "dim", overflow="ellipsis", no_wrap=True))
        return line

    def say(self, text: str, style: str = "") -> None:
        """Print a line and flush."""
        self.console.print(Text(text, style), soft_wrap=True)
        sys.stdout.flush()

    @contextmanager
    def shown(self) -> Iterator[Live | None]:
        """In a terminal, show a progress bar below the printed lines; otherwise None."""
        if not self.console.is_terminal:
            yield None
            return
        with Live(self.bar(), console=self.console, auto_refresh=False, transient=True) as live:
            yield live

    @contextmanager
    def signals_caught(self) -> Iterator[None]:
        """Count interruptions. A closed terminal counts too: runs in their own process groups would continue unseen."""
        before = {kind: signal.signal(kind, self.note) for kind in signals.heeded()}
        try:
            yield
        except BaseException:
            for job in self.jobs:
                if job.status == "running":
                    job.process.interrupt()
            raise
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def note(self, number: int, _: Any) -> None:
        """Count an interruption."""
        self.signals, signals.last = self.signals + 1, signals.last or number

    def table(self) -> None:
        """Print a line for each variant, computed over its finished runs."""
        measures = dict.fromkeys(j.result()["measure"] for j in self.jobs if j.status == "finished")
        name = " or ".join(map(short, measures)) or "result"
        rows = [("variant", "seeds", name, "95 % interval", "steps/s", "status")]
        for variant in dict.fromkeys(j.variant for j in self.jobs):
            rows.append(summary(variant, [j for j in self.jobs if j.variant == variant]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for i, row in enumerate(rows):
            cells = [cell.ljust(widths[k]) if k in (0, 1, 5) else cell.rjust(widths[k]) for k, cell in enumerate(row)]
            self.say("  ".join(cells).rstrip(), "" if i else "bold")
        of = "of the last 100 training episodes" if list(measures) == ["return_mean_100"] else "at the end"
        self.say(f"{name}: {of} of a run, averaged over its finished seeds")


def summary(variant: str, jobs: list[Job]) -> tuple[str, ...]:
    """Return the cells of one variant."""
    results = [j.result() for j in jobs if j.status == "finished"]
    returns = [r[r["measure"]] for r in results if r[r["measure"]] is not None]
    within = range_of(results[0]["measure"] if results else "")
    between = " to ".join(map(number, interval(returns, within) or ())) or "-"
    counts = Counter(j.status for j in jobs)
    states = [f"{counts[s]} {s}" for s in ("finished", "failed", "interrupted", "waiting") if counts[s]]
    status = "finished" if counts["finished"] == len(jobs) else ", ".join(states)
    speed = pace(np.mean([r["steps_per_second"] for r in results])) if results else "-"
    mean = show(float(np.mean(returns)) if returns else None)
    return variant, ",".join(str(j.seed) for j in jobs), mean, between, speed, status


def show(value: float | None) -> str:
    """Format a number for the table; a dash if there is none."""
    return number(math.nan if value is None else value)
