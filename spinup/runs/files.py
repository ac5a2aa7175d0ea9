"""Files that are written whole or not at all."""
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from spinup.errors import UserError


def write_whole(path: Path, data: bytes | Callable[[BinaryIO], None]) -> None:
    """Put `data`, or what a function writes into the file that it is given, at `path` so that a reader, or a power cut,
    sees the old file or the new one and nothing between."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        data(file) if callable(data) else file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    if os.name == "posix":                                                # the rename itself lives in the folder
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a file of JSON, whole or not at all."""
    write_whole(path, (json.dumps(data, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """UserError where `path` is missing or is not JSON."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path.parent} holds no {path.name}; give the folder of a run, such as "
                        "runs/NAME/NAME_s1") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); restore it or start a new run") from None
