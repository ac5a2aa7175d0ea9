"""What several tests need: the command line, in this process or in one of its own, and a run's curve without clock."""
import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest


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
        assert len(timeless) == len(rows[0]) - 2                          # wall_seconds, steps_per_second
        return [[row[i] for i in timeless] for row in rows]
    return read


@pytest.fixture
def tree(tmp_path) -> Callable[[], list[str]]:
    """Every file and folder below `tmp_path`."""
    return lambda: sorted(os.path.relpath(p, tmp_path) for p in tmp_path.rglob("*"))
