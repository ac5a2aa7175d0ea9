"""DRIFT (Mu et al. 2026, arXiv:2605.31455): weighted imitation of fixed responses, in a game of several turns.

A policy guesses a hidden number and hears higher or lower. DRIFT, imitation of the successes and two ablations learn
from the same 16,000 games of the initial policy. Best-of-n and REINFORCE sample new games in every update. All are
compared by success in held-out games and by the tokens of the games that they learned from.
"""
import importlib
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from spinup.algos.vpg import policy_gradient
from spinup.bench.papers.paper import Line, Paper, accuracy, at_least, by_kind, run, start_of, together
from spinup.bench.process import in_turn
from spinup.registry import find
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

SEEDS = (1,)
TASK = "guess"
BETA = 0.2                              # temperature of the weights in the testbed
GAIN, SHARE, TOKENS, NEAR = 0.10, 0.9, 1 / 3, 0.01
DATA = ("--data", "16000", "--samples", "16", "--total-steps", "400", "--lr", "2e-3")
NEW = ("--prompts", "32", "--samples", "8")
START = ("--sft-accuracy", "0.4")       # imitate the teacher until the policy wins this share of games
KINDS = {                               # name: method, its settings, colour, words
    "drift": ("llm drift", DATA, "#0072B2", "DRIFT"),
    "plain": ("llm best_of_n", (*DATA, "--prompts", "256"), "#009E73", "imitation of successes"),
    "reinforce": ("llm reinforce", (*NEW, "--total-steps", "350"), "#D55E00", "REINFORCE"),
    "best": ("llm best_of_n", (*NEW, "--total-steps", "200"), "#E69F00", "best-of-n"),
    "discount": ("llm drift", (*DATA, "--gamma", "0.9"), "#56B4E9", "DRIFT, discount .9"),
    "turns": ("llm drift", (*DATA, "--gamma", "0.9", "--turns", "all"), "#CC79A7", "DRIFT, discount .9, all turns")}
