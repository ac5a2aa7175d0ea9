"""Shared parts of the paper benchmarks: stored runs, a table of the paper's numbers and ours, a figure."""
import ast
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spinup.bench.process import check_out, finish, finished_run, in_turn, revisions, spinup, versions_of
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.display import number
from spinup.runs.files import read_json, write_whole
from spinup.runs.log import read_progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROBLEMS = 500          # of an evaluation of a language model
Of = dict[Any, list[Any]]                                   # kind -> a result of each seed


def find_papers() -> dict[str, str]:
    """Return the modules of the experiments in this folder, by their names on the command line."""
    stems = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    return {stem.replace("_", "-"): f"{__package__}.{stem}" for stem in stems
            if not stem.startswith("_") and stem != Path(__file__).stem}


def title_of(name: str) -> str:
    """Return the subject of an experiment: the first words of its module's docstring, without importing the module."""
    path = Path(__file__).with_name(f"{name.replace('-', '_')}.py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"[:.,;]\s| \(", " ".join(text.split()), maxsplit=1)[0]


@dataclass(frozen=True)
class Line:
    """One number of the table: its name, the paper's value, our value, and our goal."""

    what: str
    paper: str
    ours: float
    goal: str = ""                      # in words; empty: none
    met: bool = True


def at_least(what: str, ours: float, least: float, paper: str = "") -> Line:
    """Return the line of a number whose goal is a lower bound."""
    return Line(what, paper, float(ours), f">= {least:g}", bool(ours >= least))


def at_most(what: str, ours: float, most: float) -> Line:
    """Return the line of a number whose goal is an upper bound."""
    return Line(what, "", float(ours), f"<= {most:g}", bool(ours <= most))


@dataclass
class Paper:
    """Result of a benchmark."""

    title: str
    lines: list[Line]
    draw: Callable[["Figure"], None]    # draws the figure
    raw: dict[str, Any] = field(default_factory=dict)       # data of the lines and the figure


def run(algorithm: str, subject: str, seed: int, log_dir: Path, *flags: str, label: str = "") -> Path:
    """Return the folder of a finished run with these settings, as `finished_run` does. UserError if the folder holds a
    run with other settings."""
    name = re.sub(r"[^\w.-]+", "-", f"paper_{algorithm}{'_' * bool(label)}{label}_{subject}")
    return finished_run(algorithm, subject, seed, name, log_dir, *flags)


def by_kind(kinds: Collection[Any], seeds: Sequence[int], workers: int, one: Callable[[Any, int], Any]) -> Of:
    """Return `one(kind, seed)` for all kinds and seeds: a list per kind, in the order of the seeds. `workers` of them
    are computed at a time."""
    jobs = list(itertools.product(kinds, seeds))
    found = iter(in_turn(lambda job: one(*job), jobs, workers))
    return {kind: list(itertools.islice(found, len(seeds))) for kind in kinds}


def together(of: Of) -> list[Any]:
    """Return the results of all kinds and seeds in one list."""
    return list(itertools.chain.from_iterable(of.values()))


def record(name: str, seed: int, log_dir: Path, *words: str) -> Path:
    """Return the file of a dataset. If it is missing, or older than one of its policies, record it with these words
    of `spinup record`. Its name has a hash of the words, so other policies, steps or noise get another file."""
    digest = hashlib.sha256(" ".join(words).replace(str(log_dir), "").encode()).hexdigest()[:8]
    file = log_dir / f"{name}_{digest}_s{seed}.npz"
    policies = [end for word in words if (end := Path(word, "result.json")).exists()]
    if file.exists() and any(end.stat().st_mtime > file.stat().st_mtime for end in policies):
        file.unlink()
    if not file.exists():
        spinup("record", *words, "--seed", str(seed), "--out", str(file))
    return file


def evaluated(folder: Path, *flags: str) -> dict[str, Any]:
    """Return the result of `spinup eval` for the policy of a run, with these flags; with --task, that of `spinup llm
    eval`."""
    command = ["llm", "eval"] if "--task" in flags else ["eval"]
    return json.loads(spinup(*command, str(folder.absolute()), *flags, "--json"))


def e100(folder: Path) -> float:
    """Mean return of a run's policy, deterministic, in a hundred new episodes."""
    return evaluated(folder)["mean"]


def accuracy(folder: Path, which: str = "held_out_accuracy") -> float:
    """Share of correct responses of a policy to `PROBLEMS` held-out problems that its log did not use, eight for each;
    `held_out_greedy`: of its most likely responses."""
    return evaluated(folder, "--episodes", str(PROBLEMS))[which]


def start_of(folder: Path) -> Path:
    """Return the folder of the initial policy of a language model's run."""
    return Path(read_json(folder / "config.json")["start"])


def seconds_of(folder: Path) -> float:
    """Return the seconds that a run trained."""
    return read_json(folder / "result.json")["seconds"]


def same_weights(one: Path, other: Path, part: str) -> bool:
    """Return whether two runs ended with identical weights in this part of their checkpoints."""
    parts = [load_checkpoint(folder / "checkpoint.pt")["parts"][part] for folder in (one, other)]
    return all(a.equal(b) for a, b in zip(*(part.values() for part in parts), strict=True))


def columns(folder: Path, *names: str) -> dict[str, list[float]]:
    """Columns of a run's log, of those that it has."""
    progress = read_progress(folder)
    return {name: progress[name] for name in names if name in progress}


def moving_average(values: Sequence[float], rows: int) -> np.ndarray:
    """Return the moving average over `rows` values, `[n - rows + 1]`."""
    return np.convolve(values, np.ones(rows) / rows, "valid")


def plot_runs(axes: "Axes", folders: Sequence[Path], x: str, y: str, label: str | None = None, *, scale: float = 1,
              rows: int = 1, **look: Any) -> None:
    """Plot a column of each run's log over another one; only the first curve gets the label.

    scale: divisor of the x values. rows: number of rows averaged in each point.
    """
    for k, folder in enumerate(folders):
        progress = read_progress(folder)
        axes.plot(np.array(progress[x])[rows - 1:] / scale, moving_average(progress[y], rows),
                  label=None if k else label, **look)


def plot_mean(axes: "Axes", folders: Sequence[Path], x: str, y: str, **look: Any) -> None:
    """Plot the mean of a column over the logs of runs with equal rows."""
    logs = [read_progress(folder) for folder in folders]
    axes.plot(logs[0][x], np.mean([log[y] for log in logs], 0), **look)


def show(name: str, paper: Paper, folders: list[Path], picture: Path, out: Path | None) -> int:
    """Print the table, draw the figure, write the JSON; return 1 if a goal is missed, else 0."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from spinup.runs.curve import STYLE, render
    table = Table(title=paper.title, box=None, padding=(0, 2, 0, 0), title_justify="left")
    for column in ("", "paper", "ours", "goal", ""):
        table.add_column(column, justify="left" if column in ("", "goal") else "right")
    for line in paper.lines:
        table.add_row(line.what, line.paper, number(line.ours), line.goal,
                      ("met" if line.met else "missed") if line.goal else "")
    Console(width=160).print(table)
    with rc_context(STYLE):
        figure = Figure((7.2, 4.2), layout="constrained")
        paper.draw(figure)
        write_whole(picture, render(figure, "png"))
    print(picture)
    return finish({"benchmark": "paper", "name": name, "title": paper.title,
                   "lines": [in_json(asdict(line)) for line in paper.lines], "versions": versions_of(folders),
                   "git": revisions(folders), "met": all(line.met for line in paper.lines)}, out, **in_json(paper.raw))


def in_json(value: Any) -> Any:
    """Return a value as JSON, which has neither NaN nor infinity: these become None."""
    if isinstance(value, dict):
        return {key: in_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [in_json(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_picture(picture: Path, out: Path | None) -> None:
    """UserError if the figure or the result cannot be written. The check comes before the runs, not after them."""
    check_out(out)
    if picture.suffix != ".png" or picture == out:
        raise UserError(f"--picture {picture} cannot be written; give another name, which ends in .png")
    check_out(picture, "--picture")
