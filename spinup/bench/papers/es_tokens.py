"""Evolution strategies on tokens (Qiu et al. 2025), beside GRPO and beside the classic ES on an environment."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import (
    PROBLEMS,
    Line,
    Paper,
    at_most,
    e100,
    evaluated,
    plot_runs,
    run,
    same_weights,
    seconds_of,
    start_of,
)
from spinup.runs.log import read_progress

SEEDS = (1,)
TASK, CARTPOLE = "reverse", "CartPole-v1"
GAIN, REACH, MINUTES = 0.3, 0.9, 10     # greedy accuracy gained, or reached; minutes of a run
BRIEF = ("--total-steps", "4", "--tensorboard", "false")                  # runs with one and with two processes
COLOURS = {"es": "#0072B2", "grpo": "#D55E00"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with ES and with GRPO from the same initial policy. Compare one process with two. Train ES on CartPole."""
    found: dict[str, list[Path]] = {                          # in turn: ES uses two cores
        "es": [run("llm es", TASK, seed, log_dir, "--workers", "2") for seed in seeds],
        "grpo": [run("llm grpo", TASK, seed, log_dir) for seed in seeds]}
    pair = [run("llm es", TASK, seeds[0], log_dir, "--workers", str(n), *BRIEF, label=f"{n}_processes")
            for n in (1, 2)]
    cartpole = run("es", CARTPOLE, seeds[0], log_dir)
    before = [accuracies(start_of(folder)) for folder in found["es"]]
    after = {method: [accuracies(folder) for folder in folders] for method, folders in found.items()}
    cost = {method: [costs(folder) for folder in folders] for method, folders in found.items()}
    slowest, alike = max(x["seconds"] for x in cost["es"]) / 60, same_weights(*pair, "model")
    lines = [Line(f"seed {seed}: greedy accuracy, before ES", "", x["greedy"])
             for seed, x in zip(seeds, before, strict=True)]
    for seed, start, end in zip(seeds, before, after["es"], strict=True):
        reached = end["greedy"] >= REACH or end["greedy"] - start["greedy"] >= GAIN
        lines.append(Line(f"seed {seed}: greedy accuracy, after ES", "", end["greedy"],
                          f">= {REACH:g}, or a gain >= {GAIN:g}", reached))
    lines += [
        Line("sampled accuracy, mean of the seeds, before", "", mean(before, "sampled")),
        Line("sampled accuracy, after ES", "", mean(after["es"], "sampled")),
        at_most("minutes of ES on two processes, slowest seed", slowest, MINUTES),
        Line("GRPO: greedy accuracy, mean of the seeds", "", mean(after["grpo"], "greedy")),
        Line("GRPO: sampled accuracy, mean of the seeds", "", mean(after["grpo"], "sampled")),
        Line("sampled tokens of ES, millions, mean", "", mean(cost["es"], "tokens") / 1e6),
        Line("sampled tokens of GRPO, millions, mean", "", mean(cost["grpo"], "tokens") / 1e6),
        Line("seconds of ES, mean", "", mean(cost["es"], "seconds")),
        Line("seconds of GRPO, mean", "", mean(cost["grpo"], "seconds")),
        Line("one and two processes: the weights are bitwise identical", "", float(alike), "1", alike),
        Line(f"classic ES on {CARTPOLE}: E100", "", e100(cartpole))]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        plot_runs(left, [cartpole], "steps", "return_mean_100", scale=1000, color=COLOURS["es"])
        left.set(title=f"ES on {CARTPOLE}", xlabel="thousand steps", ylabel="mean return of the last 100 episodes")
        for method, folders in found.items():
            for k, folder in enumerate(folders):
                progress, tokens = read_progress(folder), tokens_of(folder) / 1e6
                right.plot(tokens, progress["held_out_greedy"], color=COLOURS[method],
                           label=None if k else f"{method}, greedy")
                right.plot(tokens, progress["held_out_accuracy"], color=COLOURS[method], linestyle=":",
                           label=None if k else f"{method}, sampled")
        right.set(title=f"a transformer on {TASK}", xlabel="million sampled tokens", ylabel="held-out accuracy",
                  ylim=(0, 1.02), xscale="log")
        right.xaxis.set_major_formatter("{x:g}")                          # the default labels are TeX
        right.legend()

    raw = {"seeds": list(seeds), "before": before, "after": after, "cost": cost}
    folders = [*found["es"], *found["grpo"], *pair, cartpole]
    return Paper("Evolution strategies on tokens (Qiu et al. 2025)", lines, draw, raw), folders


def accuracies(folder: Path) -> dict[str, float]:
    """Sampled and greedy accuracy of a policy, on `PROBLEMS` held-out problems that its log did not use."""
    found = evaluated(folder, "--episodes", str(PROBLEMS))
    return {"sampled": found["held_out_accuracy"], "greedy": found["held_out_greedy"]}


def tokens_of(folder: Path) -> np.ndarray:
    """Sampled tokens up to each row of the log, `[rows]`."""
    progress = read_progress(folder)
    seconds = sum(np.array(progress[f"{phase}_seconds"]) for phase in ("rollout", "reward", "update"))
    return np.cumsum(seconds * np.array(progress["tokens_per_second"]))


def costs(folder: Path) -> dict[str, float]:
    """Sampled tokens of a run, and its seconds."""
    return {"tokens": float(tokens_of(folder)[-1]), "seconds": seconds_of(folder)}


def mean(rows: list[dict[str, float]], name: str) -> float:
    """Mean of a number over the seeds."""
    return float(np.mean([row[name] for row in rows]))
