"""Checks a student's file in a process of its own.

    python -m spinup.exercises.child FILE NAME LEVELS SECONDS ANSWERS

Writes to ANSWERS what it found, in lines of JSON: {"level", "seconds"} after each level that is passed, then either
{"done"} or {"message", "line", "function"}. If it hangs, it says where and ends.
"""
import faulthandler
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spinup.exercises.checks import Exercise

LOADING = "loading"


def line_of(error: BaseException, file: Path) -> int:
    """The last line of the student's file that an error, or the one it came from, went through; 0 if none."""
    while error is not None:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename == str(file):
                return frame.lineno or 0
        error = error.__cause__
    return 0


def examine(file: Path, exercise: "Exercise", levels: Sequence[str], say: Callable[..., None]) -> None:
    """Load a student's file in this process, check it at these levels, and `say` the answers that the module states."""
    from spinup.exercises.checks import Wrong
    level = LOADING
    try:
        spec = importlib.util.spec_from_file_location("student", file)
        module = sys.modules["student"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        student = SimpleNamespace(**{k: v for k, v in vars(module).items() if not k.startswith("__")})
        for level in levels:
            start = time.perf_counter()
            exercise.check(student, level)
            say(level=level, seconds=round(time.perf_counter() - start, 2))
        say(done=True)
    except Wrong as error:
        say(message=str(error), line=line_of(error, file), function=error.function)
    except SystemExit as error:
        say(message="it calls exit(); take that out: a check could not go on", line=line_of(error, file))
    except BaseException as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        say(message=f"{'it cannot be loaded' if level == LOADING else 'it stopped'} ({said})",
            line=line_of(error, file))


def main() -> None:
    """Check the file that the command line names, within the seconds that it gives."""
    file, name, levels, seconds = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), float(sys.argv[4])
    sys.path.append(os.getcwd())                              # last: a random.py of the student's is not Python's own
    answers = open(sys.argv[5], "w", encoding="utf-8")                    # noqa: SIM115

    def say(**what: object) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    def hang() -> None:
        """Say which line of the student's file runs, and end the process."""
        with tempfile.TemporaryFile("w+") as dump:
            faulthandler.dump_traceback(dump, all_threads=True)
            dump.seek(0)
            at = [part.split(", line ")[1].split()[0] for part in dump if f'"{file}"' in part]
        say(message=f"it was still running after {seconds:.0f} seconds; is there a loop that never ends?",
            line=int(at[0]) if at else 0)
        os._exit(1)

    from spinup.exercises.source import Entry
    exercise = Entry(name).checks                                         # imports torch, before the clock starts
    timer = threading.Timer(seconds, hang)
    timer.daemon = True
    timer.start()
    examine(file, exercise, levels, say)
    timer.cancel()


if __name__ == "__main__":
    main()
