"""RL² on tokens (Duan et al. 2016): a transformer whose context is its memory, beside the GRU, on the same bandits."""
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.papers.bandits import TABLE, by_pull, evaluate, strategies
from spinup.bench.papers.paper import Line, Paper, at_least, at_most, run, seconds_of
from spinup.bench.process import in_turn
from spinup.runs.files import read_json

SEEDS = (1,)
TASK, ENV = "bandits:arms=5,pulls=10", "Bandits-5x10-v0"
REACH, SECONDS, WIPED = 6.3, 300, 5.5   # mean return, training seconds, and most that a policy without memory gets


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train a transformer and a GRU on bandits. Compare them with strategies, and with a context that is cut."""
    found = in_turn(lambda seed: run("llm rl2", TASK, seed, log_dir, "--threads", "1"), seeds, workers)
    classic = run("rl2", ENV, seeds[0], log_dir, "--threads", "1")
    known, published = strategies(ENV), TABLE[ENV][0]
    trials = [read_json(folder / "trials.json") for folder in found]
    ours, cut = ([sum(t[name]) for t in trials] for name in ("reward_of_step", "cut_reward_of_step"))
    seconds, gru = [seconds_of(folder) for folder in found], evaluate(classic)
    lines = [Line(name, str(published.get(name, "")), value) for name, value in known.items()]
    lines += [
        Line("GRU, greedy actions", str(published["RL²"]), gru),
        at_least(f"transformer, sampled actions, mean of {len(ours)} seed(s)", np.mean(ours), REACH),
        at_most("the same weights, context cut at every pull, highest", max(cut), WIPED),
        at_most("training seconds of the transformer, slowest seed", max(seconds), SECONDS),
        Line("training seconds of the GRU", "", seconds_of(classic))]
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
