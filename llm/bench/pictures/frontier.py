"""Results of each method on the same 2,000 comparisons: the true reward over the KL to the initial policy."""
from pathlib import Path

import numpy as np

from llm.algos.best_of_n import kl_of_best
from llm.bench.pictures.draw import conclude, figure
from llm.bench.pictures.over_optimisation import LADDER, answers, best_of_n, initial_policies, train
from llm.policy.load import load_reward_model
from llm.tasks.taste import Taste
from spinup.runs.curve import COLOURS
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

PAIRS = 2000
REWARDED = ("ppo", "rloo", "grpo", "best_of_n", "online_dpo")              # learn from the reward model of these pairs
PREFERRING = ("dpo", "ipo", "dpop", "tdpo", "kto", "simpo", "step_dpo")    # learn from the pairs
PROMISED = ("ppo", "rloo", "best_of_n")
MARKS = "osD^vP*Xhd<>"                                                   # one for each method
GOAL, NATS = 1.0, 10.0      # least gain in true reward, in standard deviations, and largest KL divergence, in nats


def frontier(seeds: list[int], log_dir: Path, out: Path) -> int:
    """Draw the frontier. The goal: the promised methods gain at least one standard deviation, within the allowed KL."""
    begun = initial_policies(seeds, log_dir)
    model = {seed: ("--model", str(folder)) for seed, folder in begun.items()}
    judges = train([("reward_model", s, f"taste_reward_{PAIRS}", *model[s], "--pairs", str(PAIRS)) for s in seeds],
                   log_dir)
    judged = {seed: ("--reward", str(folder)) for seed, folder in zip(seeds, judges, strict=True)}
    jobs = [(m, s, f"taste_{m}", *model[s], *(judged[s] if m in REWARDED else ())) for m in (*REWARDED, *PREFERRING)
            for s in seeds]
    runs = dict(zip((job[:2] for job in jobs), map(read_progress, train(jobs, log_dir)), strict=True))

    task, before, ladder = Taste(), [], []
    for seed, start, judge in zip(seeds, begun.values(), judges, strict=True):
        prompts, texts, gold = answers(task, start, seed)
        before.append((gold.mean(), gold.std()))
        proxy = np.array(load_reward_model(judge).judge(prompts, texts)).reshape(gold.shape)
        ladder.append((np.array(best_of_n(proxy, gold)[1]) - gold.mean()) / gold.std())
    curves = {}
    for method in (*REWARDED, *PREFERRING):
        column = "held_out_gold" if method in REWARDED else "held_out_reward"
        gained = [(np.array(runs[method, s][column]) - mean) / deviation
                  for s, (mean, deviation) in zip(seeds, before, strict=True)]
        nats = [np.array(runs[method, s]["kl_of_response"]) for s in seeds]
        curves[method] = {"kl": np.mean(nats, 0).tolist(), "gain": np.mean(gained, 0).tolist(),
                          "end_kl": [float(x[-1]) for x in nats], "end_gain": [float(x[-1]) for x in gained]}

    with figure(out, 8.6, 5.2) as made:
        axes = made.add_subplot()
        axes.plot([kl_of_best(n) for n in LADDER], np.mean(ladder, 0), color="#444444", linewidth=1.2, linestyle="--",
                  label="best-of-n at inference time")
        for i, (method, curve) in enumerate(curves.items()):
            colour = COLOURS[i % len(COLOURS)]
            axes.plot([0, *curve["kl"]], [0, *curve["gain"]], color=colour, linewidth=0.9, alpha=0.6)
            axes.plot(curve["kl"][-1], curve["gain"][-1], MARKS[i], color=colour, markersize=9, label=method, zorder=3,
                      markeredgecolor="0.2", markeredgewidth=0.6)
        axes.set(title=f"True reward after training on {PAIRS:,} comparisons",
                 xlabel="KL to the initial policy, nats per response",
                 ylabel="true reward, standard deviations above the initial policy")
        axes.set_xlim(left=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="end of training")
    accuracy = [read_json(folder / "result.json")["pair_accuracy"] for folder in judges]
    print(f"reward models from {PAIRS:,} pairs: accuracy {', '.join(f'{x:.3f}' for x in accuracy)}")
    for method, curve in curves.items():
        ends = (", ".join(f"{x:.2f}" for x in curve[key]) for key in ("end_gain", "end_kl"))
        print("{:<11} gains {} standard deviations at a KL of {} nats".format(method, *ends))
    met = all(min(curves[m]["end_gain"]) >= GOAL and max(curves[m]["end_kl"]) <= NATS for m in PROMISED)
    return conclude(out, "frontier", seeds, met, start=[list(map(float, x)) for x in before], accuracy=accuracy,
                    curves=curves, best_of_n={"kl": [kl_of_best(n) for n in LADDER],
                                              "gain": np.mean(ladder, 0).tolist()})
