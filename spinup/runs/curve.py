"""Learning curve of one run, drawn at its end, and functions that all plots of curves share."""
import io
import sys
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spinup.errors import UserError
from spinup.runs.display import short
from spinup.runs.files import write_whole
from spinup.runs.log import read_progress
from spinup.runs.records import read_run

if TYPE_CHECKING:                                            # imported only for drawing, because it takes 0.3 s
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 6                # with more curves, the legend is outside the axes
SHORT = 36              # characters of a label; with a longer one, the legend is below the axes
# Okabe and Ito's colours, which colour-blind people can tell apart. Their yellow is faint on white, so the last colour
# is Tol's olive.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
LINES = ("-", "--", ":", "-.")
STYLE = {"font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.titlepad": 10,
         "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#999999",
         "axes.labelcolor": "#444444", "xtick.color": "#444444", "ytick.color": "#444444",
         "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e8e8e8", "lines.solid_capstyle": "round",
         "legend.framealpha": 0.85, "legend.edgecolor": "none", "legend.fontsize": 9, "legend.title_fontsize": 8,
         "axes.formatter.useoffset": False, "savefig.dpi": 150, "text.parse_math": False,    # $ in a name of the user's
         "axes.prop_cycle": f"cycler(color={[*COLOURS]})",
         "svg.hashsalt": "spinup"}                           # the same curves give the same file
TRUTH = "held_out_gold"                                      # true reward, logged if a reward model gives the rewards
# Contents of `curve.png` by measure, or for the true reward if it is known: the label of the y axis and the columns to
# plot. The columns use the styles of `LOOKS` in order.
SHOWN = {
    "return_mean_100": ("return", {"return_mean": "mean of an epoch's episodes",
                                   "return_mean_100": "mean of the last 100 episodes"}),
    "held_out_accuracy": ("share of responses", {"reward": "mean reward in training",
                                                 "held_out_accuracy": "solved held-out problems"}),
    "held_out_reward": ("mean reward", {"reward": "in training", "held_out_reward": "on held-out problems"}),
    TRUTH: ("mean reward", {"reward": "learned reward, in training", "held_out_reward": "learned reward, on held-out "
                                                                                        "problems",
                            TRUTH: "true reward, on held-out problems"}),
    "pair_accuracy": ("share of pairs ranked correctly", {"train_accuracy": "training pairs",
                                                        "pair_accuracy": "held-out pairs"})}
LOOKS = ({"color": COLOURS[0], "alpha": 0.35, "linewidth": 1}, {"color": COLOURS[0], "linewidth": 2},
         {"color": COLOURS[1], "linewidth": 2})


