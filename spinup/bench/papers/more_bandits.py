"""RL² on bandits with more arms or pulls (Duan et al. 2016, table 1): its return beside hand-designed strategies."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.bandits import evaluate, strategies
from spinup.bench.papers.paper import Line, Paper, by_kind, run, seconds_of, together

SEEDS = (1,)
NEAR = 0.98                             # of the paper's mean return of RL²
# Environment, with its arms and its pulls -> the paper's mean returns.
TABLE = {
    "Bandits-10x10-v0": {"random": 5.0, "Thompson": 5.5, "optimistic Thompson": 6.2, "UCB1": 6.7,
                         "epsilon-greedy": 6.6, "greedy": 6.6, "RL²": 6.7},
    "Bandits-50x10-v0": {"random": 5.1, "Thompson": 5.2, "optimistic Thompson": 5.5, "UCB1": 6.6,
                         "epsilon-greedy": 6.5, "greedy": 6.5, "RL²": 6.8},
    "Bandits-10x100-v0": {"random": 49.9, "Thompson": 76.7, "optimistic Thompson": 81.4, "UCB1": 82.4,
                          "epsilon-greedy": 77.4, "greedy": 77.1, "RL²": 83.5}}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train the preset of each environment, and evaluate it and the strategies."""
    folders = by_kind(TABLE, seeds, workers, lambda env, seed: run("rl2", env, seed, log_dir, "--threads", "1"))
    lines, raw = [], {}
    for env, paper in TABLE.items():
        known, ours = strategies(env), [evaluate(folder) for folder in folders[env]]
        mean, least = float(np.mean(ours)), NEAR * paper["RL²"]
        lines += [Line(f"{env}: {name}", str(paper.get(name, "")), value) for name, value in known.items()]
        lines.append(Line(f"{env}: RL², mean of the seeds", str(paper["RL²"]), mean, f">= {least:.2f}", mean >= least))
        raw[env] = {"baselines": known, "rl2": ours, "seconds": [seconds_of(folder) for folder in folders[env]]}

    def draw(figure: Any) -> None:
        for axes, (env, found) in zip(figure.subplots(1, len(TABLE), sharey=True), raw.items(), strict=True):
            returns = {**found["baselines"], "RL²": float(np.mean(found["rl2"]))}
            axes.barh(list(returns), list(returns.values()), color=["#999999"] * len(found["baselines"]) + ["#0072B2"])
            axes.axvline(TABLE[env]["RL²"], color="black", linestyle="--", linewidth=1)
            arms, pulls = env.split("-")[1].split("x")
            axes.set(title=f"{arms} arms, {pulls} pulls")
        axes.invert_yaxis()                                               # of all, because they share it
        figure.supxlabel("mean return of a trial; dashed: RL² in the paper", fontsize="medium")

    return Paper("RL² on bandits with more arms or pulls (Duan et al. 2016, table 1)", lines, draw, raw), together(
        folders)
