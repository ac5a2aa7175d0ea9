"""Curiosity on tokens (Burda et al. 2018, with a transformer): a combination lock that random responses open once in
millions of tries, and the number of different right answers to problems that have several (as in Hong et al. 2024)."""
import json
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, run
from spinup.bench.process import in_turn, spinup
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
    jobs = [(kind, seed) for kind in KINDS for seed in seeds]
    locks = dict(zip(jobs, in_turn(lambda job: lock(*job, log_dir), jobs, workers), strict=True))
    asked = [(kind, seed) for kind in COUNTDOWN for seed in seeds[:OF_COUNTDOWN]]
    policies = dict(zip(asked, in_turn(lambda job: countdown(*job, log_dir), asked, workers), strict=True))
    found = {job: answers(folder) for job, folder in policies.items()}
    rooms = {kind: run("curiosity", CLASSIC, seeds[0], log_dir, "--threads", "1", *flags, label=kind)
             for kind, flags in (("curiosity", []), ("grpo", ["--bonus-coef", "0"]))}
    first = {job: opened(folder) for job, folder in locks.items()}

    def count(kind: str) -> int:
        return sum(first[kind, seed] <= LIMIT for seed in seeds)

    def average(kind: str, name: str) -> float:
        return mean(found[kind, seed][name] for seed in seeds[:OF_COUNTDOWN])

    least, of, lines = ceil(SHARE * len(seeds)), f"of {len(seeds)}", []
    for kind, words in WORDS.items():
        goal = f">= {least}" if kind == "curiosity" else "" if kind in FREE else "0"
        met = count(kind) >= least if kind == "curiosity" else kind in FREE or not count(kind)
        lines.append(Line(f"lock opened within {LIMIT:,} responses, {of}: {words}", "", count(kind), goal, met))
    lines.append(Line("lock: share of right responses at the end, GRPO + RND, mean", "",
                      mean(read_progress(locks["curiosity", seed])["held_out_accuracy"][-1] for seed in seeds)))
    words = WORDS | BESIDE
    for kind in COUNTDOWN:
        lines.append(Line(f"countdown: accuracy, {words[kind]}", "", average(kind, "held_out_accuracy")))
    for kind in COUNTDOWN:
        lines.append(Line(f"countdown: different right answers in {SAMPLES} samples, {words[kind]}", "",
                          average(kind, "distinct_right")))
    for end, beside in (("", "without a KL penalty"), (" with KL", "both with the KL penalty")):
        times = average(f"curiosity{end}", "distinct_right") / average(f"grpo{end}", "distinct_right")
        lines.append(Line(f"countdown: different right answers, times those without RND, {beside}", "", times,
                          f">= {TIMES:g}", times >= TIMES))
        change = average(f"curiosity{end}", "held_out_accuracy") - average(f"grpo{end}", "held_out_accuracy")
        lines.append(Line(f"countdown: change of accuracy by RND, {beside}", "", change, ">= 0", change >= 0))
    raw = {"lock": {kind: [{"seed": seed, "responses": None if first[kind, seed] == float("inf")
                            else first[kind, seed]} for seed in seeds] for kind in KINDS},
           "countdown": {kind: [found[kind, seed] for seed in seeds[:OF_COUNTDOWN]] for kind in COUNTDOWN}}

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for kind, words in (("curiosity", "PPO + RND"), ("grpo", "PPO")):
            progress = read_progress(rooms[kind])
            left.plot(np.array(progress["steps"]) / 1000, progress["return_mean_100"], color=COLOURS[kind], label=words)
        left.set(title="Rooms (classic)", xlabel="thousand steps", ylabel="mean return of 100 episodes")
        for kind, words in WORDS.items():
            of = [read_progress(locks[kind, seed]) for seed in seeds]
            steps = np.array(of[0]["steps"]) * batch(locks[kind, seeds[0]])
            right.plot(steps / 1000, np.mean([p["length"] for p in of], 0), color=COLOURS[kind], label=words)
        right.set(title="Combination lock (tokens)", xlabel="thousand responses",
                  ylabel="symbols up to the first wrong one")
        right.set_ylim(top=8)                                             # room for the legend
        for axes in (left, right):
            axes.legend(fontsize="small", loc="upper left")

    return Paper("Curiosity on tokens (Burda et al. 2018)", lines, draw, raw), [
        *locks.values(), *policies.values(), *rooms.values()]


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
    found = json.loads(spinup("llm", "eval", str(folder), "--task", "countdown", "--episodes", str(PROBLEMS),
                              "--samples", str(SAMPLES), "--json"))
    return {name: found[name] for name in found if name != "directory"}
