"""Published recipes in stages (Ouyang et al. 2022, arXiv:2203.02155; Llama 3, arXiv:2407.21783; DeepSeek-R1,
arXiv:2501.12948; QwQ-32B): small versions of them, each from a new model to its last stage. A second stage must not
cost the first one's gain, and a round on the policy's best responses must gain more than a round on random ones."""
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import Line, Paper, at_least, at_most, by_kind, together
from spinup.bench.process import spinup
from spinup.runs.files import read_json

SEEDS = (1,)
RECIPES = ("r1", "qwq", "llama3", "instructgpt")
MINUTES, GAIN, LOSS = 10, 20.0, 2.0     # the last two in points: hundredths of an accuracy
ROUNDS = (1, 2, 3)                      # of the recipe llama3
STEPS, COUNTS, TASTE, OLD = "steps", "counts", "taste", "reverse:symbols=8,length=5"


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Run the recipes, and compare the policies of their stages."""
    reports = by_kind(RECIPES, seeds, workers, lambda name, seed: run_recipe(name, seed, log_dir))
    folders = [Path(stage["directory"]) for report in together(reports) for stage in report["stages"]]

    def after(name: str, stage: str, task: str) -> list[float]:
        """The measure of a policy on a task after a stage, for each seed."""
        found = [next(row for row in report["stages"] if row["stage"] == stage) for report in reports[name]]
        return [row["after"][task] for row in found]

    def points(name: str, last: str, first: str, task: str) -> float:
        """Mean over seeds of the points that the policy of the stage `last` has above that of `first`."""
        pairs = zip(after(name, last, task), after(name, first, task), strict=True)
        return 100 * mean(a - b for a, b in pairs)

    rounds = {kind: [after("llama3", "base", STEPS), *(after("llama3", f"{kind}_{r}_dpo", STEPS) for r in ROUNDS)]
              for kind in ("best", "random")}
    gains = {kind: [100 * mean(a - b for a, b in zip(found[r], found[r - 1], strict=True)) for r in ROUNDS]
             for kind, found in rounds.items()}
    minutes = {name: max(sum(row["seconds"] for row in report["stages"]) for report in found) / 60
               for name, found in reports.items()}
    gain, loss = points("qwq", "general", "verified", COUNTS), -points("qwq", "general", "verified", STEPS)
    lines = [at_most(f"{name}: minutes of all its stages, slowest seed", minutes[name], MINUTES) for name in RECIPES]
    lines += [
        Line("r1: accuracy of the base model on steps", "", mean(after("r1", "base", STEPS))),
        Line("r1: after the cold start", "", mean(after("r1", "cold_start", STEPS))),
        Line("r1: after the first RL stage", "", mean(after("r1", "reasoning", STEPS))),
        Line("r1: after the last stage", "", mean(after("r1", "general", STEPS))),
        Line("r1: after the last stage, on the instructions", "", mean(after("r1", "general", COUNTS))),
        at_least("qwq: points that stage 2 gains on the instructions", gain, GAIN),
        at_most("qwq: points that stage 2 loses on the task of stage 1", loss, LOSS)]
    for r in ROUNDS:
        own, control = gains["best"][r - 1], gains["random"][r - 1]
        lines += [Line(f"llama3: points gained in round {r}", "", own, "> 0 and > random",
                       own > max(0, control)),
                  Line(f"llama3: points gained in round {r} with random responses", "", control)]
    lines += [
        Line("instructgpt: true reward after imitation", "", mean(after("instructgpt", "sft", TASTE))),
        Line("instructgpt: true reward after PPO", "", mean(after("instructgpt", "ppo", TASTE))),
        Line("instructgpt: true reward after PPO with the pretraining mix", "",
             mean(after("instructgpt", "ppo_ptx", TASTE))),
        Line("instructgpt: points that PPO loses on the older task", "", -points("instructgpt", "ppo", "sft", OLD)),
        Line("instructgpt: the same with the pretraining mix", "", -points("instructgpt", "ppo_ptx", "sft", OLD))]

    def draw(figure: Any) -> None:
        left, middle, right = figure.subplots(1, 3)
        for kind, colour, words in (("best", "#0072B2", "best"), ("random", "#D55E00", "random")):
            for k, found in enumerate(zip(*rounds[kind], strict=True)):
                left.plot([0, *ROUNDS], found, "o-", color=colour, label=None if k else words)
        left.set(title="llama3: responses", xlabel="round", ylabel="accuracy on steps", xticks=[0, *ROUNDS],
                 ylim=(-0.03, 1.03))
        left.legend(loc="center right")
        names = ("base", "verified", "general")
        for task, colour in ((STEPS, "#0072B2"), (COUNTS, "#009E73")):
            for k, found in enumerate(zip(*(after("qwq", stage, task) for stage in names), strict=True)):
                middle.plot(range(3), found, "o-", color=colour, label=None if k else task)
        middle.set(title="qwq: two stages", xticks=range(3), xticklabels=["base", "stage 1", "stage 2"],
                   ylabel="accuracy", ylim=(-0.03, 1.03))
        middle.legend(loc="lower left", fontsize="small", frameon=False)
        for stage, colour in (("sft", "0.6"), ("ppo", "#D55E00"), ("ppo_ptx", "#009E73")):
            right.plot(after("instructgpt", stage, TASTE), after("instructgpt", stage, OLD), "o", color=colour,
                       label={"sft": "imitation", "ppo": "PPO", "ppo_ptx": "PPO with the mix"}[stage])
        right.set(title="instructgpt", xlabel="true reward", ylabel="accuracy on the older task", ylim=(-0.03, 1.03))
        right.legend()

    raw = {"seeds": list(seeds), "rounds": rounds, "minutes": minutes,
           "reports": {name: [clean(report) for report in found] for name, found in reports.items()}}
    return Paper("Recipes: small versions of published ones", lines, draw, raw), folders


def run_recipe(name: str, seed: int, log_dir: Path) -> dict[str, Any]:
    """Return the report of a recipe. Its finished stages are not repeated, and a stopped one is resumed."""
    exp_name = f"paper_recipe_{name}"
    spinup("llm", "recipe", name, "--seed", str(seed), "--exp-name", exp_name, f"--log-dir={log_dir}", "--threads", "1",
           "--quiet")
    return read_json(log_dir / f"{exp_name}_s{seed}" / "report.json")


def clean(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stages of a report without the folders of this machine."""
    return [{key: x for key, x in row.items() if key not in ("directory", "from")} for row in report["stages"]]
