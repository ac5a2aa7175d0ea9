"""The machine: cores, memory, devices, compiler. Nothing heavy is imported before it is needed."""
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from spinup.errors import UserError

if TYPE_CHECKING:
    import torch


def cores() -> int:
    """Processor cores that this process may use: all, or those that `taskset` or a container leaves it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that may be taken without swapping: of the machine, and of the container around this process."""
    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    try:
        return min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):                                         # no container, or one without a limit
        return free


def find_device(name: str, gpu_helps: bool) -> "torch.device":
    """The device that `name` means here; auto is a GPU where one helps and exists. UserError where there is none."""
    import torch
    if name == "auto":
        return torch.device("cuda" if gpu_helps and torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"--device must be auto, cpu, cuda, cuda:1 or mps, not {name!r}") from None
    there = {"cpu": True, "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
             "mps": torch.backends.mps.is_available()}.get(device.type, False)
    if not there:
        raise UserError(f"there is no device {name!r} here (torch sees {torch.cuda.device_count()} CUDA devices); type "
                        "--device cpu")
    return device


def find_compiler() -> str | None:
    """Path of the C++ compiler that torch uses on this machine, or None."""
    names = [os.environ.get("CXX", ""), *(["cl"] if sys.platform == "win32" else ["g++", "clang++"])]
    return next((path for name in names if name and (path := shutil.which(name))), None)
