"""Pictures of a report, as wide as a phone can show: the legend is below the axes."""
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spinup.bench.aggregate import RUNS, Scores, between, iqm, profile
from spinup.bench.compared import Trained
from spinup.bench.page import Picture
from spinup.runs.curve import STYLE, line, render, style
from spinup.view.plots import LABELS, draw_group
from spinup.view.statistics import ENOUGH, range_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 50             # of a curve over normalised steps
THRESHOLDS = 201        # of a performance profile
FEWER = 500             # bootstrap samples of bands
HALF = 26               # characters of a label that fit into half of a picture's width
Look = dict[str, str]   # colour and dashes of a line


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """Return the style of each label, the same in all pictures of a page."""
    return {label: style(place) for place, label in enumerate(labels)}


def canvas() -> tuple["Figure", "Axes"]:
    """Make a figure with one axes."""
    from matplotlib.figure import Figure
    made = Figure((5.2, 3.4), layout="constrained")                       # inches
    return made, made.add_subplot()


def picture(name: str, made: "Figure", caption: str, legend: bool = True) -> Picture:
    """Return a figure as a picture, with a legend below the axes: in two columns if the labels are short."""
    if legend:
        handles, labels = made.axes[0].get_legend_handles_labels()
        columns = 2 if max(map(len, labels)) <= HALF else 1
        labels = [textwrap.fill(label, 2 * HALF) for label in labels]
        lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
        made.set_figheight(made.get_figheight() + 0.23 * lines)
        made.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=10)
    return Picture(name, render(made, "png"), caption)


def intervals(name: str, scores: dict[str, Scores], styles: dict[str, Look]) -> Picture:
    """IQM and its interval for each algorithm; scores `[runs]` per environment."""
    from matplotlib import rc_context
    with rc_context(STYLE):
        made, axes = canvas()
        made.set_figheight(1.0 + 0.28 * sum(-(-len(label) // HALF) for label in scores))
        for place, (label, found) in enumerate(scores.items()):
            colour = styles[label]["color"]
            if spread := between(iqm, found):
                axes.plot(spread, [place, place], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")
            axes.plot(iqm(found), place, "o", color=colour)
        names = [textwrap.fill(label, HALF) for label in scores]
        axes.set_yticks(range(len(scores)), names)
        axes.invert_yaxis()
        axes.set(title="Interquartile mean", xlabel="normalised score")
        axes.locator_params(axis="x", nbins=5)
        axes.margins(x=0.08, y=0.2)
        return picture(name, made, "IQM of the normalised scores. 95 % bootstrap intervals appear with at least "
                       f"{RUNS} runs, and at least {ENOUGH} in each environment", legend=False)


def profiles(name: str, scores: dict[str, Scores], styles: dict[str, Look]) -> Picture:
    """Performance profile of each algorithm with bands; scores `[runs]` per environment."""
    from matplotlib import rc_context
    together = np.concatenate([runs for found in scores.values() for runs in found])
    thresholds = np.linspace(min(0.0, together.min()), max(1.0, together.max()), THRESHOLDS)
    with rc_context(STYLE):
        made, axes = canvas()
        for label, found in scores.items():
            banded(axes, thresholds, lambda drawn: profile(drawn, thresholds), found, label, styles[label])
        axes.set(title="Performance profile", xlabel="normalised score", ylabel="share of runs above the score")
        return picture(name, made, "Performance profiles: the share of runs above each score; higher is better")


def banded(axes: "Axes", xs: np.ndarray, measure: Callable[[Scores], np.ndarray], found: Scores, label: str,
           style: Look) -> None:
    """Draw a measure `[points]` of scores over `xs`, `[points]`, with the band of its bootstrap interval."""
    if spread := between(measure, found, samples=FEWER):
        axes.fill_between(xs, *spread, color=style["color"], alpha=0.1, linewidth=0)
    line(axes, xs, measure(found), **style, label=label)


def on_grid(curves: Sequence[tuple[np.ndarray, np.ndarray]], between_these: tuple[float, float], steps: float
            ) -> np.ndarray:
    """Return normalised learning curves `[runs, POINTS]`, from 0 to `steps`, those of the longest run in the
    environment. A curve is constant before its first value and after its last value.

    curves: steps and values, `[rows]` each.
    """
    low, high = between_these
    grid = np.linspace(0, steps, POINTS)
    return np.stack([(np.interp(grid, *curve) - low) / (high - low) for curve in curves])


def efficiency(name: str, curves: dict[str, list[np.ndarray]], ends: dict[str, float], styles: dict[str, Look]
               ) -> Picture:
    """IQM over the steps for each algorithm, with bands; curves `[runs, POINTS]` per environment.

    ends: the share of these steps, 0 to 1, that the longest run of an algorithm made; its curve ends there.
    """
    from matplotlib import rc_context

    def over_steps(drawn: Scores) -> np.ndarray:
        return iqm([np.moveaxis(runs, -1, -2) for runs in drawn])
    share = np.linspace(0, 100, POINTS)
    with rc_context(STYLE):
        made, axes = canvas()
        for label, found in curves.items():
            n = 1 + round(ends[label] * (POINTS - 1))
            banded(axes, share[:n], over_steps, [runs[:, :n] for runs in found], label, styles[label])
        axes.set(title="Sample efficiency", xlabel="steps, in % of the longest run", ylabel="IQM of normalised scores")
        axes.set_xlim(0, 100)
        return picture(name, made, "Sample efficiency: IQM of the normalised scores during training. "
                       "A curve is constant before its first value, and ends with the longest run of the algorithm")


def curves(name: str, env: str, groups: dict[str, list[Trained]], between_these: tuple[float, float],
           styles: dict[str, Look]) -> Picture:
    """Learning curves in an environment; dotted lines show the normalised scores 0 and 1."""
    from matplotlib import rc_context
    from matplotlib.ticker import EngFormatter
    with rc_context(STYLE):
        made, axes = canvas()
        for label, runs in groups.items():
            measure = runs[0].curves.measure
            draw_group(axes, [run.curve() for run in runs], label, styles[label], range_of(measure))
        low, high = axes.get_ylim()
        for value in between_these:                           # a far line would make the curves flat
            if 2 * low - high <= value <= 2 * high - low:
                axes.axhline(value, color="#888888", linestyle=":", linewidth=1)
        axes.set(title=env, xlabel=runs[0].curves.unit, ylabel=LABELS.get(measure, runs[0].curves.label(measure)))
        axes.set_xlim(left=0)
        axes.margins(x=0.02)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        return picture(name, made, f"{env}: mean over runs with 95 % intervals, or each run where there are fewer than "
                       f"{ENOUGH}; dotted grey lines: normalised scores 0 and 1, unless they are far away")
