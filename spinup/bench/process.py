"""Runs of the command line or parts of a benchmark in a separate process, and output of the results."""
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

from spinup import signals
from spinup.bench.tasks import is_atari
from spinup.errors import UserError
from spinup.machine import git_revision
from spinup.registry import find
from spinup.runs.files import read_json, write_json
from spinup.runs.flags import from_flags
from spinup.runs.records import finished, merge_versions
from spinup.runs.resuming import HOW, check_same
from spinup.view.process import SAFE

EPISODES = 100          # of an evaluation; held-out problems of a language model
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def spinup(*arguments: str) -> str:
    """Run `spinup ARGUMENTS` and return its output. UserError with the end of its error output if it fails."""
    done = subprocess.run([sys.executable, *SAFE, "-m", "spinup", *arguments], capture_output=True, text=True)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise UserError(f"`spinup {shlex.join(arguments)}` failed: {words[-1]}")
    return done.stdout


def finished_run(algorithm: str, subject: str, seed: int, name: str, log_dir: Path, *flags: str) -> Path:
    """Return the folder of a finished run with these settings. A finished run is not repeated; an unfinished one is
    resumed.

    Args:
        algorithm: its name, such as "ppo" or "llm es".
        subject: the environment, or the task of a language model.
        name: the name of the experiment.
    UserError if the folder holds a run with other settings.
    """
    folder = log_dir / name / f"{name}_s{seed}"
    kind = "--task" if algorithm.startswith("llm ") else "--env"
    words = [kind, subject, "--seed", str(seed), "--exp-name", name, f"--log-dir={log_dir}", "--quiet", *flags]
    if not (folder / "config.json").exists():
        print(f"training {folder}", flush=True)
        spinup(*algorithm.split(), *words)
        return folder
    config, _ = from_flags(find(algorithm), words)
    check_same(folder, algorithm, config, HOW, "choose another --log-dir")
    if not finished(folder):
        print(f"resuming {folder}", flush=True)
        spinup("resume", str(folder.absolute()))
    return folder


def check_out(out: Path | None, flag: str = "--out") -> None:
    """UserError if a file cannot be written. The check comes before the runs, not after them."""
    if out is None:
        return
    try:
        if out.exists() and not out.is_file():                            # a folder or a device
            raise IsADirectoryError
        handle, trial = tempfile.mkstemp(".tmp", f".{out.name}.", out.parent)
        os.close(handle)
        os.unlink(trial)
    except OSError as error:
        where = f"make {out.parent} writable, or give" if isinstance(error, PermissionError) else "give"
        raise UserError(f"{flag} {out} cannot be written; {where} a file in a folder that exists") from None


def finish(result: dict[str, Any], out: Path | None, **details: Any) -> int:
    """Print the result as the last line, write it with more `details` and the revision of the code to `out`, and return
    the exit code."""
    print(json.dumps(result), flush=True)
    if out is not None:
        write_json(out.absolute(), {"git": git_revision(), **result, **details})
    return 0 if result["met"] else 1


def revisions(folders: Iterable[Path]) -> str | None:
    """Return the revisions of the code of runs, with those that resumed a run; None if no run has one."""
    found = (read_json(folder / "config.json").get("git") or "" for folder in folders)
    return ", ".join(sorted(set(", ".join(found).split(", ")) - {""})) or None


def versions_of(folders: Iterable[Path]) -> dict[str, str]:
    """Return the versions of the software of runs by package; several of one package are separated by semicolons."""
    merged: dict[str, str] = {}
    for folder in folders:
        merged = merge_versions(merged, read_json(folder / "config.json").get("versions", {}))
    return merged


def in_turn(function: Callable[[Any], Any], items: Iterable[Any], workers: int) -> list[Any]:
    """Apply the function to each item, `workers` at a time; return the results in the order of the items.

    After an error, no further item begins, and the error is raised when the items in progress have ended.
    """
    failed = Event()

    def one(item: Any) -> Any:
        if failed.is_set():
            raise CancelledError
        try:
            return function(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:                                             # Ctrl-C, too
            failed.set()
            raise


@contextmanager
def ending_children() -> Iterator[None]:
    """A context in which SIGTERM and SIGHUP also end the processes that this one started. Training runs save."""
    import psutil

    def end(kind: int, _: Any) -> None:
        for running in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):                          # it has just ended
                running.send_signal(kind)
        signals.last = kind
        raise KeyboardInterrupt
    kinds = set(signals.heeded()) - {signal.SIGINT}                       # a terminal sends Ctrl-C to all of them
    before = {kind: signal.signal(kind, end) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def child(module: str, *arguments: Any, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module FOLDER arguments` and return the JSON that it prints last.

    FOLDER is a temporary folder for this process. UserError or RuntimeError with its message if it fails.
    """
    words = [a if isinstance(a, str) else json.dumps(a) for a in arguments]
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        cold = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor"))}                  # otherwise only one compiles
        done = subprocess.run(
            [sys.executable, *SAFE, "-m", module, folder, *words], capture_output=True, encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8", **cold, **(environment or {})})
    if done.returncode == 2 and done.stderr.strip():
        raise UserError(done.stderr.strip().splitlines()[-1].removeprefix("spinup: "))
    if done.returncode:
        raise RuntimeError(f"{module} {words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def work(functions: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]]) -> None:
    """Run `FOLDER NAME JOB` in a process that `child` started.

    For Atari games and beside SBX it uses as many cores as threads. The emulator of ale-py and JAX use as many threads
    as there are cores, whatever torch's setting is.
    """
    folder, name, job = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    if (is_atari(job["env"]) or job.get("against") == "sbx") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:job["threads"]])
    print(json.dumps(functions[name](folder, job)))


def answer(function: Callable[[], dict[str, Any]]) -> None:
    """Print the result of a function for `child`; after a UserError, exit with code 2 and its message."""
    try:
        print(json.dumps(function()))
    except UserError as error:
        print(f"spinup: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
