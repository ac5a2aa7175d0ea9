"""VPG and TRPO with Spinning Up's settings, beside the curves of its benchmark (Achiam 2018, spinningup.openai.com).

The curves are of ten seeds in the v3 environments; ours are of v5. VPG is compared with its PyTorch implementation,
TRPO with the TensorFlow one, which is the only one."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, at_least, by_kind, run, seconds_of, together
from spinup.runs.log import read_progress
from spinup.view.statistics import interval

SEEDS = (1,)
STEPS, BATCH = 1_000_000, 4000
SMOOTH = 11                             # updates averaged in each point, as in the published curves
SHOWN = (500_000, 1_000_000)            # steps
SETTINGS = ("--preset", "none", "--threads", "1", "--no-tensorboard", "--total-steps", str(STEPS), "--num-envs", "4",
            "--rollout-steps", str(BATCH // 4), "--hidden", "64,32", "--lam", "0.97", "--value-epochs", "80",
            "--value-lr", "1e-3", "--max-grad-norm", "1e9", "--no-normalise-obs", "--no-normalise-reward")
# Spinning Up uses the default initial weights of PyTorch for VPG, and of TensorFlow for TRPO. Those of the last layer
# are about as large as with these gains: 3^-0.5, and (2 / (32 + 6) x 32)^0.5 for the six actions of HalfCheetah.
OF = {"vpg": (*SETTINGS, "--lr", "3e-4", "--output-gain", "0.577"),
      "trpo": (*SETTINGS, "--max-kl", "0.01", "--cg-iterations", "10", "--output-gain", "1.3")}
# Means and standard deviations of the ten seeds after 100k, 200k, ... 1M steps, read off the plots.
PUBLISHED = {
    ("vpg", "HalfCheetah-v5"): ((-264, -231, -209, -194, -171, -152, -128, -105, -82, -49),
                                (33, 25, 26, 29, 41, 43, 56, 77, 88, 103)),
    ("vpg", "Hopper-v5"): ((96, 167, 197, 235, 274, 304, 345, 360, 377, 391), (24, 20, 14, 28, 54, 52, 41, 27, 29, 40)),
    ("trpo", "HalfCheetah-v5"): ((-583, -480, -336, -154, -29, 175, 255, 412, 570, 689),
                                 (105, 109, 116, 150, 177, 221, 239, 240, 257, 278)),
    ("trpo", "Hopper-v5"): ((243, 365, 456, 542, 636, 742, 810, 940, 1041, 1161),
                            (73, 157, 209, 244, 270, 281, 311, 299, 279, 321))}
POINTS = np.arange(1, 11) * 100_000     # their steps


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train each algorithm in each environment, and compare its returns with the published curve."""
    folders = by_kind(PUBLISHED, seeds, workers, lambda kind, seed: run(*kind, seed, log_dir, *OF[kind[0]]))
    curves = {kind: [smoothed(folder) for folder in found] for kind, found in folders.items()}
    lines, raw = [], {}
    for (algorithm, env), (means, deviations) in PUBLISHED.items():
        ours = curves[algorithm, env]
        at = [[float(returns[np.abs(steps - point).argmin()]) for steps, returns in ours] for point in POINTS]
        for point in SHOWN:
            k = POINTS.tolist().index(point)
            low, high = around(at[k], deviations[k])
            few = "" if interval(at[k]) else ", two standard deviations of its seeds"
            lines.append(Line(f"{algorithm}, {env}: return after {point:,} steps", str(means[k]), float(np.mean(at[k])),
                              f"{means[k]} in {low:.0f} to {high:.0f}{few}", low <= means[k] <= high))
        ranges = [around(*each) for each in zip(at, deviations, strict=True)]
        inside = sum(low <= mean <= high for mean, (low, high) in zip(means, ranges, strict=True))
        lines.append(at_least(f"{algorithm}, {env}: published points in our range, of {len(POINTS)}", inside,
                              len(POINTS)))
        raw[f"{algorithm} {env}"] = {"steps": POINTS.tolist(), "returns": at,
                                     "seconds": [seconds_of(folder) for folder in folders[algorithm, env]]}

    def draw(figure: Any) -> None:
        for axes, ((algorithm, env), (means, deviations)) in zip(figure.subplots(2, 2).flat, PUBLISHED.items(),
                                                                 strict=True):
            low, high = np.subtract(means, deviations), np.add(means, deviations)
            axes.fill_between(POINTS / 1000, low, high, color="0.85", label="its seeds, one standard deviation")
            axes.plot(POINTS / 1000, means, color="black", linestyle="--", label="Spinning Up")
            for k, (steps, returns) in enumerate(curves[algorithm, env]):
                axes.plot(steps / 1000, returns, color="#0072B2", linewidth=1, label=None if k else "ours, each seed")
            axes.set(title=f"{algorithm}, {env}", xlabel="thousand steps", ylabel="training return")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)

    raw["seeds"] = list(seeds)
    return Paper("VPG and TRPO beside Spinning Up's curves", lines, draw, raw), together(folders)


def smoothed(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return steps `[n]` and mean training returns `[n]` of a run, averaged over `SMOOTH` updates around each step."""
    progress = read_progress(folder)
    known = np.isfinite(progress["return_mean"])            # updates in which no episode ended have none
    steps, returns = np.array(progress["steps"])[known], np.array(progress["return_mean"])[known]
    near = SMOOTH // 2
    return steps, np.array([returns[max(k - near, 0):k + near + 1].mean() for k in range(len(returns))])


def around(returns: list[float], deviation: float) -> tuple[float, float]:
    """Return the range in which the published mean must lie: the 95 % interval of our mean. Too few seeds have no
    interval; then the range is two standard deviations of the published seeds on each side."""
    mean = float(np.mean(returns))
    return interval(returns) or (mean - 2 * deviation, mean + 2 * deviation)
