"""A model's Python code and its unit tests, run in two processes that have little time, memory and reach.

The answer's process has neither the tests nor the verdict: the tests run in the other one, which asks it for values by
a pair of pipes and compares them itself. So an answer passes `assert f(3) == 9` only if its `f` gives 9. What remains
possible: a function that knows its inputs from the prompt can hold a table of their values; a test without an expected
value, as `assert f(3)`, accepts whatever is true; two objects of classes of the answer's own are equal if these say so.

What this machine cannot limit is said by `limits()`. It is no defence against an attacker who knows a fault of the
kernel or of Python.
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
from spinup.runs.seccomp import seccomp_filter

OUTPUT = 1 << 16        # bytes; whoever prints more has failed
KINDS = ("memory", "the size of files", "the number of files", "other folders", "processes", "network", "signals",
         "memory and open files of other processes")


@dataclass(frozen=True)
class Verdict:
    """Outcome of an answer.

    Attributes:
        passed: tests that it passed.
        total: tests there were.
        error: what went wrong first; "" where nothing did.
        seconds: from start to end.
    """

    passed: int
    total: int
    error: str
    seconds: float

    @property
    def solved(self) -> bool:
        """Whether there were tests and all were passed."""
        return 0 < self.total == self.passed


def judge(code: str, tests: Sequence[str], *, seconds: float = 2.0, memory_mb: int = 256) -> Verdict:
    """Run `code`, then each test, such as `assert f(3) == 9`, in two new processes, which are gone afterwards.

    Args:
        seconds: of processor time; twice that by the clock, so that a busy machine makes no right answer wrong.
        memory_mb: of address space, of which the interpreter itself takes some 20; 32 at least.

    A test sees the names of the code, save those of Python's own functions, as `abs`. Plain data is copied, and a list,
    dict or set that a call has changed is changed for the test too. The test cannot give the code a function.

    Only the standard library can be imported; there are no threads. Whatever the code does, a verdict is returned.
    """
    warn()
    return run(code, tests, seconds, memory_mb)[0]


def judge_many(jobs: Sequence[tuple[str, Sequence[str]]], workers: int = 2, **limits: Any) -> list[Verdict]:
    """`judge(code, tests, **limits)` of each (code, tests), `workers` at a time, in the order of the jobs."""
    warn()
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda job: judge(*job, **limits), jobs))


@cache
def tried() -> tuple[str, list[str]]:
    """Why nothing can be judged here, "" where it can; and those of KINDS that are not limited. One answer is run."""
    if sys.platform == "win32":
        return "it needs processes as Linux and macOS have them", []
    verdict, free = run("", ["pass"], 5.0, 256)
    return verdict.error, free


def limits() -> str:
    """The limits on an answer that work here, and those that do not, in one line."""
    error, free = tried()
    if error:
        return f"does not work here: {error}"
    limited = "limits on " + ", ".join(["time", "output", *(kind for kind in KINDS if kind not in free)])
    unfiltered = f" (no filter of system calls is known for {sys.platform} on {os.uname().machine})"
    return f"{limited}; none on {', '.join([*free, 'reading files'])}{'' if call_filter() else unfiltered}"


def call_filter() -> bytes:
    """The system calls of an answer and of its tests: neither new processes nor threads, no sockets."""
    return seccomp_filter(threads=False, sockets=False)


@cache
def warn() -> None:
    """Say on stderr, once, what is not limited and could be."""
    if any(tried()):
        print(f"spinup: the sandbox for a model's code: {limits()}", file=sys.stderr)


def run(code: str, tests: Sequence[str], seconds: float, memory_mb: int) -> tuple[Verdict, list[str]]:
    """The verdict, and those of KINDS that were not limited."""
    start, token = time.perf_counter(), secrets.token_hex(16)
    if any("\0" in source for source in (code, *tests)):                  # it parts them from each other
        return Verdict(0, len(tests), "there is a NUL character in the code", 0.0), []
    job = "\0".join((token, code, *tests)).encode("utf-8", "surrogatepass")
    with (tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as folder,
          tempfile.TemporaryFile() as output):
        kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
        with subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", CHILD, str(seconds), str(memory_mb << 20),
                 ",".join(KINDS), call_filter().hex()],
                cwd=folder, env=kept | dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP"), folder),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True) as process:
            try:
                said, late = process.communicate(job, timeout=2 * seconds)[0], False
            except subprocess.TimeoutExpired as expired:
                said, late = expired.output or b"", True
            finally:                                                      # Ctrl-C too
                end(process)
        printed = os.fstat(output.fileno()).st_size                       # 1 MiB at most, the limit on a file
    lines = [line.split(" ", 2)[1:] for line in said.decode("utf-8", "replace").split("\n") if line.startswith(token)]
    told = {line[0]: line[1].strip() for line in lines if len(line) == 2}              # the last one may be cut
    free = [kind for kind in told.pop("free", "").split(",") if kind]
    left = int(told.pop("left", process.returncode))
    if printed > OUTPUT:
        told, error = {}, f"printed more than {OUTPUT >> 10} KiB"
    elif late:
        error = f"took more than {2 * seconds:g} s"
    elif left == -signal.SIGPROF:
        error = f"took more than {seconds:g} s of processor time"
    else:
        error = f"ended before its tests did ({named(left)})"
    done = [told.get(str(number), error) for number in range(len(tests) + 1)]
    failed = [f"{text} in {tests[i - 1]!r}" if i and str(i) in told else text for i, text in enumerate(done) if text]
    return Verdict(done[1:].count(""), len(tests), failed[0] if failed else "", time.perf_counter() - start), free


def end(process: subprocess.Popen) -> None:
    """Kill it and what it started. Before `wait`: afterwards the number may be that of another group."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def named(code: int) -> str:
    """-11 as SIGSEGV."""
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
