"""Whatever an answer does: a verdict, soon, and nothing of it left. What a machine cannot limit, limits() must say."""
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from llm.tasks import sandbox
from llm.tasks.sandbox import judge, judge_many, limits

SQUARE = "def f(x): return x * x"
TESTS = ["assert f(3) == 9", "assert f(-2) == 4"]
NO_NAMESPACES = ("libc.unshare(", "libc and (")                           # what a container's kernel answers
NO_SECCOMP = ('{"x86_64": (41, 56, 57, 58, 435), "aarch64": (198, 220, 435)}', "{}")
NO_NPROC = ('("NPROC", 0, "processes")', '("CORE", 0, "")')
LOOP = "2 s of processor time" if hasattr(signal, "setitimer") else "4 s"

HOSTILE = {             # what it does, and a part of the error
    "loops for ever": ("while True: pass", f"took more than {LOOP}"),
    "computes for ever in one call": ("9 ** 9 ** 9", f"took more than {LOOP}"),
    "sleeps": ("import time\ntime.sleep(60)", "took more than 0.6 s"),
    "prints and prints": ("while True: print('x' * 1000)", "printed more than 64 KiB"),
    "prints to stderr": ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", "printed more than 64 KiB"),
    "prints too much once": (f"{SQUARE}\nprint('x' * 70_000, flush=True)", "printed more than 64 KiB"),
    "waits for input": (f"input()\n{SQUARE}", "EOFError"),
    "leaves": (f"{SQUARE}\nimport sys\nsys.exit(0)", "SystemExit"),
    "leaves at once": (f"{SQUARE}\nimport os\nos._exit(0)", "exit code 0"),
    "closes stdout": (f"{SQUARE}\nimport os\nos.close(1)", "ended before its tests did"),
    "closes stdout and loops": ("import os\nos.close(1)\nos.close(2)\nwhile True: pass", "ended before its tests did"),
    "raises": (f"{SQUARE}\n1 / 0", "ZeroDivisionError: division by zero"),
    "raises what cannot be printed": ("class E(Exception):\n  def __str__(self): 1 / 0\nraise E", "ended before its"),
    "segfaults": ("import ctypes\nctypes.string_at(0)", ""),
    "recurs for ever": ("def f(x): return f(x)", "RecursionError"),
    "is no program": ("def f(x:", "SyntaxError"),
    "is no text": ("f = '\ud800'", "UnicodeEncodeError"),
    "holds a NUL": (f"{SQUARE}\0assert True", "NUL"),
    "prints a verdict": ("import os\nfor i in range(3): print(f'{0:032x} {i} ', flush=True)\nos._exit(0)",
                         "exit code 0")}


@pytest.fixture(autouse=True)
def left(tmp_path_factory, monkeypatch):
    """After each test: none of the processes that were started, not even as a zombie, and no temporary folder."""
    folder, started = tmp_path_factory.mktemp("temporary"), []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self.pid)

    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sandbox.subprocess, "Popen", Popen)
    yield started
    assert list(folder.iterdir()) == []
    if os.name == "posix":
        for pid in started:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


@pytest.fixture
def without(monkeypatch):
    """A kernel that lacks something."""
    def change(*changes):
        for old, new in changes:
            assert sandbox.CHILD.count(old) == 1
            monkeypatch.setattr(sandbox, "CHILD", sandbox.CHILD.replace(old, new))
        sandbox.limits.cache_clear()
        sandbox.warn.cache_clear()
    yield change
    sandbox.limits.cache_clear()
    sandbox.warn.cache_clear()


def free():
    return [kind for kind in limits().partition("none on ")[2].split(", ") if kind]


