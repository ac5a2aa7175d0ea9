"""Shared fixtures: the command line in this or in another process, killed runs, and learning curves without times."""
import csv
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, NamedTuple

import pytest

sys.modules["rfc3987_syntax"] = None    # jsonschema works without it; its grammar for IRIs takes two seconds to build

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")     # before torch is loaded: tests run in parallel
if "SPINUP_TEST_DEVICE" not in os.environ:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")   # the same tests everywhere; `.ci/gpu tests` runs the GPU tests

CLOCKS = ["steps_per_second", "wall_seconds"]                             # the columns of progress.csv with times
CLOCKS_OF_LANGUAGE = sorted([*CLOCKS, "evaluation_seconds", "reward_seconds", "rollout_seconds", "tokens_per_second",
                             "update_seconds"])
COMMAND = Path(__file__).with_name("command.py")
FOLDERS = tempfile.TemporaryDirectory()                                   # for `ForkedPopen`; removed at the end
# Modules that the server of `Forked` imports: nearly all that a run needs, and none that starts a thread.
PRELOADED = ["torch", "torch.distributed.fsdp", "torch.utils.tensorboard", "matplotlib.figure",
             "matplotlib.backends.backend_agg", "gymnasium", "gymnasium.envs.mujoco.mujoco_env", "rich.progress",
             "IPython.display", "spinup.family", "spinup.runs.public", "spinup.view.plots", "llm.family",
             "llm.algos.dpo", "llm.algos.grpo", "llm.algos.ppo"]
