"""Shelf: trained policies that come with the package.

A policy on the shelf is one file in the format of the library safetensors: plain tensors, and JSON in its header. Its
name in commands is shelf/NAME. Reading it never runs code.
"""
import json
from pathlib import Path
from typing import Any

from spinup.errors import UserError, nearest
from spinup.runs.reading import reading
from spinup.runs.tensors import write_tensors

SHELF = Path(__file__).parents[1] / "shelf"
ADVICE = "restore the file or choose another policy"


def policies() -> list[str]:
    """Names of the policies on the shelf."""
    return sorted(path.stem for path in SHELF.glob("*.safetensors"))


def find_policy(path: Path) -> Path | None:
    """Return the file of a policy that is named shelf/NAME; None for other paths. UserError, with the nearest name, if
    there is no such policy."""
    if len(path.parts) != 2 or path.parts[0] != SHELF.name or path.exists():
        return None
    if path.name not in policies():
        raise UserError(f"there is no policy {path.name!r} on the shelf.{nearest(path.name, policies())} `spinup "
                        "shelf` lists them")
    return SHELF / f"{path.name}.safetensors"


def read_about(file: Path) -> Any:
    """Return the data that `write_policy` stored beside the tensors. UserError if the file is damaged."""
    with reading(str(file), ADVICE), open(file, "rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        return json.loads(header["__metadata__"]["about"])


def write_policy(file: Path, weights: dict[str, Any], about: dict[str, Any]) -> None:
    """Write the tensors of a policy, `[...]` each, with JSON data about it."""
    write_tensors(file, weights, {"about": json.dumps(about)})
