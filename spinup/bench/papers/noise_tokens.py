"""Parameter noise on tokens (Plappert et al. 2018, sec. 4.3, with a transformer): a chain in which N repetitions of one
token earn 1, and another token ends the response with .001. GRPO, whose only noise is sampling, gets the same number of
responses. The classic chain is beside it."""
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, at_least, by_kind, run, together
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

SEEDS = (1,)
UPDATES = {10: 39, 20: 39, 30: 78, 40: 117}             # of 128 responses
LIMIT = {20: 5_000, 30: 10_000}                         # responses within which a chain must be solved
SHARE, RIGHT, HIT = 0.9, 0.9, 1.1e-3    # of seeds; of sampled responses; mean reward that only the far end explains
CLASSIC, PERFECT = "Chain-40-v0", 12.0
SMALL = "0.069"                         # KL divergence of a greedy from an epsilon-greedy policy, e = .1, n = 3
KINDS = {"noise": [], "learner": ["--old", "learner"], "small": ["--divergence", SMALL], "permuted": []}
# GRPO with the preset's model, batch, loss and learning rate.
GRPO = ["--layers", "1", "--width", "16", "--heads", "2", "--prompts", "1", "--samples", "128", "--advantage", "mean",
        "--average", "constant", "--epochs", "4", "--lr", "0.02", "--warmup", "1", "--no-anneal", "--held-out", "64"]
COLOURS = {10: "#56B4E9", 20: "#0072B2", 30: "#009E73", 40: "#CC79A7"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train on chains of all lengths with parameter noise and with GRPO; at N = 20 also with other settings, and on the
    permuted chain. Train on the classic chain."""
    kinds = [(n, kind) for n in UPDATES for kind in ("noise", "sampling")]
    kinds += [(20, kind) for kind in list(KINDS)[1:]]
    folders = by_kind(kinds, seeds, workers, lambda kind, seed: one(*kind, seed, log_dir))
    classic = by_kind(("parameters", "actions"), seeds, 1, lambda kind, seed: run(
        "param_noise", CLASSIC, seed, log_dir, "--threads", "1", "--noise", kind, label=kind))
    since = {kind: [solved(folder) for folder in found] for kind, found in folders.items()}

    def count(n: int, kind: str) -> int:
        return sum(responses < float("inf") for responses in since[n, kind])

    of, lines = f"of {len(seeds)}", []
    for n, limit in LIMIT.items():
        in_time = sum(responses <= limit for responses in since[n, "noise"])
        reached = sum(hits(folder) > 0 for folder in folders[n, "sampling"])
        lines += [
            at_least(f"N = {n}: solved within {limit:,} responses, {of}", in_time, ceil(SHARE * len(seeds))),
            Line(f"N = {n}: GRPO, same responses: seeds that reached the end, {of}", "", reached, "0", not reached)]
    lines += [Line(f"N = {n}: median of responses until solved", "", median(since[n, "noise"])) for n in UPDATES]
    lines += [
        Line(f"N = 20, the learner as old policy: solved, {of}", "", count(20, "learner")),
        Line(f"N = 20, a divergence of {SMALL} nats, as DQN would choose: seeds that reached the end, {of}", "",
             sum(hits(folder) > 0 for folder in folders[20, "small"])),
        Line(f"N = 20, L and R permuted: solved, {of}", "", count(20, "permuted"))]
    raw = {kind: {str(n): [{"seed": seed, "responses": None if responses == float("inf") else responses,
                            "rows_with_end": hits(folder)}
                           for seed, responses, folder in zip(seeds, since[n, kind], folders[n, kind], strict=True)]
                  for n in UPDATES if (n, kind) in since}
           for kind in ("noise", "sampling", *list(KINDS)[1:])}

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for kind, colour, words in (("parameters", "#0072B2", "noise on parameters"),
                                    ("actions", "#D55E00", "noise on actions")):
            of = [read_progress(folder) for folder in classic[kind]]
            perfect = np.mean([np.equal(progress["test_return"], PERFECT) for progress in of], 0)
            left.plot(np.array(of[0]["steps"]) / 49, perfect, color=colour, label=words)
        left.set(title="Classic chain, N = 40", xlabel="episodes", ylabel="share of greedy policies that are perfect")
        for n, colour in COLOURS.items():
            for kind, style in (("noise", "-"), ("sampling", ":")):
                of = [read_progress(folder) for folder in folders[n, kind]]
                right.plot(np.array(of[0]["steps"]) * 0.128, np.mean([p["held_out_accuracy"] for p in of], 0), style,
                           color=colour, label=f"N = {n}" if kind == "noise" else None)
        right.set(title="Chain in tokens", xlabel="thousand responses", ylabel="share of responses that are right")
        for axes, title in ((left, None), (right, "dotted: GRPO, sampling only")):
            axes.set(ylim=(-0.03, 1.03))
            axes.legend(loc="center right", fontsize="small", title=title)

    return Paper("Parameter noise on tokens (Plappert et al. 2018)", lines, draw, {"tokens": raw}), [
        *together(folders), *together(classic)]


def one(n: int, kind: str, seed: int, log_dir: Path) -> Path:
    """Train on a chain of `n` symbols."""
    flags = ["--threads", "1", "--total-steps", str(UPDATES[n])]
    if kind == "sampling":
        return run("llm grpo", f"chain:length={n}", seed, log_dir, *flags, *GRPO)
    task = f"chain:length={n}{',permuted=yes' * (kind == 'permuted')}"
    return run("llm param_noise", task, seed, log_dir, *flags, *KINDS[kind], label=kind)


def solved(folder: Path) -> float:
    """Return the number of responses from which on, to the end of the run, at least 90 % of the sampled responses of
    the unperturbed policy were right in every row; infinity if there is none."""
    progress, config = read_progress(folder), read_json(folder / "config.json")["config"]
    right = np.array(progress["held_out_accuracy"]) >= RIGHT
    since = len(right) - int(np.cumprod(right[::-1]).sum())
    return float("inf") if since == len(right) else progress["steps"][since] * config["prompts"] * config["samples"]


def hits(folder: Path) -> int:
    """Number of rows of the log with a response that reached the far end."""
    return sum(reward > HIT for reward in read_progress(folder)["reward"])
