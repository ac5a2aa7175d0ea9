"""The noisy television (Burda et al. 2018, sec. 3.4): agents rewarded for prediction errors watch it."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, by_kind, plot_runs, run, together
from spinup.runs.log import read_progress

SEEDS = (1, 2, 3)
ENV, KINDS = "NoisyTV-v0", ("pixels", "random", "rnd", "inverse")
ROWS = 15                               # rows of progress.csv averaged in each point of the figure
BORED, TIMES = ("rnd", "inverse"), 2    # kinds that must watch the TV less, and the least factor
WORDS = {"pixels": "prediction of pixels", "random": "prediction of random features", "rnd": "random distillation",
         "inverse": "prediction of inverse features"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with each kind of curiosity alone. Measure the share of time with the TV in view in the second half."""
    folders = by_kind(KINDS, seeds, workers, lambda kind, seed: run(
        "curiosity", ENV, seed, log_dir, "--bonus", kind, "--threads", "1", label=kind))
    share = {kind: [float(np.mean(second_half(folder, "watching"))) for folder in found]
             for kind, found in folders.items()}
    at_first = float(np.mean([read_progress(folder)["watching"][0] for folder in together(folders)]))
    lines = [Line("share of time with the TV in view, first rows", "", at_first)]
    for kind in KINDS:
        ours, pixels = float(np.mean(share[kind])), float(np.mean(share["pixels"]))
        goal = f"<= {pixels / TIMES:.3f}, pixels / {TIMES}" if kind in BORED else ""
        lines.append(Line(f"the same in the second half: {WORDS[kind]}", "", ours, goal,
                          not goal or ours <= pixels / TIMES))
    lines += [Line(f"distinct cells per episode, second half: {WORDS[kind]}", "", float(np.mean(
        [np.nanmean(second_half(folder, "cells")) for folder in folders[kind]]))) for kind in KINDS]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for kind, colour in zip(KINDS, ("#D55E00", "#CC79A7", "#0072B2", "#009E73"), strict=True):
            plot_runs(axes, folders[kind], "steps", "watching", WORDS[kind], scale=1e6, rows=ROWS, color=colour,
                      linewidth=1.4, alpha=0.8)
        axes.set(title="Time with a noisy television in sight", xlabel="million environment steps",
                 ylabel=f"share of steps (mean of {ROWS} rows)", ylim=(0, 1))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)

    return Paper("The noisy television (Burda et al. 2018)", lines, draw, {"watching": share}), together(folders)


def second_half(folder: Path, column: str) -> list[float]:
    """Return the second half of a column of a run's log."""
    values = read_progress(folder)[column]
    return values[len(values) // 2:]
