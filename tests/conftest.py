"""What several tests need: the command line, in this process or one of its own, that is killed; a run without clock."""
import csv
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

CLOCKS = ["steps_per_second", "wall_seconds"]                             # the columns of progress.csv that hold time
CLOCKS_OF_LANGUAGE = sorted([*CLOCKS, "evaluation_seconds", "reward_seconds", "rollout_seconds", "tokens_per_second",
                             "update_seconds"])


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class Process(subprocess.Popen):
    """`python -m spinup ...` in a folder; its words go to files, because a pipe that nobody reads fills up."""

    def __init__(self, folder: Path, words: list[str]):
        self.files = [folder / f"{name}{len(list(folder.glob(f'{name}*')))}.txt" for name in ("out", "err")]
        with open(self.files[0], "w") as out, open(self.files[1], "w") as err:
            super().__init__([str(w) for w in words], cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def end(self, timeout: float = 120) -> Done:
        """Wait for the end."""
        code = self.wait(timeout)
        return Done(code, *(file.read_text() for file in self.files))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tests run side by side: with more, the threads of each would wait for those of the other."""
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Callable[..., Done]:
    """The command line in this process, standing in an empty folder: `cli("ppo", "--env", "CartPole-v1")`."""
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
    """Start `python -m spinup` with the words given, in the folder `tmp_path`; what still runs dies with the test."""
    processes = []

    def begin(*words: object, python: tuple[str, ...] = (sys.executable, "-m", "spinup")) -> Process:
        processes.append(Process(tmp_path, [*python, *words]))
        return processes[-1]

    yield begin
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def curve() -> Callable[[Path], list[list[str]]]:
    """The rows of a run's progress.csv as text, names first, without the columns that hold time."""
    def read(directory: Path) -> list[list[str]]:
        with open(Path(directory, "progress.csv"), newline="") as file:
            rows = list(csv.reader(file))
        timeless = [i for i, name in enumerate(rows[0]) if not name.endswith(("_seconds", "_per_second"))]
        assert sorted({*rows[0]} - {rows[0][i] for i in timeless}) in (CLOCKS, CLOCKS_OF_LANGUAGE)
        return [[row[i] for i in timeless] for row in rows]
    return read


@pytest.fixture
def tree(tmp_path) -> Callable[[], list[str]]:
    """Every file and folder below `tmp_path`."""
    return lambda: sorted(os.path.relpath(p, tmp_path) for p in tmp_path.rglob("*"))


@pytest.fixture
def rows() -> Callable[[Path], int]:
    """How many lines a run's progress.csv has, its head included."""
    def count(directory: Path) -> int:
        try:
            return (directory / "progress.csv").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0
    return count


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool], Process], None]:
    """Wait until something is so, while a process is at work on it."""
    def wait(condition: Callable[[], bool], process: Process) -> None:
        while not condition():
            assert process.poll() is None, "it ended before its time: " + process.files[1].read_text()
            time.sleep(0.002)
    return wait


@pytest.fixture
def killed(start, rows, wait_for, tmp_path) -> Callable[..., Done]:
    """Start a run, kill it `kills` times at random moments of its first 70 %, go on with it each time; how it ended.

    directory: of the run, below `tmp_path`. length: the lines that its progress.csv will have. seed: of the moments.
    """
    from spinup.runs.checkpoint import load_checkpoint

    def run(words: list[object], directory: Path, length: int, kills: int, seed: str) -> Done:
        where, chance = tmp_path / directory, random.Random(seed)
        process, last = start(*words), 0
        for i in range(kills):
            # Somewhere in its share of the first 70 %; then from no time to about a row's, to be at any line of the
            # loop.
            target = round(length * 0.7 * (i + chance.random()) / kills)
            aim = max(2, target, last)                                    # with a row, there is a training
            wait_for(lambda aim=aim: rows(where) >= aim, process)
            time.sleep(chance.random() * 0.03)
            process.kill()
            assert process.wait() == -signal.SIGKILL
            at = load_checkpoint(where / "checkpoint.pt")["steps"] if (where / "checkpoint.pt").exists() else None
            process = start("resume", directory)
            said = f"going on at step {at:,}\n" if at is not None else "starts again from its config.json"
            wait_for(lambda process=process, said=said: said in process.files[0].read_text(), process)
            last = rows(where)
        return process.end()

    return run
