"""Curiosity on tokens (Burda et al. 2018, with a transformer): a combination lock that random responses open once in
millions of tries, and the number of different right answers to problems that have several (as in Hong et al. 2024)."""
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, at_least, by_kind, evaluated, plot_runs, run, together
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

SEEDS = (1,)
LIMIT, SHARE = 20_000, 0.8              # responses of a run; share of seeds that must open the lock
OF_COUNTDOWN = 3                        # seeds on countdown, at most
SAMPLES, PROBLEMS, TIMES = 64, 200, 2.0  # held-out evaluation on countdown; goal, as a multiple of GRPO's answers
CLASSIC = "MiniGrid-MultiRoom-N4-S5-v1"
KINDS = {"curiosity": [],
         "entropy": ["--bonus", "entropy", "--reward-coef", "1", "--bonus-coef", "0.1", "--kl-coef", "0"],
         "surprisal": ["--bonus", "surprisal", "--reward-coef", "1", "--bonus-coef", "0.1", "--kl-coef", "0"],
         "grpo": ["--reward-coef", "1", "--bonus-coef", "0", "--kl-coef", "0"]}
WORDS = {"curiosity": "GRPO + RND", "entropy": "GRPO + entropy bonus",
         "surprisal": "GRPO + surprisal of the whole response", "grpo": "GRPO"}
BESIDE = {"grpo with KL": "GRPO + KL penalty", "curiosity with KL": "GRPO + RND + KL penalty"}
FREE = ("surprisal",)                   # kinds without a goal
KL = ["--kl-coef", "0.2"]
COUNTDOWN = {"grpo": ["--reward-coef", "1", "--bonus-coef", "0"],
             "entropy": ["--bonus", "entropy", "--reward-coef", "1", "--bonus-coef", "0.1"],
             "curiosity": ["--bonus-coef", "0.5"],
             "grpo with KL": ["--reward-coef", "1", "--bonus-coef", "0", *KL],
             "curiosity with KL": ["--bonus-coef", "0.5", *KL]}
COLOURS = {"curiosity": "#0072B2", "entropy": "#009E73", "surprisal": "#CC79A7",
           "grpo": "#D55E00"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Open locks, a different one for each seed, with curiosity and without. Train on countdown, and count different
    right answers. Train on the rooms of the classic benchmark, for the figure."""
    locks = by_kind(KINDS, seeds, workers, lambda kind, seed: lock(kind, seed, log_dir))
    policies = by_kind(COUNTDOWN, seeds[:OF_COUNTDOWN], workers, lambda kind, seed: countdown(kind, seed, log_dir))
    found = {kind: [answers(folder) for folder in folders] for kind, folders in policies.items()}
    rooms = {kind: run("curiosity", CLASSIC, seeds[0], log_dir, "--threads", "1", *flags, label=kind)
             for kind, flags in (("curiosity", []), ("grpo", ["--bonus-coef", "0"]))}
    first = {kind: [opened(folder) for folder in folders] for kind, folders in locks.items()}
    count = {kind: sum(responses <= LIMIT for responses in of) for kind, of in first.items()}

    def average(kind: str, name: str) -> float:
        return mean(each[name] for each in found[kind])

    least, lines = ceil(SHARE * len(seeds)), []
    for kind, words in WORDS.items():
        what = f"lock opened within {LIMIT:,} responses, of {len(seeds)}: {words}"
        if kind == "curiosity":
            lines.append(at_least(what, count[kind], least))
        elif kind in FREE:
            lines.append(Line(what, "", count[kind]))
        else:
            lines.append(Line(what, "", count[kind], "0", not count[kind]))
    lines.append(Line("lock: share of right responses at the end, GRPO + RND, mean", "",
                      mean(read_progress(folder)["held_out_accuracy"][-1] for folder in locks["curiosity"])))
    words = WORDS | BESIDE
    for kind in COUNTDOWN:
        lines.append(Line(f"countdown: accuracy, {words[kind]}", "", average(kind, "held_out_accuracy")))
    for kind in COUNTDOWN:
        lines.append(Line(f"countdown: different right answers in {SAMPLES} samples, {words[kind]}", "",
                          average(kind, "distinct_right")))
    for end, beside in (("", "without a KL penalty"), (" with KL", "both with the KL penalty")):
        times = average(f"curiosity{end}", "distinct_right") / average(f"grpo{end}", "distinct_right")
        lines.append(at_least(f"countdown: different right answers, times those without RND, {beside}", times, TIMES))
        change = average(f"curiosity{end}", "held_out_accuracy") - average(f"grpo{end}", "held_out_accuracy")
        lines.append(at_least(f"countdown: change of accuracy by RND, {beside}", change, 0))
    raw = {"lock": {kind: [{"seed": seed, "responses": None if responses == float("inf") else responses}
                           for seed, responses in zip(seeds, of, strict=True)] for kind, of in first.items()},
           "countdown": found}

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for kind, words in (("curiosity", "PPO + RND"), ("grpo", "PPO")):
            plot_runs(left, [rooms[kind]], "steps", "return_mean_100", words, scale=1000, color=COLOURS[kind])
        left.set(title="Rooms (classic)", xlabel="thousand steps", ylabel="mean return of 100 episodes")
        for kind, words in WORDS.items():
            of = [read_progress(folder) for folder in locks[kind]]
            steps = np.array(of[0]["steps"]) * batch(locks[kind][0])
            right.plot(steps / 1000, np.mean([p["length"] for p in of], 0), "--" if kind == "grpo" else "-",
                       color=COLOURS[kind], label=words)                  # GRPO's line covers the entropy bonus's
        right.set(title="Combination lock (tokens)", xlabel="thousand responses",
                  ylabel="symbols up to the first wrong one")
        right.set_ylim(top=8)                                             # room for the legend
        for axes in (left, right):
            axes.legend(fontsize="small", loc="upper left")

    return Paper("Curiosity on tokens (Burda et al. 2018)", lines, draw, raw), [
        *together(locks), *together(policies), *rooms.values()]


def lock(kind: str, seed: int, log_dir: Path) -> Path:
    """Train on the lock number `seed`."""
    return run("llm curiosity", f"lock:code={seed}", seed, log_dir, "--threads", "1", *KINDS[kind], label=kind)


def countdown(kind: str, seed: int, log_dir: Path) -> Path:
    """Train on countdown."""
    return run("llm curiosity", "countdown", seed, log_dir, "--threads", "1", *COUNTDOWN[kind],
               label=kind.replace(" ", "_"))


def opened(folder: Path) -> float:
    """Number of responses up to the end of the first log row in which a response had the whole code."""
    progress, size = read_progress(folder), batch(folder)
    return next((steps * size for steps, reward in zip(progress["steps"], progress["reward"], strict=True) if reward),
                float("inf"))


def batch(folder: Path) -> int:
    """Responses of an update."""
    config = read_json(folder / "config.json")["config"]
    return config["prompts"] * config["samples"]


def answers(folder: Path) -> dict[str, float]:
    """Accuracy on held-out problems of countdown, and the number of different right answers to a problem."""
    found = evaluated(folder, "--task", "countdown", "--episodes", str(PROBLEMS), "--samples", str(SAMPLES))
    return {name: found[name] for name in found if name != "directory"}
