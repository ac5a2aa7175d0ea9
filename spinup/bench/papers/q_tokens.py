"""Q-learning on tokens (Snell et al. 2022, arXiv:2206.11871): a language model learns from fixed responses with
rewards. ILQL is compared with rejection sampling and with the target of DQN, all on the same 20,000 responses of the
initial policy. Beside it is the curve of DQN on CartPole. ILQL shares the target network and the TD target with DQN."""
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import (
    Line,
    Paper,
    accuracy,
    at_least,
    at_most,
    by_kind,
    columns,
    e100,
    plot_runs,
    run,
    seconds_of,
    start_of,
    together,
)
from spinup.bench.process import in_turn

SEEDS = (1,)
ENV, TASK = "CartPole-v1", "reverse"
CURVES = "steps", "held_out_accuracy", "held_out_greedy", "reward"
REACH, BALANCED, MINUTES = 0.70, 475.0, 10
DATA = ("--data", "20000", "--samples", "1", "--threads", "1")
KINDS = {                               # name: method, its settings, colour, words
    "ilql": ("llm dqn", (), "#0072B2", "ILQL"),
    "rejection": ("llm best_of_n", ("--prompts", "256"), "#009E73", "rejection sampling"),
    "greedy": ("llm dqn", ("--target", "greedy", "--cql-coef", "0"), "#D55E00", "target of DQN")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train DQN on CartPole, and ILQL, rejection sampling and the target of DQN on the same fixed responses."""
    classic = in_turn(lambda seed: run("dqn", ENV, seed, log_dir, "--threads", "1"), seeds, workers)
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: run(
        KINDS[kind][0], TASK, seed, log_dir, *DATA, *KINDS[kind][1], label=kind))
    starts = [start_of(folder) for folder in of["ilql"]]
    begun = [accuracy(folder) for folder in starts]
    certain = [accuracy(folder, "held_out_greedy") for folder in starts]
    reached = {kind: [accuracy(folder) for folder in found] for kind, found in of.items()}
    returns = [e100(folder) for folder in classic]
    lines = [
        at_least(f"{ENV}: E100 of DQN", mean(returns), BALANCED),
        Line(f"{TASK}: accuracy of the initial policy", "", mean(begun)),
        Line(f"{TASK}: accuracy of its most likely responses (temperature 0)", "", mean(certain)),
        at_least(f"{TASK}: accuracy of ILQL, lowest of {len(seeds)} seeds", min(reached["ilql"]), REACH),
        Line(f"{TASK}: accuracy of rejection sampling from the same responses", "", mean(reached["rejection"])),
        Line(f"{TASK}: accuracy with DQN's target and loss on the same responses", "", mean(reached["greedy"])),
        at_most(f"{TASK}: minutes of ILQL, slowest seed", max(map(seconds_of, of["ilql"])) / 60, MINUTES)]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        plot_runs(left, classic, "steps", "return_mean_100", scale=1000, color="#0072B2")
        left.set(title=f"DQN on {ENV}", xlabel="thousand steps", ylabel="mean return of the last 100 episodes")
        for kind, (_, _, colour, words) in KINDS.items():
            plot_runs(right, of[kind], "steps", "held_out_accuracy", words, color=colour)
        right.axhline(mean(begun), color="0.6", linewidth=0.8, linestyle="--", label="initial policy")
        right.set(title=f"fixed responses to {TASK}", xlabel="updates", ylabel="held-out accuracy, sampled",
                  ylim=(-0.03, 1.03))
        right.legend()

    raw = {"returns": returns, "initial": begun, "initial_greedy": certain, "accuracy": reached, "seeds": list(seeds),
           "curves": {kind: [columns(folder, *CURVES) for folder in found] for kind, found in of.items()}}
    return Paper("Q-learning on tokens (Snell et al. 2022)", lines, draw, raw), together(of) + classic
