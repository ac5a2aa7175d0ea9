"""Learning curves of many runs, averaged over seeds."""
import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spinup.errors import UserError, nearest
from spinup.runs.curve import STYLE, Curves, figure, finish, line, read_curves, render, style
from spinup.runs.files import check_pair, write_whole
from spinup.view.statistics import ENOUGH, interval, mean_interval, range_of

if TYPE_CHECKING:                                            # imported only for drawing, because it takes 0.3 s
    from matplotlib.axes import Axes

POINTS = 200            # points of a mean curve; as many as a run has rows
PUBLISHED = (0, (5, 2, 1, 2, 1, 2))      # of published curves: a dash and two dots, in line widths
LARGEST = 1e30           # of published curves; matplotlib cannot draw axes of much larger numbers
LISTED = 16             # curves that fit into the legend; if there are more, those with the lowest last values are grey
ABOUT_EQUAL = 0.98      # share of the longest run's steps; a shorter run is mentioned below the table
LABELS = {"return_mean_100": "mean return of the last 100 episodes",          # if `short` is too short
          "return_mean": "mean return of an epoch's episodes"}


def find_curves(directories: Sequence[Path]) -> list[Curves]:
    """Return every run in or below `directories` once, run 2 before run 10. UserError for a folder without any row."""
    found: dict[Path, Curves] = {}
    for directory in directories:
        folders = {f.parent.resolve() for f in Path(directory).rglob("progress.csv")}
        runs = [read_curves(f) for f in folders if (f / "config.json").exists()]
        if not (runs := [run for run in runs if run.progress.get("steps")]):
            raise UserError(f"{directory} holds no run with a row in its progress.csv; give the folder of a run, or "
                            "one above several, such as runs")
        found |= {run.directory: run for run in sorted(runs, key=lambda run: _natural(str(run.directory)))}
    return list(found.values())


def _natural(text: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]


def grouped(runs: list[Curves], group: str, value: str = "") -> dict[tuple[str, str, str], dict[str, list[Curves]]]:
    """Return the panels of a figure: (environment, measure, unit of a step) -> label -> runs of one curve. A label is
    an algorithm or a folder name. Equal folder names get as many parent folders in front as they need to differ. Other
    names in the same parent folder get as many. UserError for an unknown group."""
    kinds = {"experiment": lambda run: run.directory.parent, "run": lambda run: run.directory,
             "algorithm": lambda run: Path(run.algorithm)}
    if group not in kinds:
        raise UserError(f"--group must be one of {', '.join(kinds)}, not {group!r}.{nearest(group, kinds)}")
    keys = {kinds[group](run) for run in runs}
    result: dict[tuple[str, str, str], dict[str, list[Curves]]] = {}
    depths = {key: next(d for d in range(1, len(key.parts) + 1)
                        if sum(k.parts[-d:] == key.parts[-d:] for k in keys) == 1) for key in keys}
    for run in runs:
        key = kinds[group](run)
        depth = max(d for other, d in depths.items() if other.parent == key.parent)          # alike within a folder
        label = "/".join(key.parts[-depth:])
        axis = run.env, run.label(value or run.measure), run.unit
        result.setdefault(axis, {}).setdefault(label, []).append(run)
    return result


