"""Functions that all pictures share, for files and figures."""
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llm.bench.pictures.names import picture_names
from spinup.bench.process import check_out, ending_children
from spinup.errors import UserError
from spinup.machine import git_revision
from spinup.runs.files import write_json, write_whole
from spinup.runs.records import versions

WORKERS = 2                 # training runs in parallel, one thread each
ONE_THREAD = ("--threads", "1", "--no-tensorboard")


def draw(name: str, *, seeds: list[int], log_dir: Path, out: Path | None) -> int:
    """Create a picture. Return 0, or 1 if it misses its goal.

    Raise UserError if a file cannot be written, or if the folder of a run holds a run with other settings.
    """
    out = out or Path(f"{name}.png")
    if out.suffix not in (".png", ".svg"):
        raise UserError(f"--out {out} cannot be written; give a name that ends in .png")
    for suffix in (".png", ".svg", ".json"):
        check_out(out.with_suffix(suffix))
    with ending_children():
        return pkgutil.resolve_name(picture_names()[name])(seeds, log_dir, out)


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
