"""Over-optimisation: the true reward while a learned reward rises (after Gao et al. 2022, arXiv:2210.10760).

Best-of-n and PPO optimise learned rewards (proxies) from few and from many comparisons.
"""
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llm.algos.best_of_n import kl_of_best
from llm.bench.pictures.draw import ONE_THREAD, WORKERS, conclude, figure
from llm.policy.load import load_model, load_reward_model
from llm.policy.policy import LanguagePolicy
from llm.tasks.taste import Taste
from spinup.bench.process import finished_run, in_turn
from spinup.runs.curve import COLOURS
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

PAIRS = (50, 200, 1000, 5000)
PROMPTS, ANSWERS = 32, 1024     # prompts, and responses of the initial policy to each: the largest n of best-of-n
LADDER = [2**k for k in range(int(math.log2(ANSWERS)) + 1)]


def best_of_n(proxy: np.ndarray, gold: np.ndarray) -> tuple[list[float], list[float]]:
    """Expected proxy and true reward (gold) of best-of-n by the proxy, for each n of the ladder; both `[P, N]`.

    The expectation over subsets is exact. Sort N responses by the proxy. Sample n of them without replacement. Then the
    i-th response, counted from 0, is the best of the n with probability C(i, n - 1) / C(N, n).
    """
    N, order = proxy.shape[1], proxy.argsort(1)
    ranked = [np.take_along_axis(x, order, 1).mean(0) for x in (proxy, gold)]
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, N + 1)))])
    found: tuple[list[float], list[float]] = ([], [])
    for n in LADDER:
        i = np.arange(n - 1, N)
        chance = np.exp(log_factorial[i] - log_factorial[i - n + 1] + math.log(n) - log_factorial[N]
                        + log_factorial[N - n])
        for where, x in zip(found, ranked, strict=True):
            where.append(float(chance @ x[n - 1:]))
    return found


def answers(task: Taste, start: Path, seed: int) -> tuple[list[str], list[str], np.ndarray]:
    """Return prompts, responses of the initial policy, and their true rewards `[PROMPTS, ANSWERS]`."""
    model = load_model(start)
    policy = LanguagePolicy(model.model, model.tokenizer, task.max_tokens)
    problems = task.problems(PROMPTS, np.random.default_rng(seed), True)
    asked = [p for p in problems for _ in range(ANSWERS)]
    texts: list[str] = []
    for p in problems:
        texts += policy.respond_all([p.prompt], ANSWERS, torch.Generator().manual_seed(seed), task.max_tokens)
    gold = np.array([task.reward(p, text) for p, text in zip(asked, texts, strict=True)])
    return [p.prompt for p in asked], texts, gold.reshape(PROMPTS, ANSWERS)


def initial_policies(seeds: list[int], log_dir: Path) -> dict[int, Path]:
    """Return the folder of the SFT policy of each seed."""
    return dict(zip(seeds, train([("sft", seed, "taste_sft") for seed in seeds], log_dir), strict=True))


def train(jobs: list[tuple[Any, ...]], log_dir: Path) -> list[Path]:
    """Return the folders of runs on `taste`. A job is a method, a seed, the name of the run, and flags."""
    return in_turn(lambda job: finished_run(f"llm {job[0]}", "taste", *job[1:3], log_dir, *job[3:], *ONE_THREAD), jobs,
                   WORKERS)


