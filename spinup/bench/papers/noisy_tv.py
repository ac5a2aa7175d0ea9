"""The noisy television (Burda et al. 2018, sec. 3.4): agents rewarded for prediction errors watch it."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, run
from spinup.bench.process import in_turn
from spinup.runs.log import read_progress

SEEDS = (1, 2, 3)
ENV, KINDS = "NoisyTV-v0", ("pixels", "random", "rnd", "inverse")
ROWS = 15                               # rows of progress.csv averaged in each point of the figure
BORED, TIMES = ("rnd", "inverse"), 2    # kinds that must watch the TV less, and the least factor
WORDS = {"pixels": "prediction of pixels", "random": "prediction of random features", "rnd": "random distillation",
         "inverse": "prediction of inverse features"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with each kind of curiosity alone. Measure the share of time with the TV in view in the second half."""
    jobs = [(kind, seed) for kind in KINDS for seed in seeds]
    folders = in_turn(lambda job: run("curiosity", ENV, job[1], log_dir, "--bonus", job[0], "--threads", "1",
                                      label=job[0]), jobs, workers)
    curves: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for (kind, _), folder in zip(jobs, folders, strict=True):
        progress = read_progress(folder)
        curves[kind].append((progress["steps"], progress["watching"], progress["cells"]))
    share = {kind: [float(np.mean(w[len(w) // 2:])) for _, w, _ in found] for kind, found in curves.items()}
    at_first = float(np.mean([w[0] for found in curves.values() for _, w, _ in found]))
    lines = [Line("share of time with the TV in view, first rows", "", at_first)]
    for kind in KINDS:
        ours, pixels = float(np.mean(share[kind])), float(np.mean(share["pixels"]))
        goal = f"<= {pixels / TIMES:.3f}, pixels / {TIMES}" if kind in BORED else ""
        lines.append(Line(f"the same in the second half: {WORDS[kind]}", "", ours, goal,
                          not goal or ours <= pixels / TIMES))
    lines += [Line(f"distinct cells per episode, second half: {WORDS[kind]}", "", float(np.mean(
        [np.nanmean(c[len(c) // 2:]) for _, _, c in curves[kind]]))) for kind in KINDS]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for kind, colour in zip(KINDS, ("#D55E00", "#CC79A7", "#0072B2", "#009E73"), strict=True):
            for k, (steps, watching, _) in enumerate(curves[kind]):
                smooth = np.convolve(watching, np.ones(ROWS) / ROWS, "valid")
                axes.plot(np.array(steps)[ROWS - 1:] / 1e6, smooth, color=colour, linewidth=1.4, alpha=0.8,
                          label=None if k else WORDS[kind])
        axes.set(title="Time with a noisy television in sight", xlabel="million environment steps",
                 ylabel=f"share of steps, of {ROWS} rows", ylim=(0, 1))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)

    return Paper("The noisy television (Burda et al. 2018)", lines, draw, {"watching": share}), folders
