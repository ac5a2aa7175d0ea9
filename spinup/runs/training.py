"""Shared parts of a training run: folder, seeds, rows, checkpoints, resume and Ctrl-C. Algorithms need no such code."""
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinup.envs.state import load_rng, save_rng
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError, WorkerError
from spinup.machine import generator_of, git_revision, peak_memory, restore_generator, same_random_numbers
from spinup.registry import find
from spinup.runs import folders, plugin, ranks, records
from spinup.runs.checkpoint import remove_leftovers, save_checkpoint
from spinup.runs.config import Row, RunConfig
from spinup.runs.display import Display, ending, quoted
from spinup.runs.files import disk_error, user_code, why, write_json
from spinup.runs.folders import check_writable, describe, find_run
from spinup.runs.hooks import Hooks
from spinup.runs.log import Log, Silent, check_logs
from spinup.runs.reading import FAULTS, restore
from spinup.runs.records import config_to_json
from spinup.runs.resuming import state_to_resume
from spinup.runs.threads import limited
from spinup.runs.trust import check_modules
from spinup.runs.values import diagnostics, diverged, finite, joined, weights
from spinup.runs.workers import Workers, nested
from spinup.signals import Interruption

CHECKPOINTS = 20        # checkpoints per run, unless checkpoint_steps is set