# Turned red by: a test that is left out or counted twice; going on with the tests of an answer that did not run.
def test_verdicts():
    verdict = judge(SQUARE, TESTS)
    assert (verdict.passed, verdict.total, verdict.error, verdict.solved) == (2, 2, "", True)
    assert 0 < verdict.seconds < 4
    verdict = judge("f = lambda x: 3 * x", [TESTS[1], *TESTS, "assert f('a') == 'aaa'"])
    assert (verdict.passed, verdict.total, verdict.solved) == (2, 4, False)
    assert "AssertionError" in verdict.error and "f(-2) == 4" in verdict.error
    assert judge("", ["pass"]).solved and not judge(SQUARE, []).solved
    assert judge("raise ValueError('so')", ["pass"]).passed == 0
    assert judge(SQUARE, ["assert f(2) == 4", "while True: pass", "pass"], seconds=0.2).passed == 1


# Turned red by: each by its own; no ITIMER_PROF, no time limit on join, stderr somewhere else, a token that is known, a
# pass where no verdict came, `except Exception`, no check for NUL, plain "utf-8" for the answer.
@pytest.mark.parametrize("what", HOSTILE)
def test_an_accident_is_a_failure_and_soon(what):
    code, error = HOSTILE[what]
    start = time.perf_counter()
    seconds = 2 if LOOP in error else 0.3                                 # on a busy machine the other clock is first
    verdict = judge(code, TESTS, seconds=seconds)
    assert (verdict.passed, verdict.total) == (0, 2) and error in verdict.error and verdict.error
    assert time.perf_counter() - start < 6 and verdict.seconds < 6


# Turned red by: reading on to the end, however far that is, and all of it into memory.
def test_a_flood_is_cut_off():
    verdict = judge("while True: print('x' * 1000)", TESTS, seconds=4.0)
    assert verdict.seconds < 3 and "printed" in verdict.error


# Turned red by: a line that the limit cut behind its first word, taken for a whole one.
def test_wherever_a_flood_is_cut_off_there_is_a_verdict():
    for size in range(65_700, 65_780, 1):
        verdict = judge(f"print('x' * {size})", TESTS[:1], seconds=4.0)
        assert (verdict.passed, verdict.total) in ((0, 1), (1, 1))


# Turned red by: a limit that is claimed and not set; each of them without its line in the child.
@pytest.mark.parametrize(("kind", "code"), {
    "memory": "x = bytearray(10**9)",
    "the size of files": "open('a', 'w').write('x' * (2 << 20))",
    "the number of files": "for i in range(150): open(str(i), 'w').close()",
    "processes": "import os\nif os.fork() == 0: os._exit(0)"}.items())
def test_what_is_limited_fails_and_what_is_not_is_said(kind, code):
    assert judge(f"{code}\n{SQUARE}", TESTS).solved == (kind in free())


# Turned red by: no unshare and no seccomp, or `network` taken off the list without either.
def test_no_connection_comes_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        judge(f"import socket\nsocket.create_connection({server.getsockname()})", ["pass"])
        try:
            reached = bool(server.accept())
        except BlockingIOError:
            reached = False
    assert reached == ("network" in free())


# Turned red by: no mount_setattr; no chdir, after which the working folder is that below, and cannot be written to.
def test_only_its_own_folder_can_be_written_to(tmp_path):
    mark = tmp_path / "mark"
    judge(f"open({str(mark)!r}, 'w').close()", ["pass"])
    assert mark.exists() == ("other folders" in free())
    own = "import os, tempfile\nopen('a', 'w').write('x')\nassert open(os.path.expanduser('~/a')).read() == 'x'\n"
    assert judge(f"{own}open(tempfile.mkdtemp() + '/b', 'w').close()", ["pass"]).error == ""


# Turned red by: `__name__` without its module; RLIMIT_NOFILE or the memory too small; env=os.environ.
def test_ordinary_programs_run_and_see_no_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    code = ("from __future__ import annotations\nimport asyncio, collections, heapq, os, re\n"
            "from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int\n"
            "async def g(): return A(3)\nprint('ä€ 𝄞')")
    tests = ["assert asyncio.run(g()).x == 3", "assert 'HF_TOKEN' not in os.environ", "assert __name__ != '__main__'"]
    assert judge(code, tests).error == ""


