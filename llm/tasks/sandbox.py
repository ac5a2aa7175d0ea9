"""A model's Python code and its unit tests, run in a process of their own that has little time, memory and reach.

Meant against accidents: a loop without end, a gigabyte of output, a fork bomb, `shutil.rmtree` on the wrong folder. It
is no defence against an attacker: code and tests share one interpreter, so code that looks for the tests finds them,
and an object that equals everything passes every `==`. What this machine cannot limit is said by `limits()`.
"""
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

OUTPUT = 1 << 16        # bytes; whoever prints more has failed
KINDS = ("memory", "the size of files", "the number of files", "other folders", "processes", "network")

# The program of the child, as text, which is only data here: in this process nothing of it runs, nor of the answer.
# It reads everything from its standard input before the answer runs: a token that no answer can guess (what stands in
# the output behind that token is the verdict; whatever else is printed there is only counted), the answer, the tests.
CHILD = r"""
import os, sys
seconds, memory, free = float(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3].split(","))
token, *sources = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").split("\0")
write, leave = os.write, os._exit                   # the answer may put something else in their place

def tell(what, text):
    write(1, f"\n{token} {what} {' '.join(text.split())[:200]}\n".encode("utf-8", "replace"))

def limit_resources():
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)               # should the parent be gone by then
    for name, most, what in (("AS", memory, "memory"), ("FSIZE", 1 << 20, "the size of files"), ("NOFILE", 32, ""),
                             ("CPU", int(seconds) + 2, ""), ("CORE", 0, ""), ("NPROC", 0, "processes")):
        try:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
        except (OSError, ValueError):
            continue
        if not (name == "AS" and sys.platform == "darwin" or name == "NPROC" and os.getuid() == 0):
            free.discard(what)                                          # those two are taken and then ignored

def enter_namespaces(libc):
    user, group, folder = os.getuid(), os.getgid(), os.getcwd()
    if libc.unshare(0x10000000 | 0x40000000 | 0x00020000):              # NEWUSER, NEWNET, NEWNS: all or none
        return
    free.discard("network")
    for name, text in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    if libc.syscall(442, -100, b"/", 0x8000, (ctypes.c_uint64 * 4)(1), 32) == 0:    # mount_setattr: / and all below
        free.discard("other folders")                                   # can be read and no more
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 6, b"size=8m,nr_inodes=100") == 0:
            free.discard("the number of files")
            os.chdir(folder)                                            # what lies above the old one now

def refuse_processes_and_sockets(libc):
    # seccomp, the numbers of system calls that the kernel refuses; root too, and in containers without namespaces
    numbers = {"x86_64": (41, 56, 57, 58, 435), "aarch64": (198, 220, 435)}.get(os.uname().machine)
    if numbers and sys.maxsize > 2**32:                                 # 32 bits have other numbers
        rules = [(0x20, 0, 0, 0), *((0x15, len(numbers) - i, 0, n) for i, n in enumerate(numbers)),
                 (6, 0, 0, 0x7fff0000), (6, 0, 0, 0x00050001)]          # load; if equal, to the last; allow; refuse
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
        program = struct.pack("HP", len(rules), ctypes.addressof(code))
        if libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0:
            free.difference_update(("processes", "network"))

try:
    import resource, signal
    limit_resources()
except ImportError:                                 # Windows
    pass
if sys.platform == "linux":
    for limit in enter_namespaces, refuse_processes_and_sockets:
        try:
            import ctypes, struct
            limit(ctypes.CDLL(None))
        except (ImportError, AttributeError, OSError):
            pass                                    # stays among the free
tell("free", ",".join(sorted(free)))
answer = sys.modules["answer"] = type(sys)("answer")                    # dataclasses look for their module
for number, source in enumerate(sources):
    try:
        exec(source, vars(answer))
        tell(number, "")
    except BaseException as error:
        tell(number, f"{type(error).__name__}: {error}")
        if number == 0:
            break                                   # without the answer no test makes sense
leave(0)
"""


@dataclass(frozen=True)
class Verdict:
    """How an answer did.

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
    """Run `code`, then each test, such as `assert f(3) == 9`, in one new process, which is gone afterwards.

    Args:
        seconds: of processor time; twice that by the clock, so that a busy machine makes no right answer wrong.
        memory_mb: of address space, of which the interpreter itself takes some 20; 32 at least.

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
def limits() -> str:
    """The limits on an answer that work here, and those that do not, in one line; tried once, in a process."""
    verdict, free = run("", ["pass"], 5.0, 256)
    if not verdict.solved:
        return f"does not work here: {verdict.error}"
    limited = "limits on " + ", ".join(["time", "output", *(kind for kind in KINDS if kind not in free)])
    return f"{limited}; none on {', '.join(free)}" if free else limited


@cache
def warn() -> None:
    """Say on stderr, once, what is not limited."""
    if "none on" in limits() or "does not work" in limits():
        print(f"spinup: the sandbox for a model's code: {limits()}", file=sys.stderr)


def run(code: str, tests: Sequence[str], seconds: float, memory_mb: int) -> tuple[Verdict, list[str]]:
    """The verdict, and those of KINDS that were not limited."""
    start, token, most = time.perf_counter(), secrets.token_hex(16), OUTPUT + 300 * len(tests)
    if any("\0" in source for source in (code, *tests)):                  # it parts them from each other
        return Verdict(0, len(tests), "there is a NUL character in the code", 0.0), []
    job = "\0".join((token, code, *tests)).encode("utf-8", "surrogatepass")
    said: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as folder:
        kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT") if key in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", CHILD, str(seconds), str(memory_mb << 20),
             ",".join(KINDS)], cwd=folder, env=kept | dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP"), folder),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

        def talk() -> None:
            with suppress(OSError), process.stdin, process.stdout:
                process.stdin.write(job)
                process.stdin.close()
                said.append(process.stdout.read(most + 1))                # a gigabyte is not waited for

        # In a thread, for a read cannot be given up: a process that the answer started may hold the pipe for ever.
        reader = threading.Thread(target=talk, daemon=True)
        try:
            reader.start()
            reader.join(2 * seconds)
            late = reader.is_alive()
        finally:                                                          # Ctrl-C too
            end(process)
        reader.join(1)
    lines = [line.split(" ", 2)[1:] for line in b"".join(said).decode("utf-8", "replace").split("\n")
             if line.startswith(token)]
    told = {line[0]: line[1].strip() for line in lines if len(line) == 2}              # the limit may cut the last one
    free = [kind for kind in told.pop("free", "").split(",") if kind]
    if sum(map(len, said)) > most:
        error = f"printed more than {OUTPUT >> 10} KiB"
    elif late:
        error = f"took more than {2 * seconds:g} s"
    elif process.returncode == -getattr(signal, "SIGPROF", 0):
        error = f"took more than {seconds:g} s of processor time"
    else:
        error = f"ended before its tests did ({named(process.returncode)})"
    done = [told.get(str(number), error) for number in range(len(tests) + 1)]
    failed = [f"{text} in {tests[i - 1]!r}" if i and str(i) in told else text for i, text in enumerate(done) if text]
    return Verdict(done[1:].count(""), len(tests), failed[0] if failed else "", time.perf_counter() - start), free


def end(process: subprocess.Popen) -> None:
    """Kill it and what it started. Before `wait`: afterwards the number may be that of another group."""
    with suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def named(code: int) -> str:
    """-11 as SIGSEGV."""
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
