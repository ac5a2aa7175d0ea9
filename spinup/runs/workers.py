"""Processes that train together. Each computes the same update, and they exchange only a few numbers per update."""
import json
import multiprocessing
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.pool import RemoteTraceback
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from spinup.errors import EnvironmentFailure, UserError, WorkerError
from spinup.runs import ranks
from spinup.runs.config import RunConfig
from spinup.signals import leave_to_first

JOIN_SECONDS = 120      # to import the library, and to answer
WAIT_SECONDS = 1800     # for results of the other processes; then one is assumed to be stuck
FAILED = "failed"       # key of the error message that a worker process stores
PARENT = "SPINUP_WORKERS_PARENT"        # set in processes that `Workers` started, not torchrun


class Workers:
    """Processes of one training run as a context: this one and `count` - 1 new ones, or those of `torchrun`.

    Args:
        count: number of processes; torchrun's number overrides it. None: the algorithm trains in one process.
        cfg: the settings to send to them. UserError if they cannot be sent to a process.

    Attributes:
        rank: the number of this process; only process 0, the user's, writes the run.
        size: the number of processes.
        sent: bytes that this process has sent to the others so far.
        program: the words that start `spinup` again, with torchrun if this run uses it.
    """

    def __init__(self, count: int | None, cfg: RunConfig):
        self.under_torchrun = {"RANK", "WORLD_SIZE"} <= os.environ.keys() and PARENT not in os.environ
        self.rank, self.size = ranks.rank(), ranks.wanted(count or 1)
        if self.under_torchrun and not ("MASTER_ADDR" in os.environ and self.rank < self.size):
            raise UserError("the environment variables RANK and WORLD_SIZE are set, but not by torchrun; type: unset "
                            "RANK WORLD_SIZE, or start the run with torchrun")
        self.sent, self.program = 0, torchrun(self.size) if self.under_torchrun else "spinup"
        if count is None and self.size > 1:
            raise UserError(f"{cfg.algorithm} trains in one process; start it without torchrun")
        if self.size > 1 and not self.under_torchrun:
            try:
                ForkingPickler.dumps(cfg)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                kind = "an id" if cfg.SUBJECT == "env" else "a name"
                raise UserError(f"--workers {count} starts processes, and these settings cannot be sent ({error}); "
                                f"give {cfg.SUBJECT} as {kind}, or as a function at the top of a module") from None

    @contextmanager
    def together(self, train: Callable[..., Any], cfg: RunConfig, resume: str | Path | None) -> Iterator[None]:
        """Join the other processes; new ones call `train(cfg, resume)`.

        WorkerError: a process does not join, or ends. EnvironmentFailure: a process fails; see `_reason`.
        """
        if self.size == 1:
            yield
            return
        children, store = [], None
        try:
            if self.under_torchrun:
                dist.init_process_group(backend(self.size), timeout=timedelta(seconds=WAIT_SECONDS))
            else:
                if sys.platform == "linux":
                    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")     # DNS may not know the machine's name
                store = _store(0 if self.rank == 0 else int(os.environ[PARENT]))
                if self.rank == 0:
                    children = [_start(train, cfg, resume, rank, self.size, store.port) for rank in range(1, self.size)]
                    _wait(store, children)
                else:
                    store.set(f"ready {self.rank}", "")
                dist.init_process_group(backend(self.size), store=store, rank=self.rank, world_size=self.size,
                                        timeout=timedelta(seconds=WAIT_SECONDS))
            with ranks.answering("gloo"):                                 # in an exchange of torch's own, as in FSDP
                yield
        except WorkerError as error:
            if store is None or self.rank:
                raise
            raise _reason(error, store, children) from RemoteTraceback(_trace(store))
        except Exception as error:
            if store is not None and self.rank:
                trace = "".join(traceback.format_exception(error.__cause__ or error))
                said = [f"{error}, in worker process {self.rank}", trace, isinstance(error, UserError)]
                store.set(FAILED, json.dumps(said))
            raise
        finally:
            for child in children:
                child.kill()
            if dist.is_initialized():
                dist.destroy_process_group()

    def mine(self, n: int) -> range:
        """Numbers of the tasks, out of n equal ones, for this process."""
        return range(self.rank, n, self.size)

    def share(self, results: Tensor, n: int) -> Tensor:
        """Exchange results `[n, ...]` in the order of the tasks; each process gives its `[len(mine(n)), ...]`.

        WorkerError: another process has ended or is stuck.
        """
        if self.size == 1:
            return results
        padded = results.new_zeros(-(-n // self.size), *results.shape[1:])
        padded[:len(results)] = results
        of_each = [torch.empty_like(padded) for _ in range(self.size)]
        self.sent += padded.nbytes
        with ranks.answering():
            dist.all_gather(of_each, padded)
        return torch.stack(of_each, 1).flatten(0, 1)[:n]


def backend(size: int) -> str:
    """Return the backends for an exchange between `size` processes. NCCL needs a GPU for each process of a machine."""
    size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    has_nccl = dist.is_nccl_available()                                   # not on Windows
    return "cpu:gloo,cuda:nccl" if has_nccl and torch.cuda.device_count() >= size else "gloo"


def torchrun(size: int) -> str:
    """Return the words that start `spinup` with this many processes of torchrun."""
    return f"torchrun --nproc-per-node {size} -m spinup"


def nested(outer: AbstractContextManager, enter: Callable[[], object], leave: Callable[..., object]) -> ExitStack:
    """Enter `outer`, then call `enter`. Return a stack that closes `outer` first: `leave` gets an error of its exit."""
    with ExitStack() as joined:                                           # closes `outer` if `enter` fails
        joined.enter_context(outer)
        enter()
        stack = ExitStack()
        stack.push(leave)
        stack.push(joined.pop_all())
        return stack


def _start(train: Callable[..., Any], cfg: RunConfig, resume: str | Path | None, rank: int, size: int,
           port: int) -> multiprocessing.Process:
    process = multiprocessing.get_context("spawn").Process(
        target=_join, args=(train, cfg, resume, rank, size, port), daemon=True)
    process.start()
    return process


def _reason(error: WorkerError, store: dist.TCPStore, children: list[multiprocessing.Process]) -> Exception:
    """Return the error for a missing process: its own error or its exit code, if known."""
    if store.check([FAILED]):
        words, _, of_user = json.loads(store.get(FAILED))
        return UserError(words) if of_user else EnvironmentFailure(words)
    for rank, child in enumerate(children, 1):
        child.join(1)
        if child.exitcode:
            return WorkerError(f"{error} (worker process {rank} ended with exit code {child.exitcode})")
    return error


def _trace(store: dist.TCPStore) -> str:
    """Traceback of the failed process; empty if it stored none."""
    return json.loads(store.get(FAILED))[1] if store.check([FAILED]) else ""


def _join(train: Callable[..., Any], cfg: RunConfig, resume: str | Path | None, rank: int, size: int,
          port: int) -> None:
    leave_to_first()
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), PARENT: str(port)}
    try:
        _store(port).set(f"started {rank}", "")
        train(cfg, resume)
    except (Exception, KeyboardInterrupt):                                # the first process reports it
        sys.exit(1)


def _store(port: int) -> dist.TCPStore:
    """Create the store that the processes share, for port 0; else connect to the store at this port."""
    return dist.TCPStore("127.0.0.1", port, is_master=port == 0, wait_for_workers=False,
                         timeout=timedelta(seconds=JOIN_SECONDS), use_libuv=sys.platform != "win32")


def _wait(store: dist.TCPStore, children: list[multiprocessing.Process]) -> None:
    """Wait until all workers are ready. There is no limit on the time for sampling before that. WorkerError if one
    has ended, or has not started in JOIN_SECONDS."""
    started, ready = [[f"{state} {rank}" for rank in range(1, len(children) + 1)] for state in ("started", "ready")]
    began = time.monotonic()
    while not store.check(ready):
        if time.monotonic() - began > JOIN_SECONDS and not store.check(started):
            raise WorkerError(f"a worker process did not start in {JOIN_SECONDS} s; stop other programs, or choose "
                              "fewer --workers")
        if any(not child.is_alive() for child in children):
            raise WorkerError("a worker process ended before it was ready; to see its error, leave out --workers; in "
                              "your script, put the training under `if __name__ == \"__main__\":`, because workers "
                              "import the script")
        time.sleep(0.05)
