"""Run of a grid in a process of this machine."""
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from spinup.runs.config import RunConfig


class Process:
    """A run in a process of this machine: a new one with these words on its command line, or the one begun in
    `directory`."""

    def __init__(self, words: list[str], directory: Path, config: RunConfig):
        words = ["resume", str(directory)] if (directory / "config.json").exists() else words
        # A file, because a pipe that nobody reads fills up.
        self.stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # In its own process group: otherwise Ctrl-C in a terminal would reach the run twice, and the second one stops a
        # run unsaved. Windows cannot send Ctrl-C to another group; there the console signals both processes, once.
        own_group = {} if sys.platform == "win32" else {"process_group": 0}
        self.process = subprocess.Popen([sys.executable, "-m", "spinup", *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.stderr, **own_group)

    def poll(self) -> int | None:
        """Return the exit code; None while the run trains."""
        return self.process.poll()

    def interrupt(self) -> None:
        """Interrupt the run as Ctrl-C does: it saves and ends; the second time it ends at once."""
        if sys.platform != "win32":
            self.process.send_signal(signal.SIGINT)

    def errors(self) -> str:
        """Return what the run printed to standard error."""
        self.stderr.seek(0)
        with self.stderr:
            return self.stderr.read()
