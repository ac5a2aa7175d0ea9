"""Every answer gets a verdict soon and leaves nothing behind. `limits()` names what this machine cannot limit."""
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from llm.tasks import sandbox
from llm.tasks.sandbox import judge, judge_many, limits
from spinup.seccomp import ALWAYS, CLONE, FCNTL, MACHINES, PRLIMIT, SOCKET, seccomp_filter

SQUARE = "def f(x): return x * x"
TESTS = ["assert f(3) == 9", "assert f(-2) == 4"]
NO_NAMESPACES = ("libc.unshare(", "libc and (")                           # as in a container without namespaces
NO_SECCOMP = ("if refused and ", "if 0 and ")
NO_NPROC = ("RLIMIT_NPROC, (0, 0)", "RLIMIT_CORE, (0, 0)")
LOOP = "0.5 s of processor time"
NOBODY = 65534

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
    "closes stdout and loops": ("import os\nos.close(1)\nos.close(2)\nwhile True: pass", "took more than 0."),
    "closes everything": (f"{SQUARE}\nimport os\nos.closerange(0, 32)", "ended before its tests were done"),
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
    """Assert after each test that no started process is left, not even a zombie, and no temporary folder."""
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


def python_for_all():
    """A Python that a plain user may run, because the child needs only the standard library; "" if there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            subprocess.run([python, "-I", "-S", "-c", "import json, ctypes"], user=NOBODY, check=True)
            return python
    return ""


@pytest.fixture(params=["this user", "a plain user"])
def user(request, monkeypatch):
    """The user who runs the answer: the user of this test, perhaps root, or a user without privileges."""
    if request.param == "this user":
        yield request.param
        return
    if os.getuid() or not (python := python_for_all()):
        pytest.skip("needs root, and a Python that other users may run")
    started = sandbox.subprocess.Popen

    def start(command, **kwargs):
        os.chown(kwargs["cwd"], NOBODY, NOBODY)
        return started([python, *command[1:]], user=NOBODY, group=NOBODY, extra_groups=[], **kwargs)

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:               # pytest's folders are closed to others
        os.chmod(folder, 0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr(sandbox, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start}))
        yield request.param


@pytest.fixture
def without(monkeypatch):
    """Simulate a kernel that lacks some features."""
    def change(*changes):
        for old, new in changes:
            assert sandbox.CHILD.count(old) == 1
            monkeypatch.setattr(sandbox, "CHILD", sandbox.CHILD.replace(old, new))
        sandbox.tried.cache_clear()
        sandbox.warn.cache_clear()
    yield change
    sandbox.tried.cache_clear()
    sandbox.warn.cache_clear()


def free():
    return limits().partition("no limits on ")[2].partition(" (")[0].split(", ")[:-1]


# Catches: a test that is left out or counted twice; tests that still run after the answer failed to run.
def test_verdict_counts_the_passed_tests():
    verdict = judge(SQUARE, TESTS)
    assert (verdict.passed, verdict.total, verdict.error, verdict.solved) == (2, 2, "", True)
    assert 0 < verdict.seconds < 4
    verdict = judge("f = lambda x: 3 * x", [TESTS[1], *TESTS, "assert f('a') == 'aaa'"])
    assert (verdict.passed, verdict.total, verdict.solved) == (2, 4, False)
    assert "AssertionError" in verdict.error and "f(-2) == 4" in verdict.error
    assert judge("", ["pass"]).solved and not judge(SQUARE, []).solved
    assert judge("raise ValueError('so')", ["pass"]).passed == 0
    assert judge(SQUARE, ["assert f(2) == 4", "while True: pass", "pass"], seconds=0.2).passed == 1


# Catches, one per case: a missing ITIMER_PROF; a missing time limit on join; stderr in another place; a token that is
# known; a pass without a verdict; `except Exception`; a missing check for NUL; plain "utf-8" for the answer.
@pytest.mark.parametrize("what", HOSTILE)
def test_faulty_answers_fail_quickly(what, monkeypatch):
    code, error = HOSTILE[what]
    start = time.perf_counter()
    if LOOP in error:                                                     # a busy machine reaches the other limit first
        wait = subprocess.Popen.communicate
        monkeypatch.setattr(subprocess.Popen, "communicate", lambda self, job, timeout: wait(self, job, 9 * timeout))
    verdict = judge(code, TESTS, seconds=0.5 if LOOP in error else 0.3)
    assert (verdict.passed, verdict.total) == (0, 2) and error in verdict.error and verdict.error
    assert time.perf_counter() - start < 6 and verdict.seconds < 6


# Catches: a reader that reads all output, however long it is, into memory.
def test_too_much_output_ends_the_answer_early():
    verdict = judge("while True: print('x' * 1000)", TESTS, seconds=4.0)
    assert verdict.seconds < 3 and "printed" in verdict.error


# Catches: a line that the limit cuts after its first word and that counts as complete.
@pytest.mark.long
def test_output_that_is_cut_anywhere_gives_a_verdict():
    for size in range(65_700, 65_780, 1):
        verdict = judge(f"print('x' * {size})", TESTS[:1], seconds=4.0)
        assert (verdict.passed, verdict.total) in ((0, 1), (1, 1))


# Catches: a limit that is claimed but not set; a missing line in the child for one of the limits.
@pytest.mark.parametrize(("kind", "code"), {
    "memory": "x = bytearray(10**9)",
    "the size of files": "open('a', 'w').write('x' * (2 << 20))",
    "the number of files": "for i in range(150): open(str(i), 'w').close()",
    "processes": "import os\nif os.fork() == 0: os._exit(0)"}.items())
def test_each_resource_is_limited_or_reported_as_unlimited(kind, code):
    assert judge(f"{code}\n{SQUARE}", TESTS).solved == (kind in free())


# Catches: neither unshare nor seccomp; `network` that is removed from the list without either.
def test_no_connection_comes_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        judge(f"import socket\nsocket.create_connection({server.getsockname()})", ["pass"])
        try:
            reached = bool(server.accept())
        except BlockingIOError:
            reached = False
    assert reached == ("network" in free())


# Catches: a missing mount_setattr; a missing chdir, so that the working folder is the one below the mount, which is
# read-only.
def test_only_its_own_folder_can_be_written_to(tmp_path):
    mark = tmp_path / "mark"
    judge(f"open({str(mark)!r}, 'w').close()", ["pass"])
    assert mark.exists() == ("other folders" in free())
    own = "import os, tempfile\nopen('a', 'w').write('x')\nassert open(os.path.expanduser('~/a')).read() == 'x'\n"
    assert judge(f"{own}open(tempfile.mkdtemp() + '/b', 'w').close()", ["pass"]).error == ""


# Catches: `__name__` without its module; RLIMIT_NOFILE or the memory too small; env=os.environ.
def test_ordinary_programs_run_and_see_no_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    code = ("from __future__ import annotations\nimport asyncio, collections, heapq, os, re\n"
            "from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int\n"
            "async def g(): return A(3)\nprint('ä€ 𝄞')")
    tests = ["assert asyncio.run(g()).x == 3", "assert 'HF_TOKEN' not in os.environ", "assert __name__ != '__main__'"]
    assert judge(code, tests).error == ""


# Catches: a verdict of another job; verdicts in the order of completion.
def test_judge_many_keeps_the_order_of_jobs(monkeypatch):
    monkeypatch.setattr(sandbox, "cores", lambda: 3)
    jobs = [(f"import time\ntime.sleep({0.1 * (i == 0)})\nf = lambda x: x + {i}", [f"assert f({i}) == {j}"])
            for i in range(4) for j in (2 * i, 2 * i + 1)]
    verdicts = judge_many(jobs, seconds=1.0)
    assert [verdict.passed for verdict in verdicts] == [1, 0] * 4


# Catches: no seccomp if namespaces are refused; no warning, or two; a false claim of `limits`.
def test_sandbox_works_without_namespaces(without, tmp_path, capsys):
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


# Catches: a warning although everything is limited.
def test_warning_appears_only_if_something_is_not_limited(without, capsys):
    without()
    judge(SQUARE, TESTS)
    assert bool(capsys.readouterr().err) == bool(free())


CALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n" \
       "def call(*args): return ctypes.get_errno() if libc.syscall(*args) == -1 else 0\n"
filtered = pytest.mark.skipif(not seccomp_filter(threads=False, sockets=False), reason="no filter of system calls here")
EPERM, ENOSYS = 1, 38


# Catches: a missing filter in the process of the answer; a jump that is one instruction too long or too short; ignored
# arguments.
@filtered
def test_system_calls_that_reach_other_processes_are_refused(user):
    column = MACHINES[platform.machine()][0]
    calls = {name: (EPERM, numbers[column], 0, 0, 0, 0, 0) for name, numbers in ALWAYS.items() if numbers[column]}
    fcntl, prlimit = FCNTL[column], PRLIMIT[column]
    calls |= {"socket": (EPERM, SOCKET[column], 1, 1, 0), "clone": (EPERM, CLONE[column], 17, 0, 0, 0, 0),
              "clone of a namespace": (EPERM, CLONE[column], 0x10000000 | 17, 0, 0, 0, 0),
              "a thread": (EPERM, CLONE[column], 0x10000, 0, 0, 0, 0),
              "F_SETOWN": (EPERM, fcntl, 0, 8, 0), "F_SETSIG": (EPERM, fcntl, 0, 10, 0),
              "F_SETOWN_EX": (EPERM, fcntl, 0, 15, 0), "F_GETFD": (0, fcntl, 0, 1, 0),
              "limits of another": (EPERM, prlimit, 1, 7, 0, 0), "limits of its own": (0, prlimit, 0, 7, 0, 0)}
    newer = {"pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "open_tree": 428,
             "move_mount": 429, "fsopen": 430, "fsmount": 432, "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438,
             "mount_setattr": 442, "the x32 getpid": 0x40000000 | 39}
    calls |= {name: (ENOSYS, number, 0, 0, 0, 0, 0) for name, number in newer.items()}
    tests = [f"assert call{call} == {errno}, {name!r}" for name, (errno, *call) in calls.items()
             for call in [tuple(call)]]
    verdict = judge(CALL, tests)
    assert verdict.solved, verdict.error


# Catches: a missing filter; capabilities that root keeps; a process of the tests whose memory can be opened.
@filtered
@pytest.mark.parametrize("namespaces", [True, False])
def test_answer_reaches_no_other_process(user, namespaces, without):
    without(*[] if namespaces else [NO_NAMESPACES])
    code = ("import os\ndef harm(pid):\n  os.kill(pid, 9)\n"
            "def opened(pid):\n  found = []\n  names = [f'fd/{i}' for i in range(9)] + ['mem']\n"
            "  for name in names:\n    for mode in (os.O_RDONLY, os.O_WRONLY):\n      try:\n"
            "        os.open(f'/proc/{pid}/{name}', mode)\n        found.append(name)\n"
            "      except OSError: pass\n  return found\n")
    as_user = {"user": NOBODY} if user == "a plain user" else {}
    with subprocess.Popen(["sleep", "60"], **as_user, stdin=subprocess.PIPE) as victim:
        tests = [f"try: harm({victim.pid})\nexcept PermissionError: pass\nelse: assert 0",
                 "import os\nassert opened(os.getpid()) == []"]
        if "memory and open files of other processes" not in free():
            tests.append(f"assert opened({victim.pid}) == []")
        verdict = judge(code, tests)
        assert victim.poll() is None
        victim.kill()
    assert verdict.solved, verdict.error
    assert len(tests) == 3 or user == "a plain user" and not namespaces


# Catches: tests or token in the answer's process; a comparison by the answer's object; a file descriptor that leads to
# the verdict; a reply whose form is not checked.
@pytest.mark.parametrize(("code", "error"), {
    "import __main__, os\nfor i in range(3): os.write(1, f'\\n{__main__.token} {i} \\n'.encode())": "token",
    "import __main__\n__main__.tests[:] = ['pass'] * 2": "tests",
    "class Any:\n  def __eq__(self, other): return True\n  __hash__ = None\nf = lambda x: Any()": "Assertion",
    "class Any(int):\n  def __eq__(self, other): return True\nf = lambda x: Any()": "Assertion",
    "class Any:\n  __class__ = int\n  def __eq__(self, other): return True\nf = lambda x: Any()": "Assertion",
    "import builtins\nbuiltins.AssertionError = ValueError\nf = lambda x: 0": "Assertion",
    "import json\njson.dumps = lambda value: '{\"value\": true, \"given\": []}'\nf = lambda x: 0": "ValueError",
    "import os\nfor i in range(3, 32):\n  try: os.write(i, b'garbage\\n[1]\\n{\"error\": 5}\\n')\n"
    "  except OSError: pass\nf = lambda x: 0": "",
    "import os\nfor i in range(32):\n  try: os.write(i, b'{\"value\": {}, \"given\": []}\\n' * 9)\n"
    "  except OSError: pass\nf = lambda x: 0": "",
    "import os\nassert not [i for i in range(5, 64) if os.path.exists(f'/proc/self/fd/{i}') and i != 5]\n"
    "f = lambda x: 0": "Assertion",
    "import gc\nf = lambda x: 9\ntest = ' '.join(('assert', 'f(3)', '==', '9'))\n"
    "for o in gc.get_objects():\n  if isinstance(o, list) and test in o: f.found": "f(-2)"}.items())
def test_answer_cannot_forge_its_verdict(code, error):
    verdict = judge(code, TESTS)
    assert not verdict.solved and error in verdict.error and verdict.error


# Catches: an error with an empty text, which would count as a pass.
def test_error_with_an_empty_text_is_not_a_pass():
    forged = ("import os\ndef f(*a, **k):\n  while True:\n"
              "    os.write(4, b'{\"error\": [], \"text\": \"\"}\\n')\n    os.read(3, 65536)\n")
    assert judge(forged, ["f(1)", "assert f(2) == 4", "assert f(3) == 9"]).passed == 0
    assert judge("def f(): raise ValueError", ["f()"]).passed == 0


# Catches: an object of the answer that turns its difference to the expected value into 0.
def test_answer_cannot_choose_its_distance_to_the_expected_value():
    plain = "class A:\n  def __sub__(self, x): return 0.0\n  __rsub__ = __sub__\ndef f(x): return A()"
    object_first = ("class A:\n  def __sub__(self, x): return self\n  __rsub__ = __sub__\n"
                    "  def __abs__(self): return 0.0\ndef f(x): return A()")
    tests = ["assert abs(f(2) - 3.14159) < 1e-6", "assert abs(9 - f(3)) < .01"]
    assert [judge(code, tests).passed for code in (plain, object_first)] == [0, 0]
    converted = ("class A:\n  def __sub__(self, x): return self\n  __xor__ = __mul__ = __sub__\n"
                 "  def __float__(self): return 0.0\n  def __int__(self): return 0\n  __len__ = __index__ = __int__\n"
                 "  def __bool__(self): return False\nf = lambda x: A()")
    tests = ["import math\nassert math.isclose(f(2) - 3.14, 0, abs_tol=1e-6)", "assert not (f(3) - 9)",
             "assert int((f(3) - 9) * 2) == 0", "assert len(f(3) ^ {1, 2}) == 0", "assert [1][f(3) - 9] == 1"]
    assert judge(converted, tests).passed == 0
    quotient = ("class A:\n  def __truediv__(self, x): return self\n  __floordiv__ = __rtruediv__ = __truediv__\n"
                "  def __float__(self): return 1.0\n  def __int__(self): return 1\nf = lambda x: A()")
    tests = ["import math\nassert math.isclose(f(3) / 9, 1)", "assert int(f(3) // 9) == 1",
             "assert float(9 / f(3)) == 1"]
    assert judge(quotient, tests).passed == 0
    money = "class M:\n  def __init__(s, x): s.x = x\n  def __mul__(s, n): return M(s.x * n)\n" \
            "  def __float__(s): return float(s.x)"
    assert judge(money, ["assert float(M(3) * 2) == 6"]).solved
    honest = "class V:\n  def __init__(self, *x): self.x = x\n  def __mul__(self, o):\n    return sum(" \
             "a * b for a, b in zip(self.x, o.x)) if isinstance(o, V) else V(*(a * o for a in self.x))"
    assert judge(honest, ["assert V(1, 2) * V(3, 4) == 11", "assert (V(1, 2) * 2).x == (2, 4)"]).solved


# Catches: builtin functions that the answer replaces in the tests.
def test_tests_use_the_builtin_functions_of_python():
    forged = "import json\nf = lambda x: 0\nabs = lambda x: 0\nall = isinstance = lambda *a: True\n"
    reply = "real = json.dumps\njson.dumps = lambda x: real(x).replace('\"abs\"', '\"__builtins__\"')\n"
    tests = ["assert abs(f(2) - 4) < .01", "assert all([f(2)])", "assert isinstance(f(2), str)"]
    assert [judge(code, tests).passed for code in (forged, forged + reply)] == [0, 0]


# Catches: a list that changes only in the answer's process; a class, module, exception or tuple that is not
# transferred; NaN, a huge number or an unpaired surrogate that is lost.
@pytest.mark.parametrize(("code", "test"), [
    ("def sort(a, *, b): a.sort(); b['x'] = {1}",
     "a, b = [2, 1], {}\nsort(a, b=b)\nassert (a, b) == ([1, 2], {'x': {1}})"),
    ("from collections import *\ndef f(x): return Counter(x), OrderedDict(a=1), defaultdict(int, b=2), deque(x)",
     "from collections import deque\nc, o, d, q = f('aab')\n"
     "assert (c, o, d) == ({'a': 2, 'b': 1}, {'a': 1}, {'b': 2})\n"
     "assert c.most_common(1) == [('a', 2)] and q == deque('aab') and f(c)[0] == c"),
    ("class Stack(list):\n  def push(self, x): self.append(x)",
     "s = Stack()\ns.push(3)\nassert s.pop() == 3 and not s"),
    ("class Solution:\n  def two(self, a): return (a, [b'x'], None, 1.5)",
     "assert Solution().two({1: 'x'}) == ({1: 'x'}, [b'x'], None, 1.5)"),
    ("def f(x):\n  if x < 0: raise KeyError('no')\n  return x", "try: f(-1)\nexcept LookupError: pass\nelse: assert 0"),
    ("class Bad(ValueError): pass\ndef f(): raise Bad('so')",
     "try: f()\nexcept ValueError as e: assert 'so' in str(e)"),
    ("import fractions\ndef f(): return fractions.Fraction(1, 2)", "assert str(f() + f()) == '1' and f() == f() != 3"),
    ("def f():\n  yield 1\n  yield [2]", "assert list(f()) == [1, [2]] and 1 in f()"),
    ("def f(): return 10 ** 5000, float('inf'), float('nan'), '\\ud800', True",
     "a = f()\nassert a[:2] == (10 ** 5000, float('inf')) and a[2] != a[2] and a[3] == '\\ud800' and a[4] is True"),
    ("def f(x): return x + 1", "def check(candidate):\n  assert candidate(1) == 2\ncheck(f)")])
def test_tests_use_an_answer_as_in_one_process(code, test):
    assert judge(code, [test]).error == ""


def test_limits_name_a_machine_without_a_system_call_filter(without, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "riscv64")))
    without()
    assert "signals" in free() and "reading files (this library has no" in limits() and "riscv64" in limits()
    assert judge(SQUARE, TESTS).solved


if os.name == "posix":
    def beating(file):
        """Code that writes a letter every 20 ms, for ten seconds."""
        return f"import time\nfor _ in range(500):\n  open({str(file)!r}, 'a').write('x')\n  time.sleep(0.02)"

    def assert_it_stopped(file):
        size = file.stat().st_size
        time.sleep(0.2)
        assert file.stat().st_size == size > 0

    # Catches: process.kill() in place of killpg, which leaves the child process alive.
    def test_child_processes_of_an_answer_are_killed(without, tmp_path):
        without(NO_NAMESPACES, NO_SECCOMP, NO_NPROC)
        file = repr(str(tmp_path / "beats"))
        wait = f"while not os.path.exists({file}) or not os.path.getsize({file}): pass"
        judge(f"import os\nif os.fork() == 0:\n  exec({beating(tmp_path / 'beats')!r})\n{wait}", ["pass"])
        assert_it_stopped(tmp_path / "beats")

    # Catches: a read in the caller's thread, or a wait for the reader; both take as long as the sleep.
    def test_escaped_process_with_the_pipe_is_not_waited_for(without):
        without(NO_NAMESPACES, NO_SECCOMP, NO_NPROC)
        start = time.perf_counter()
        judge("import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(5)", ["pass"], seconds=0.1)
        assert time.perf_counter() - start < 4

    # Catches: a missing ITIMER_REAL, without which the answer continues to write.
    def test_answer_ends_by_itself_after_its_parent_is_killed(tmp_path):
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
