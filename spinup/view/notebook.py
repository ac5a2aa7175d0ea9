"""Figures for notebooks: curves of several runs, and figures with alt text for screen readers."""
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from spinup.errors import UserError, nearest
from spinup.runs.curve import STYLE, render, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Sizes = TypeVar("Sizes")


def sizes(budget: str, **known: Sizes) -> Sizes:
    """Return the settings of a notebook for a budget: `sizes("cpu", ci=..., cpu=..., gpu=...)`. The environment
    variable SPINUP_BUDGET overrides `budget`.

    UserError if there is no such budget.
    """
    budget = os.environ.get("SPINUP_BUDGET", budget)
    if budget not in known:
        raise UserError(f"the budget must be one of {', '.join(known)}, not {budget!r}.{nearest(budget, known)}")
    return known[budget]


def panels(number: int = 1, size: tuple[float, float] = (4.6, 3.4)) -> tuple["Figure", list["Axes"]]:
    """Make a figure with axes side by side, each of `size` in inches, in the style of all our figures."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    with rc_context(STYLE):
        figure = Figure((size[0] * number, size[1]), layout="constrained")
        return figure, [figure.add_subplot(1, number, i + 1) for i in range(number)]


def curves(axes: "Axes", runs: Mapping[str, Sequence[Any]], y: str = "return_mean_100", x: str = "steps") -> None:
    """Plot the runs of each label as thin lines and their mean as a thick line, up to the end of the shortest run. Runs
    without data, because no episode has ended yet, are skipped.

    Args:
        runs: results of training runs, or dicts of columns, by label.
        x, y: columns of `progress.csv`. UserError if a run has no such column.
    """
    for i, (label, results) in enumerate(runs.items()):
        look, lines = style(i), []
        for result in results:
            columns = getattr(result, "progress", result)
            for name in (x, y):
                if name not in columns:
                    raise UserError(f"the run has no column {name!r}.{nearest(name, columns)}")
            xs, ys = np.array(columns[x], float), np.array(columns[y], float)
            told = np.isfinite(xs) & np.isfinite(ys)                      # skip rows before the first episode end
            if told.any():
                lines.append((xs[told], ys[told]))
                axes.plot(*lines[-1], **look, linewidth=1, alpha=0.35)
        if not lines:
            continue
        grid = np.linspace(max(xs[0] for xs, _ in lines), min(xs[-1] for xs, _ in lines), 200)
        axes.plot(grid, np.mean([np.interp(grid, xs, ys) for xs, ys in lines], 0), **look, linewidth=2, label=label)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend()


def show(figure: "Figure", words: str) -> None:
    """Show a figure in a notebook. `words` is its alt text, for screen readers and where it cannot be shown."""
    from IPython.display import Image, display
    display(Image(render(figure, "png"), alt=words, width=int(figure.get_figwidth() * 100)))
