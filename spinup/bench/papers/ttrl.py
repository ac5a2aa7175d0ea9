"""Test-time reinforcement learning (TTRL, Zuo et al. 2025, arXiv:2504.16084): GRPO whose reward is the majority vote of
each group, without labels, on the held-out prompts of addition modulo 23. It starts from two policies that imitated a
teacher with random mistakes. With mistakes in 40 % of the demonstrations, the majority is right; with mistakes in 80 %,
it often is not."""
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
    run,
    seconds_of,
    start_of,
    together,
)
from spinup.bench.process import spinup
from spinup.runs.log import read_progress

SEEDS = (1,)
REACH, SECONDS = 0.95, 60
WHY = "the most common answer is right for only"                          # the sentence of `spinup llm diagnose`
SETTINGS = ("--threads", "1", "--total-steps", "300", "--layers", "2", "--samples", "16")
WHOLE = ("--sft-accuracy", "0")                                           # imitation runs all its updates
# Imitation ends early, at an accuracy above chance, .043, measured with enough responses; its limit is .235.
EARLY = ("--sft-accuracy", "0.12", "--held-out", "1024")
KINDS = {                               # name: task, words, settings of the imitation
    "clean": ("vote,on=test:modular", "40 % noise", WHOLE),
    "noisy": ("vote,on=test:modular:noise=0.8", "80 % noise", EARLY),
    "labels": ("modular:noise=0.8", "80 % noise, with labels", EARLY)}
CURVES = {                              # column: colour, line, words
    "reward": ("#D55E00", "--", "reward: agrees with the majority"),
    "reward_majority_right": ("#009E73", ":", "share of right majorities"),
    "held_out_accuracy": ("#0072B2", "-", "accuracy on held-out prompts")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train without labels from both policies, and with labels from the second one."""
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: run(
        "llm grpo", KINDS[kind][0], seed, log_dir, *SETTINGS, *KINDS[kind][2], label=kind))
    starts = {kind: [start_of(folder) for folder in of[kind]] for kind in ("clean", "noisy")}
    begun = {kind: [accuracy(folder) for folder in found] for kind, found in starts.items()}
    reached = {kind: [accuracy(folder) for folder in of[kind]] for kind in KINDS}
    greedy = [[accuracy(folder, "held_out_greedy") for folder in found] for found in (starts["noisy"], of["noisy"])]
    votes = {kind: [read_progress(folder)["reward_majority_right"] for folder in of[kind]] for kind in begun}
    seconds = [seconds_of(folder) for folder in of["clean"]]
    told = {kind: [WHY in spinup("llm", "diagnose", str(folder.absolute())) for folder in of[kind]] for kind in begun}
    right = all(told["noisy"]) and not any(told["clean"])
    falls = all(after < before for before, after in zip(*greedy, strict=True))
    lines = [
        Line("40 % noise: accuracy of the initial policy", "", mean(begun["clean"])),
        Line("40 % noise: share of right majorities at first", "", mean(x[0] for x in votes["clean"])),
        Line("40 % noise: accuracy after TTRL", "", mean(reached["clean"])),
        at_least("40 % noise: accuracy after TTRL, lowest seed", min(reached["clean"]), REACH),
        at_most("40 % noise: seconds of TTRL, slowest seed", max(seconds), SECONDS),
        Line("80 % noise: accuracy of the initial policy", "", mean(begun["noisy"])),
        Line("80 % noise: share of right majorities at first", "", mean(x[0] for x in votes["noisy"])),
        Line("80 % noise: share of right majorities at the end", "", mean(x[-1] for x in votes["noisy"])),
        Line("80 % noise: accuracy after TTRL", "", mean(reached["noisy"])),
        Line("80 % noise: accuracy of the most likely answer, before", "", mean(greedy[0])),
        Line("80 % noise: accuracy of the most likely answer, after", "", mean(greedy[1]), "falls", falls),
        Line("80 % noise: runs for which `spinup llm diagnose` says why", "", sum(told["noisy"]),
             f"{len(seeds)}, and none at 40 %", right),
        Line("80 % noise: accuracy after GRPO with labels", "", mean(reached["labels"]))]

    raw = {"initial": begun, "greedy": greedy, "accuracy": reached, "seconds": seconds, "told": told,
           "seeds": list(seeds), "curves": {kind: [columns(folder, "steps", *CURVES, "reward_agreement")
                                                   for folder in found] for kind, found in of.items()}}
    return Paper("Test-time reinforcement learning (Zuo et al. 2025)", lines, lambda figure: draw(figure, raw),
                 raw), together(of)


def draw(figure: Any, raw: dict[str, Any]) -> None:
    """Draw reward, majorities and accuracy in training from both policies, a curve for each seed."""
    panels = figure.subplots(1, 2, sharey=True)
    for (kind, begun), axes in zip(raw["initial"].items(), panels, strict=True):
        for name, (colour, dashes, words) in CURVES.items():
            for k, curve in enumerate(raw["curves"][kind]):
                axes.plot(curve["steps"], curve[name], dashes, color=colour, label=None if k else words)
        axes.axhline(mean(begun), color="0.6", linewidth=0.8, linestyle="-.", label="initial accuracy")
        axes.set(title=f"initial policy of {KINDS[kind][1]}", xlabel="updates without labels", ylim=(-0.03, 1.03))
    panels[0].set_ylabel("share of responses or groups")
    panels[0].legend(fontsize="small", loc="lower right")
