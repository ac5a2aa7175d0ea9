"""Curiosity where random play finds no reward: a key, a locked door, a goal; and rooms behind rooms, without a goal."""
import json
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, in_turn, run
from spinup.envs import make
from spinup.runs.files import read_json
from spinup.runs.log import read_progress
from spinup.runs.process import spinup

SEEDS = (1, 2, 3, 4, 5)
DOOR, ROOMS = "MiniGrid-DoorKey-8x8-v0", "MiniGrid-MultiRoom-N4-S5-v1"
SUCCESS, ALONE, SECONDS, TIMES = 0.9, 0.5, 480, 2


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with rewards and RND, with rewards alone, and with RND alone in the rooms; and play at random."""
    jobs = [(kind, seed) for kind in ("rnd", "alone", "rooms") for seed in seeds]
    flags = {"rnd": (), "alone": ("--bonus-coef", "0"), "rooms": ("--reward-coef", "0")}
    folders = in_turn(lambda job: run("curiosity", ROOMS if job[0] == "rooms" else DOOR, job[1], log_dir,
                                      "--threads", "1", *flags[job[0]], label=job[0]), jobs, workers)
    of = {kind: [f for (k, _), f in zip(jobs, folders, strict=True) if k == kind] for kind in flags}
    success = {kind: [solved(folder) for folder in of[kind]] for kind in ("rnd", "alone")}
    seconds = max(read_json(folder / "result.json")["seconds"] for folder in of["rnd"])
    cells = [float(np.nanmean(read_progress(folder)["cells"][-20:])) for folder in of["rooms"]]
    luck, by_chance = at_random(DOOR)[0], at_random(ROOMS)[1]
    lines = [
        Line(f"{DOOR}: success of random play", "", luck),
        Line("PPO + RND: success in 100 fresh episodes, mean", "", float(np.mean(success["rnd"])), f">= {SUCCESS}",
             float(np.mean(success["rnd"])) >= SUCCESS),
        Line("PPO alone, as many steps", "", float(np.mean(success["alone"])), f"<= {ALONE}",
             float(np.mean(success["alone"])) <= ALONE),
        Line("seconds of training, the slowest", "", seconds, f"<= {SECONDS}", seconds <= SECONDS),
        Line(f"{ROOMS}: distinct cells of an episode, random play", "", by_chance),
        Line("curiosity alone, no reward", "", float(np.mean(cells)), f">= {TIMES * by_chance:.1f}, twice that",
             float(np.mean(cells)) >= TIMES * by_chance)]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for kind, colour, words in (("rnd", "#0072B2", "PPO + RND"), ("alone", "#D55E00", "PPO alone")):
            for k, folder in enumerate(of[kind]):
                progress = read_progress(folder)
                axes.plot(progress["steps"], progress["return_mean_100"], color=colour, linewidth=1.2, alpha=0.7,
                          label=None if k else words)
        axes.set(title=DOOR, xlabel="environment steps", ylabel="mean return of the last 100 episodes")
        axes.legend()

    raw = {"success": success, "cells": cells, "random_success": luck, "random_cells": by_chance}
    return Paper("Curiosity on MiniGrid (Burda et al. 2018)", lines, draw, raw), folders


def solved(folder: Path) -> float:
    """Share of 100 fresh episodes with a reward."""
    found = json.loads(spinup("eval", str(folder), "--stochastic", "--json"))
    return float(np.mean([r > 0 for r in found["returns"]]))


def at_random(env: str) -> tuple[float, float]:
    """Share of episodes with a reward, and distinct cells of an episode, of random play."""
    envs, rng = make(env, 64, 0), np.random.default_rng(0)
    envs.reset()
    returns, cells = [], []
    while len(returns) < 500:
        envs.step(rng.integers(0, envs.action_space.n, 64))
        returns += [r for r, _ in envs.take_finished()]
        cells += envs.take_cells()
    return float(np.mean([r > 0 for r in returns])), float(np.mean(cells))
