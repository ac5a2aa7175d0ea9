"""The learning curve of one run, drawn when it ends, and what all pictures of curves share."""
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spinup.errors import UserError
from spinup.runs.display import short
from spinup.runs.files import write_whole
from spinup.runs.folders import read_run
from spinup.runs.log import read_progress

if TYPE_CHECKING:                                            # it takes 0.3 s: imported where a picture is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 6                # curves beyond which the legend stands outside
# Okabe and Ito's colours, which colour-blind people tell apart; yellow last, because it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINES = ("-", "--", ":", "-.")
STYLE = {"font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.titlepad": 10,
         "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#999999",
         "axes.labelcolor": "#444444", "xtick.color": "#444444", "ytick.color": "#444444",
         "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e8e8e8", "lines.solid_capstyle": "round",
         "legend.framealpha": 0.85, "legend.edgecolor": "none", "legend.fontsize": 9, "legend.title_fontsize": 8,
         "axes.formatter.useoffset": False, "savefig.dpi": 150, "text.parse_math": False,    # $ in a name of the user's
         "svg.hashsalt": "spinup"}                           # the same curves give the same file
TRUTH = "held_out_gold"                                      # where the rewards are a model's, which learned them
# Contents of `curve.png`, by measure, or by the true reward where it is known: the label of its axis, and the columns
# on it, each in the style of its place.
SHOWN = {
    "return_mean_100": ("undiscounted return", {"return_mean": "mean of an epoch's episodes",
                                                "return_mean_100": "mean of the last 100 episodes"}),
    "held_out_accuracy": ("share of responses", {"reward": "mean reward in training",
                                                 "held_out_accuracy": "solved of the held-out problems"}),
    "held_out_reward": ("mean reward", {"reward": "in training", "held_out_reward": "on held-out problems"}),
    TRUTH: ("mean reward", {"reward": "learned, in training", "held_out_reward": "learned, on held-out problems",
                            TRUTH: "true, on held-out problems"}),
    "pair_accuracy": ("share of pairs ranked rightly", {"train_accuracy": "pairs learned from",
                                                        "pair_accuracy": "held-out pairs"})}
LOOKS = ({"color": COLOURS[0], "alpha": 0.35, "linewidth": 1}, {"color": COLOURS[0], "linewidth": 2},
         {"color": COLOURS[1], "linewidth": 2})


@dataclass
class Curves:
    """A run as its files tell it."""

    directory: Path
    algorithm: str
    env: str                                                 # or a task
    seed: int
    progress: dict[str, list[float]]
    measure: str                                             # the column that tells how good the policy is

    @property
    def unit(self) -> str:
        """The unit of a step."""
        return "updates" if self.algorithm.startswith("llm ") else "environment steps"

    def label(self, column: str) -> str:
        """The name of a column, in words; a reward that was learned is never called like one that is true."""
        return "learned " * (TRUTH in self.progress and column in ("reward", "held_out_reward")) + short(column)

    def xy(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """Two columns, `[rows]` each, without the rows where one is not finite: those in which no episode ended."""
        xs, ys = (np.array(self.progress.get(name, []), float) for name in (x, y))
        if len(xs) != len(ys):                               # a run without that column
            return np.empty(0), np.empty(0)
        finite = np.isfinite(xs) & np.isfinite(ys)
        return xs[finite], ys[finite]


def read_curves(directory: Path) -> Curves:
    """The run in `directory`. UserError where it is not one."""
    data, progress = read_run(directory), read_progress(directory)
    subject = data["config"].get("env") or data["config"].get("task")
    if subject is None or "seed" not in data["config"]:
        raise UserError(f"{directory}/config.json lacks {'env' if subject is None else 'seed'}; restore it")
    if not isinstance(subject, str):                                      # a Python function or object is only named
        subject = subject["callable"] if isinstance(subject, dict) else "list of prompts"
    older = "held_out_accuracy" if "held_out_accuracy" in progress else "return_mean_100"
    return Curves(directory, data["algorithm"], subject, data["config"]["seed"], progress, data.get("measure", older))


def draw_curve(directory: Path) -> Path:
    """Draw how well a run did, in training and in its measure, into its `curve.png`, and return the path of that."""
    from matplotlib import rc_context
    run, path = read_curves(Path(directory)), Path(directory) / "curve.png"
    other = short(run.measure), {"reward": "mean reward in training", run.measure: short(run.measure)}
    ylabel, columns = SHOWN.get(TRUTH if TRUTH in run.progress else run.measure, other)
    with rc_context(STYLE):
        picture, (axes,) = figure()
        for (column, label), look in zip(columns.items(), LOOKS, strict=False):
            xs, ys = run.xy("steps", column)
            if len(xs):                                      # imitation, for one, earns no reward in training
                line(axes, xs, ys, label=label, **look)
        axes.set(title=f"{run.algorithm} on {run.env}, seed {run.seed}", ylabel=ylabel)
        finish(axes, run.unit, empty=not axes.lines)
        write_whole(path, render(picture, "png"))
    return path


def line(axes: "Axes", xs: np.ndarray, ys: np.ndarray, **look: Any) -> None:
    """Draw ys over xs, `[points]` each; a single point gets a marker."""
    axes.plot(xs, ys, marker="." if len(xs) == 1 else "", **look)          # a line of one point would not be seen


def figure(panels: int = 1, curves: int = 1) -> tuple["Figure", list["Axes"]]:
    """A figure of its own, not pyplot's, which would look for a screen; wider where legends stand outside."""
    from matplotlib.figure import Figure
    columns = 2 if panels == 4 else min(3, panels)
    rows = -(-panels // columns)
    width, height = (7.2, 4.2) if panels == 1 else (5.0, 3.8)              # inches
    picture = Figure(((width + 2.4 * (curves > MANY)) * columns, height * rows), layout="constrained")
    return picture, [picture.add_subplot(rows, columns, i + 1) for i in range(panels)]


def finish(axes: "Axes", xlabel: str, *, empty: bool, title: str | None = None) -> None:
    """The horizontal axis and the legend, or a word where there is nothing to see."""
    from matplotlib.ticker import EngFormatter
    axes.set_xlabel(xlabel)
    axes.margins(x=0.02)
    axes.set_xlim(left=0)
    if xlabel in ("environment steps", "updates"):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))               # 100k, 1M
    outside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0}
    if empty:
        axes.text(0.5, 0.5, "no numbers yet", transform=axes.transAxes, ha="center", color="#666666")
    else:
        many = len(axes.get_legend_handles_labels()[1]) > MANY
        axes.legend(title=title, alignment="left", **(outside if many else {"loc": "best"}))


def render(figure: "Figure", kind: str) -> bytes:
    """A figure as the bytes of a file of that kind, the same for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
