"""Cores, memory, devices and compiler of the machine. Heavy modules are imported only when needed."""
import math
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from spinup.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


CGROUP, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")          # limits of a container or a cluster's job


def groups() -> "Iterator[Path]":
    """Yield the folders of the control groups (version 2) of this process, up to the root. Each may have a limit."""
    try:
        own = next(line[3:] for line in OWN.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        own = ""
    folder = CGROUP / own.strip("/")
    yield folder
    while folder != CGROUP and CGROUP in folder.parents:
        folder = folder.parent
        yield folder


def cores() -> int:
    """Number of processor cores for this process: all, or those that `taskset`, a container or a job allows."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in groups():
        with suppress(OSError, ValueError, ZeroDivisionError):            # no such file, or no limit
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            found = min(found, max(1, math.ceil(quota / period)))
    return found


def free_memory() -> int:
    """Bytes of memory available without swapping, on the machine and in the container of this process."""
    import psutil
    free = psutil.virtual_memory().available
    for folder in groups():
        with suppress(OSError, ValueError, KeyError):                     # no such file, or no limit
            kept = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used = int((folder / "memory.current").read_text()) - int(kept["inactive_file"])  # this cache can be freed
            free = min(free, int((folder / "memory.max").read_text()) - used)
    return free


def generator_of(device: "torch.device") -> "list[torch.Tensor]":
    """Return the state of a device's own random number generator: a tensor `[bytes]` in a list; [] for the CPU."""
    import torch
    if device.type == "cuda":
        return [torch.cuda.get_rng_state(device)]
    return [torch.mps.get_rng_state()] if device.type == "mps" else []


def restore_generator(device: "torch.device", state: "list[torch.Tensor]") -> None:
    """Restore what `generator_of` returned: a tensor `[bytes]` in a list, or []."""
    import torch
    for each in state:
        if device.type == "cuda":
            torch.cuda.set_rng_state(each, device)
        elif device.type == "mps":
            torch.mps.set_rng_state(each)


def peak_memory() -> int:
    """Largest number of bytes of memory that this process has used so far, with its libraries; not that of a GPU."""
    if sys.platform == "win32":
        import psutil
        return psutil.Process().memory_info().peak_wset
    import resource
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def check_same_device(began: str, now: str) -> None:
    """Raise UserError if a run that began on one kind of device, such as `cpu`, would resume on another: its random
    numbers, and in `llm` its data type, depend on it."""
    if began != now:
        hidden = ": type CUDA_VISIBLE_DEVICES= before the command" if began == "cpu" else ""
        raise UserError(f"this run began on {began}, and its random numbers belong to this kind of device; resume it "
                        f"on {began}{hidden}")


def find_device(name: str, gpu_helps: bool) -> "torch.device":
    """Return the device with this name; auto is a GPU if it is faster and available. UserError if there is none.

    Each process of a run with several takes a GPU of its own, if there are enough.
    """
    import torch
    if name == "auto":
        name = "cuda" if gpu_helps and torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available() and {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        place = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
        return torch.device("cuda", place % torch.cuda.device_count())
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
    """Return the path of the C++ compiler that torch uses, or None."""
    names = [os.environ.get("CXX", ""), *(["cl"] if sys.platform == "win32" else ["g++", "clang++"])]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def missing_for_compile() -> str:
    """Return what torch.compile lacks here: a C++ compiler, or the header files of Python. "" if nothing is missing."""
    if find_compiler() is None:
        return "a C++ compiler"
    return "" if Path(sysconfig.get_path("include"), "Python.h").exists() else "Python.h"


def check_compile() -> None:
    """UserError if torch.compile lacks something."""
    if missing := missing_for_compile():
        raise UserError(f"--compile needs {missing}; `spinup doctor` shows how to install it")


@contextmanager
def same_random_numbers(device: "torch.device") -> "Iterator[None]":
    """Restore torch's random number generators, of the CPU and of a device, after the block."""
    import torch
    before = generator_of(device)
    with torch.random.fork_rng([]):
        yield
    restore_generator(device, before)


@cache
def git_revision() -> str | None:
    """Return the git revision of the source tree of this package, with + if it has changes; None outside git. It is
    read once per process, because later edits do not change the code that the process has loaded."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5,
                              check=True).stdout.strip()
    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)           # fails in another repository
        return git("describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
