"""Runs a student's file in a separate process.

    python -m spinup.exercises.child FILE NAME LEVEL SECONDS

At the level "property" the process answers questions. It reads {"function", "inputs"} from stdin and writes the
function's result to stdout, both in the format of `spinup.exercises.wire`. It has neither the cases nor the answers:
the parent process compares the results. The other levels do not decide whether the exercise is passed. There the
process trains with the student's functions and reports the result itself. If it hangs, it reports the line and ends.
Anything that the file prints goes to stderr.
"""
import faulthandler
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from spinup.exercises import guard, wire
from spinup.exercises.layers import Net, built
from spinup.exercises.outcome import line_of, run

EXIT = "it calls exit(), which would end the check; remove that call"


def stopped(error: BaseException, file: Path, what: str) -> dict[str, Any]:
    """Return the message about a file that ended with an error while it did `what`."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return {"stopped": EXIT if isinstance(error, SystemExit) else f"{what} ({said})", "line": line_of(error, str(file))}


def overdue(seconds: float, level: str, line: int) -> dict[str, Any]:
    """Return the message about a file whose time is up. line: its current line, 0 if none of its code is running."""
    said = f"it was still running after {seconds:.0f} seconds"
    if line and level == "property":
        return {"stopped": f"{said}; is there a loop that never ends?", "line": line}
    loop = "is there a loop that never ends? If not, " if line else ""
    return {"late": f"{said}; {loop}this machine may be too slow or busy; check again later", "line": line}


def load(file: Path) -> ModuleType | dict[str, Any]:
    """Load the module of a student's file; return the module or an error message."""
    try:
        spec = importlib.util.spec_from_file_location("student", file)
        module = sys.modules["student"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except BaseException as error:
        return stopped(error, file, "it cannot be loaded")


def answer(module: ModuleType, file: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a student's function for these inputs, as plain data."""
    inputs = {n: built(x) if isinstance(x, Net) else x for n, x in question["inputs"].items()}
    try:
        found = run(getattr(module, question["function"]), inputs, str(file))
    except BaseException as error:
        return stopped(error, file, "it stopped")
    error = [found.error.kind, found.error.message] if found.error else []
    return {"value": found.value, "error": error, "gradients": found.gradients, "inputs": found.inputs,
            "line": found.line}


def serve(file: Path, receive: Callable[[], Any], send: Callable[[Any], None]) -> None:
    """Load a student's file, then answer questions until there are no more."""
    module = load(file)
    if isinstance(module, dict):
        send(module)
        return
    send({"ready": True})
    while True:
        try:
            question = receive()
        except EOFError:
            return
        sys.stdout.flush()
        send(answer(module, file, question))


def train(file: Path, name: str, level: str, send: Callable[[Any], None]) -> None:
    """Check a student's file at a level that trains with it, and send the result."""
    from spinup.exercises.checks import Wrong
    from spinup.exercises.source import Entry, lines
    exercise, module = Entry(name).checks, load(file)
    if isinstance(module, dict):
        send(module)
        return
    send({"ready": True})
    try:
        exercise.check(SimpleNamespace(**vars(module)), level)
        send({"done": True})
    except Wrong as error:
        line = line_of(error, str(file)) or lines(file.read_text(encoding="utf-8")).get(error.function, 0)
        send({"stopped": str(error), "line": line})
    except BaseException as error:
        send(stopped(error, file, "it stopped"))


def main() -> None:
    """Check one file. sys.argv gives the file, the name of the exercise, the level and the time limit in seconds."""
    file, name, level, seconds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
    sys.argv = [str(file)]
    sys.path.append(os.getcwd())                              # last: a student's random.py must not hide Python's
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)                                             # prints do not disturb answers
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")

    def send(what: Any) -> None:
        try:
            wire.send(answers, what)
        except Exception as error:                                        # an unreadable object
            wire.send(answers, {"stopped": f"what it returns cannot be compared ({error})", "line": 0})

    def hang() -> None:
        """Print the current line of the student's file, and end the process."""
        with tempfile.TemporaryFile("w+") as dump:
            faulthandler.dump_traceback(dump, all_threads=True)
            dump.seek(0)
            name = f'{file.name}"'                            # faulthandler escapes the accents of a folder
            at = [part.split(", line ")[1].split()[0] for part in dump if name in part]
        send(overdue(seconds, level, int(at[0]) if at else 0))
        os._exit(1)

    timer = threading.Timer(seconds, hang)
    timer.daemon = True
    timer.start()
    if level == "property":
        guard.protect()
        serve(file, lambda: wire.receive(questions), send)
    else:
        threading.Thread(target=lambda: (questions.read(), os._exit(1)), daemon=True).start()     # the caller has ended
        train(file, name, level, send)
    timer.cancel()


if __name__ == "__main__":
    main()
