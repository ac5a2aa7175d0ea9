"""Runs of the command line or parts of a benchmark in a separate process, and output of the results."""
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spinup.bench.tasks import is_atari
from spinup.errors import UserError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def spinup(*arguments: str) -> str:
    """Run `spinup ARGUMENTS` and return its output. UserError with the end of its error output if it fails."""
    done = subprocess.run([sys.executable, "-m", "spinup", *arguments], capture_output=True, text=True)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise UserError(f"`spinup {shlex.join(arguments)}` failed: {words[-1]}")
    return done.stdout


def check_out(out: Path | None) -> None:
    """UserError if the result cannot be written. The check comes before the runs, not after them."""
    if out is not None and (out.is_dir() or not os.access(out.absolute().parent, os.W_OK)):
        raise UserError(f"--out {out} cannot be written; give a file in a folder that exists")


def finish(result: dict[str, Any], out: Path | None, **details: Any) -> int:
    """Print the result as the last line, write it with more `details` to `out`, and return the exit code."""
    if out is not None:
        from spinup.runs.files import write_json
        write_json(out.absolute(), {**result, **details})
    print(json.dumps(result), flush=True)
    return 0 if result["met"] else 1


def child(module: str, *arguments: Any, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module FOLDER arguments` and return the JSON that it prints last.

    FOLDER is a temporary folder for this process. UserError or RuntimeError with its message if it fails.
    """
    words = [a if isinstance(a, str) else json.dumps(a) for a in arguments]
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        cold = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor"))}                  # otherwise only one compiles
        done = subprocess.run([sys.executable, "-m", module, folder, *words], capture_output=True, encoding="utf-8",
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
