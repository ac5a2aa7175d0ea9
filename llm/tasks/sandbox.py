"""Run a model's Python code and its unit tests in two processes with limited time, memory and access.

The answer (the model's code) runs in one process, which has neither the tests nor the verdict. The tests run in the
other process. It asks the first one for values through a pair of pipes and compares them itself. So an answer passes
`assert f(3) == 9` only if its `f` returns 9.

Some cheating remains possible. If the prompt shows the inputs, a function can contain a table of their values. A test
without an expected value, such as `assert f(3)`, accepts any true value. And two objects of the answer's own classes
are equal if these classes say so.

`limits()` returns what this machine cannot limit. The sandbox does not stop an attacker who knows a vulnerability of
the kernel or of Python.
"""
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from llm.tasks.sandbox_child import CHILD
from spinup.machine import cores
from spinup.seccomp import seccomp_filter

OUTPUT = 1 << 16        # bytes; an answer that prints more has failed
EQUAL = {"PYTHONHASHSEED": "0"}       # so that sets have the same order in each run
KINDS = ("memory", "the size of files", "the number of files", "other folders", "processes", "network", "signals",
         "memory and open files of other processes")


@dataclass(frozen=True)
class Verdict:
    """Outcome of an answer.

    Attributes:
        passed: number of tests that it passed.
        total: number of tests.
        error: the first error; "" if there was none.
        seconds: time from start to end, in seconds.
    """

    passed: int
    total: int
    error: str
    seconds: float

    @property
    def solved(self) -> bool:
        """True if there were tests and the answer passed all of them."""
        return 0 < self.total == self.passed


def judge(code: str, tests: Sequence[str], *, seconds: float = 2.0, memory_mb: int = 256) -> Verdict:
    """Run `code`, then each test, such as `assert f(3) == 9`, in two new processes that end with the call.

    Args:
        seconds: limit of processor time, in seconds. The limit of wall-clock time is twice that, so that a busy machine
            does not fail a correct answer.
        memory_mb: limit of address space, in MB, at least 32. The interpreter itself needs about 20.

    A test can use the names that the code defines, but `abs` and the other builtins stay Python's own. Plain data is
    copied. If a call changes a list, dict or set, the test sees the change. A test cannot pass a function to the code.

    The code can import the standard library only, and cannot start threads. The function always returns a verdict,
    whatever the code does.
    """
    warn()
    return run(code, tests, seconds, memory_mb)[0]


def judge_many(jobs: Sequence[tuple[str, Sequence[str]]], **limits: Any) -> list[Verdict]:
    """Return `judge(code, tests, **limits)` for each (code, tests), in the order of the jobs. One job per core
    runs at a time."""
    warn()
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(lambda job: judge(*job, **limits), jobs))


@cache
def tried() -> tuple[str, list[str]]:
    """Test the sandbox with one answer. Return why it does not work here, or ""; and the KINDS it does not limit."""
    if sys.platform == "win32":
        return "it needs processes of Linux or macOS", []
    verdict, free = run("", ["pass"], 5.0, 256)
    return verdict.error, free


def limits() -> str:
    """Describe in one line which limits on an answer work on this machine, and which do not."""
    error, free = tried()
    if error:
        return f"does not work here: {error}"
    limited = "limits on " + ", ".join(["time", "output", *(kind for kind in KINDS if kind not in free)])
    unfiltered = f" (this library has no system-call filter for {sys.platform} on {os.uname().machine})"
    return f"{limited}; no limits on {', '.join([*free, 'reading files'])}{'' if call_filter() else unfiltered}"


def call_filter() -> bytes:
    """Return the system-call filter for an answer and its tests: no new processes, threads or sockets."""
    return seccomp_filter(threads=False, sockets=False)


@cache
def warn() -> None:
    """Print once, on stderr, which limits do not work here."""
    if any(tried()):
        print(f"spinup: the sandbox for a model's code: {limits()}", file=sys.stderr)


def run(code: str, tests: Sequence[str], seconds: float, memory_mb: int) -> tuple[Verdict, list[str]]:
    """Return the verdict, and those of KINDS that were not limited. seconds: limit of processor time."""
    start, token = time.perf_counter(), secrets.token_hex(16)
    if any("\0" in source for source in (code, *tests)):                  # NUL separates them from each other
        return Verdict(0, len(tests), "the code contains a NUL character", 0.0), []
    job = "\0".join((token, code, *tests)).encode("utf-8", "surrogatepass")
    with (tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as folder,
          tempfile.TemporaryFile() as output):
        kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
        with subprocess.Popen(
                [sys.executable, "-s", "-P", "-S", "-B", "-X", "utf8", "-c", CHILD, str(seconds), str(memory_mb << 20),
                 ",".join(KINDS), call_filter().hex()],
                cwd=folder, env=kept | dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP"), folder) | EQUAL,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True) as process:
            try:
                said, late = process.communicate(job, timeout=2 * seconds)[0], False
            except subprocess.TimeoutExpired as expired:
                said, late = expired.output or b"", True
            finally:                                                      # also after Ctrl-C
                end(process)
        printed = os.fstat(output.fileno()).st_size                       # 1 MiB at most, the limit on a file
    lines = [line.split(" ", 2)[1:] for line in said.decode("utf-8", "replace").split("\n") if line.startswith(token)]
    told = {line[0]: line[1].strip() for line in lines if len(line) == 2}              # the last line may be cut
    free = [kind for kind in told.pop("free", "").split(",") if kind]
    left = int(told.pop("left", process.returncode))
    if printed > OUTPUT:
        told, error = {}, f"printed more than {OUTPUT >> 10} KiB"
    elif late:
        error = f"took more than {2 * seconds:g} s"
    elif left == -signal.SIGPROF:
        error = f"took more than {seconds:g} s of processor time"
    else:
        error = f"ended before its tests were done ({named(left)})"
    done = [told.get(str(number), error) for number in range(len(tests) + 1)]
    failed = [f"{text} in {tests[i - 1]!r}" if i and str(i) in told else text for i, text in enumerate(done) if text]
    return Verdict(done[1:].count(""), len(tests), failed[0] if failed else "", time.perf_counter() - start), free


def end(process: subprocess.Popen) -> None:
    """Kill a process and all that it started. This comes before `wait`: later its id may belong to another group."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def named(code: int) -> str:
    """Name of an exit code: -11 is SIGSEGV."""
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
