"""Offline learning on our own datasets of mixed quality, recorded from policies of PPO that stopped early.

On Pendulum, TD3+BC (Fujimoto & Gu 2021, arXiv:2106.06860) and IQL (Kostrikov et al. 2021, arXiv:2110.06169) are
compared with behaviour cloning and TD3. On CartPole, CQL (Kumar et al. 2020, arXiv:2006.04779) is compared with
behaviour cloning."""
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, e100, in_turn, run
from spinup.bench.process import spinup
from spinup.data.dataset import load
from spinup.runs.log import read_progress

SEEDS = (1,)
SMALL = ("--hidden", "64,64", "--batch-size", "128", "--lr", "1e-3", "--threads", "1", "--no-tensorboard")
VALUES = (*SMALL, "--gamma", "0.95", "--tau", "0.02")
SETS = {                                # environment: steps of the policies, their noise, transitions of each part
    "Pendulum-v1": ((12_288, 28_672), ("0",), 5000),
    "CartPole-v1": ((3584,), ("0", "0.3", "1"), 5000)}
KINDS = {                               # environment: algorithm, its flags, colour, words
    "Pendulum-v1": {
        "bc": ((*SMALL, "--total-steps", "4000"), "0.5", "behaviour cloning"),
        "td3_offline": ((*VALUES, "--total-steps", "6000"), "#D55E00", "TD3"),
        "td3_bc": ((*VALUES, "--total-steps", "6000"), "#0072B2", "TD3+BC"),
        "iql": ((*VALUES, "--total-steps", "6000", "--beta", "0.5"), "#009E73", "IQL")},
    "CartPole-v1": {
        "bc": ((*SMALL, "--total-steps", "2000"), "0.5", "behaviour cloning"),
        "cql": ((*SMALL, "--total-steps", "6000", "--gamma", "0.98", "--alpha", "0.1", "--target-every", "100"),
                "#0072B2", "CQL")}}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train the policies, record their episodes, and train each algorithm on the dataset of its seed."""
    jobs = [(env, seed) for env in SETS for seed in seeds]
    files = dict(zip(jobs, in_turn(lambda job: dataset(*job, log_dir), jobs, workers), strict=True))
    jobs = [(env, kind, seed) for env, kinds in KINDS.items() for kind in kinds for seed in seeds]
    folders = in_turn(lambda job: run(job[1], job[0], job[2], log_dir, "--preset", "none", "--data",
                                      str(files[job[0], job[2]]), *KINDS[job[0]][job[1]][0]), jobs, workers)
    of = {(env, kind): [f for (e, k, _), f in zip(jobs, folders, strict=True) if (e, k) == (env, kind)]
          for env, kind, _ in jobs}
    reached = {key: [e100(folder) for folder in found] for key, found in of.items()}
    data = {env: [load(files[env, seed]).about["mean_return"] for seed in seeds] for env in SETS}
    lines = []
    for env, kinds in KINDS.items():
        copied, recorded = mean(reached[env, "bc"]), mean(data[env])
        lines += [Line(f"{env}: mean return of the dataset", "", recorded),
                  Line(f"{env}: E100 of behaviour cloning", "", copied)]
        for kind, (_, _, words) in kinds.items():
            ours = mean(reached[env, kind])
            if kind == "td3_offline":
                lines.append(Line(f"{env}: E100 of {words} without environment steps", "", ours, "below the dataset",
                                  ours < recorded))
            elif kind != "bc":
                lines.append(Line(f"{env}: E100 of {words}", "", ours, "above both", ours > max(copied, recorded)))

    def draw(figure: Any) -> None:
        for axes, (env, kinds) in zip(figure.subplots(1, 2), KINDS.items(), strict=True):
            for kind, (_, colour, words) in kinds.items():
                for k, folder in enumerate(of[env, kind]):
                    progress = read_progress(folder)
                    axes.plot(np.array(progress["steps"]) / 1000, progress["test_return"], color=colour,
                              label=None if k else words)
            axes.axhline(mean(data[env]), color="0.6", linewidth=0.8, linestyle="--", label="mean of the dataset")
            axes.set(title=f"{env}, from a dataset", xlabel="thousand gradient steps", ylabel="test return")
            axes.legend(fontsize=7)

    raw = {"seeds": list(seeds), "dataset_returns": data,
           "returns": {env: {kind: reached[env, kind] for kind in kinds} for env, kinds in KINDS.items()},
           "last_q": {kind: [read_progress(f)["q"][-1] for f in of["Pendulum-v1", kind]]
                      for kind in ("td3_offline", "td3_bc", "iql")}}
    return Paper("Offline learning: TD3+BC, IQL and CQL on mixed data", lines, draw, raw), folders


def dataset(env: str, seed: int, log_dir: Path) -> Path:
    """Return the dataset of an environment and a seed. If it does not exist, train its policies and record their
    episodes."""
    steps, noise, each = SETS[env]
    policies = [run("ppo", env, seed, log_dir, "--total-steps", str(n), "--threads", "1", "--no-tensorboard",
                    label=f"{n}") for n in steps]
    file = log_dir / f"paper_offline_{env}_s{seed}.npz"
    if not file.exists():
        spinup("record", *map(str, policies), "--noise", *noise, "--steps", str(each), "--seed", str(seed), "--out",
               str(file))
    return file
