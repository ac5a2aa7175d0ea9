"""Evolution strategies (Salimans et al. 2017): returns, and the speed-up from a second process."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, e100, run
from spinup.bench.process import in_turn
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

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
    jobs = [(gamma, seed) for gamma in ("0.99", "0.9999") for seed in seeds]
    ppo = in_turn(lambda job: run("ppo", SWIMMER, job[1], log_dir, "--gamma", job[0], label=job[0]), jobs, workers)
    timed = [(run("es", SWIMMER, seed, log_dir, "--workers", "1", *BRIEF, label="1_process"),
              run("es", SWIMMER, seed, log_dir, "--workers", "2", *BRIEF, label="2_process")) for seed in PAIRS]
    seconds = [[read_json(folder / "result.json")["seconds"] for folder in pair] for pair in timed]
    ratios = [one / two for one, two in seconds]
    faster, alike = float(np.median(ratios)), all(same_policy(*pair) for pair in timed)
    balanced, reached = e100(cartpole), [e100(folder) for folder in swimmer]
    slowest = max(read_json(folder / "result.json")["seconds"] for folder in swimmer)
    quick = read_json(cartpole / "result.json")["seconds"]
    others = {gamma: [e100(f) for (g, _), f in zip(jobs, ppo, strict=True) if g == gamma]
              for gamma in ("0.99", "0.9999")}
    lines = [
        Line(f"{CARTPOLE}: E100", "", balanced, ">= 500", balanced >= 500),
        Line(f"{CARTPOLE}: seconds", "", quick, f"<= {QUICK}", quick <= QUICK),
        Line(f"{SWIMMER}: E100, mean of {len(seeds)} seeds", "", float(np.mean(reached)), f">= {REACH:g}",
             float(np.mean(reached)) >= REACH),
        Line(f"{SWIMMER}: minutes on two processes, slowest seed", "", slowest / 60, f"<= {MINUTES}",
             slowest <= 60 * MINUTES),
        Line(f"{SWIMMER}: PPO with gamma .99", "", float(np.mean(others["0.99"]))),
        Line(f"{SWIMMER}: PPO with gamma .9999", "", float(np.mean(others["0.9999"]))),
        Line(f"speed-up of two processes over one, median of {len(PAIRS)} alternating pairs", "", faster,
             f">= {FASTER}", faster >= FASTER),
        Line("their parameters are bitwise identical", "", float(alike), "1", alike)]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        curves = [("#0072B2", "ES", swimmer)] + [(colour, f"PPO, gamma {gamma}", [
            f for (g, _), f in zip(jobs, ppo, strict=True) if g == gamma])
            for colour, gamma in (("#D55E00", "0.99"), ("#009E73", "0.9999"))]
        for colour, words, folders in curves:
            for k, folder in enumerate(folders):
                progress = read_progress(folder)
                axes.plot(np.array(progress["wall_seconds"]) / 60, progress["return_mean_100"], color=colour,
                          linewidth=1.2, alpha=0.7, label=None if k else words)
        axes.set(title=SWIMMER, xlabel="minutes", ylabel="mean return of the last 100 episodes")
        axes.legend()

    raw = {"swimmer": reached, "ppo": others, "seconds": seconds}
    folders = [cartpole, *swimmer, *ppo, *(folder for pair in timed for folder in pair)]
    return Paper("Evolution strategies (Salimans et al. 2017)", lines, draw, raw), folders


def same_policy(one: Path, other: Path) -> bool:
    """Return whether two runs ended with identical parameters."""
    parts = [load_checkpoint(folder / "checkpoint.pt")["parts"]["policy"] for folder in (one, other)]
    return all(a.equal(b) for a, b in zip(*(part.values() for part in parts), strict=True))
