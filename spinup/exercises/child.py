"""Check a student's file in a separate process.

    python -m spinup.exercises.child FILE NAME LEVEL SECONDS

The process writes the result to stdout, as one line of JSON: {"seconds"} if the file passes, else {"message", "line"},
with "checked": false if the time was up and the machine may be to blame. If the time is up, the process reports the
current line of the file and ends. Anything that the file prints goes to stderr.
"""
import faulthandler
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from spinup.exercises.checks import StudentFunction, Wrong
from spinup.exercises.outcome import line_of, torch_settings_restored
from spinup.exercises.source import Entry, lines, signatures, todo

EXIT = "it calls exit(), which would end the check; remove that call"
Result = dict[str, Any]


def stopped(error: BaseException, file: Path, event: str) -> Result:
    """Return the result for an error. event: in words, such as "it stopped"."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    message = EXIT if isinstance(error, SystemExit) else f"{event} ({said})"
    return {"message": message, "line": line_of(error, str(file))}


def overdue(seconds: float, level: str, line: int) -> Result:
    """Return the result for a file whose time is up. line: its current line, 0 if none of its code is running."""
    said = f"it was still running after {seconds:.0f} seconds"
    if line and level == "property":
        return {"message": f"{said}; is there a loop that never ends?", "line": line}
    loop = "is there a loop that never ends? If not, " if line else ""
    return {"message": f"{said}; {loop}this machine may be too slow or busy; check again later", "line": line,
            "checked": False}


def current_line(dump: Iterable[str], file: Path) -> int:
    """Return the innermost line of a student's file in a dump of `faulthandler`; 0 if none of its code is running."""
    end = f'{file.parent.name}{os.sep}{file.name}"'           # the file of checks has the same name
    return next((int(row.split(", line ")[1].split()[0]) for row in dump if end in row), 0)


def student_module(file: Path) -> ModuleType:
    """Import a student's file."""
    spec = importlib.util.spec_from_file_location("student", file)
    module = sys.modules["student"] = importlib.util.module_from_spec(spec)
    with torch_settings_restored():
        spec.loader.exec_module(module)
    return module


def check(file: Path, name: str, level: str) -> Result:
    """Check a student's file at a level, and return the result. If the check raises Wrong, for a mistake or a missing
    function, the result has its message. name: of the exercise."""
    exercise, text = Entry(name).checks, file.read_text(encoding="utf-8")       # before the file changes any setting
    try:
        module = student_module(file)
    except BaseException as error:
        return stopped(error, file, "it cannot be loaded")
    student, start = SimpleNamespace(**vars(module)), time.perf_counter()
    try:
        if level == "property":
            for function, arguments in signatures(Entry(name).text).items():
                code = getattr(student, function, None)
                if not callable(code):
                    raise Wrong(f"the function {function} is missing; restore it", function)
                setattr(student, function, StudentFunction(function, arguments, code, str(file)))
        exercise.check(student, level, todo(text))
        return {"seconds": time.perf_counter() - start}
    except Wrong as error:
        last = getattr(getattr(student, error.function, None), "line", 0)
        line = error.line or line_of(error, str(file)) or last or lines(text).get(error.function, 0)
        return {"message": str(error), "line": line}
    except BaseException as error:
        return stopped(error, file, "it stopped" if line_of(error, str(file)) else "what it returns cannot be used")


def main() -> None:
    """Check one file. sys.argv gives the file, the name of the exercise, the level and the time limit in seconds."""
    file, name, level, seconds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
    sys.argv = [str(file)]
    sys.path.append(os.getcwd())                              # last: a student's random.py must not hide Python's
    caller, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)                                             # what the file prints goes to stderr
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")

    def hang() -> None:
        """Report the current line of the student's file, and end the process."""
        with tempfile.TemporaryFile("w+") as dump:
            faulthandler.dump_traceback(dump, all_threads=True)
            dump.seek(0)
            line = current_line(dump, file)
        results.write(json.dumps(overdue(seconds, level, line)) + "\n")
        results.flush()
        os._exit(1)

    timer = threading.Timer(seconds, hang)
    timer.daemon = True
    timer.start()
    threading.Thread(target=lambda: (caller.read(), os._exit(1)), daemon=True).start()        # end with the caller
    result = check(file, name, level)
    timer.cancel()
    with suppress(AttributeError, OSError, ValueError):       # the file may have closed or replaced it
        sys.stdout.flush()
    results.write(json.dumps(result) + "\n")                  # not print: the file may have replaced it
    results.flush()


if __name__ == "__main__":
    main()