def read_published(path: Path) -> dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]:
    """Read published curves from a CSV file with the columns env, algorithm, source, steps and value. Return steps and
    values `[points]` by environment, algorithm and source. UserError if the file has another format."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    if not path.exists() or path.is_dir():
        raise UserError(f"there is no file {path}; give --beside a CSV file with published curves")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                point = float(row["steps"]), float(row["value"])
                if not np.all(np.abs(point) < LARGEST):                    # nor NaN
                    raise ValueError
                found.setdefault((row["env"], row["algorithm"], row["source"]), []).append(point)
        if not found:
            raise ValueError
    except (OSError, csv.Error, KeyError, TypeError, ValueError):
        raise UserError(f"--beside {path} holds no curves; give a CSV file whose first line is env,algorithm,source,"
                        f"steps,value, and numbers below {LARGEST:g} in the last two columns") from None
    return {key: (np.array(sorted(points))[:, 0], np.array(sorted(points))[:, 1]) for key, points in found.items()}


def plot(directories: Sequence[Path], *, x: Literal["step", "time"] = "step", smooth: int = 1,
         group: Literal["experiment", "run", "algorithm"] = "experiment", value: str = "",
         beside: Path | None = None, out: Path | None = None) -> list[Path]:
    """Plot every run in or below `directories`, one axis per environment, measure and unit of a step. Return the paths
    of the PNG and SVG.

    A curve is the mean over the runs of a group with its 95 % confidence interval (Student's t), where all of them
    have a value. Thin lines show what comes before and after, and every run of a group with fewer than three runs.

    Args:
        x: environment steps or wall-clock time.
        smooth: rows to average over, half of them before and half after.
        group: the runs in one curve: the seeds in an experiment folder, a single run, or all runs of an algorithm.
        value: a column of `progress.csv`; by default the measure of policy quality.
        beside: a file of published curves (`read_published`). Each curve has a pattern of a dash and two dots and
            ends where our runs end. It has the colour of our curve of the same environment and algorithm, or is grey if
            several of our curves match.
        out: the plot file; it is written as PNG and SVG. By default `plot.png` in the first directory.

    UserError: no runs, an unknown column (the nearest is named), a file that cannot be written.
    """
    from matplotlib import rc_context
    if x not in ("step", "time"):
        raise UserError(f"--x must be step or time, not {x!r}")
    if smooth < 1:
        raise UserError(f"--smooth must be at least 1, not {smooth}")
    if beside and x == "time":
        raise UserError("--beside needs steps on the x axis; leave out --x time")
    if beside and value and "return" not in value:
        raise UserError(f"--beside shows published returns, and {value} is not a return; leave out --value, or choose "
                        "--value test_return")
    published = read_published(beside) if beside else {}
    runs = with_column(find_curves(directories), value)
    out = Path(directories[0]) / "plot.png" if out is None else Path(out)
    if not out.name or out.suffix not in ("", ".png", ".svg") or not out.parent.is_dir():
        raise UserError(f"--out {out} cannot be written; give a name that ends in .png or .svg, in a writable folder")
    paths = check_pair(out if out.suffix else out.with_suffix(".png"), (".png", ".svg"))
    panels = grouped(runs, group, value)
    ours, theirs = ({(run.env, run.algorithm) for run in runs}, {key[:2] for key in published})
    if beside and not ours & theirs:
        these, those = (", ".join(f"{name} in {env}" for env, name in sorted(keys)) for keys in (ours, theirs))
        raise UserError(f"--beside {beside} has no curve of {these}; it has {those}")
    labels = sorted({label for groups in panels.values() for label in groups})
    column, seconds, xlabel = ("steps", 1, runs[0].unit) if x == "step" else ("wall_seconds", *_time_unit(runs))
    with rc_context(STYLE):
        picture, all_axes = figure(len(panels), max(len(groups) for groups in panels.values()))
        below: list[int] = []                                             # lines of the legends
        for axes, ((env, words, unit), groups) in zip(all_axes, panels.items(), strict=True):
            measure = value or next(iter(groups.values()))[0].measure
            order = labels if group == "algorithm" else [*groups]         # the same style in all panels
            beside_these = {(algorithm, source): xy for (where, algorithm, source), xy in published.items()
                            if where == env}
            banded = draw_panel(axes, groups, order, column, seconds, measure, smooth, beside_these)
            window = min(smooth, max(len(run.progress["steps"]) for members in groups.values() for run in members))
            axes.set(title=env, ylabel=LABELS.get(measure, words) + f"\naveraged over {window} rows" * (window > 1))
            below.append(finish(axes, unit if x == "step" else xlabel, empty=not axes.lines,
                                title="bands: 95 % confidence interval, n runs" if banded else None))
        rows = all_axes[0].get_gridspec().nrows
        picture.set_figheight(picture.get_figheight() + 0.2 * rows * max(below))
        try:
            for path in paths:
                write_whole(path, render(picture, path.suffix[1:]))
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror.lower()}); choose another --out") from None
    return [*paths]


def draw_panel(axes: "Axes", groups: dict[str, list[Curves]], order: list[str], x: str, seconds: int, y: str,
               smooth: int, published: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]) -> bool:
    """Plot the groups of one panel, and the published curves of their algorithms. Return whether a curve has a band.

    With more than `LISTED` groups, the legend lists those with the highest last values, the highest first. The others
    are grey.

    Args:
        order: labels; the position of a label determines its style.
        x, y: columns of the axes; x is divided by `seconds`, and y is averaged over `smooth` rows.
        published: steps and values `[points]` by algorithm and source.
    """
    drawn = {label: [(xs / seconds, _smoothed(ys, smooth)) for xs, ys in (run.xy(x, y) for run in members) if len(xs)]
             for label, members in groups.items()}
    banded, lower = False, []
    if len(drawn) > LISTED:
        best = sorted(drawn, key=lambda label: np.mean([ys[-1] for _, ys in drawn[label]] or [-np.inf]), reverse=True)
        order, lower = best[:LISTED], [label for label in best[LISTED:] if drawn[label]]
    for label in lower:
        for xs, ys in drawn[label]:
            line(axes, xs, ys, color="#bbbbbb", linewidth=0.8)
    for label in [label for label in order if label in drawn]:
        banded |= draw_group(axes, drawn[label], label, style(order.index(label)), range_of(y))
    if lower:
        axes.plot([], [], color="#bbbbbb", label=f"{len(lower)} other{'s' * (len(lower) > 1)}, not higher at the end")
    last = max((xs[-1] for curves in drawn.values() for xs, _ in curves), default=0.0)
    for (algorithm, source), (xs, ys) in published.items():
        of = [label for label, members in groups.items() if members[0].algorithm == algorithm and label in order]
        if of and (xs <= last).any():
            colour = style(order.index(of[0]))["color"] if len(of) == 1 else "#666666"
            line(axes, xs[xs <= last], ys[xs <= last], color=colour, linestyle=PUBLISHED, linewidth=1.2,
                 label=f"{algorithm}: {source}")
    return banded


def with_column(runs: list[Curves], column: str) -> list[Curves]:
    """Return the runs that have a column of `progress.csv`; all for "". UserError if no run has it."""
    found = [run for run in runs if not column or column in run.progress]
    if not found:
        known = runs[0].progress
        raise UserError(f"no run has a column {column!r}.{nearest(column, known)} The columns are: {', '.join(known)}")
    return found


def summary(directories: Sequence[Path], group: str = "experiment", value: str = "") -> list[dict[str, Any]]:
    """Return a plot as a table. Each group has a row with the mean of a column over its runs: the measure, or `value`.
    The mean uses the last rows up to the end of the shortest run.

    `n` counts the runs with a number there. `steps` are those of the shortest run. `low` and `high` bound the 95 %
    confidence interval of the mean over runs; they are NaN for fewer than three runs.
    """
    rows = []
    runs = with_column(find_curves(directories), value)
    for (env, measure, _), groups in grouped(runs, group, value).items():
        for label, members in groups.items():
            until = min(m.progress["steps"][-1] for m in members)
            curves = (m.xy("steps", value or m.measure) for m in members)
            last = [float(ys[xs <= until][-1]) for xs, ys in curves if (xs <= until).any()]
            low, high = interval(last, range_of(value or members[0].measure)) or (np.nan, np.nan)
            rows.append({group: label, "env": env, "n": len(last), "steps": int(until), "measure": measure,
                         "mean": float(np.mean(last)) if last else np.nan, "low": low, "high": high})
    return rows


def remarks(directories: Sequence[Path], group: str = "experiment", value: str = "") -> list[str]:
    """Return sentences about runs that the plot leaves out, because they lack the column `value`, and about rows of the
    table whose mean is at the end of a run that is shorter than the others."""
    runs = find_curves(directories)
    lacking = [run.directory.name for run in runs if value and value not in run.progress]
    said = [f"left out, because they have no column {value}: {', '.join(lacking)}"] if lacking else []
    for (env, _, _), groups in grouped(with_column(runs, value), group, value).items():
        for label, members in groups.items():
            short = min(members, key=lambda run: run.progress["steps"][-1])
            until, longest = short.progress["steps"][-1], max(run.progress["steps"][-1] for run in members)
            if until < ABOUT_EQUAL * longest:
                said.append(f"{label} on {env}: its row shows the mean at {until:,.0f} steps, where "
                            f"{short.directory.name} ends; compare it only with rows for the same number of steps")
    return said


def draw_group(axes: "Axes", curves: list[tuple[np.ndarray, np.ndarray]], label: str, look: dict[str, str],
                within: tuple[float, float]) -> bool:
    """Plot one legend entry of curves (x, y), `[rows]` each: a mean with its interval (return True), or each run if
    there are few (return False)."""
    if not curves:
        return False
    hidden = "\u200b" * label.startswith("_")                             # a legend leaves out such labels
    label = f"{hidden}{label} (n={len(curves)})"
    start, end = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    if len(curves) < ENOUGH or start >= end:
        for i, (xs, ys) in enumerate(curves):
            line(axes, xs, ys, **look, linewidth=1.2, alpha=0.85, label=None if i else label)
        return False
    grid = np.linspace(start, end, POINTS)
    on_grid = np.stack([np.interp(grid, xs, ys) for xs, ys in curves])     # [n, POINTS]
    axes.fill_between(grid, *mean_interval(on_grid, within=within), color=look["color"], alpha=0.18, linewidth=0)
    line(axes, grid, on_grid.mean(0), **look, linewidth=2, label=label)
    for xs, ys in curves:
        at_start, at_end = np.interp([start, end], xs, ys)
        before, after = xs < start, xs > end
        for x, y in ((np.r_[xs[before], start], np.r_[ys[before], at_start]),
                     (np.r_[end, xs[after]], np.r_[at_end, ys[after]])):
            if len(x) > 1:
                line(axes, x, y, **look, linewidth=0.8, alpha=0.5)
    return True


def _smoothed(ys: np.ndarray, rows: int) -> np.ndarray:
    """Moving average over `rows` rows; fewer at the ends, where a full window would include zeros."""
    window = np.ones(min(rows, len(ys)))
    return np.convolve(ys, window, "same") / np.convolve(np.ones(len(ys)), window, "same")


def _time_unit(runs: list[Curves]) -> tuple[int, str]:
    """Seconds in a suitable time unit for the longest run, and the axis label."""
    longest = max(run.progress["wall_seconds"][-1] for run in runs)
    seconds, unit = (3600, "h") if longest >= 7200 else (60, "min") if longest >= 120 else (1, "s")
    return seconds, f"wall-clock time ({unit})"
