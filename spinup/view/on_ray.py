"""Runs of a grid as tasks of Ray, on this machine or on a cluster whose machines share the folder of the runs."""
import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"             # before the import: Ray sends nothing to its makers
# A run that reserves no GPU sees none. On a cluster, set this where Ray starts.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")

import contextlib
import io
import logging
import runpy
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from spinup.errors import UserError
from spinup.runs.config import RunConfig

try:
    import ray
except ImportError:
    raise UserError("--ray needs Ray; type: pip install 'spinup-rl[ray]'") from None

RETRIES = 3             # times that Ray starts a run again whose process or machine was lost
LOST = "Ray lost the process or machine of this run; the same command resumes it"


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a cluster for the duration of the block; "local" starts Ray on this machine. UserError if no cluster
    answers, or Ray does not start."""
    local = {"include_dashboard": False} if address == "local" else {}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():                              # otherwise Ray tries for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **local)
    except Exception as error:                                            # Ray raises all kinds, even Exception itself
        reason = (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
        how = ("repeat the command when the machine is less busy" if local else
               "start a cluster with `ray start --head --disable-usage-stats` and type --ray auto, or type --ray local")
        raise UserError(f"--ray {address}: Ray cannot be used ({reason}); {how}") from None
    try:
        yield
    finally:
        ray.shutdown()


@ray.remote(max_calls=1, max_retries=RETRIES)           # one run per process, so that no run inherits another's state
def run(words: list[str], directory: str, folder: str) -> tuple[int, str]:
    """Train a run in this process, or resume it if it has begun. Return its exit code and its errors.

    words: of its command line. folder: where the grid was started; paths are relative to it.
    """
    try:
        os.chdir(folder)
    except OSError:
        return 2, f"the machine of this run has no folder {folder}; the machines of a cluster must share it"
    begun = Path(directory, "config.json").exists()
    sys.argv = ["spinup", *(["resume", directory] if begun else words)]
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            runpy.run_module("spinup", run_name="__main__")
        except SystemExit as end:
            return end.code or 0, errors.getvalue()
    return 0, errors.getvalue()


def reserved(config: RunConfig) -> dict[str, int]:
    """Return the CPUs and GPUs that a run reserves, by Ray's names."""
    return {"CPU": max(1, config.threads), "GPU": int(config.device.startswith("cuda"))}


def check(configs: Iterable[RunConfig]) -> None:
    """Check the runs of a grid against the cluster, which is connected. Print a warning if no machine has room for a
    run. UserError for the number of a GPU, because Ray chooses the GPU of a run."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for config in configs:
        if config.device.startswith("cuda:"):
            raise UserError(f"with --ray, Ray chooses the GPU of a run; type --device cuda, not {config.device}")
        wanted = reserved(config)
        if not any(all(each.get(kind, 0) >= n for kind, n in wanted.items()) for each in machines):
            print(f"no machine of Ray has {wanted['CPU']} CPUs{' and a GPU' * wanted['GPU']}, which each run reserves; "
                  "the runs wait until one joins", file=sys.stderr)
            return


class Task:
    """A run that Ray trains, with the methods of `spinup.view.process.Process`."""

    def __init__(self, words: list[str], directory: Path, config: RunConfig):
        how = {f"num_{kind.lower()}s": n for kind, n in reserved(config).items()}
        self.task = run.options(**how).remote(words, str(directory), os.getcwd())
        self.code, self.said = None, ""

    def poll(self) -> int | None:
        """Return the exit code; None while the run waits or trains."""
        if self.code is None:
            try:
                self.code, self.said = ray.get(self.task, timeout=0)
            except ray.exceptions.GetTimeoutError:
                pass
            except ray.exceptions.TaskCancelledError:
                self.code = 130
            except ray.exceptions.RayTaskError as error:
                self.code, self.said = 1, str(error)
            except ray.exceptions.RayError:
                self.code, self.said = 1, LOST
        return self.code

    def interrupt(self) -> None:
        """Interrupt the run as Ctrl-C does: it saves and ends; the second time it ends at once."""
        ray.cancel(self.task)

    def errors(self) -> str:
        """Return what the run printed to standard error."""
        return self.said
