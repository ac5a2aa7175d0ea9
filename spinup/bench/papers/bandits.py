"""RL² on bandits and small MDPs (Duan et al. 2016, tables 1 and 2): a learned algorithm and hand-designed ones."""
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spinup.bench.papers.paper import Line, Paper, at_most, by_kind, evaluated, run, seconds_of, together
from spinup.envs import make
from spinup.envs.worlds.strategies import baselines, play
from spinup.envs.worlds.trials import Bandits, TabularMDPs, Trials
from spinup.runs.policy import Policy

SEEDS = (1, 2, 3)
TRIALS = 4000
# Environment -> the paper's mean returns, and our goals.
TABLE = {
    "Bandits-5x10-v0": ({"random": 5.0, "Thompson": 5.7, "optimistic Thompson": 6.5, "UCB1": 6.7,
                         "epsilon-greedy": 6.6, "greedy": 6.6, "RL²": 6.7}, 6.5),
    "Bandits-5x100-v0": ({"random": 49.9, "Thompson": 74.7, "optimistic Thompson": 77.9, "UCB1": 78.0,
                          "epsilon-greedy": 75.4, "greedy": 74.8, "RL²": 78.7}, 76.0),
    "TabularMDPs-10-v0": ({"random": 100.1, "PSRL": 138.1, "BEB": 150.2, "epsilon-greedy": 132.8, "greedy": 134.8,
                           "RL²": 156.2}, None)}
SECONDS = {"Bandits-5x10-v0": 60}
WIPED = 5.5                             # upper limit: a policy without memory gets five in ten pulls


def tasks_of(env: str, seed: int) -> Trials:
    """Make `TRIALS` trials of an environment."""
    generator = torch.Generator().manual_seed(seed)
    numbers = [int(n) for n in env.split("-")[1].split("x")]
    kind = Bandits if env.startswith("Bandits") else TabularMDPs
    return kind(TRIALS, *numbers, "cpu", generator)


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train the preset of each environment, and evaluate it and the baselines, with and without its memory."""
    folders = by_kind(TABLE, seeds, workers, lambda env, seed: run("rl2", env, seed, log_dir, "--threads", "1"))
    lines, raw = [], {}
    for env, (paper, goal) in TABLE.items():
        known, ours = strategies(env), [evaluate(folder) for folder in folders[env]]
        lines += [Line(f"{env}: {name}", str(paper.get(name, "")), value) for name, value in known.items()]
        least, words = (goal, f">= {goal:g}") if goal else (known["greedy"], "> greedy")
        lines.append(Line(f"{env}: RL², mean of {len(ours)} seeds", str(paper["RL²"]), float(np.mean(ours)), words,
                          float(np.mean(ours)) > least - (1e-9 if goal else 0)))
        raw[env] = {"baselines": known, "rl2": ours, "seconds": [seconds_of(folder) for folder in folders[env]]}
        if env in SECONDS:
            lines.append(at_most(f"{env}: training seconds, slowest seed", max(raw[env]["seconds"]), SECONDS[env]))
            raw[env]["curves"] = curves = by_pull(folders[env][0], env)
            lines.append(at_most(f"{env}: the same weights, memory wiped at every pull",
                                 sum(curves["wiped at every pull"]), WIPED))

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for name, values in raw["Bandits-5x10-v0"]["curves"].items():
            axes.plot(range(1, len(values) + 1), values, marker=".", label=name)
        axes.set(title="RL² on bandits of five arms", xlabel="pull", ylabel="mean reward")
        axes.legend()

    return Paper("RL² compared with bandit and MDP strategies (Duan et al. 2016)", lines, draw, raw), together(folders)


def strategies(env: str) -> dict[str, float]:
    """Mean return of each hand-designed strategy, on the same tasks for all."""
    known = baselines(tasks_of(env, 0), torch.Generator().manual_seed(1))
    return {name: float(play(tasks_of(env, 0), strategy).mean()) for name, strategy in known.items()}


def evaluate(folder: Path) -> float:
    """Mean return of a trained policy in new trials."""
    return evaluated(folder, "--episodes", str(TRIALS))["mean"]


def by_pull(folder: Path, env: str) -> dict[str, list[float]]:
    """Mean reward of each pull: with memory, with memory reset in the middle of the trial, and with memory reset at
    every pull."""
    from spinup import load
    policy = load(folder)
    return {name: rewards(policy, env, wiped) for name, wiped in (
        ("as learned", ()), ("memory wiped after five pulls", (5,)), ("wiped at every pull", range(10)))}


def rewards(policy: Policy, env: str, wiped: Any) -> list[float]:
    """Mean reward of each pull. At the pulls in `wiped` the policy gets the first observation of the trial, so it has
    no memory."""
    envs = make(env, TRIALS, 0, **policy.env_settings)
    obs, found = envs.reset(), []
    first = obs.copy()
    for pull in range(policy.env_settings["episodes"]):
        seen = first if pull in wiped else obs
        step = envs.step(policy.act_batch(seen))
        found.append(float(step.reward.mean()))
        obs = step.obs
    return found
