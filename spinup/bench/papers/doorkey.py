"""Curiosity in tasks with sparse rewards: a key with a locked door, and several rooms in a row."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import (
    Line,
    Paper,
    at_least,
    at_most,
    by_kind,
    evaluated,
    plot_runs,
    run,
    seconds_of,
    together,
)
from spinup.envs import make
from spinup.runs.log import read_progress

SEEDS = (1, 2, 3, 4, 5)
DOOR, ROOMS = "MiniGrid-DoorKey-8x8-v0", "MiniGrid-MultiRoom-N4-S5-v1"
SUCCESS, ALONE, SECONDS, TIMES = 0.9, 0.5, 480, 2
KINDS = {"door": (DOOR, ()), "door_alone": (DOOR, ("--bonus-coef", "0")), "rooms": (ROOMS, ()),
         "rooms_alone": (ROOMS, ("--bonus-coef", "0")), "curious": (ROOMS, ("--reward-coef", "0"))}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train on both grids with and without RND, and in the rooms also with RND alone; compare with random actions."""
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: trained(kind, seed, log_dir))
    success = {kind: [solved(folder) for folder in of[kind]] for kind in KINDS if kind != "curious"}
    share = {kind: float(np.mean(found)) for kind, found in success.items()}
    cells = [float(np.nanmean(read_progress(folder)["cells"][-20:])) for folder in of["curious"]]
    luck, (luck_in_rooms, by_chance) = at_random(DOOR)[0], at_random(ROOMS)
    lines = [
        Line(f"{DOOR}: success of random play", "", luck),
        at_least("PPO + RND: success in 100 fresh episodes, mean", share["door"], SUCCESS),
        Line("PPO alone, same number of steps: it succeeds too", "", share["door_alone"]),
        Line(f"{ROOMS}, harder: success of random play", "", luck_in_rooms),
        at_least("PPO + RND: success in 100 fresh episodes, mean", share["rooms"], SUCCESS),
        at_most("PPO alone, same number of steps", share["rooms_alone"], ALONE),
        at_most("training seconds, slowest run of both", max(map(seconds_of, of["door"] + of["rooms"])), SECONDS),
        Line("distinct cells per episode in the rooms, random play", "", by_chance),
        Line("curiosity alone, no reward", "", float(np.mean(cells)), f">= {TIMES * by_chance:.1f}, twice that",
             float(np.mean(cells)) >= TIMES * by_chance)]

    def draw(figure: Any) -> None:
        figure.set_size_inches(10, 4.2)
        for axes, grid, name in zip(figure.subplots(1, 2), (DOOR, ROOMS), ("door", "rooms"), strict=True):
            for kind, colour, words in ((name, "#0072B2", "PPO + RND"), (f"{name}_alone", "#D55E00", "PPO alone")):
                plot_runs(axes, of[kind], "steps", "return_mean_100", words, scale=1e6, color=colour, linewidth=1.2,
                          alpha=0.7)
            axes.set(title=grid, xlabel="million environment steps", ylabel="mean return of the last 100 episodes",
                     ylim=(-0.02, 1))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)

    raw = {"success": success, "cells": cells, "random_success": [luck, luck_in_rooms], "random_cells": by_chance}
    return Paper("Curiosity on MiniGrid (Burda et al. 2018)", lines, draw, raw), together(of)


def trained(kind: str, seed: int, log_dir: Path) -> Path:
    """Return the folder of a finished run of this kind."""
    grid, flags = KINDS[kind]
    return run("curiosity", grid, seed, log_dir, "--threads", "1", *flags, label=kind)


def solved(folder: Path) -> float:
    """Share of 100 new episodes with a reward."""
    return float(np.mean([r > 0 for r in evaluated(folder, "--stochastic")["returns"]]))


def at_random(env: str) -> tuple[float, float]:
    """Share of episodes with a reward, and number of distinct cells per episode, with random actions."""
    envs, rng = make(env, 64, 0), np.random.default_rng(0)
    envs.reset()
    returns, cells = [], []
    while len(returns) < 500:
        envs.step(rng.integers(0, envs.action_space.n, 64))
        returns += [r for r, _ in envs.take_finished()]
        cells += envs.take_cells()
    return float(np.mean([r > 0 for r in returns])), float(np.mean(cells))
