"""Exchange between the processes of one training run, its ranks. A run of one process exchanges nothing.

All ranks call these functions in the same order. WorkerError: another rank has ended or is stuck.
"""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from spinup.errors import UserError, WorkerError

T = TypeVar("T")
exchanging = True       # False within `alone`


def size() -> int:
    """Number of ranks of the run that is in progress."""
    return dist.get_world_size() if exchanging and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, also before the ranks have met. Rank 0 alone prints, and writes the folder of the run.
    """
    return _given("RANK", 0)


def wanted(count: int) -> int:
    """Number of ranks that a run will have: `count`, or that of torchrun."""
    return _given("WORLD_SIZE", count)


def _given(name: str, default: int) -> int:
    """Return a number that torchrun, or the first process, gave this one. Raise UserError if it is not a number."""
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():       # a cluster may set only one of them
        return default
    text = os.environ[name]
    if not text.isdecimal():
        raise UserError(f"the environment variable {name} is {text!r}, but torchrun sets it to a number; type: "
                        "unset RANK WORLD_SIZE")
    return int(text)


def mine(n: int) -> range:
    """Numbers of the tasks, out of n, for this rank: adjacent ones, as many as for the others or one more."""
    return of_rank(n, rank() if size() > 1 else 0)            # before the ranks have met, each has all tasks


def of_rank(n: int, place: int) -> range:
    """Numbers of the tasks, out of n, for the rank with this number."""
    each, more = divmod(n, size())
    first = place * each + min(place, more)
    return range(first, first + each + (place < more))


def own_seed(seed: int) -> int:
    """Return the seed of this rank's own random numbers, for a run with this seed; rank 0 has that of the run."""
    if rank() == 0:
        return seed
    own = np.random.SeedSequence(seed, spawn_key=(1, rank()))             # (seed, i) is the seed of copy i
    return int(own.generate_state(1)[0])


@contextmanager
def alone() -> Iterator[None]:
    """Within the block, this process exchanges nothing: it is rank 0 of 1, and so is a run that begins there."""
    global exchanging
    before, exchanging = exchanging, False
    kept = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE") if name in os.environ}
    try:
        yield
    finally:
        os.environ |= kept
        exchanging = before


@contextmanager
def answering(words: str = "") -> Iterator[None]:
    """Convert torch's error for a missing process, a RuntimeError whose message has `words`, to a WorkerError."""
    try:
        yield
    except RuntimeError as error:
        if words not in str(error):
            raise
        raise WorkerError("a worker process ended, or did not answer, in the middle of an update") from None


def add(x: Tensor) -> Tensor:
    """Replace a tensor `[...]` by its sum over the ranks, in place, and return it."""
    if size() > 1:
        with answering():
            dist.all_reduce(x)
    return x


def gather(thing: T) -> list[T]:
    """Return the thing of every rank, in their order. Tensors in it must be on the CPU."""
    if size() == 1:
        return [thing]
    found = [None] * size()
    with answering():
        dist.all_gather_object(found, thing)
    return found


def join(rows: Tensor) -> Tensor:
    """Join the rows `[len(mine(n)), ...]` of all ranks, to `[n, ...]`."""
    return rows if size() == 1 else torch.cat(gather(rows.cpu())).to(rows.device)


def collect(own: Tensor, n: int) -> Tensor:
    """Collect the rows of all ranks, `[len(mine(n)), ...]` each, on the CPU of rank 0. Return all rows `[n, ...]` on
    rank 0, and on every other rank its own rows."""
    if size() == 1:
        return own
    own = own.cpu()                                                       # Gloo sends no tensor of a GPU
    with answering():
        if rank():
            dist.send(own, 0)
            return own
        rows = own.new_empty(n, *own.shape[1:])
        rows[:len(own)] = own
        for other in range(1, size()):
            theirs = of_rank(n, other)
            dist.recv(rows[theirs.start:theirs.stop], other)
    return rows


def any_of(flag: bool) -> bool:
    """Return whether a flag is True on at least one rank."""
    return flag if size() == 1 else bool(add(torch.tensor(float(flag))))


def mean(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean over the ranks of each number `[]`, by name, in one exchange."""
    if size() == 1:
        return values
    means = add(torch.stack(list(values.values()))) / size()
    return dict(zip(values, means, strict=True))


def share(x: Tensor) -> Tensor:
    """Fill in, in place, the rows of a tensor `[n, ...]` that other ranks have computed. Each rank has its own rows,
    `mine(n)`."""
    if size() > 1:
        with answering():
            for owner in range(size()):
                rows = of_rank(len(x), owner)
                dist.broadcast(x[rows.start:rows.stop], owner)
    return x
