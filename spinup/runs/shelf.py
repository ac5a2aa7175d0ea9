"""Shelf: trained policies that come with the package, and the policy of a run.

A policy on the shelf is one file in the format of the library safetensors: plain tensors, and JSON in its header. Its
name in commands is shelf/NAME. Reading it never runs code.
"""
import json
from pathlib import Path
from typing import Any

from spinup.errors import UserError, nearest
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.tensors import in_memory, write_tensors
from spinup.runs.values import reading

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


def policy_state(directory: Path) -> tuple[str, Any]:
    """Return the name of the algorithm and the weights of a policy, `[...]` each: of the last checkpoint of a run, or
    of a file on the shelf. UserError if they are missing or damaged."""
    if directory.suffix != ".safetensors":
        state = load_checkpoint(directory / "checkpoint.pt", "policy")
        if "policy" not in state["parts"]:
            raise UserError(f"the checkpoint of {directory} has no part called policy; in the function train of "
                            f"{state['algorithm']}, write run.keep(policy=...), and train again")
        return state["algorithm"], state["parts"]["policy"]
    with reading(str(directory), ADVICE):
        return read_about(directory)["algorithm"], in_memory(bytearray(directory.read_bytes()))
