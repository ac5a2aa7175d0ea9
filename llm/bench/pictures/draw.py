"""Functions that all pictures share: training runs in parallel, files, and figures."""
import importlib
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm.bench.pictures.names import picture_names
from spinup.errors import UserError
from spinup.machine import git_revision
from spinup.runs.files import write_json, write_whole
from spinup.runs.records import finished, versions

WORKERS = 2                 # training runs in parallel, one thread each


def draw(name: str, *, seeds: list[int], log_dir: Path, out: Path | None) -> int:
    """Create a picture. Return 0, or 1 if it misses its goal. Raise UserError if the file cannot be written."""
    out = out or Path(f"{name}.png")
    if out.suffix not in (".png", ".svg") or not out.absolute().parent.is_dir():
        raise UserError(f"--out {out} cannot be written; give a name that ends in .png, in a folder that exists")
    module, _, function = picture_names()[name].rpartition(".")
    return getattr(importlib.import_module(module), function)(seeds, log_dir, out)


@dataclass
class Job:
    """A training run: `llm.METHOD(task, seed=seed, **settings)` with its own name."""

    method: str
    task: str
    seed: int
    name: str
    log_dir: Path
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.log_dir / self.name / f"{self.name}_s{self.seed}"


def train(jobs: Sequence[Job], workers: int = WORKERS) -> list[Path]:
    """Train the missing runs, `workers` at a time, and resume stopped ones. Return the folders in the order of jobs."""
    missing = [job for job in jobs if not finished(job.folder)]
    if missing:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            for job, _ in zip(missing, pool.map(one, missing), strict=True):
                print(f"{job.name}, seed {job.seed}", flush=True)
    return [job.folder for job in jobs]


def one(job: Job) -> None:
    """Train one job, or resume it."""
    import llm
    settings = {"log_dir": str(job.log_dir), "exp_name": job.name, "seed": job.seed, "quiet": True, "threads": 1,
                "tensorboard": False, **job.settings}
    resume = str(job.folder) if (job.folder / "config.json").exists() else None
    getattr(llm, job.method)(job.task, resume=resume, **settings)


@contextmanager
def figure(out: Path, width: float, height: float) -> Iterator[Any]:
    """Yield a matplotlib figure in the library's style; write it as PNG and SVG at the end."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from spinup.runs.curve import STYLE, render
    with rc_context(STYLE):
        made = Figure((width, height), layout="constrained")
        yield made
        for path in (out.with_suffix(".png"), out.with_suffix(".svg")):
            write_whole(path, render(made, path.suffix[1:]))


def conclude(out: Path, name: str, seeds: list[int], met: bool, **numbers: Any) -> int:
    """Write the numbers beside the picture. Return 0 if the goal was met, else 1."""
    write_json(out.with_suffix(".json"), {
        "command": f"spinup llm picture {name} --seeds {' '.join(map(str, seeds))}", "versions": versions(),
        "git": git_revision(), "met": met, **numbers})
    print(out.with_suffix(".png"))
    return 0 if met else 1