if hasattr(signal, "SIGKILL"):                                            # not on Windows
    multiprocessing.set_forkserver_preload(PRELOADED)


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class Process:
    """A process that runs a command in a folder. Its output goes to files, because an unread pipe fills up."""

    pid: int

    def __init__(self, folder: Path):
        self.files = [folder / f"{name}{len(list(folder.glob(f'{name}*')))}.txt" for name in ("out", "err")]
        for file in self.files:
            file.touch()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        raise NotImplementedError

    def wait(self, timeout: float = 120) -> int:
        """Wait for the end, and return the exit code. subprocess.TimeoutExpired after `timeout` seconds."""
        raise NotImplementedError

    def send_signal(self, number: int) -> None:
        """Send a signal, as a shell or the system would."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """Kill the process with SIGKILL. Return its exit code: -SIGKILL, or another if it had already ended."""
        self.send_signal(signal.SIGKILL)
        return self.wait(30)

    def end(self, timeout: float = 120) -> Done:
        """Wait for the end, and return the exit code and the output."""
        code = self.wait(timeout)
        return Done(code, *(file.read_text() for file in self.files))


class Forked(Process):
    """A module, for example `spinup`, or a script, in a process forked from one that has already imported the library.

    It starts in milliseconds, not in three seconds. Otherwise it is a usual process: tests can kill or interrupt it.
    """

    def __init__(self, folder: Path, program: str, words: list[str], prelude: str = "", cwd: Path | None = None,
                 environment: Mapping[str, str] = os.environ):
        super().__init__(folder)
        given = {"program": program, "words": words, "folder": str(cwd or folder), "prelude": prelude,
                 "output": [str(file) for file in self.files], "environment": dict(environment)}
        server = multiprocessing.get_context("forkserver")
        # Run by its path, because a forked process cannot import this file by its name.
        self.process = server.Process(target=runpy.run_path, args=(str(COMMAND),), kwargs={"init_globals": given})
        self.process.start()
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = 120) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.files[0].name, timeout)
        return self.process.exitcode


class ForkedPopen(Forked):
    """A replacement for `subprocess.Popen([sys.executable, ..., "-m", MODULE, *WORDS])` that forks."""

    def __init__(self, command: list[str], stdin: int | None = None, stdout: IO | int | None = None,
                 stderr: IO | int | None = None, cwd: Path | None = None, env: Mapping[str, str] | None = None,
                 process_group: int = 0):
        module = command.index("-m") + 1
        folder = Path(tempfile.mkdtemp(dir=FOLDERS.name))
        super().__init__(folder, command[module], command[module + 1:], cwd=cwd or Path.cwd(),
                         environment=os.environ if env is None else env)
        self.streams, self.returncode = (stdout, stderr), None

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None and self.returncode is None:
            self.returncode = code
            for stream, file in zip(self.streams, self.files, strict=True):
                if hasattr(stream, "write"):
                    os.write(stream.fileno(), file.read_bytes())
        return code

    def wait(self, timeout: float | None = None) -> int:
        super().wait(timeout)
        return self.poll()


def run_forked(command: list[str], capture_output: bool = True, text: bool = True, encoding: str = "utf-8",
               **settings: object) -> subprocess.CompletedProcess:
    """A replacement for `subprocess.run` of such a command."""
    process = ForkedPopen(command, **settings)
    process.wait()
    return subprocess.CompletedProcess(command, process.returncode, *(file.read_text() for file in process.files))


class Started(Process):
    """A program in a new process, which is not forked from the server."""

    def __init__(self, folder: Path, words: list[str]):
        super().__init__(folder)
        with open(self.files[0], "w") as out, open(self.files[1], "w") as err:
            self.process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self, timeout: float = 120) -> int:
        return self.process.wait(timeout)


def pytest_configure(config: pytest.Config) -> None:
    """Deselect the long tests unless the command names files, folders or `-m`."""
    config.addinivalue_line("markers", "long(*cases): more than about two seconds; of a parametrised test, these cases")
    if config.args_source is config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = "not long"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remove the mark `long("case", ...)` from the cases that it does not name."""
    for item in items:
        for mark in item.iter_markers("long"):
            if mark.args and item.callspec.id not in mark.args:
                item.own_markers.remove(mark)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread, because tests run in parallel, and their threads would wait for each other."""
    import torch
    from threadpoolctl import threadpool_limits
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1, "blas"):                                    # for NumPy
        yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def lean_runs() -> Iterator[list[tuple[object, str, object]]]:
    """Runs in this process draw no curve, save four times instead of twenty, and do not wait for the disk.

    These steps would take longer than the training in most tests. Processes that a test starts save and wait as usual.
    The fixture `full_runs` restores all three.
    """
    from spinup.runs import curve, training
    changes = [(curve, "draw_curve", lambda directory: None), (training, "CHECKPOINTS", 4),
               (os, "fsync", lambda descriptor: None)]
    usual = [(module, name, getattr(module, name)) for module, name, _ in changes]
    with pytest.MonkeyPatch.context() as patch:
        for change in changes:
            patch.setattr(*change)
        yield usual


@pytest.fixture
def few_rows(monkeypatch) -> None:
    """A run has 40 rows instead of 200, also if `killed` starts it, so that a row spans more than one update."""
    from spinup.runs.training import Training
    monkeypatch.setattr(Training, "epochs", 40)


@pytest.fixture
def full_runs(lean_runs, monkeypatch) -> None:
    """Undo `lean_runs`: runs in this process draw, save and wait as the runs of a user do."""
    for usual in lean_runs:
        monkeypatch.setattr(*usual)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Callable[..., Done]:
    """Call the command line in this process, in an empty working folder: `cli("ppo", "--env", "CartPole-v1")`."""
    from spinup.cli import main
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(w) for w in words])
        return Done(end.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Process]]:
    """Start `spinup` with these words in the folder `tmp_path`. A process that outlives the test is killed.

    script: a file that runs in place of `spinup`. prelude: Python code that runs first, in the same process.
    draws: whether runs draw their curves. program: another command that gets these words, in a process that is not
    forked, for example a new interpreter.
    """
    processes = []

    def begin(*words: object, program: tuple[str, ...] = (), prelude: str = "", draws: bool = False,
              script: str | Path = "spinup") -> Process:
        typed = [str(word) for word in words]
        if not draws:
            prelude = "from spinup.runs import curve\ncurve.draw_curve = lambda directory: None\n" + prelude
        processes.append(Started(tmp_path, [*program, *typed]) if program else
                         Forked(tmp_path, str(script), typed, prelude))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


@pytest.fixture
def fork_python(monkeypatch) -> Callable[[ModuleType], None]:
    """`fork_python(module)`: fork what the module starts as `python -m ...`, which saves seconds of imports."""
    def replace(module: ModuleType) -> None:
        forking = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedPopen, "run": run_forked})
        monkeypatch.setattr(module, "subprocess", forking)
    return replace


@pytest.fixture
def fork_workers(full_runs, monkeypatch) -> None:
    """Fork worker processes of `multiprocessing` from the same server. Otherwise each starts a new interpreter.

    All processes of a run must save at the same updates, so this process uses `full_runs`.
    """
    real = multiprocessing.get_context
    monkeypatch.setattr(multiprocessing, "get_context",
                        lambda method=None: real("forkserver" if method == "spawn" else method))


@pytest.fixture
def forking() -> str:
    """A prelude for `start` with which worker processes are forked. Another test starts them in new interpreters."""
    return ("import multiprocessing\nget = multiprocessing.get_context\n"
            "multiprocessing.get_context = lambda method=None: get('fork')\n")


@pytest.fixture
def curve() -> Callable[[Path], list[list[str]]]:
    """Read the rows of a run's progress.csv as text, names first, without the columns with times."""
    def read(directory: Path) -> list[list[str]]:
        with open(Path(directory, "progress.csv"), newline="") as file:
            rows = list(csv.reader(file))
        timeless = [i for i, name in enumerate(rows[0]) if not name.endswith(("_seconds", "_per_second"))]
        assert sorted({*rows[0]} - {rows[0][i] for i in timeless}) in (CLOCKS, CLOCKS_OF_LANGUAGE)
        return [[row[i] for i in timeless] for row in rows]
    return read


