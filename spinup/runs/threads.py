"""Threads of torch and NumPy during a run; afterwards they are as before."""
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let torch and NumPy use this many threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, "blas"):                          # its end also restores OpenMP's threads
            yield
    finally:
        torch.set_num_threads(before)
