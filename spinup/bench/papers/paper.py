"""Shared parts of the paper benchmarks: stored runs, a table of the paper's numbers and ours, a figure."""
import ast
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spinup.bench.process import check_out, finish, revisions, spinup, versions_of
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.display import number
from spinup.runs.files import write_whole
from spinup.runs.flags import from_flags
from spinup.runs.log import read_progress
from spinup.runs.records import finished
from spinup.runs.resuming import HOW, check_same

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROBLEMS = 500          # of an evaluation of a language model


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


@dataclass
class Paper:
    """Result of a benchmark."""

    title: str
    lines: list[Line]
    draw: Callable[["Figure"], None]    # draws the figure
    raw: dict[str, Any] = field(default_factory=dict)       # data of the lines and the figure


def run(algorithm: str, subject: str, seed: int, log_dir: Path, *flags: str, label: str = "") -> Path:
    """Return the folder of a finished run with these settings. A finished run is not repeated; an unfinished one is
    resumed.

    Args:
        algorithm: its name, such as "ppo" or "llm es".
        subject: the environment, or the task of a language model.
    UserError if the folder holds a run with other settings.
    """
    name = re.sub(r"[^\w.-]+", "-", f"paper_{algorithm}{'_' * bool(label)}{label}_{subject}")
    folder = log_dir / name / f"{name}_s{seed}"
    kind = "--task" if algorithm.startswith("llm ") else "--env"
    words = [kind, subject, "--seed", str(seed), "--exp-name", name, f"--log-dir={log_dir}", "--quiet", *flags]
    if not (folder / "config.json").exists():
        print(f"training {folder}", flush=True)
        spinup(*algorithm.split(), *words)
        return folder
    config, _ = from_flags(find(algorithm), words)
    check_same(folder, algorithm, config, HOW, "choose another --log-dir")
    if not finished(folder):
        print(f"resuming {folder}", flush=True)
        spinup("resume", str(folder.absolute()))
    return folder


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


def e100(folder: Path) -> float:
    """Mean return of a run's policy, deterministic, in a hundred new episodes."""
    return json.loads(spinup("eval", str(folder.absolute()), "--json"))["mean"]


def accuracy(folder: Path, which: str = "held_out_accuracy") -> float:
    """Share of correct responses of a policy to `PROBLEMS` held-out problems that its log did not use, eight for each;
    `held_out_greedy`: of its most likely responses."""
    return json.loads(spinup("eval", str(folder.absolute()), "--episodes", str(PROBLEMS), "--json"))[which]


def columns(folder: Path, *names: str) -> dict[str, list[float]]:
    """Columns of a run's log, of those that it has."""
    progress = read_progress(folder)
    return {name: progress[name] for name in names if name in progress}


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