def over_optimisation(seeds: list[int], log_dir: Path, out: Path) -> int:
    """Train PPO against reward models from few and from many pairs, and compare with best-of-n.

    The goal, for the fewest pairs: PPO's true reward ends .3 standard deviations below its maximum, while the learned
    reward is higher than at that maximum.
    """
    torch.set_num_threads(1)
    jobs = list(product(PAIRS, seeds))
    begun = initial_policies(seeds, log_dir)
    judges = train([("reward_model", seed, f"taste_reward_{n}", "--model", str(begun[seed]), "--pairs", str(n))
                    for n, seed in jobs], log_dir)
    proxies = dict(zip(jobs, judges, strict=True))
    runs = train([("ppo", seed, f"taste_ppo_{n}", "--model", str(begun[seed]), "--reward", str(proxies[n, seed]),
                   "--kl-coef", "0") for n, seed in jobs], log_dir)
    ppo = {job: read_progress(folder) for job, folder in zip(jobs, runs, strict=True)}

    task, best, accuracy = Taste(), {}, {}
    drawn = {seed: answers(task, begun[seed], seed) for seed in seeds}
    for n, seed in jobs:
        prompts, texts, gold = drawn[seed]
        proxy = np.array(load_reward_model(proxies[n, seed]).judge(prompts, texts)).reshape(gold.shape)
        best[n, seed] = best_of_n(proxy, gold)
        accuracy.setdefault(n, []).append(read_json(proxies[n, seed] / "result.json")["pair_accuracy"])
    return finish(seeds, out, best, ppo, accuracy)


def finish(seeds: list[int], out: Path, best: dict[Any, Any], ppo: dict[Any, Any],
           accuracy: dict[int, list[float]]) -> int:
    """Draw the picture, print the results and check the goal."""
    mean = {n: {"best_of_n": {"kl": [kl_of_best(k) for k in LADDER],
                              "proxy": np.mean([best[n, s][0] for s in seeds], 0).tolist(),
                              "gold": np.mean([best[n, s][1] for s in seeds], 0).tolist()},
                "ppo": {key: np.mean([ppo[n, s][column] for s in seeds], 0).tolist() for key, column in (
                    ("kl", "kl_of_response"), ("proxy", "held_out_reward"), ("gold", "held_out_gold"))}} for n in PAIRS}
    with figure(out, 10.0, 4.4) as made:
        for axes, how, title in zip(made.subplots(1, 2, sharey=True), ("best_of_n", "ppo"),
                                    ("best-of-n, n up to 1,024", "PPO without a KL penalty"), strict=True):
            for i, n in enumerate(PAIRS):
                x = np.sqrt(np.maximum(mean[n][how]["kl"], 0))
                axes.plot(x, mean[n][how]["gold"], color=COLOURS[i], linewidth=2.0, label=f"{n:,} pairs",
                          marker="os^D"[i], markevery=[-1], markersize=8)
                axes.plot(x, mean[n][how]["proxy"], color=COLOURS[i], linewidth=1.2, linestyle=":",
                          marker="os^D"[i], markevery=[-1], markersize=5)
            axes.set(title=title, xlabel="√KL to the initial policy, √nats per response")
        first = made.axes[0]
        first.set_ylabel("standard deviations above the teacher")
        first.plot([], [], color="#444444", linewidth=2.0, label="true reward")
        first.plot([], [], color="#444444", linewidth=1.2, linestyle=":", label="learned reward")
        first.legend(loc="upper left")
    ends = {n: {"accuracy": accuracy[n], "proxy": [ppo[n, s]["held_out_reward"][-1] for s in seeds],
                "gold": [ppo[n, s]["held_out_gold"][-1] for s in seeds],
                "highest_gold": [max(ppo[n, s]["held_out_gold"]) for s in seeds]} for n in PAIRS}
    for n, end in ends.items():
        right, proxy, gold, high = (end[k] for k in ("accuracy", "proxy", "gold", "highest_gold"))
        print(f"{n:>5} pairs: accuracy {', '.join(f'{x:.3f}' for x in right)}; final learned reward "
              f"{np.mean(proxy):.2f}, final true reward {np.mean(gold):.2f}, highest true reward {np.mean(high):.2f}")
    few, curve = PAIRS[0], mean[PAIRS[0]]["ppo"]
    top = int(np.argmax(curve["gold"]))
    met = curve["gold"][-1] < curve["gold"][top] - 0.3 and curve["proxy"][-1] > curve["proxy"][top]
    return conclude(out, "over-optimisation", seeds, bool(met), pairs=list(PAIRS), mean=mean, end=ends,
                    few=few, runs={f"{n} pairs, seed {s}": {"best_of_n": best[n, s], **{
                        k: ppo[n, s][k] for k in ("kl_of_response", "held_out_reward", "held_out_gold")}}
                        for n, s in best})
