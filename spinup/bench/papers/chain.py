"""Parameter noise on the chain (Plappert et al. 2018, sec. 4.3): which runs reach its far end, and after how many
episodes. A second task is MountainCarContinuous. There the top gives a reward and every push costs, so runs with action
noise learn not to push."""
from itertools import product
from math import ceil
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from spinup.bench.papers.paper import (
    Line,
    Paper,
    at_least,
    at_most,
    by_kind,
    e100,
    moving_average,
    run,
    together,
)
from spinup.runs.log import read_progress

LENGTHS, SEEDS = (40, 60), tuple(range(1, 11))
SOLVED, NEVER = 12.0, 400               # best return; episodes in which action noise never reaches the end
GOAL, OF = 150, 9                       # episodes, and number of seeds out of ten
CAR, TOP, BOTTOM = "MountainCarContinuous-v0", 90, 0    # lowest E100 of parameter noise, highest of action noise
CARS = 5                                # seeds of MountainCarContinuous
WINDOW = 10                             # rows averaged in each point of the figure
KINDS = {"parameters": ("#0072B2", "noise on parameters"), "actions": ("#D55E00", "noise on actions"),
         "permuted": ("#009E73", "on parameters, labels permuted")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with parameter noise, action noise, and parameter noise with permuted labels, for each length and seed.
    Train the car with parameter noise and with action noise."""
    folders = by_kind([*product(LENGTHS, KINDS)], seeds, workers, lambda kind, seed: one(*kind, seed, log_dir))
    driven = by_kind(("parameters", "actions"), seeds[:CARS], workers, lambda kind, seed: run(
        "param_noise", CAR, seed, log_dir, "--threads", "1", "--noise", kind, label=kind))
    lines, raw = [], {}
    for n in LENGTHS:
        since = {kind: [solved(folder, n) for folder in folders[n, kind]] for kind in KINDS}
        in_time = sum(episode <= GOAL for episode, _ in since["parameters"])
        lines += [
            at_least(f"N = {n}: solved within {GOAL} episodes, of {len(seeds)}", in_time, ceil(len(seeds) * OF / 10)),
            Line(f"N = {n}: median episode from which the greedy policy stays perfect", "",
                 median(episode for episode, _ in since["parameters"])),
            Line(f"N = {n}: noise on actions, seeds that reached the end in {NEVER} episodes, of {len(seeds)}", "",
                 sum(hits > 0 for _, hits in since["actions"]), "0", not any(hits for _, hits in since["actions"])),
            Line(f"N = {n}, labels permuted: solved, of {len(seeds)}", "",
                 sum(episode < float("inf") for episode, _ in since["permuted"]))]
        raw[str(n)] = {kind: [{"solved_from_episode": None if e == float("inf") else e, "rows_with_goal": hits}
                              for e, hits in values] for kind, values in since.items()}
    raw["car"] = ends = {kind: [e100(folder) for folder in found] for kind, found in driven.items()}
    lines += [
        at_least(f"{CAR}: E100, noise on parameters, {len(seeds[:CARS])} seeds", mean(ends["parameters"]), TOP),
        at_most(f"{CAR}: E100, noise on actions of the same size", mean(ends["actions"]), BOTTOM)]

    def draw(figure: Any) -> None:
        for i, n in enumerate(LENGTHS):
            axes = figure.add_subplot(1, len(LENGTHS), i + 1)
            for kind, (colour, words) in KINDS.items():
                of = [read_progress(folder) for folder in folders[n, kind]]
                perfect = np.mean([np.equal(progress["test_return"], SOLVED) for progress in of], 0)
                axes.plot(np.array(of[0]["steps"][WINDOW - 1:]) / (n + 9), moving_average(perfect, WINDOW),
                          color=colour, label=words)
            axes.set(title=f"N = {n}", xlabel="episodes", ylabel="share of greedy policies that are perfect",
                     ylim=(-0.03, 1.03))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)

    return Paper("Parameter noise (Plappert et al. 2018)", lines, draw, {"chain": raw}), [
        *together(folders), *together(driven)]


def one(n: int, kind: str, seed: int, log_dir: Path) -> Path:
    """Train the preset of a chain with `n` states."""
    env = f"Chain{'Permuted' if kind == 'permuted' else ''}-{n}-v0"
    flags = ["--preset", f"Chain-{n}-v0", "--threads", "1"]
    if kind == "actions":
        flags += ["--noise", "actions", "--total-steps", str(NEVER * (n + 9))]
    return run("param_noise", env, seed, log_dir, *flags, label=kind)


def solved(folder: Path, n: int) -> tuple[float, int]:
    """Return the episode from which on every test of the greedy policy was perfect, to the end and for at least a
    hundred episodes; infinity if there is none. Also return the number of training rows in which the far end was
    reached."""
    progress = read_progress(folder)
    since = len(progress["steps"])
    while since and progress["test_return"][since - 1] == SOLVED:
        since -= 1
    episodes = [steps / (n + 9) for steps in progress["steps"]]
    hits = sum(r >= 1 for r in progress["return_max"])
    return (episodes[since] if since < len(episodes) and episodes[-1] - episodes[since] >= 100 else float("inf")), hits
