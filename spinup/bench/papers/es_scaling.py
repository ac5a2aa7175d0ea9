"""Evolution strategies (Salimans et al. 2017): returns, and the speed-up from a second process."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import (
    Line,
    Paper,
    at_least,
    at_most,
    by_kind,
    e100,
    plot_runs,
    run,
    same_weights,
    seconds_of,
    together,
)

SEEDS = (1, 2, 3, 4, 5)
SWIMMER, CARTPOLE = "Swimmer-v5", "CartPole-v1"
REACH, MINUTES, QUICK, FASTER = 300.0, 6, 30, 1.7
PAIRS = (1, 2, 3)                                                         # seeds of the timed runs
BRIEF = ("--total-steps", "640000", "--pairs", "32", "--tensorboard", "false")             # for the timed runs


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train on CartPole and Swimmer, and PPO on Swimmer with two discount factors. Time runs with one process and with
    two."""
    cartpole = run("es", CARTPOLE, seeds[0], log_dir)
    swimmer = [run("es", SWIMMER, seed, log_dir, "--workers", "2") for seed in seeds]     # in turn: each uses 2 cores
    ppo = by_kind(("0.99", "0.9999"), seeds, workers, lambda gamma, seed: run(
        "ppo", SWIMMER, seed, log_dir, "--gamma", gamma, label=gamma))
    timed = [(run("es", SWIMMER, seed, log_dir, "--workers", "1", *BRIEF, label="1_process"),
              run("es", SWIMMER, seed, log_dir, "--workers", "2", *BRIEF, label="2_process")) for seed in PAIRS]
    seconds = [[seconds_of(folder) for folder in pair] for pair in timed]
    ratios = [one / two for one, two in seconds]
    alike = all(same_weights(*pair, "policy") for pair in timed)
    reached = [e100(folder) for folder in swimmer]
    others = {gamma: [e100(folder) for folder in found] for gamma, found in ppo.items()}
    lines = [
        at_least(f"{CARTPOLE}: E100", e100(cartpole), 500),
        at_most(f"{CARTPOLE}: seconds", seconds_of(cartpole), QUICK),
        at_least(f"{SWIMMER}: E100, mean of {len(seeds)} seeds", np.mean(reached), REACH),
        at_most(f"{SWIMMER}: minutes on two processes, slowest seed", max(map(seconds_of, swimmer)) / 60, MINUTES),
        Line(f"{SWIMMER}: PPO with gamma .99", "", float(np.mean(others["0.99"]))),
        Line(f"{SWIMMER}: PPO with gamma .9999", "", float(np.mean(others["0.9999"]))),
        at_least(f"speed-up of two processes over one, median of {len(PAIRS)} alternating pairs", np.median(ratios),
                 FASTER),
        Line("their parameters are bitwise identical", "", float(alike), "1", alike)]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for colour, words, folders in (("#0072B2", "ES", swimmer), ("#D55E00", "PPO, gamma 0.99", ppo["0.99"]),
                                       ("#009E73", "PPO, gamma 0.9999", ppo["0.9999"])):
            plot_runs(axes, folders, "wall_seconds", "return_mean_100", words, scale=60, color=colour, linewidth=1.2,
                      alpha=0.7)
        axes.set(title=SWIMMER, xlabel="minutes", ylabel="mean return of the last 100 episodes")
        axes.legend()

    raw = {"swimmer": reached, "ppo": others, "seconds": seconds}
    folders = [cartpole, *swimmer, *together(ppo), *(folder for pair in timed for folder in pair)]
    return Paper("Evolution strategies (Salimans et al. 2017)", lines, draw, raw), folders
