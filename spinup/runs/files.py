"""Files that are written completely or not at all."""
import errno
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from spinup.errors import EnvironmentFailure, UserError, unreadable

# Errors of the disk, not of the program: full, over quota, read-only, no permission, file too large, unreadable.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO}

TEMPORARY = re.compile(r"\.(.+)\.\d+-\d+\.tmp")                         # an incomplete file, and its final name


def disk_error(error: BaseException | None) -> OSError | None:
    """Return the disk error that caused this error; None if there is none. An error raised by the user's code does not
    count."""
    while error is not None and not isinstance(error, UserError | EnvironmentFailure) and not hasattr(error, "of_user"):
        if isinstance(error, OSError) and error.errno in DISK:
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def why(error: OSError, path: str, instead: str) -> str:
    """Describe a disk error, with what to do: `path` is used if the error names no file, `instead` is another place."""
    advice = {errno.ENOSPC: "free disk space, or ", errno.EDQUOT: "free disk space, or ",
              errno.EFBIG: "free disk space, or ",
              errno.EACCES: "change its permissions, or ", errno.EPERM: "change its permissions, or "}
    verb = "opened" if error.errno in (errno.EACCES, errno.EPERM) else "written"
    return (f"{error.filename or path} cannot be {verb} ({error.strerror.lower()}); "
            f"{advice.get(error.errno, '')}choose {instead}")


@contextmanager
def user_code() -> Iterator[None]:
    """Run the user's code in this context. `disk_error` ignores its errors."""
    try:
        yield
    except Exception as error:
        error.of_user = True
        raise


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert an exception of a Rust library to an OSError. Such a library raises an Exception whose text has
    "os error N"."""
    try:
        yield
    except Exception as error:
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])).lower(), str(path)) from None
        raise


def write_whole(path: Path, data: bytes | Callable[[BinaryIO], None]) -> None:
    """Write a file atomically: after a crash or power cut, a reader sees the old file or the new one, never a mixture.

    data: the bytes, or a function that writes into the file that it is given.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")      # each writer's own
    try:
        with open(temporary, "wb") as file:
            data(file) if callable(data) else file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)                                 # gives a full disk its space back
        raise
    if os.name == "posix":                                                # the folder stores the rename
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            with suppress(OSError):                                       # some network file systems cannot do this
                os.fsync(folder)
        finally:
            os.close(folder)


def _replace(temporary: Path, path: Path) -> None:
    """Rename a file. Windows refuses this while another process reads the old one, so try for a few seconds."""
    for left in reversed(range(50 if os.name == "nt" else 1)):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(0.1)


def check_pair(named: Path, kinds: tuple[str, str]) -> tuple[Path, Path]:
    """Return the two files that a command writes for the one that the user has named, such as a PNG and an SVG file.
    UserError if only the other one exists: the user does not expect this file to be overwritten."""
    first, second = (named.with_suffix(kind) for kind in kinds)
    other = second if named == first else first
    if other.exists() and not named.exists():
        raise UserError(f"--out {named} would also overwrite {other}; give another name, or move {other}")
    return first, second


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file, completely or not at all."""
    write_whole(path, (json.dumps(data, indent=2) + "\n").encode())


def read_json(path: Path, advice: str = "restore it or start a new run") -> dict[str, Any]:
    """Read a JSON file. UserError, with the advice, if `path` is missing or not JSON."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file; {advice}")
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} holds no {path.name}; give the folder of a run, such as "
                        "runs/NAME/NAME_s1") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({unreadable(error)}); {advice}") from None
