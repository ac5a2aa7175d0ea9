"""RL² on tokens (Duan et al. 2016): a transformer whose context is its memory, beside the GRU, on the same bandits."""
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spinup.bench.papers.bandits import TRIALS, by_pull, tasks_of
from spinup.bench.papers.paper import Line, Paper, run
from spinup.bench.process import in_turn, spinup
from spinup.envs.worlds.trials import baselines, play
from spinup.runs.files import read_json

SEEDS = (1,)
TASK, ENV = "bandits:arms=5,pulls=10", "Bandits-5x10-v0"
REACH, SECONDS, WIPED = 6.3, 300, 5.5   # mean return, training seconds, and most that a policy without memory gets
PAPER = {"random": 5.0, "Thompson": 5.7, "optimistic Thompson": 6.5, "UCB1": 6.7, "epsilon-greedy": 6.6, "greedy": 6.6}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train a transformer and a GRU on bandits. Compare them with strategies, and with a context that is cut."""
    found = in_turn(lambda seed: run("llm rl2", TASK, seed, log_dir, "--threads", "1"), seeds, workers)
    classic = run("rl2", ENV, seeds[0], log_dir, "--threads", "1")
    known = {name: float(play(tasks_of(ENV, 0), strategy).mean()) for name, strategy in
             baselines(tasks_of(ENV, 0), torch.Generator().manual_seed(1)).items()}
    trials = [read_json(folder / "trials.json") for folder in found]
    ours, cut = ([sum(t[name]) for t in trials] for name in ("reward_of_step", "cut_reward_of_step"))
    seconds = [read_json(folder / "result.json")["seconds"] for folder in found]
    gru = json.loads(spinup("eval", str(classic), "--episodes", str(TRIALS), "--json"))["mean"]
    lines = [Line(name, str(PAPER.get(name, "")), value) for name, value in known.items()]
    lines += [
        Line("GRU, greedy actions", "6.7", gru),
        Line(f"transformer, sampled actions, mean of {len(ours)} seed(s)", "", float(np.mean(ours)), f">= {REACH:g}",
             float(np.mean(ours)) >= REACH),
        Line("the same weights, context cut at every pull, highest", "", max(cut), f"<= {WIPED:g}", max(cut) <= WIPED),
        Line("training seconds of the transformer, slowest seed", "", max(seconds), f"<= {SECONDS}",
             max(seconds) <= SECONDS),
        Line("training seconds of the GRU", "", read_json(classic / "result.json")["seconds"])]
    curves = by_pull(classic, ENV)
    raw = {"seeds": list(seeds), "baselines": known, "returns": ours, "cut": cut, "seconds": seconds, "gru": gru,
           "curves": {"gru": curves, "transformer": trials}}

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        pulls = range(1, len(trials[0]["reward_of_step"]) + 1)
        left.plot(pulls, curves["as learned"], marker=".", color="#0072B2", label="with its memory")
        left.plot(pulls, curves["wiped at every pull"], marker=".", color="#D55E00", label="memory wiped at every pull")
        for k, each in enumerate(trials):
            right.plot(pulls, each["reward_of_step"], marker=".", color="#0072B2",
                       label=None if k else "with its context")
            right.plot(pulls, each["cut_reward_of_step"], marker=".", color="#D55E00",
                       label=None if k else "context cut at every pull")
        left.set(title="a GRU on observations", xlabel="pull", ylabel="mean reward")
        right.set(title="a transformer on tokens", xlabel="pull")
        left.legend()
        right.legend()

    return Paper("RL² on tokens (Duan et al. 2016)", lines, draw, raw), [*found, classic]
