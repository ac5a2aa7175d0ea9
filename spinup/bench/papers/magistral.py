"""Magistral (Mistral AI 2025, arXiv:2506.10910): reinforcement learning from a weak base model. Each ablation takes one
part away: the wider clip range above 1, the absence of a KL penalty, or the filter of groups with equal rewards.
R1-Zero (DeepSeek 2025, arXiv:2501.12948) is beside it: GRPO from the same base model. The rewards are for right answers
and for the format. The base model writes all steps in a third of its responses, with errors.
"""
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import (
    Line,
    Paper,
    accuracy,
    at_least,
    by_kind,
    columns,
    plot_mean,
    run,
    start_of,
    together,
)
from spinup.runs.curve import LINES

SEEDS = (1,)
TASK, TIMES = "steps:teacher=web", 1.5      # goal: entropy, times that without the wider clip range
BASE = ("--sft-accuracy", "0.2", "--layers", "2", "--total-steps", "100", "--minibatches", "8", "--lr", "3e-4",
        "--warmup", "10", "--threads", "1", "--preset", "none")
KINDS = {                               # name: method, its settings, colour, words
    "magistral": ("magistral", (), "#0072B2", "Magistral"),
    "clip": ("magistral", ("--clip-high", "0.2"), "#D55E00", "clip range .2 above 1"),
    "kl": ("magistral", ("--kl-coef", "0.05"), "#009E73", "with a KL penalty"),
    "groups": ("magistral", ("--max-rollouts", "1"), "#CC79A7", "without the filter of groups"),
    "unlimited": ("magistral", ("--clip-high", "100"), "#E69F00", "no limit above 1"),
    "r1-zero": ("grpo", (), "0.4", "R1-Zero")}
COLUMNS = {                             # name: words, limits of the axis
    "held_out_accuracy": ("held-out accuracy", (0.85, 1.005)), "entropy": ("entropy (nats per token)", (0, 0.15)),
    "length": ("tokens per response", (9.5, 10.02))}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train Magistral, its ablations and R1-Zero from the same weak base models."""
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: run(
        f"llm {KINDS[kind][0]}", TASK, seed, log_dir, *BASE, *KINDS[kind][1], label=kind))
    begun = [accuracy(start_of(folder)) for folder in of["magistral"]]
    reached = {kind: [accuracy(folder) for folder in found] for kind, found in of.items()}
    entropies = {kind: [late_entropy(folder) for folder in found] for kind, found in of.items()}
    times = mean(entropies["magistral"]) / mean(entropies["clip"])
    lines = [Line("accuracy of the base model", "", mean(begun)),
             Line("tokens per response at first", "", mean(lengths(f)[0] for f in of["magistral"])),
             *(Line(f"accuracy, {words}", "", mean(reached[kind])) for kind, (*_, words) in KINDS.items()),
             *(Line(f"entropy in the second half, {words}", "", mean(entropies[kind]))
               for kind, (*_, words) in KINDS.items()),
             at_least("entropy, times that with the clip range .2 above 1", times, TIMES),
             *(Line(f"tokens per response at the end, {words}", "", mean(lengths(f)[-1] for f in of[kind]))
               for kind, (*_, words) in KINDS.items())]

    def draw(figure: Any) -> None:
        for axis, (column, (label, limits)) in zip(figure.subplots(1, len(COLUMNS)), COLUMNS.items(), strict=True):
            for i, (kind, (_, _, colour, words)) in enumerate(KINDS.items()):
                plot_mean(axis, of[kind], "steps", column, label=words, color=colour, linestyle=LINES[i % len(LINES)],
                          linewidth=1.6)
            axis.set(xlabel="updates", ylabel=label, ylim=limits)
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3,
                      title=f"mean of {len(seeds)} seeds; the y axes leave out the first values")

    raw = {"initial": begun, "accuracy": reached, "entropy": entropies, "seeds": list(seeds),
           "curves": {kind: [columns(folder, "steps", *COLUMNS) for folder in found] for kind, found in of.items()}}
    return Paper("RL from a weak base model (Magistral, R1-Zero)", lines, draw, raw), together(of)


def lengths(folder: Path) -> list[float]:
    """Mean tokens of a response at each row of a run's log."""
    return columns(folder, "length")["length"]


def late_entropy(folder: Path) -> float:
    """Mean entropy over the second half of a run, in nats per token."""
    entropy = columns(folder, "entropy")["entropy"]
    return mean(entropy[len(entropy) // 2:])
