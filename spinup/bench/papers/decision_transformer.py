"""Decision transformers (Chen et al. 2021, arXiv:2106.01345).

The first experiment learns shortest paths on a graph from random walks, as in the paper's figure 2. The second one
compares requested and reached returns on datasets of mixed quality from CartPole and Pendulum, as in its figure 4."""
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

import spinup as library
from spinup.bench.papers.paper import Line, Paper, at_most, by_kind, record, run, seconds_of, together
from spinup.bench.process import in_turn
from spinup.data.dataset import Dataset, load
from spinup.envs.memory import Memory
from spinup.envs.worlds.graph import LIMIT, NODES, RandomGraph
from spinup.runs.episodes import play_episodes
from spinup.runs.policy import Policy

SEEDS = (1,)
GRAPH, WALKS = "RandomGraph-v0", 300_000                # steps of random walks, of up to 10 steps each
PATHS, CORRELATION, MINUTES = NODES - 1, 0.8, 10
REQUESTS, EPISODES, TESTS = 9, 20, 100                  # requested returns, and episodes of each; of the comparison
STEPS = 20_000                                          # transitions of each part of a mixed dataset
# The policies whose episodes a dataset mixes, from PPO after these steps, and uniform random actions.
AGENTS = {"CartPole-v1": (50_000, 8192, 2048), "Pendulum-v1": (98_304, 40_960)}
LEARN = ("--total-steps", "3000", "--test-episodes", "0", "--threads", "1")
MODEL = ("--lr", "2e-3", "--layers", "2")
COLOURS = {"CartPole-v1": "#0072B2", "Pendulum-v1": "#D55E00"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train decision transformers on random walks and on mixed data, and behaviour cloning on the mixed data."""
    log_dir.mkdir(parents=True, exist_ok=True)
    graphs = in_turn(lambda seed: on_graph(seed, log_dir), seeds, workers)
    of = by_kind(AGENTS, seeds, workers, lambda env, seed: on_mixed_data(env, seed, log_dir))
    paths = [int(np.count_nonzero(each["reached"] == each["shortest"])) for each in graphs]
    whole = [*graphs, *together(of)]
    seconds = [sum(map(seconds_of, each["folders"])) for each in whole]
    slowest = max(sum(seconds[i::len(seeds)]) for i in range(len(seeds))) / 60
    lines = [Line("random graph: shortest paths found, of 19; lowest seed", "", min(paths), f"= {PATHS}",
                  min(paths) == PATHS),
             Line("random graph: share of walks in the data that are shortest paths", "",
                  mean(each["share"] for each in graphs))]
    for env, each in of.items():
        correlations, ours, cloned = ([x[key] for x in each] for key in ("correlation", "best", "cloned"))
        above = min(a - b for a, b in zip(ours, cloned, strict=True))
        lines += [
            Line(f"{env}: correlation of requested and reached return, lowest seed", "", np.min(correlations).item(),
                 f"> {CORRELATION}", bool(np.min(correlations) > CORRELATION)),           # NaN: missed
            Line(f"{env}: mean return of the dataset", "", mean(x["data"] for x in each)),
            Line(f"{env}: return of behaviour cloning", "", mean(cloned)),
            Line(f"{env}: return with the best return requested", "", mean(ours)),
            Line(f"{env}: that minus behaviour cloning, lowest seed", "", above, "> 0", above > 0)]
    lines.append(at_most("minutes of training, one seed, slowest", slowest, MINUTES))

    keys = ("requests", "returns", "correlation", "best", "cloned", "data")
    raw = {"seeds": list(seeds), "graph": [{key: list(map(int, each[key])) for key in ("shortest", "reached")}
                                           for each in graphs],
           **{env: [{key: x[key] for key in keys} for x in each] for env, each in of.items()}}
    return Paper("Decision transformers (Chen et al. 2021)", lines, lambda figure: draw(figure, raw), raw), [
        each["folder"] for each in whole]


def draw(figure: Any, raw: dict[str, Any]) -> None:
    """Draw the lengths of paths, and the reached against the requested returns."""
    left, *others = figure.subplots(1, 1 + len(COLOURS))
    shortest, reached = (np.array([each[key] for each in raw["graph"]]).ravel() for key in ("shortest", "reached"))
    jitter, named = np.linspace(-0.2, 0.2, len(shortest)), {}             # otherwise equal points hide each other
    left.plot([0, 10], [0, 10], color="0.6", linewidth=0.8, linestyle="--")
    [named["one start and seed"]] = left.plot(shortest + jitter, reached + jitter, "o", color="#009E73", markersize=4)
    left.set(title="random graph", xlabel="shortest path", ylabel="path of the policy")
    for axes, (env, colour) in zip(others, COLOURS.items(), strict=True):
        for x in raw[env]:
            [named[f"one seed, {env}"]] = axes.plot(x["requests"], x["returns"], "o-", color=colour, markersize=3)
        ends = [min(x["requests"][0] for x in raw[env]), max(x["requests"][-1] for x in raw[env])]
        [named["both are equal"]] = axes.plot(ends, ends, color="0.6", linewidth=0.8, linestyle="--")
        named["mean of behaviour cloning"] = axes.axhline(mean(x["cloned"] for x in raw[env]), color="0.3",
                                                          linewidth=0.8)
        axes.set(title=env, xlabel="requested return", ylabel="reached return")
    figure.legend(named.values(), named, loc="outside lower center", ncols=3, fontsize=8)


def on_graph(seed: int, log_dir: Path) -> dict[str, Any]:
    """Learn from random walks. From each node, request the best return of all walks that start from it in the data."""
    file = record("paper_graph", seed, log_dir, f"random:{GRAPH}", "--steps", str(WALKS))
    folder = run("decision_transformer", GRAPH, seed, log_dir, "--data", str(file), "--context", "5", *MODEL,
                 *LEARN)
    policy, data = library.load(folder), load(file)
    first = data.obs[[each.start for each in data.episodes()]].argmax(1)
    distances, returns = RandomGraph(1, 0).distances, data.returns()
    reached = lengths(policy, [returns[first == node].max() for node in range(1, NODES)])
    shortest, share = distances[1:], float(np.mean(-returns == distances[first]))
    return {"folder": folder, "folders": [folder], "shortest": shortest, "reached": reached, "share": share}


def lengths(policy: Policy, requests: list[float]) -> np.ndarray:
    """Return the steps of the policy's walk from each node but the goal, `[19]`, if these returns are requested."""
    env = Memory(RandomGraph(NODES - 1, 0, start=np.arange(1, NODES)), 1)
    policy.module.request = torch.tensor(requests, dtype=torch.float32)
    found, obs = np.full(NODES - 1, LIMIT), env.reset()
    for step in range(1, LIMIT + 1):
        done = env.step(policy.act_batch(obs))
        found = np.where(done.terminated, np.minimum(found, step), found)     # a later walk is not counted
        obs = done.obs
    return found


def on_mixed_data(env: str, seed: int, log_dir: Path) -> dict[str, Any]:
    """Learn from data of good, weak and random policies. Request returns from the worst to the best in the data."""
    agents = [run("ppo", env, seed, log_dir, "--total-steps", str(steps), "--threads", "1", label=f"{steps}")
              for steps in AGENTS[env]]
    file = record(f"paper_mixed_{env}", seed, log_dir, *map(str, agents), f"random:{env}", "--steps", str(STEPS))
    folder = run("decision_transformer", env, seed, log_dir, "--data", str(file), "--context", "10", *MODEL, *LEARN)
    cloning = run("bc", env, seed, log_dir, "--data", str(file), *LEARN)
    policy, data = library.load(folder), load(file)
    best = mean_return(policy, env, TESTS)
    cloned = mean_return(library.load(cloning), env, TESTS)
    requests = spread(data)
    returns = []
    for request in requests:
        policy.module.request.fill_(request)
        # Sampled actions: the most likely action of a mixture is often that of the good policy.
        returns.append(mean_return(policy, env, EPISODES, deterministic=False))
    return {"folder": folder, "folders": [*agents, folder, cloning], "best": best, "cloned": cloned,
            "requests": requests, "returns": returns, "correlation": float(np.corrcoef(requests, returns)[0, 1]),
            "data": float(data.returns().mean())}


def mean_return(policy: Policy, env: str, episodes: int, deterministic: bool = True) -> float:
    """Play new episodes; return their mean return."""
    return float(np.mean(play_episodes(policy, env, episodes, deterministic=deterministic)[0]))


def spread(data: Dataset) -> list[float]:
    """Return requested returns at equal distances from the smallest to the largest return of the data."""
    returns = data.returns()
    return np.linspace(returns.min(), returns.max(), REQUESTS).tolist()
