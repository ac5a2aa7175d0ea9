"""Search for good settings of an algorithm with Optuna. A trial is one choice of settings, trained with every seed.

A trial that is worse than the median of the earlier ones ends early. The study is an SQLite file in the folder of the
trials. Several processes can work on it, and the same command continues it after any interruption.
"""
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import AcquireReturnProxy, FileLock, Timeout
from rich.console import Console
from rich.live import Live
from rich.text import Text

from spinup import signals
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError, out_of_memory
from spinup.runs.config import Row, RunConfig
from spinup.runs.convert import flag
from spinup.runs.display import duration, number, quoted, short
from spinup.runs.files import write_whole
from spinup.runs.folders import describe
from spinup.runs.presets import configure, without_effect
from spinup.runs.records import config_to_json, read_result, read_run
from spinup.runs.resuming import HOW, check_same
from spinup.view.study import REPORTS, Plan, open_study

if TYPE_CHECKING:
    from optuna import Study, Trial

REFUSED = 100           # choices in succession that fit no run, after which the search gives up


def tune(plan: Plan) -> int:
    """Run the trials that are missing, and write the best settings to `best.toml` in the folder of the study.

    Returns the exit code: 0, 1 if no trial has a result, 130 after Ctrl-C, 143 after SIGTERM. UserError, before
    anything is created: Optuna is missing, or storage or folder hold another study. UserError later: the storage cannot
    be written, or no choice of settings fits a run.
    """
    try:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise UserError("spinup tune needs Optuna; type: pip install 'spinup-rl[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return Tuning(plan, open_study(plan)).run()
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise UserError(f"{plan.storage} cannot be used as the storage of a study ({reason}); if you cannot fix "
                        f"this, {plan.elsewhere}") from None


class Tuning:
    """The part of a study that this process does: it takes a trial, trains its runs, and reports the result."""

    def __init__(self, plan: Plan, study: "Study"):
        from optuna.trial import TrialState
        self.plan, self.study, self.states, self.console = plan, study, TrialState, Console()
        self.started, self.before = time.monotonic(), self.count(TrialState.COMPLETE, TrialState.PRUNED)
        self.ended, self.fraction = self.before, 0.0
        self.measure, self.refused = "", 0
        self.live: Live | None = None

    def run(self) -> int:
        """Work until the study has all its trials; return the exit code."""
        plan = self.plan
        trials = f"{plan.trials} trial{'s' * (plan.trials > 1)} of {len(plan.seeds)} run{'s' * (len(plan.seeds) > 1)}"
        self.say(f"{describe(plan.folder)}: {trials}{' each' * (plan.trials > 1)}"
                 f"{f'; {self.before} ended earlier' if self.before else ''}")
        for dimension in plan.space:
            self.say(f"  {flag(dimension.name)} {dimension}")
        with self.shown():
            while (taken := self.take()) is not None:
                trial, lock, texts = taken
                with lock:
                    if not self.work(trial, texts):
                        self.say("interrupted; the trial is saved, and the same command continues the study")
                        return signals.exit_code()
        return self.tell_best()

    def count(self, *states: Any) -> int:
        """Number of trials with one of these states, in all processes."""
        return sum(trial.state in states for trial in self.study.get_trials(deepcopy=False))

    def take(self) -> "tuple[Trial, AcquireReturnProxy, dict[str, str]] | None":
        """Return a trial, its lock and its flags; None if the study has all its trials.

        A trial whose process has ended comes first: the system has released its lock. One process at a time chooses.
        """
        from optuna.trial import Trial
        with self.plan.lock():
            for begun in self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,)):
                if (lock := self.lock(begun.number)) is not None:
                    trial = Trial(self.study, begun._trial_id)
                    return trial, lock, self.flags(trial)
            if self.count(self.states.COMPLETE, self.states.PRUNED, self.states.RUNNING) >= self.plan.trials:
                return None
            trial = self.ask()
            return trial, self.lock(trial.number), self.flags(trial)

    def ask(self) -> "Trial":
        """Let Optuna choose a trial. Its random seed is the number of the trial, so an interrupted study, or several
        processes, do not repeat the same choices."""
        from optuna.samplers import TPESampler
        begun = [x for x in self.study.get_trials(deepcopy=False) if x.state != self.states.WAITING]
        self.study.sampler = TPESampler(seed=len(begun))
        return self.study.ask()

    def flags(self, trial: "Trial") -> dict[str, str]:
        """Return the searched settings of a trial: flags without dashes -> text."""
        return {dimension.name.replace("_", "-"): dimension.ask(trial) for dimension in self.plan.space}

    def lock(self, trial: int) -> AcquireReturnProxy | None:
        """Lock a trial until the end of this process, or of the context; None if another process works on it."""
        try:
            return FileLock(self.plan.folder / f".trial_{trial}", timeout=0).acquire()
        except Timeout:
            return None

    def work(self, trial: "Trial", texts: dict[str, str]) -> bool:
        """Train the runs of a trial, or resume them, and record its value. Return False if the user interrupts it.

        UserError: a run cannot be resumed, or `REFUSED` trials in succession could not start.
        """
        name, values = f"trial_{trial.number}", []
        for seed in self.plan.seeds:
            own = {"exp-name": name, "log-dir": str(self.plan.folder), "seed": str(seed), "quiet": ""}
            directory = self.plan.folder / name / f"{name}_s{seed}"
            try:
                status = self.train(trial, self.plan.make({**texts, **own}), directory, values)
            except UserError as error:
                if directory.parent.exists():
                    raise
                self.refuse(trial, error)
                return True
            except (NonFiniteError, EnvironmentFailure, MemoryError, RuntimeError) as error:
                begun = isinstance(error, EnvironmentFailure) and directory.exists()      # else no run can begin
                if not (begun or isinstance(error, NonFiniteError) or out_of_memory(error)):
                    raise
                status = f"failed: {str(error).splitlines()[0]}"
            except KeyboardInterrupt:
                status = "interrupted"
            if status == "interrupted":
                return False
            result = read_result(directory) if status == "finished" else {}
            value = result[result["measure"]] if result else None
            if value is None or not math.isfinite(value):
                self.end(trial, None, f"no {short(self.measure)}" if result else status, texts)
                return True
            self.measure = result["measure"]
            values.append(value)
        mean = sum(values) / len(values)
        self.end(trial, mean, f"{short(self.measure)} {number(mean)}", texts)
        return True

    def train(self, trial: "Trial", config: RunConfig, directory: Path, values: list[float]) -> str:
        """Train or resume one run. Return finished, pruned or interrupted.

        values: results of the trial's runs with the earlier seeds.
        UserError: the folder of the run holds one with other settings.
        """
        if begun := (directory / "config.json").exists():
            check_same(directory, config.algorithm, config, HOW, "choose another --exp-name")
        if read_result(directory).get("status") == "finished":
            return "finished"
        earlier = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values           # of a resumed trial
        reported, pruned = max(REPORTS * len(values), *earlier, 0), False

        def on_row(row: Row) -> None:
            nonlocal reported, pruned
            self.measure = self.measure or read_run(directory)["measure"]
            share = min(1.0, row["steps"] / config.total_steps)
            value, now = row.get(self.measure, math.nan), int(REPORTS * (len(values) + share))
            if math.isfinite(value) and now > reported and not pruned:
                for step in range(reported + 1, now + 1):
                    trial.report((sum(values) + value) / (len(values) + 1), step)
                reported = now
                if trial.should_prune() and not signals.last:             # else the user has interrupted the run
                    pruned = True
                    signal.raise_signal(signal.SIGINT)                    # the run ends as after Ctrl-C, saved
            self.fraction = (len(values) + share) / len(self.plan.seeds)
            if self.live is not None:
                self.live.update(Text(f"{self.progress()}   {directory.name} {number(value)}", "dim"), refresh=True)

        config.on_row, signals.last = on_row, 0                           # not that of an earlier, pruned trial
        result = self.plan.algorithm.load().train(config, directory if begun else None)
        return "pruned" if pruned and result.status == "interrupted" else result.status

    def refuse(self, trial: "Trial", error: UserError) -> None:
        """Record settings that exclude each other, so that no run began; they do not count as a trial. UserError after
        `REFUSED` of them in succession."""
        self.study.tell(trial, state=self.states.FAIL)
        self.refused += 1
        if self.refused == REFUSED:
            raise UserError(f"{REFUSED} choices of settings in a row were invalid; the last error: {error}")

    def end(self, trial: "Trial", value: float | None, said: str, texts: dict[str, str]) -> None:
        """Record the value of a trial, None if it has none, and print it. If it is the best one, write its settings."""
        self.fraction, self.refused = 0.0, 0
        with self.plan.lock():
            trial.set_user_attr("flags", texts)
            trial.set_user_attr("measure", self.measure)
            self.study.tell(trial, value, self.states.PRUNED if value is None else self.states.COMPLETE)
            self.ended = self.count(self.states.COMPLETE, self.states.PRUNED)
            if value is not None and self.study.best_trial.number == trial.number:
                write_whole(self.plan.folder / "best.toml", self.best_toml().encode())
        self.say(f"{self.progress()}   trial_{trial.number}   {said}   {in_words(texts)}")

    def best_toml(self) -> str:
        """Return the best settings as a file for `--config`: the searched ones, and those that differ from what a run
        has without the file."""
        plan, best = self.plan, self.study.best_trial
        made = plan.make(best.user_attrs["flags"])
        config, idle = config_to_json(made), without_effect(made)
        given = {name: config[name] for name in (plan.base.SUBJECT, "data") if config.get(name)}
        usual = config_to_json(configure(plan.algorithm, given)[0])
        searched = {dimension.name for dimension in plan.space}
        kept = {name: value for name, value in config.items() if value is not None and (
            name in {*given, *searched} or name not in {*HOW, *idle, "seed"} and value != usual[name])}
        lines = [f"# spinup {plan.algorithm.name}: {short(self.measure)} {number(best.value)} with seeds "
                 f"{', '.join(map(str, plan.seeds))}, trial_{best.number} of {self.ended}",
                 "# spinup tune rewrites this file; copy it before you edit it"]
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in kept.items()]
        return "\n".join(lines) + "\n"

    def tell_best(self) -> int:
        """Print the best trial, and the command that trains with its settings. Return 1 if no trial has a result."""
        if not self.count(self.states.COMPLETE):
            self.say("no trial has a result; choose a longer --total-steps, or other ranges, such as smaller learning "
                     "rates")
            return 1
        best, algorithm, file = self.study.best_trial, self.plan.algorithm.name, self.plan.folder / "best.toml"
        self.measure = best.user_attrs.get("measure", "result")           # no trial in this process
        with self.plan.lock():                                            # an earlier process may not have written it
            self.ended = self.count(self.states.COMPLETE, self.states.PRUNED)
            found = self.best_toml().encode()
            if not file.exists() or file.read_bytes() != found:
                write_whole(file, found)
        self.say(f"best: trial_{best.number}, {number(best.value)}   {in_words(best.user_attrs['flags'])}")
        self.say(f"  spinup {algorithm} --config {quoted(describe(file))} --seed 1")
        return 0

    def progress(self) -> str:
        """Describe the progress, such as `3/20 trials   2 min 10 s left`."""
        done, passed = self.ended - self.before + self.fraction, time.monotonic() - self.started
        coming = self.plan.trials - self.ended - self.fraction
        left = f"   {duration(passed * coming / done)} left" if done > 0 and coming > 0 else ""
        return f"{self.ended}/{self.plan.trials} trials{left}"

    def say(self, text: str) -> None:
        """Print a line and flush."""
        self.console.print(Text(text), soft_wrap=True)
        sys.stdout.flush()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """In a terminal, show a line about the current run below the printed lines."""
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False, transient=True) as self.live:
            yield


def in_words(texts: dict[str, str]) -> str:
    """Return flags and their values in words: `lr 0.001, gamma 0.99`."""
    return ", ".join(f"{name} {text}" for name, text in texts.items())