class Training(Hooks):
    """A training run as a context manager: entry makes the folder, exit restores the state of the process.

    `Run` adds methods for environments, `llm.run.Run` methods for language tasks; see `Hooks`.

    Args:
        config: the settings, already checked.
        subject: the environment or task, as named in folders and messages.
        device: the device to train on.
        threads: torch's threads, unless the settings give a number.
        resume: the folder of a run with the same settings to resume.
    UserError, before anything is created: the device is missing, the folder is not writable, the named run exists, or
    the run to resume has another algorithm or other settings.
    """

    def __init__(self, config: RunConfig, subject: str, device: torch.device, threads: int,
                 resume: str | Path | None = None):
        self.algorithm, self.config, self.subject = config.algorithm, config, subject
        self.workers = Workers(getattr(config, "workers", None), replace(config, on_row=None))
        self.leads, self.resumed = self.workers.rank == 0, resume is not None
        self.device, self.program = device, self.workers.program
        self.threads = config.threads or (threads if self.workers.size == 1 else 1)
        check_logs(config)
        self.parts: dict[str, Any] = {}
        self.rng = np.random.default_rng(config.seed)
        torch.manual_seed(config.seed)
        self.update = self.steps = self.rows = self.saved = 0             # saved: steps of the last checkpoint
        self.earlier_seconds = 0.0                                        # of training in earlier processes
        self.logged: dict[str, float] = {}
        self.longer = self.stopped = self.complete = self.forgot = False  # forgot: a resumed run lost its replay buffer
        self.state: dict[str, Any] | None = None
        self.seen = 0
        if resume is not None:
            self.directory = find_run(Path(resume))
            self.seen = folders.saved_at(self.directory)
            self.state = state_to_resume(self.directory, config)
            self.longer = records.read_run(self.directory)["config"].get("total_steps") != config.total_steps
        else:
            self.directory = folders.free_directory(self.algorithm, subject, config)
            check_writable(Path(config.log_dir))
            check_modules(self.directory, config_to_json(config))         # its folder would be refused later

    def __enter__(self) -> "Training":
        train, others = plugin.load(find(self.algorithm)).train, replace(self.config, on_row=None, quiet=True)
        joined = self.workers.together(train, others, self.directory if self.resumed else None)
        self.stack = nested(joined, self._begin, self._end)
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)

    def _begin(self) -> None:
        self.log_file = self.lock = Silent()
        try:
            if self.leads:
                self._open_folder()
        except BaseException:                                             # for example, wandb has no network
            self.lock.release()
            self.close_subject()
            raise
        self.under_way, self.limits = False, ExitStack()
        self.limits.enter_context(limited(self.threads))
        self.display = Display(f"{self.algorithm} on {self.subject} · seed {self.config.seed} · {self.device} · "
                               f"{describe(self.directory)}", self.measure, self.config.quiet or not self.leads,
                               self.unit)
        self.interruption = Interruption(self.display.say).__enter__()
        self.started = time.perf_counter()

    def _open_folder(self) -> None:
        description = None if self.resumed else {
            "algorithm": self.algorithm, "measure": self.measure, "config": config_to_json(self.config),
            **self.describe_subject(), "versions": records.versions(), "git": git_revision()}
        self.directory = folders.make_directory(self.directory, self.resumed, self.algorithm, self.subject, self.config)
        self.lock = folders.lock(self.directory, self.seen)
        remove_leftovers(self.directory / "checkpoint.pt")                # of a process that was killed
        self.log_file = Log(self.directory, tensorboard=self.config.tensorboard, wandb=self.config.wandb,
                            config=config_to_json(self.config), position=self.state and self.state["files"])
        if not self.resumed:
            self.prepare_folder()
            write_json(self.directory / "config.json", description)       # last: without it, the folder is no run

    def _end(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        self.limits.close()
        self.interruption.__exit__()
        advice = ""
        if "resume" in self.next_words:
            advice = f"; to resume, type: {self.program} resume {quoted(describe(self.directory))}"
        if isinstance(error, WorkerError | EnvironmentFailure):
            error.args = (f"{error}{advice}",)
        elif kind is KeyboardInterrupt and advice:
            error.args = (f"interrupted{advice}",)
        disk = disk_error(error)
        try:
            self.display.close()
            if self.leads and error is not None and not self.complete and (self.under_way or not self.resumed):
                self.status = "interrupted" if kind is KeyboardInterrupt else "failed"
                with suppress(OSError):                                   # if the disk is full
                    self._write_result()
            with suppress(OSError if disk else ()):
                self.log_file.close()
            self.close_subject()                                          # last, because user code may raise
        finally:
            self.lock.release()
        if disk is not None:
            raise UserError(why(disk, describe(self.directory), "another --log-dir") + advice) from None

    def keep(self, **parts: Any) -> None:
        """Name the parts that a checkpoint must hold; each has `state_dict` and `load_state_dict`. None is no part."""
        self.parts = {name: part for name, part in parts.items() if part is not None}

    def updates(self, total: int, steps_each: int = 1) -> Iterator[int]:
        """Yield the numbers of the remaining updates, of `total`. Rows and checkpoints are written in between.

        Each update counts as `steps_each` steps. If the number is known only afterwards, as with whole episodes, the
        update sets `steps_each` before it ends, and the loop stops after `total` steps. Ctrl-C or `stop` ends the loop
        after the current update and saves a checkpoint. UserError if the policy is not among the parts to keep.
        """
        plugin.check_kept(self.config, self.parts, self.state["parts"] if self.state else self.parts)
        self.steps_each, self.end = steps_each, total * steps_each
        if steps_each > 1 and self.end < 0.99 * self.config.total_steps:
            self.display.say(f"{self.end:,} {self.unit} instead of {self.config.total_steps:,}, in whole updates of "
                             f"{steps_each:,} {self.unit}")
        self.steps_per_row = max(1, round(total / self.epochs)) * steps_each
        per_save = max(1, round((self.config.checkpoint_steps or self.end / CHECKPOINTS) / steps_each)) * steps_each
        self._continue()
        self.announce()
        self.under_way = True
        if self.steps < self.end and not self.stopped and self.leads:
            (self.directory / "result.json").unlink(missing_ok=True)      # of an earlier end of the run
            records.note_revision(self.directory)
        ending = self.interrupted()
        while self.steps < self.end and not ending and not self.stopped:
            yield self.update
            row_due, save_due = self.row_due, self._passes(per_save)
            if save_due or self.interruption.received:
                self.check_finite(**weights(self.parts))
            self.steps += self.steps_each
            self.after_update()
            self.update += 1
            if row_due or self.stopped:
                self._write_row()
            ending = self.interrupted()
            if save_due or ending or self.stopped:
                self.save()
        self.status = "finished" if self.steps >= self.end or self.stopped else "interrupted"

    def _continue(self) -> None:
        """Load the checkpoint of a resumed run, and print from where it continues."""
        if self.state is not None:
            try:
                self.earlier_seconds = self.state["seconds"]
                self._load(self.state)
            except FAULTS as error:
                where, reason = describe(self.directory), str(error).splitlines()[0]
                raise UserError(f"{where}/checkpoint.pt does not match these settings ({reason}); restore the folder, "
                                "or train again under another --exp-name") from None
            self.display.say(f"resuming at step {self.steps:,}" + self.recover(self.state["subject"]))
        elif self.resumed:
            self.display.say("no checkpoint was written before the run stopped: it starts again from its config.json")
        had_stopped = self.state is not None and self.state["stopped"]
        self.stopped = had_stopped and not self.longer
        if (had_stopped and self.longer) or self.forgot:                  # else a killed run resumes from the old state
            self.save()
        if self.longer and self.leads:
            records.note_total_steps(self.directory, self.config.total_steps)

    def stop(self) -> None:
        """End the run after the current update with status "finished", because its goal is reached."""
        self.stopped = True

    def interrupted(self) -> bool:
        """Return whether a signal has asked a rank to stop; the ranks exchange this once an update."""
        return ranks.any_of(bool(self.interruption.received))

    @property
    def row_due(self) -> bool:
        """Return whether a row of `progress.csv` follows the current update; if so, call `log`."""
        return self._passes(self.steps_per_row)

    def _passes(self, every: int) -> bool:
        """Return whether the current update passes a multiple of `every` steps, or the end."""
        after = self.steps + self.steps_each
        return after // every > self.steps // every or after >= self.end

    def log(self, **values: float | Tensor) -> None:
        """Give diagnostics for the row that follows this update."""
        self.logged = diagnostics(values)

    def check_finite(self, **tensors: Tensor) -> None:
        """Raise NonFiniteError for the first tensor `[...]` with a NaN or infinite value. Pass tensors in the order of
        data flow."""
        for name, x in tensors.items():
            if not finite(x):
                between = f"between steps {self.steps:,} and {self.steps + self.steps_each:,}"
                raise NonFiniteError(diverged(name, x, between, describe(self.directory), self.config))

    def save(self) -> None:
        """Write a checkpoint and load it, so that resumed and uninterrupted runs compute the same numbers. Ranks other
        than 0 add the state of their own environments and generators. NonFiniteError if a weight is not finite."""
        self.check_finite(**weights(self.parts))
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        subject = self.save_subject()
        if not self.leads:
            self.load_subject(subject)
            return
        state = {"algorithm": self.algorithm, "update": self.update, "steps": self.steps, "rows": self.rows,
                 "stopped": self.stopped, "seconds": self.seconds, "files": self.log_file.position(),
                 "rng": save_rng(self.rng), "torch_rng": torch.get_rng_state(), "cuda_rng": generator_of(self.device),
                 "parts": parts, "subject": subject, "settings": config_to_json(self.config)}   # cuda_rng: or MPS's
        written = save_checkpoint(self.directory / "checkpoint.pt", state)
        self.after_save()
        self._load(written)       # (`written` holds the live tensors of a large part, not copies)

    def _load(self, state: dict[str, Any]) -> None:
        self.update, self.steps, self.rows = state["update"], state["steps"], state["rows"]
        self.saved = self.steps
        load_rng(self.rng, state["rng"])
        torch.set_rng_state(state["torch_rng"])
        restore_generator(self.device, state["cuda_rng"])
        for name, part in self.parts.items():
            restore(part, state["parts"].pop(name))                       # frees the memory of a resumed checkpoint
        self.load_subject(state["subject"])

    @property
    def seconds(self) -> float:
        """Training time in seconds, including earlier processes."""
        return self.earlier_seconds + time.perf_counter() - self.started

    def finish(self) -> None:
        """Write `result.json` and `curve.png`, and print how to continue. Ranks other than 0 do nothing."""
        if not self.leads:
            return
        self._write_result()
        self.complete = self.status == "finished"                         # whatever happens while the plot is drawn
        seconds = self.seconds                                            # training time without the plot
        if self.status == "finished":
            from spinup.runs.curve import draw_curve
            draw_curve(self.directory)
        self.display.close()
        for lines in ending(describe(self.directory), self.steps, seconds, self):
            self.display.say(lines)

    def _rate(self) -> float:
        """Steps per second so far, with six digits, because updates of a large model take minutes."""
        return float(f"{self.steps / self.seconds:.6g}")

    def _write_row(self) -> None:
        self.rows += 1
        first = {"epoch": self.rows, "steps": self.steps, **self.row()}
        last = {"wall_seconds": round(self.seconds, 3), "steps_per_second": self._rate()}
        row: Row = joined(first, self.logged, last)
        self.log_file.write(row)
        self.display.row(row, self.end)
        for sentence in self.diagnose(row):
            self.display.say_once(sentence)
        if self.config.on_row is not None and self.leads:
            with same_random_numbers(self.device), user_code():           # it must not affect the training
                self.config.on_row(dict(row))

    def _write_result(self) -> None:
        write_json(self.directory / "result.json", {
            "status": self.status, "stopped_early": self.stopped, "steps": self.steps, "saved_steps": self.saved,
            "seconds": round(self.seconds, 3), "steps_per_second": self._rate(), "peak_memory": peak_memory(),
            "measure": self.measure, **self.outcome()})
