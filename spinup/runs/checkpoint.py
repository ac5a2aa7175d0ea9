"""Checkpoints: files of plain tensors and numbers, written atomically. Reading one never runs code."""
import math
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spinup.errors import UserError
from spinup.runs.files import write_whole
from spinup.runs.values import room_for

KINDS = {"algorithm": str, "update": int, "steps": int, "rows": int, "stopped": bool, "seconds": float | int,
         "files": dict, "parts": dict, "subject": dict, "rng": dict, "torch_rng": torch.Tensor}


def save_checkpoint(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Write nested dicts and lists of tensors, arrays and numbers. Return the data as `read_checkpoint` would: with
    tensors in place of arrays."""
    written = plain(state)
    write_whole(path, lambda file: torch.save(written, file))             # avoids a second copy in memory
    return written


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load the checkpoint of a run. UserError as in `read_checkpoint`, and if an entry is missing or has another
    type."""
    state = read_checkpoint(path)
    if not isinstance(state, dict) or "algorithm" not in state:
        raise UserError(f"{path} is not a checkpoint of a run; give the folder of a run, such as runs/NAME/NAME_s1")
    if not all(isinstance(state.get(name), kind) for name, kind in KINDS.items()) or not all(
            0 <= state[name] < math.inf for name in ("update", "steps", "rows", "seconds")):
        raise UserError(damage(path))
    return state


def damage(path: Path) -> str:
    """Return the error message for a damaged file."""
    return f"{path} is damaged or not a checkpoint; restore a copy, or start a new run"


def read_checkpoint(path: Path) -> Any:
    """Read a file that `save_checkpoint` wrote. UserError if the file is missing, truncated, changed since it was
    written, or holds anything except plain tensors and numbers."""
    if path.is_file() and not intact(path):             # truncated, changed, or an older format that may hold code
        raise UserError(damage(path))
    try:
        with room_for(path), warnings.catch_warnings(action="ignore"):    # a UserError below replaces torch's warnings
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path.parent} holds no {path.name} yet; `spinup resume {path.parent}` starts it from its "
                        "config.json") from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise UserError(f"{path} holds more than tensors and numbers and was not loaded, because it could run "
                            "code; use a checkpoint of a run") from None
        raise UserError(damage(path)) from None


def intact(path: Path) -> bool:
    """Return whether every part of a zip file is stored as torch stores it and matches its checksum. torch itself does
    not compare checksums. It also returns uninitialised memory for a part that is marked as a folder."""
    try:
        with zipfile.ZipFile(path) as file:
            stored = all(part.compress_type == zipfile.ZIP_STORED and not part.external_attr
                         for part in file.infolist())
            return stored and file.testzip() is None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile):
        return False


def plain(x: Any) -> Any:
    """Return the same data with tensors in place of arrays and numpy numbers. Tensors are copied out of any larger
    storage."""
    if isinstance(x, torch.Tensor):
        return x.detach().to("cpu", copy=True)
    if isinstance(x, np.ndarray | np.generic):
        return torch.from_numpy(np.array(x))
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return type(x)(plain(v) for v in x)
    return x
