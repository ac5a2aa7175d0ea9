"""The command's side of a check: start the process that checks a student's file, and read its result."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spinup.exercises.source import Entry

GRACE = 30.0             # seconds beyond the limit, for Python's start; then the process is killed
PRINTED = 4000           # last characters of the file's output that are shown
OUTPUT = 1 << 20         # bytes of its output that are read; the rest is dropped


class Process:
    """A process that checks a student's file and cannot crash the caller.

    Args:
        file: the student's file, in whose folder it runs. text: the Python code. level: of the check.
        seconds: time limit.
    """

    def __init__(self, entry: Entry, file: Path, text: str, level: str, seconds: float):
        self.seconds, self.late, self.printed, self.count = seconds, False, b"", 0
        self.folder = tempfile.TemporaryDirectory()
        copy = Path(self.folder.name) / f"{file.stem}.py"
        copy.write_text(text, encoding="utf-8")
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "spinup.exercises.child", str(copy), entry.name, level, str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=file.resolve().parent,
            process_group=0 if hasattr(os, "killpg") else -1,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})
        self.clock, self.reader = threading.Timer(seconds + GRACE, self._end), threading.Thread(target=self._read)
        for thread in (self.clock, self.reader):
            thread.daemon = True
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """End the process. Then `printed` holds its output."""
        self.clock.cancel()
        self._kill()
        self.child.wait()
        self.reader.join(2)                                               # its children may keep the pipe open
        for pipe in (self.child.stdin, self.child.stdout):
            with suppress(OSError):
                pipe.close()
        self.folder.cleanup()

    def result(self) -> dict[str, Any]:
        """Return the result that the process reports (see `spinup.exercises.child`), or a fault if it ended without
        one."""
        try:
            return dict(json.loads(self.child.stdout.readline()))
        except (TypeError, ValueError):
            self.child.wait()
        if self.late:
            said = f"it was still running after {self.seconds + GRACE:.0f} seconds and was ended"
            return {"message": f"{said}; is there a loop that never ends? If not, this machine is busy; check again "
                               "later", "line": 0, "checked": False}
        return {"message": f"it ended its process (exit code {self.child.returncode}) before the check was done",
                "line": 0}

    def output(self) -> str:
        """Return the end of the file's output."""
        text = self.printed.decode(errors="replace").strip()
        return text + f"\n... it printed more than {OUTPUT >> 20} MB; the rest was dropped" * (self.count > OUTPUT)

    def _end(self) -> None:
        self.late = True
        self._kill()

    def _kill(self) -> None:
        if hasattr(os, "killpg"):                                         # also ends processes that it started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGKILL)
        self.child.kill()

    def _read(self) -> None:
        while piece := os.read(self.child.stderr.fileno(), 1 << 16):
            if self.count <= OUTPUT:
                self.printed = (self.printed + piece)[-PRINTED:]
            self.count += len(piece)