MARKS = {"drift": "o", "plain": "D", "discount": "s", "turns": "^"}
FIXED = [kind for kind, (_, flags, _, _) in KINDS.items() if "--data" in flags]


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train all methods on number guessing. Compare weighted imitation with its closed form on a language whose 64
    responses are all listed."""
    first = in_turn(lambda seed: trained("drift", seed, log_dir), seeds, workers)         # makes the initial policy
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: trained(kind, seed, log_dir))
    begun = [accuracy(start_of(folder)) for folder in first]
    reached = {kind: [accuracy(folder) for folder in found] for kind, found in of.items()}
    tokens = {kind: [sampled(folder)[-1] for folder in found] for kind, found in of.items()}
    means = {kind: mean(found) for kind, found in reached.items()}
    same = mean(tokens["drift"])
    equal = {kind: mean(at(folder, same) for folder in of[kind]) for kind in KINDS if kind not in FIXED}
    level = [until(curve(folder), means["drift"]) for folder in of["reinforce"]]
    cost, distance = mean(tokens["drift"]) / mean(tokens["reinforce"]), distance_from_closed_form()
    lines = [
        Line("success of the initial policy", "", mean(begun)),
        *(Line(f"success of {words}", "", means[kind]) for kind, (*_, words) in KINDS.items()),
        *(Line(f"success of {KINDS[kind][-1]} after the tokens of DRIFT", "", value) for kind, value in equal.items()),
        at_least("DRIFT minus imitation of successes", means["drift"] - means["plain"], GAIN),
        at_least("DRIFT as a share of REINFORCE", means["drift"] / means["reinforce"], SHARE),
        Line("tokens of DRIFT as a share of those of REINFORCE", "", cost, "<= 1/3", cost <= TOKENS),
        Line("tokens of DRIFT as a share of those of REINFORCE, at equal success", "", same / mean(level)),
        Line("testbed: nats from the closed form to weighted imitation", "", distance, f"< {NEAR:g}", distance < NEAR)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for kind, (_, _, colour, words) in KINDS.items():
            for k, (folder, end) in enumerate(zip(of[kind], reached[kind], strict=True)):
                x = np.array(sampled(folder)) / 1000
                label = None if k else words
                if kind in FIXED:
                    axes.plot(x[-1], end, marker=MARKS[kind], linestyle="", color=colour, label=label)
                else:
                    axes.plot(x, read_progress(folder)["held_out_accuracy"], color=colour, label=label,
                              linestyle="--" if kind == "best" else "-")
        axes.axhline(mean(begun), color="0.6", linewidth=0.8, linestyle=":", label="initial policy")
        axes.set(title="number guessing in five turns", xlabel="thousand tokens of games to learn from",
                 ylabel="success in held-out games", ylim=(0, 1.03))
        figure.legend(loc="outside lower center", ncols=3)

    raw = {"seeds": list(seeds), "initial": begun, "success": reached, "success_at_equal_tokens": equal,
           "tokens": tokens, "testbed_kl": distance,
           "curves": {kind: [curve(folder) for folder in found] for kind, found in of.items() if kind not in FIXED}}
    return Paper("DRIFT: weighted imitation of fixed responses (Mu et al. 2026)", lines, draw, raw), together(of)


def trained(kind: str, seed: int, log_dir: Path) -> Path:
    """Return the folder of a finished run of this kind."""
    return run(KINDS[kind][0], TASK, seed, log_dir, *KINDS[kind][1], *START, "--threads", "1", label=kind)


def sampled(folder: Path) -> list[float]:
    """Tokens of all responses that a run had sampled to learn from, at each row of its log; replies are included."""
    progress, config = read_progress(folder), read_json(folder / "config.json")["config"]
    if config.get("data"):
        data = load_checkpoint(folder / "checkpoint.pt")["parts"]["data"]
        return [float(data["lengths"].sum())] * len(progress["steps"])
    each = np.diff(progress["steps"], prepend=0) * config["prompts"] * config["samples"]
    return np.cumsum(each * np.array(progress["length"])).tolist()


def at(folder: Path, tokens: float) -> float:
    """Held-out success of a run, from its log, when it had sampled this number of tokens."""
    return float(np.interp(tokens, sampled(folder), read_progress(folder)["held_out_accuracy"]))


def until(curve: dict[str, list[float]], success: float) -> float:
    """Return the tokens after which a curve first reaches a success rate, interpolated; all if it never does."""
    tokens, reached = curve["tokens"], curve["held_out_accuracy"]
    i = next((i for i, x in enumerate(reached) if x >= success), len(reached) - 1)
    return float(np.interp(success, reached[i - 1:i + 1], tokens[i - 1:i + 1])) if i else tokens[0]


def curve(folder: Path) -> dict[str, list[float]]:
    """Tokens and held-out success of a run, from its log."""
    return {"tokens": sampled(folder), "held_out_accuracy": read_progress(folder)["held_out_accuracy"]}


def distance_from_closed_form() -> float:
    """Imitate all 64 responses of a small language with the weights of DRIFT. The loss is the expectation under pi_ref.

    Return KL(pi* || pi), in nats, where pi* = pi_ref exp(R / BETA) / Z.
    """
    bed = importlib.import_module("llm.tasks.testbed")                    # by its name: llm imports this package
    testbed, reference, policy = bed.Testbed(), bed.TabularPolicy(seed=1), bed.TabularPolicy(seed=2)
    log_ref = testbed.log_probs(reference).detach()
    weight = find("llm drift").load().weights(testbed.rewards, len(testbed.rewards), BETA)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    for _ in range(1000):
        each, _ = policy_gradient(testbed.logp(policy, testbed.sequences), weight[:, None])
        optimizer.zero_grad()
        bed.expectation(log_ref, each.sum(1)).backward()
        optimizer.step()
    return float(bed.kl(testbed.optimal(log_ref, BETA), testbed.log_probs(policy).detach()))
