"""A person's own player in a process of its own, with little time and memory, that cannot take the tournament along.

Meant against accidents, a loop without end or a gigabyte; it is no defence against an attacker.
"""
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from spinup.errors import UserError

LOADING = 30.0          # seconds that a file has to be imported, beyond those for a move
OUTPUT = 1 << 20        # bytes; whoever prints more plays no more

# The program of the child: questions come by one pipe and answers go by another, so that prints disturb neither.
CHILD = r"""
import importlib.util, json, os, sys
questions, answers, memory, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 24, 1 << 24))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
questions, answers = os.fdopen(questions, "r"), os.fdopen(answers, "w")

def say(**what):
    answers.write(json.dumps(what) + "\n")
    answers.flush()

def why(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")

try:
    import numpy as np
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("player", path)
    module = sys.modules["player"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    act = module.act
except BaseException as error:
    say(fault="cannot be loaded (" + why(error) + ")")
    raise SystemExit
say(ready=True)
for line in questions:
    seen = json.loads(line)
    try:
        move = act(np.array(seen["observation"], seen["dtype"]), np.array(seen["mask"], np.int8))
    except BaseException as error:
        say(fault="raised " + why(error))
        continue
    if isinstance(move, (int, np.integer)) and not isinstance(move, bool):
        say(move=int(move))
    else:
        say(fault="returned " + repr(move)[:60] + ", not the number of a move")
"""


class Process:
    """A running player; one that fell is started again with the next question.

    Args:
        file: with `act(observation, mask)`.
        seconds: for a move. memory_mb: of address space.
    """

    def __init__(self, file: Path, seconds: float, memory_mb: int):
        if sys.platform == "win32":
            raise UserError(f"{file}: players of one's own need Linux or macOS; leave it out on Windows")
        self.file, self.seconds, self.memory = file, seconds, memory_mb << 20
        self.child: subprocess.Popen | None = None
        self.output = tempfile.TemporaryFile()                            # noqa: SIM115
        self.buffer = b""

    def ask(self, observation: np.ndarray, mask: np.ndarray) -> tuple[int, str]:
        """Its move in a position as PettingZoo shows it, with `mask`, `[moves]`; and "", or what it did instead of
        giving one.
        """
        if self.child is None and (fault := self._start()):
            return 0, fault
        question = {"observation": observation.tolist(), "dtype": str(observation.dtype), "mask": mask.tolist()}
        try:
            os.write(self.questions, (json.dumps(question) + "\n").encode())
        except OSError:
            return 0, self._fallen()
        answer = self._answer(self.seconds)
        if "fault" in answer:
            return 0, answer["fault"]
        if not 0 <= answer["move"] < len(mask):
            return 0, f"returned {answer['move']}, of {len(mask)} moves from 0 on"
        return answer["move"], ""

    def _start(self) -> str:
        (read, self.questions), (self.answers, write) = os.pipe(), os.pipe()
        self.buffer = b""
        self.child = subprocess.Popen(
            [sys.executable, "-u", "-c", CHILD, str(read), str(write), str(self.memory), str(self.file)],
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output, pass_fds=(read, write),
            start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        os.close(read)
        os.close(write)
        return self._answer(LOADING + self.seconds).get("fault", "")

    def _answer(self, seconds: float) -> dict:
        """The next line that it says; a fault, and its end, where it says none in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, min(0.2, end - time.monotonic())))
            if ready:
                if not (piece := os.read(self.answers, 1 << 16)):
                    return {"fault": self._fallen()}
                self.buffer += piece
            elif time.monotonic() >= end:
                self.close()
                return {"fault": f"gave no move within {self.seconds:g} s"}
            if self.printed > OUTPUT:
                self.close()
                return {"fault": f"printed more than {OUTPUT >> 20} MB"}
        line, _, self.buffer = self.buffer.partition(b"\n")
        answer = json.loads(line)
        if "cannot be loaded" in answer.get("fault", ""):
            self.close()
        return answer

    def _fallen(self) -> str:
        """What is said of a process that ended on its own."""
        code = self.child.wait() if self.child else 0
        self.close()
        return f"ended its process (signal {-code})" if code < 0 else f"ended its process (exit code {code})"

    @property
    def printed(self) -> int:
        """Bytes so far."""
        return os.fstat(self.output.fileno()).st_size

    def note(self) -> str:
        """The beginning of what it has printed, and how much it was; "" for nothing."""
        if not self.printed:
            return ""
        text = os.pread(self.output.fileno(), 200, 0).decode(errors="replace")
        return f"printed {self.printed:,} bytes: {' '.join(text.split())[:60]}"

    def close(self) -> None:
        """End it, and whatever it has started."""
        if self.child is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, 9)
        self.child.wait()
        self.child = None
        for pipe in (self.questions, self.answers):
            with suppress(OSError):
                os.close(pipe)
