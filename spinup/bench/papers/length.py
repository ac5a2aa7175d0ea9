"""Length control (Kimi k1.5, arXiv:2501.12599; A-DLP, arXiv:2505.18298): GRPO with a reward that falls with the length
of right answers, relative to their group. The task is a sum with a scratchpad, whose teacher writes superfluous steps.
As in both papers, the penalty begins after training without it. A moderate coefficient shortens responses at the same
accuracy; a large one makes the policy drop necessary steps."""
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import Line, Paper, accuracy, columns, run
from spinup.bench.process import in_turn
from spinup.runs.log import read_progress

SEEDS = (1,)
CURVES = "steps", "length", "held_out_accuracy", "reward_coef"
FEWER, LOST, COLLAPSED = 0.40, 0.01, 0.5
TASK = "scratchpad:repeats=6"
TRAINED = ("--threads", "1", "--total-steps", "300", "--layers", "2", "--sft-accuracy", "0.5")
SETTINGS = ("--threads", "1", "--total-steps", "300")                     # with each reward, from the trained policy
KINDS = {                               # name: wrapper, colour, words
    "grpo": ("", "#0072B2", "no penalty"),
    "length": ("length:", "#009E73", "length penalty"),
    "adaptive": ("length,adaptive=yes:", "#E69F00", "adaptive penalty"),
    "strong": ("length,coef=20:", "#D55E00", "penalty 100 times as strong")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train without a penalty, then with each reward from that policy."""
    found = in_turn(lambda seed: run("llm grpo", TASK, seed, log_dir, *TRAINED, label="trained"), seeds,
                    workers)
    trained = dict(zip(seeds, found, strict=True))
    jobs = [(kind, seed) for kind in KINDS for seed in seeds]
    folders = in_turn(lambda job: run("llm grpo", KINDS[job[0]][0] + TASK, job[1], log_dir, *SETTINGS,
                                      "--model", str(trained[job[1]]), label=job[0]), jobs, workers)
    of = {kind: [f for (k, _), f in zip(jobs, folders, strict=True) if k == kind] for kind in KINDS}
    begun = mean(map(accuracy, trained.values()))
    reached = {kind: [accuracy(folder) for folder in found] for kind, found in of.items()}
    tokens = {kind: [last_length(folder) for folder in found] for kind, found in of.items()}
    lines = [Line("accuracy after GRPO", "", begun),
             Line("tokens of a response after GRPO", "", mean(map(last_length, trained.values()))),
             Line("accuracy: as many updates more, no penalty", "", mean(reached["grpo"])),
             Line("tokens of a response: as many updates more, no penalty", "", mean(tokens["grpo"]))]
    for kind in ("length", "adaptive"):
        fewer = 1 - mean(tokens[kind]) / mean(tokens["grpo"])
        lost = mean(reached["grpo"]) - mean(reached[kind])
        goal = kind == "length"
        lines += [Line(f"share of tokens saved: {KINDS[kind][2]}", "", fewer, f">= {FEWER:g}" if goal else "",
                       not goal or fewer >= FEWER),
                  Line(f"accuracy lost: {KINDS[kind][2]}", "", lost, f"<= {LOST:g}" if goal else "",
                       not goal or lost <= LOST)]
    lines += [Line(f"tokens of a response: {KINDS['strong'][2]}", "", mean(tokens["strong"])),
              Line(f"accuracy: {KINDS['strong'][2]}", "", mean(reached["strong"]), f"<= {COLLAPSED:g}",
                   mean(reached["strong"]) <= COLLAPSED)]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for kind, (_, colour, words) in KINDS.items():
            for k, folder in enumerate(of[kind]):
                progress = read_progress(folder)
                left.plot(progress["steps"], progress["length"], color=colour, label=None if k else words)
                right.plot(progress["length"], progress["held_out_accuracy"], color=colour, linewidth=0.8, alpha=0.5)
                right.plot(tokens[kind][k], reached[kind][k], "o", color=colour)
        left.set(title="length", xlabel="updates", ylabel="tokens of a response", ylim=(0, None))
        right.set(title="accuracy against length (end: dot)", xlabel="tokens of a response",
                  ylabel="held-out accuracy", ylim=(-0.03, 1.03), xlim=(0, None))
        left.legend(fontsize="small")

    raw = {"initial": begun, "accuracy": reached, "tokens": tokens, "seeds": list(seeds),
           "curves": {kind: [columns(folder, *CURVES) for folder in found] for kind, found in of.items()}}
    return Paper("Length control (Kimi k1.5 2025; A-DLP 2025)", lines, draw, raw), [*trained.values(), *folders]


def last_length(folder: Path) -> float:
    """Mean tokens of a response in the last update of a run."""
    return read_progress(folder)["length"][-1]
