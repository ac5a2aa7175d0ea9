"""What this process may take of the machine."""
import os
from pathlib import Path

import psutil


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