@pytest.fixture
def tree(tmp_path) -> Callable[[], list[str]]:
    """List every file and folder below `tmp_path`."""
    return lambda: sorted(os.path.relpath(p, tmp_path) for p in tmp_path.rglob("*"))


@pytest.fixture
def rows() -> Callable[[Path], int]:
    """Count the lines of a run's progress.csv, including the header."""
    def count(directory: Path) -> int:
        try:
            return (directory / "progress.csv").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0
    return count


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool], Process], None]:
    """Wait until a condition is true while a process runs."""
    def wait(condition: Callable[[], bool], process: Process) -> None:
        until = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < until, "the condition did not become true in 120 s"
            assert process.poll() is None, "the process ended too early: " + process.files[1].read_text()
            time.sleep(0.002)
    return wait


@pytest.fixture
def killed(start, rows, wait_for, tmp_path) -> Callable[..., Done]:
    """Start a run, kill it `kills` times at random moments of its first 70 %, and resume it each time. Return its end.

    directory: the folder of the run, below `tmp_path`. length: the number of lines of its complete progress.csv. seed:
    the seed of the random moments. anew: resume for the last time in a new interpreter, with other hashes of strings,
    and not in a forked process. prelude: Python code that each process runs first, for example `forking`.
    """
    from spinup.runs.checkpoint import load_checkpoint
    from spinup.runs.training import Training

    def run(words: list[object], directory: Path, length: int, kills: int, seed: str, anew: bool = False,
            prelude: str = "") -> Done:
        where, chance = tmp_path / directory, random.Random(seed)
        # The processes write as many rows as this one, where `few_rows` may have changed the number.
        prelude += f"from spinup.runs.training import Training; Training.epochs = {Training.epochs}\n"
        interpreter = (sys.executable, "-c", prelude + "import runpy; runpy.run_module('spinup', run_name='__main__')")
        process, last = start(*words, prelude=prelude), 0
        for i in range(kills):
            # Wait for a random row in this kill's share of the first 70 %, and then for a random time of up to about
            # one row. So the kill may come at any line of the loop.
            target = round(length * 0.7 * (i + chance.random()) / kills)
            aim = max(2, target, last)                                    # the first row shows that training has begun
            wait_for(lambda aim=aim: rows(where) >= aim, process)
            time.sleep(chance.random() * 0.03)
            assert process.kill() == -signal.SIGKILL
            at = load_checkpoint(where / "checkpoint.pt")["steps"] if (where / "checkpoint.pt").exists() else None
            in_new = anew and i == kills - 1
            process = start("resume", directory, prelude=prelude, program=interpreter if in_new else ())
            said = f"resuming at step {at:,}\n" if at is not None else "starts again from its config.json"
            wait_for(lambda process=process, said=said: said in process.files[0].read_text(), process)
            last = rows(where)
        return process.end()

    return run
