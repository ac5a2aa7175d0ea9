"""Length control (Kimi k1.5, arXiv:2501.12599; A-DLP, arXiv:2505.18298): GRPO with a reward that falls with the length
of right answers, relative to their group. The task is a sum with a scratchpad, whose teacher writes superfluous steps.
As in both papers, the penalty begins after training without it. A moderate coefficient shortens responses at the same
accuracy; a large one makes the policy drop necessary steps."""
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
    plot_runs,
    run,
    together,
)
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
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: run(
        "llm grpo", KINDS[kind][0] + TASK, seed, log_dir, *SETTINGS, f"--model={trained[seed]}", label=kind))
    begun = mean(map(accuracy, trained.values()))
    reached = {kind: [accuracy(folder) for folder in found] for kind, found in of.items()}
    tokens = {kind: [last_length(folder) for folder in found] for kind, found in of.items()}
    lines = [Line("accuracy after GRPO", "", begun),
             Line("tokens of a response after GRPO", "", mean(map(last_length, trained.values()))),
             Line("accuracy: as many updates more, no penalty", "", mean(reached["grpo"])),
             Line("tokens of a response: as many updates more, no penalty", "", mean(tokens["grpo"]))]
    words = {kind: words for kind, (_, _, words) in KINDS.items()}
    saved = {kind: 1 - mean(tokens[kind]) / mean(tokens["grpo"]) for kind in ("length", "adaptive")}
    lost = {kind: mean(reached["grpo"]) - mean(reached[kind]) for kind in saved}
    lines += [at_least(f"share of tokens saved: {words['length']}", saved["length"], FEWER),
              at_most(f"accuracy lost: {words['length']}", lost["length"], LOST),
              Line(f"share of tokens saved: {words['adaptive']}", "", saved["adaptive"]),
              Line(f"accuracy lost: {words['adaptive']}", "", lost["adaptive"]),
              Line(f"tokens of a response: {words['strong']}", "", mean(tokens["strong"])),
              at_most(f"accuracy: {words['strong']}", mean(reached["strong"]), COLLAPSED)]

    def draw(figure: Any) -> None:
        from matplotlib.legend_handler import HandlerTuple
        left, right = figure.subplots(1, 2)
        for (kind, (_, colour, words)), dashes, mark in zip(KINDS.items(), ("-", "--", ":", "-."), "os^X", strict=True):
            plot_runs(left, of[kind], "steps", "length", words, color=colour, linestyle=dashes)
            right.plot(tokens[kind], reached[kind], mark, color=colour, markersize=8, alpha=0.8, label=words)
        left.set(title="length, each seed", xlabel="updates", ylabel="tokens of a response", ylim=(0, None))
        right.set(title="end of training, each seed", xlabel="tokens of a response",
                  ylabel="held-out accuracy", ylim=(-0.03, 1.03), xlim=(0, None))
        lines, marks = (axes.get_legend_handles_labels()[0] for axes in (left, right))
        figure.legend([*zip(lines, marks, strict=True)], [words for *_, words in KINDS.values()], ncols=2,
                      loc="outside lower center", handler_map={tuple: HandlerTuple(ndivide=None)})

    raw = {"initial": begun, "accuracy": reached, "tokens": tokens, "seeds": list(seeds),
           "curves": {kind: [columns(folder, *CURVES) for folder in found] for kind, found in of.items()}}
    return Paper("Length control (Kimi k1.5 2025; A-DLP 2025)", lines, draw, raw), [*trained.values(), *together(of)]


def last_length(folder: Path) -> float:
    """Mean tokens of a response in the last update of a run."""
    return read_progress(folder)["length"][-1]
