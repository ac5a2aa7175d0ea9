"""Checkpoints: files of plain tensors and numbers, written atomically. Reading one never runs code.

`checkpoint.pt` holds the whole state of a small run. The tensors of a large part, such as the weights of a language
model or the moments of its optimiser, are in a file of their own beside it. `checkpoint.pt` names these files, so
renaming it replaces the whole checkpoint at once.
"""
import errno
import math
import os
import pickle
import re
import shutil
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spinup.errors import UserError
from spinup.runs.display import quoted
from spinup.runs.files import TEMPORARY, write_whole
from spinup.runs.folders import in_use
from spinup.runs.reading import FAULTS, room_for
from spinup.runs.records import lost_checkpoint
from spinup.runs.tensors import NAMES, map_tensors, write_tensors

LARGE = 2**24           # a part with more numbers than this gets a file of its own; 64 MB in fp32
FILE = re.compile(r"\w+-\d+(-2)?\.safetensors")               # PART-STEPS, and a second name for the same steps
SPARE = 1 << 20         # bytes of disk space for checkpoint.pt itself
KINDS = {"algorithm": str, "update": int, "steps": int, "rows": int, "stopped": bool, "seconds": float | int,
         "files": dict, "parts": dict, "subject": dict, "rng": dict, "torch_rng": torch.Tensor,
         "settings": dict}


def save_checkpoint(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Write nested dicts and lists of tensors, arrays and numbers. Return the data as `load_checkpoint` would: with
    tensors in place of arrays.

    The tensors of a part with more than `LARGE` numbers are not copied: their files are written from them, bit for bit,
    and the returned data contain the same tensors. The files of the last checkpoint are kept until the new one is
    complete. OSError if the disk has no room for both.
    """
    large = {name: found for name, part in state.get("parts", {}).items() if (found := large_tensors(part))}
    if not large:
        written = plain(state)
        write_whole(path, lambda file: torch.save(written, file))         # avoids a second copy in memory
        return written
    need = SPARE + sum(x.nbytes for tensors in large.values() for x in tensors.values())
    if shutil.disk_usage(path.parent).free < need:                        # checked first: writing takes minutes
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    rest = {name: {k: v for k, v in part.items() if k not in large[name]} if name in large else part
            for name, part in state["parts"].items()}
    written, files = plain({**state, "parts": rest}), {}
    try:
        for name, tensors in large.items():
            file = path.with_name(f"{name}-{state['steps']}.safetensors")
            if file.exists():                                             # the last checkpoint had as many steps
                file = file.with_stem(f"{file.stem}-2")
            files[name] = {"file": file.name, "crc32": write_tensors(file, tensors)}
        write_whole(path, lambda file: torch.save({**written, "tensors": files}, file))
    finally:
        remove_leftovers(path)                                            # of the old checkpoint, or of a failed one
    for name, tensors in large.items():
        written["parts"][name] |= tensors
    return written


def large_tensors(part: Any) -> dict[str, torch.Tensor]:
    """Return the tensors, `[...]` each, of a part's state that belong in a file of their own; {} for a small part."""
    found = {k: x.detach() for k, x in part.items() if isinstance(x, torch.Tensor) and x.dtype in NAMES
             and x.layout == torch.strided} if isinstance(part, dict) else {}
    return found if sum(x.numel() for x in found.values()) > LARGE else {}


def remove_leftovers(path: Path) -> None:
    """Delete incomplete files of a checkpoint, and the files of tensors beside it that it does not name. A process that
    was killed may have left them. Delete no file of tensors if the checkpoint cannot be read."""
    for file in path.parent.glob(".*.tmp"):
        if (found := TEMPORARY.fullmatch(file.name)) and (found[1] == path.name or FILE.fullmatch(found[1])):
            with suppress(OSError):
                file.unlink()
    found = [file for file in path.parent.glob("*.safetensors") if FILE.fullmatch(file.name)]
    if not found:
        return
    with suppress(UserError, OSError, *FAULTS):
        state = read_checkpoint(path) if path.exists() else {}
        named = {stored["file"] for stored in state.get("tensors", {}).values()}
        for file in found:
            with suppress(OSError):                                       # Windows keeps a file that is in use
                if file.name not in named:
                    file.unlink()


def load_checkpoint(path: Path, only: str | None = None) -> dict[str, Any]:
    """Load the checkpoint of a run. UserError as in `read_checkpoint`, and if an entry is missing or has another type,
    or a file of tensors is missing or damaged.

    only: the one part whose files of tensors are needed; None means all parts.
    """
    state = read_checkpoint(path)
    if not isinstance(state, dict) or "algorithm" not in state:
        raise UserError(f"{path} is not a checkpoint of a run; give the folder of a run, such as runs/NAME/NAME_s1")
    if not all(isinstance(state.get(name), kind) for name, kind in KINDS.items()) or not all(
            0 <= state[name] < math.inf for name in ("update", "steps", "rows", "seconds")):
        raise UserError(damage(path))
    files = state.pop("tensors", {})
    if not isinstance(files, dict):
        raise UserError(damage(path))
    for name, stored in files.items():
        match stored:
            case {"file": str(file), "crc32": int(crc32)} if FILE.fullmatch(file) and isinstance(
                    state["parts"].get(name), dict):                      # so the file is in this folder
                pass
            case _:
                raise UserError(damage(path))
        if only in (None, name):
            try:
                state["parts"][name] |= map_tensors(path.with_name(file), crc32)
            except FileNotFoundError:
                if repr(read_checkpoint(path).get("tensors")) != repr(files):     # a run has just replaced it
                    return load_checkpoint(path, only)
                raise UserError(f"{path.parent} lacks {file}, which belongs to its checkpoint.pt; restore the file, or "
                                "start a new run") from None
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
        lost = ""
        with suppress(UserError):                             # a damaged result.json says nothing about checkpoints
            lost = lost_checkpoint(path.parent)
        if in_use(path.parent):
            lost = f"{path.parent} is training now and has not saved a checkpoint yet; try again later"
        raise UserError(lost or f"{path.parent} holds no {path.name} yet; `spinup resume {quoted(str(path.parent))}` "
                        "starts it from its config.json") from None
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError,
            pickle.UnpicklingError) as error:
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