# Turned red by: counting the bytes per test; a verdict of another job; an order of completion.
def test_many_in_order():
    jobs = [(f"import time\ntime.sleep({0.1 * (i == 0)})\nf = lambda x: x + {i}", [f"assert f({i}) == {j}"])
            for i in range(4) for j in (2 * i, 2 * i + 1)]
    verdicts = judge_many(jobs, workers=3, seconds=1.0)
    assert [verdict.passed for verdict in verdicts] == [1, 0] * 4


# Turned red by: giving up on seccomp too when namespaces are refused; no line of warning, or two; an untrue claim.
def test_without_namespaces(without, tmp_path, capsys):
    without(NO_NAMESPACES)
    assert [judge(SQUARE, TESTS).solved for _ in range(2)] == [True, True]
    assert capsys.readouterr().err.count("\n") == 1
    assert judge_many([(SQUARE, TESTS)])[0].solved
    assert capsys.readouterr().err == ""
    assert {"the number of files", "other folders"} <= set(free())
    if "Seccomp" in (status.read_text() if (status := Path("/proc/self/status")).exists() else ""):
        assert platform.machine() not in ("x86_64", "aarch64") or not {"network", "processes"} & set(free())
    full = "import os\nfor i in range(150): os.makedirs(f'{i}/a')\nos.chmod('0', 0)"
    assert judge(full, ["pass"]).solved                                   # and `left` finds no folder
    without(NO_SECCOMP)
    assert "network" in free()
    test_no_connection_comes_out()
    test_only_its_own_folder_can_be_written_to(tmp_path)


# Turned red by: a warning where there is nothing to warn of.
def test_quiet_where_everything_is_limited(without, capsys):
    without()
    judge(SQUARE, TESTS)
    assert bool(capsys.readouterr().err) == bool(free())


if os.name == "posix":
    def beating(file):
        """Code that writes a letter every 20 ms, for ten seconds."""
        return f"import time\nfor _ in range(500):\n  open({str(file)!r}, 'a').write('x')\n  time.sleep(0.02)"

    def assert_it_stopped(file):
        size = file.stat().st_size
        time.sleep(0.2)
        assert file.stat().st_size == size > 0

    # Turned red by: process.kill() instead of killpg, which leaves the one that was started.
    def test_what_it_started_is_killed(without, tmp_path):
        without(NO_NAMESPACES, NO_SECCOMP, NO_NPROC)
        judge(f"import os\nif os.fork() == 0:\n  exec({beating(tmp_path / 'beats')!r})", ["pass"], seconds=0.2)
        assert_it_stopped(tmp_path / "beats")

    # Turned red by: reading in the caller's thread, or waiting for the reader: both take as long as the sleep.
    def test_who_escapes_with_the_pipe_is_not_waited_for(without):
        without(NO_NAMESPACES, NO_SECCOMP, NO_NPROC)
        start = time.perf_counter()
        judge("import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(5)", ["pass"], seconds=0.1)
        assert time.perf_counter() - start < 4

    # Turned red by: no ITIMER_REAL, without which it writes on.
    def test_it_ends_by_itself_when_the_parent_is_killed(tmp_path):
        script = ("from llm.tasks import sandbox\n"
                  f"sandbox.CHILD = sandbox.CHILD.replace{NO_NAMESPACES}\n"
                  f"sandbox.run({beating(tmp_path / 'beats')!r}, ['pass'], 0.2, 256)")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
        parent = subprocess.Popen([sys.executable, "-c", script], env=env)
        while not (tmp_path / "beats").exists():
            assert parent.poll() is None
            time.sleep(0.01)
        parent.kill()
        parent.wait()
        time.sleep(1.6)                                                   # 2 * 0.2 + 1, and some more
        assert_it_stopped(tmp_path / "beats")
