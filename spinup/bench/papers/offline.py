"""Offline learning on our own datasets of mixed quality, recorded from policies of PPO that stopped early.

On Pendulum, TD3+BC (Fujimoto & Gu 2021, arXiv:2106.06860) and IQL (Kostrikov et al. 2021, arXiv:2110.06169) are
compared with behaviour cloning and TD3, on two datasets. In the first one, half of the episodes have 30 % random
actions. The second one has only actions of the policies, so no data corrects the values of other actions. On CartPole,
CQL (Kumar et al. 2020, arXiv:2006.04779) is compared with behaviour cloning, on data of four policies."""
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, by_kind, columns, e100, record, run, together
from spinup.data.dataset import load
from spinup.runs.log import read_progress

SEEDS = (1,)
SMALL = ("--hidden", "64,64", "--batch-size", "128", "--lr", "1e-3", "--threads", "1", "--no-tensorboard")
VALUES = (*SMALL, "--gamma", "0.95", "--tau", "0.02")
NOISY, NARROW, DISCRETE = "Pendulum-v1, noise", "Pendulum-v1, no noise", "CartPole-v1"
SETS = {                                # dataset: environment, steps of the policies, their noise, transitions of each
    NOISY: ("Pendulum-v1", (12_288, 28_672), ("0", "0.3"), 2500),
    NARROW: ("Pendulum-v1", (12_288, 28_672), ("0",), 5000),
    DISCRETE: ("CartPole-v1", (1024, 2048, 3072, 4096), ("0.3",), 2500)}
PENDULUM = {                            # algorithm: its flags, colour, line, words
    "bc": ((*SMALL, "--total-steps", "4000"), "0.5", ":", "behaviour cloning"),
    "td3_offline": ((*VALUES, "--total-steps", "6000"), "#D55E00", "--", "TD3"),
    "td3_bc": ((*VALUES, "--total-steps", "6000"), "#0072B2", "-", "TD3+BC"),
    "iql": ((*VALUES, "--total-steps", "6000", "--beta", "0.5"), "#009E73", "-.", "IQL")}
KINDS = {NOISY: PENDULUM, NARROW: PENDULUM, DISCRETE: {
    "bc": ((*SMALL, "--total-steps", "2000"), "0.5", ":", "behaviour cloning"),
    "cql": ((*SMALL, "--total-steps", "6000", "--gamma", "0.98", "--target-every", "100"), "#CC79A7",
            "-", "CQL")}}
# They must beat the dataset and cloning.
ABOVE = (*((data, kind) for data in (NOISY, NARROW) for kind in ("td3_bc", "iql")), (DISCRETE, "cql"))
BELOW = ((NARROW, "td3_offline"),)                                      # it must be worse than the dataset


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train the policies, record their episodes, and train each algorithm on the dataset of its seed."""
    agents = list(dict.fromkeys((env, n) for env, steps, *_ in SETS.values() for n in steps))
    policies = by_kind(agents, seeds, workers, lambda agent, seed: policy(*agent, seed, log_dir))
    at = {seed: place for place, seed in enumerate(seeds)}
    files = by_kind(SETS, seeds, workers, lambda name, seed: dataset(
        name, seed, [policies[SETS[name][0], n][at[seed]] for n in SETS[name][1]], log_dir))
    pairs = [(name, kind) for name, kinds in KINDS.items() for kind in kinds]
    of = by_kind(pairs, seeds, workers, lambda pair, seed: learn(*pair, seed, files[pair[0]][at[seed]], log_dir))
    reached = {pair: [e100(folder) for folder in found] for pair, found in of.items()}
    data = {name: [load(file).about["mean_return"] for file in found] for name, found in files.items()}
    lines = []
    for name, kinds in KINDS.items():
        copied, recorded = mean(reached[name, "bc"]), mean(data[name])
        lines.append(Line(f"{name}: mean return of the dataset", "", recorded))
        for kind, (*_, words) in kinds.items():
            ours = mean(reached[name, kind])
            goal, met = "", True
            if (name, kind) in ABOVE:
                goal, met = "above the dataset and cloning", ours > max(copied, recorded)
            elif (name, kind) in BELOW:
                goal, met = "below the dataset", ours < recorded
            lines.append(Line(f"{name}: E100 of {words}", "", ours, goal, met))

    raw = {"seeds": list(seeds), "dataset_returns": data,
           "returns": {name: {kind: reached[name, kind] for kind in kinds} for name, kinds in KINDS.items()},
           "curves": {name: {kind: [columns(folder, "steps", "test_return") for folder in of[name, kind]]
                             for kind in kinds} for name, kinds in KINDS.items()},
           "last_q": {name: {kind: [read_progress(f)["q"][-1] for f in of[name, kind]] for kind in PENDULUM
                             if kind != "bc"} for name in (NOISY, NARROW)}}
    return Paper("Offline learning: TD3+BC, IQL and CQL on mixed data", lines, lambda figure: draw(figure, raw), raw), [
        *together(policies), *together(of)]


def draw(figure: Any, raw: dict[str, Any]) -> None:
    """Draw the test returns during training."""
    named = {}                                                            # the panels share one legend
    for axes, (name, kinds) in zip(figure.subplots(1, len(KINDS)), KINDS.items(), strict=True):
        for kind, (_, colour, dashes, words) in kinds.items():
            curves = raw["curves"][name][kind]
            steps, returns = np.array(curves[0]["steps"]) / 1000, np.array([curve["test_return"] for curve in curves])
            axes.plot(steps, returns.T, color=colour, linewidth=0.7, alpha=0.3)
            [named[words]] = axes.plot(steps, returns.mean(0), dashes, color=colour, linewidth=2)
        named["mean of the dataset"] = axes.axhline(mean(raw["dataset_returns"][name]), color="0.4", linewidth=0.8,
                                                    linestyle=(0, (5, 5)))
        axes.set(title=name, ylabel="test return")
        axes.set_xlabel("thousand gradient steps", fontsize="small")
    figure.legend(named.values(), named, loc="outside lower center", ncols=3, fontsize=8,
                  title="mean over the seeds; pale: single seeds", title_fontsize=8)


def policy(env: str, steps: int, seed: int, log_dir: Path) -> Path:
    """Train PPO for these steps; return the folder of the run."""
    return run("ppo", env, seed, log_dir, "--total-steps", str(steps), "--threads", "1", "--no-tensorboard",
               label=f"{steps}")


def dataset(name: str, seed: int, policies: list[Path], log_dir: Path) -> Path:
    """Return the file of a dataset of a seed. Unless it exists, record the episodes of its policies."""
    _, _, noise, each = SETS[name]
    return record(f"paper_offline_{name.replace(', ', '_').replace(' ', '_')}", seed, log_dir, *map(str, policies),
                  "--noise", *noise, "--steps", str(each))


def learn(name: str, kind: str, seed: int, file: Path, log_dir: Path) -> Path:
    """Train an algorithm on the file of a dataset; return the folder of the run."""
    return run(kind, SETS[name][0], seed, log_dir, "--preset", "none", "--data", str(file), *KINDS[name][kind][0],
               label=name)
