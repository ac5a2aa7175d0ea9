"""Run of a grid in a process of this machine."""
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spinup.runs.config import RunConfig

# On Linux, each run is forked from one process that has already imported these modules. So it starts seconds sooner.
FORKED = sys.platform.startswith("linux")
PRELOADED = ["spinup.view.own_group", "torch.utils.tensorboard", "matplotlib.figure", "matplotlib.backends.backend_agg",
             "gymnasium", "spinup.cli", "spinup.family", "spinup.runs.flags", "spinup.runs.public", "spinup.runs.curve"]
SAFE = ["-P"]           # Python then ignores modules of the working folder, such as a user's queue.py
LOST = 255              # exit code if the process that forked a run has ended; the run may go on


class Process:
    """A run in a process of this machine: a new one with these words on its command line, or the one begun in
    `directory`."""

    def __init__(self, words: list[str], directory: Path, config: RunConfig):
        words = ["resume", str(directory.absolute())] if (directory / "config.json").exists() else words
        # A file, because a pipe that nobody reads fills up.
        self.stderr = tempfile.NamedTemporaryFile("w+", encoding="utf-8", errors="replace")     # noqa: SIM115
        if FORKED:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(PRELOADED)
            self.process = context.Process(target=spinup, args=(words, self.stderr.name))
            with safe_path():                                             # for the process that forks all runs
                self.process.start()
        else:
            # In its own process group: otherwise Ctrl-C in a terminal would reach the run twice, and the second one
            # stops a run unsaved. Windows cannot send Ctrl-C to another group; there the console signals both
            # processes, once.
            own_group = {} if sys.platform == "win32" else {"process_group": 0}
            self.process = subprocess.Popen([sys.executable, *SAFE, "-m", "spinup", *words], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=self.stderr, **own_group)

    def poll(self) -> int | None:
        """Return the exit code; None while the run trains."""
        return self.process.exitcode if FORKED else self.process.poll()

    def interrupt(self) -> None:
        """Interrupt the run as Ctrl-C does: it saves and ends; the second time it ends at once."""
        if sys.platform != "win32" and self.poll() in (None, LOST):
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)

    def errors(self) -> str:
        """Return what the run printed to standard error."""
        self.stderr.seek(0)
        with self.stderr:
            return self.stderr.read()


@contextmanager
def safe_path() -> Iterator[None]:
    """A context in which new processes of Python start as with `SAFE`."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def spinup(words: list[str], errors: str) -> None:
    """Do in a forked process what `python -m spinup WORDS` does. Its errors go to a file, its output nowhere."""
    os.setpgid(0, 0)                                                      # Ctrl-C in a terminal reaches it only once
    for descriptor, path in enumerate((os.devnull, os.devnull, errors)):
        file = os.open(path, os.O_RDWR)
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)                # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)           # noqa: SIM115
    sys.argv = ["spinup", *words]
    runpy.run_module("spinup", run_name="__main__", alter_sys=True)
