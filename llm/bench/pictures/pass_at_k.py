"""Pass@k before and after RL: training on rewards raises pass@1; at large k the initial policy may solve as much."""
from math import comb
from pathlib import Path

import numpy as np

from llm.bench.pictures.draw import ONE_THREAD, WORKERS, conclude, figure
from llm.restore import load
from llm.search import best
from llm.tasks.check import problems_of
from llm.tasks.held_out import EVALUATION, distinct
from llm.tasks.make import make_task
from spinup.bench.process import finished_run, in_turn
from spinup.runs.curve import COLOURS
from spinup.runs.files import read_json

TASK = "countdown"
SAMPLES = 64                            # responses to each problem
PROBLEMS = 200                          # held-out problems


def pass_at_k(seeds: list[int], log_dir: Path, out: Path) -> int:
    """Train with GRPO on countdown, and sample many responses of the initial and of the final policy. The goal: pass@1
    at least doubles for every seed."""
    folders = in_turn(lambda seed: finished_run("llm grpo", TASK, seed, "pass_at_k", log_dir, *ONE_THREAD), seeds,
                      WORKERS)
    starts = [Path(read_json(folder / "config.json")["start"]) for folder in folders]
    ks = [2 ** i for i in range(SAMPLES.bit_length())]
    curves = {name: np.array([curve(each, ks) for each in of]) for name, of in (("before", starts), ("after", folders))}
    with figure(out, 7.2, 4.2) as made:
        axes = made.add_subplot()
        for colour, (name, rows), words in zip(COLOURS, curves.items(), ("initial policy", "after GRPO"), strict=False):
            for i, row in enumerate(rows):
                axes.plot(ks, row, color=colour, linewidth=1.6, marker="o", markersize=3, label=None if i else words)
        axes.set(title=f"pass@k on {TASK}", xlabel="k, responses to each problem", xscale="log", ylim=(0, 1.03),
                 ylabel="problems solved at least once", xticks=ks, xticklabels=ks)
        axes.minorticks_off()
        axes.legend()
    before, after = curves["before"], curves["after"]
    for k, a, b in zip(ks, before.mean(0), after.mean(0), strict=True):
        print(f"pass@{k}: {a:.3f} -> {b:.3f}")
    return conclude(out, "pass-at-k", seeds, bool((after[:, 0] >= 2 * before[:, 0]).all()), k=ks,
                    before=before.tolist(), after=after.tolist())


def curve(folder: Path, ks: list[int]) -> list[float]:
    """Return the mean pass@k of a policy on held-out problems, for each k."""
    task, policy = make_task(TASK), load(folder, "cpu")
    asked = distinct(problems_of(task, PROBLEMS, np.random.default_rng(EVALUATION + 1), True))
    right = best(policy, task, asked, SAMPLES)["best"].right.sum(1).tolist()
    return [float(np.mean([unbiased(SAMPLES, c, k) for c in right])) for k in ks]


def unbiased(n: int, c: int, k: int) -> float:
    """Estimate pass@k from n responses, c of which are right (Chen et al. 2021): 1 - C(n - c, k) / C(n, k)."""
    return 1 - comb(n - c, k) / comb(n, k)
