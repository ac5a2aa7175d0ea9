"""A user's own player in a separate process with limited time and memory; its crash does not stop the tournament.

The process cannot start processes or send signals, so nothing continues after it ends. Threads are allowed. The process
has the user's file permissions, so this separation is no protection against an attacker.
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
from spinup.seccomp import seccomp_filter

LOADING = 30.0          # seconds for importing the file, in addition to those for a move
OUTPUT = 1 << 20        # bytes; a player that prints more is excluded
LONGEST = 1 << 12       # bytes of an answer; a valid one has at most 300

# Program of the child process: questions and answers use two pipes of their own, so prints do not disturb them.
CHILD = r"""
import ctypes, importlib.util, json, os, struct, sys
questions, answers, memory, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
refused = bytes.fromhex(sys.argv[5])                                    # a filter of system calls
if refused:
    libc, code = ctypes.CDLL(None), ctypes.create_string_buffer(refused)
    libc.prctl(38, 1, 0, 0, 0)
    libc.prctl(22, 2, struct.pack("HP", len(refused) // 8, ctypes.addressof(code)))
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
say(ready=1)
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
    """A running player. After a crash, the next question restarts it.

    Args:
        file: a file with `act(observation, mask)`.
        seconds: time limit for a move. memory_mb: limit of the address space.
    """

    def __init__(self, file: Path, seconds: float, memory_mb: int):
        if sys.platform == "win32":
            raise UserError(f"{file}: player files need Linux or macOS; leave out this file on Windows")
        self.file, self.seconds, self.memory = file, seconds, memory_mb << 20
        self.child: subprocess.Popen | None = None
        self.output = tempfile.TemporaryFile()                            # noqa: SIM115
        self.buffer = b""

    def ask(self, observation: np.ndarray, mask: np.ndarray) -> tuple[int, str]:
        """Return a player's move, and "" or an error message. Observation and `mask`, `[moves]`, have PettingZoo's
        format."""
        if self.child is None and (fault := self._start()):
            return 0, fault
        question = {"observation": observation.tolist(), "dtype": str(observation.dtype), "mask": mask.tolist()}
        if fault := self._question((json.dumps(question) + "\n").encode()):
            return 0, fault
        move, fault = self._answer("move", self.seconds)
        if not fault and not 0 <= move < len(mask):
            fault = f"returned {str(move)[:60]}, but a move is a number from 0 to below {len(mask)}"
        return move, fault

    def _start(self) -> str:
        (read, self.questions), (self.answers, write) = os.pipe(), os.pipe()
        self.buffer = b""
        self.child = subprocess.Popen(
            [sys.executable, "-u", "-c", CHILD, str(read), str(write), str(self.memory), str(self.file),
             seccomp_filter(threads=True, sockets=True).hex()],
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output, pass_fds=(read, write),
            start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        os.close(read)
        os.close(write)
        os.set_blocking(self.questions, False)
        return self._answer("ready", LOADING + self.seconds)[1]

    def _question(self, text: bytes) -> str:
        """Send a question. Return "", or the reason why it failed; a process that does not read, or answers too early,
        is ended."""
        if self.buffer or select.select([self.answers], [], [], 0)[0]:
            return self._wrong() if self.buffer or os.read(self.answers, 1) else self._fallen()
        end = time.monotonic() + self.seconds
        while text:
            if not select.select([], [self.questions], [], max(0, end - time.monotonic()))[1]:
                return self._late()
            try:
                text = text[os.write(self.questions, text):]
            except OSError:
                return self._fallen()
        return ""

    def _answer(self, wanted: str, seconds: float) -> tuple[int, str]:
        """Return the number that the process sends under this name, and "". If there is none, return 0 and the reason.
        A process that sends anything else, or nothing in time, is ended."""
        end = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, min(0.2, end - time.monotonic())))
            if ready:
                if not (piece := os.read(self.answers, 1 << 16)):
                    return 0, self._fallen()
                self.buffer += piece
            elif time.monotonic() >= end:
                return 0, self._late()
            if self.printed > OUTPUT:
                self.close()
                return 0, f"printed more than {OUTPUT >> 20} MB"
            if len(self.buffer) > LONGEST:
                break
        line, _, self.buffer = self.buffer.partition(b"\n")
        try:
            answer = json.loads(line) if len(line) <= LONGEST else None
        except (ValueError, RecursionError):
            answer = None
        match answer:
            case {"fault": str(fault)}:
                if wanted == "ready":
                    self.close()
                return 0, "".join(filter(str.isprintable, fault))[:240]
            case {**named} if type(named.get(wanted)) is int:
                return named[wanted], ""
        return 0, self._wrong()

    def _late(self) -> str:
        """End a process that gave no move in time, and return the message."""
        self.close()
        return f"gave no move within {self.seconds:g} s"

    def _wrong(self) -> str:
        """End a process that wrote to the arena's pipe itself, and return the message."""
        self.close()
        return "wrote to a file descriptor of the arena"

    def _fallen(self) -> str:
        """End a process whose pipe is closed, and return the message."""
        try:
            code = self.child.wait(1)
        except subprocess.TimeoutExpired:
            self.close()
            return "closed a file descriptor of the arena"
        self.close()
        return f"ended its process (signal {-code})" if code < 0 else f"ended its process (exit code {code})"

    @property
    def printed(self) -> int:
        """Return the number of bytes printed so far."""
        return os.fstat(self.output.fileno()).st_size

    def note(self) -> str:
        """Return the beginning of its printed output and the total size; "" if there is none."""
        if not self.printed:
            return ""
        text = os.pread(self.output.fileno(), 200, 0).decode(errors="replace")
        return f"printed {self.printed:,} bytes: {' '.join(text.split())[:60]}"

    def close(self) -> None:
        """End the process, and any process that it started."""
        if self.child is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, 9)
        self.child.wait()
        self.child = None
        for pipe in (self.questions, self.answers):
            with suppress(OSError):
                os.close(pipe)