@dataclass
class Curves:
    """A run as read from its files."""

    directory: Path
    algorithm: str
    env: str                                                 # or a task
    seed: int
    progress: dict[str, list[float]]
    measure: str                                             # the column that measures the quality of the policy
    unit: str                                                # of a step

    def label(self, column: str) -> str:
        """Return the name of a column in words. Learned rewards are called "learned", to tell them from true
        rewards."""
        return "learned " * (TRUTH in self.progress and column in ("reward", "held_out_reward")) + short(column)

    def xy(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """Return two columns, `[rows]` each, without rows in which one is not finite because no episode ended."""
        xs, ys = (np.array(self.progress.get(name, []), float) for name in (x, y))
        if len(xs) != len(ys):                               # the run has no such column
            return np.empty(0), np.empty(0)
        finite = np.isfinite(xs) & np.isfinite(ys)
        return xs[finite], ys[finite]


def read_curves(directory: Path) -> Curves:
    """Read the run in `directory`. UserError if it is not a run."""
    data, progress = read_run(directory), read_progress(directory)
    subject = subject_of(directory, data["config"])
    for name, entries in (("seed", data["config"]), ("measure", data)):
        if name not in entries:
            raise UserError(f"{directory}/config.json lacks {name}; restore it")
    unit = "updates" if data["algorithm"].startswith("llm ") else data.get("unit", "environment steps")
    return Curves(directory, data["algorithm"], subject, data["config"]["seed"], progress, data["measure"], unit)


def subject_of(directory: Path, settings: dict[str, Any]) -> str:
    """Return the environment or task in the settings of the run in `directory`; a Python function or object by its
    name. UserError if they lack it."""
    subject = settings.get("env") or settings.get("task")
    if subject is None:
        raise UserError(f"{directory}/config.json lacks env; restore it")
    if isinstance(subject, dict):
        return str(subject.get("callable", "object"))
    return subject if isinstance(subject, str) else "list of prompts"


def draw_curve(directory: Path) -> Path | None:
    """Plot the training performance and the measure of a run into its `curve.png`, and return the path of the file.

    Without matplotlib, print the pip command and return None: the run itself is complete.
    """
    if find_spec("matplotlib") is None:
        print(f"spinup: no {directory}/curve.png; type: pip install matplotlib", file=sys.stderr)
        return None
    from matplotlib import rc_context
    run, path = read_curves(Path(directory)), Path(directory) / "curve.png"
    other = short(run.measure), {"reward": "mean reward in training", run.measure: short(run.measure)}
    ylabel, columns = SHOWN.get(TRUTH if TRUTH in run.progress else run.measure, other)
    with rc_context(STYLE):
        picture, (axes,) = figure()
        for (column, label), look in zip(columns.items(), LOOKS, strict=False):
            xs, ys = run.xy("steps", column)
            if len(xs):                                      # SFT, for example, has no reward in training
                line(axes, xs, ys, label=label, **look)
        axes.set(title=f"{run.algorithm} on {run.env}, seed {run.seed}", ylabel=ylabel)
        finish(axes, run.unit, empty=not axes.lines)
        write_whole(path, render(picture, "png"))
    return path


def style(place: int) -> dict[str, str]:
    """Return the colour and the dashes of the curve at this place in the legend. Neighbours differ in both, so that
    they can be told apart without colours."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": LINES[(place + place // len(COLOURS)) % len(LINES)]}


def line(axes: "Axes", xs: np.ndarray, ys: np.ndarray, **look: Any) -> None:
    """Plot ys over xs, `[points]` each; a single point gets a marker."""
    axes.plot(xs, ys, marker="." if len(xs) == 1 else "", **look)          # a line of one point is invisible


def figure(panels: int = 1, curves: int = 1) -> tuple["Figure", list["Axes"]]:
    """Make a figure without pyplot, which would look for a screen. It is wider if the legend is outside the axes."""
    from matplotlib.figure import Figure
    columns = 2 if panels == 4 else min(3, panels)
    rows = -(-panels // columns)
    width, height = (7.2, 4.2) if panels == 1 else (5.0, 3.8)              # inches
    picture = Figure(((width + 2.4 * (curves > MANY)) * columns, height * rows), layout="constrained")
    return picture, [picture.add_subplot(rows, columns, i + 1) for i in range(panels)]


def finish(axes: "Axes", xlabel: str, *, empty: bool, title: str | None = None) -> int:
    """Add the x axis and the legend, or a note if there is nothing to plot. Return the number of lines of a
    legend below the axes, 0 without one; the figure must become higher by as many."""
    from matplotlib.ticker import EngFormatter
    from matplotlib.transforms import ScaledTranslation
    axes.set_xlabel(xlabel)
    axes.margins(x=0.02)
    axes.set_xlim(left=0)
    if xlabel in ("environment steps", "updates"):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))               # 100k, 1M
    if empty:
        axes.text(0.5, 0.5, "no data yet", transform=axes.transAxes, ha="center", color="#666666")
        return 0
    handles, labels = axes.get_legend_handles_labels()
    many = len(labels) > MANY
    if max(map(len, labels)) <= SHORT:
        outside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0}
        axes.legend(title=title, alignment="left", **(outside if many else {"loc": "best"}))
        return 0
    width = axes.figure.get_figwidth() / axes.get_gridspec().ncols         # of a panel, in inches
    labels = [textwrap.fill(label, round(10.5 * width) // (1 + many) - 5) for label in labels]
    under = axes.transAxes + ScaledTranslation(0, -0.5, axes.figure.dpi_scale_trans)  # half an inch below the axes
    axes.legend(handles, labels, title=title, alignment="left", ncols=1 + many, loc="upper left", bbox_to_anchor=(0, 0),
                bbox_transform=under, borderaxespad=0)
    return -(-len(labels) // (1 + many)) * max(label.count("\n") + 1 for label in labels) + 1


def render(figure: "Figure", kind: str) -> bytes:
    """Return a figure as the bytes of a file of that kind; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
