"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): DDPG on an arm with a sparse reward, with
HER and without it. Both have the same settings and the same numbers of environment and gradient steps."""
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import Paper, at_least, at_most, by_kind, plot_runs, run, together
from spinup.envs import make
from spinup.runs.episodes import UNSEEN
from spinup.runs.public import load

SEEDS = (1,)
ENV, ENOUGH, FEW = "GoalReacher-v0", 0.9, 0.3
KINDS = {"her": ("#0072B2", "DDPG with HER"), "ddpg": ("#D55E00", "DDPG")}
EPISODES = 200          # of the evaluation
WIDTH = 5                               # rows of progress.csv that the figure averages


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with HER and without it, and measure the share of new goals that the deterministic policies reach."""
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: run(kind, ENV, seed, log_dir, "--threads", "1"))
    reached = {kind: [success(folder) for folder in found] for kind, found in of.items()}
    lines = [
        at_least(f"{ENV}: success with HER, lowest of {len(seeds)} seeds", min(reached["her"]), ENOUGH),
        at_most(f"{ENV}: success without, mean", mean(reached["ddpg"]), FEW)]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for kind, (colour, words) in KINDS.items():
            plot_runs(axes, of[kind], "steps", "success", words, scale=1000, rows=WIDTH, color=colour)
        axes.set(title=f"{ENV} with a reward only at the goal", xlabel="thousand environment steps",
                 ylabel="share of episodes that end at their goal", ylim=(-0.03, 1.03))
        axes.legend()

    return Paper("Hindsight experience replay (Andrychowicz et al. 2017)", lines, draw, {
        "seeds": list(seeds), "success": reached}), together(of)


def success(folder: Path) -> float:
    """Share of new episodes that end at their goal, with the deterministic policy of a run."""
    env, policy, ended = make(ENV, EPISODES, UNSEEN), load(folder), None
    env.reset()
    while ended is None:                                                  # all end at the same time
        step = env.step(policy.act_batch(env.obs))
        ended = step.final_obs
    return env.measures()["success"]
