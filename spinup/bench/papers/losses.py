"""Compare losses that clip or weight the probability ratio: GRPO with the clip of PPO, GSPO (arXiv:2507.18071), CISPO
(arXiv:2506.13585) and SAPO (arXiv:2511.20347). Every batch is used for four gradient steps, because at the first step
all ratios are 1 and the losses have the same gradient. If SmolLM2-135M is on this machine, a second table has equal
numbers of updates of that model for these and three more methods."""
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import Line, Paper, accuracy, by_kind, columns, plot_mean, run, together
from spinup.bench.process import in_turn
from spinup.errors import UserError
from spinup.runs.log import read_progress

SEEDS = (1,)
CURVES = ("steps", "held_out_accuracy", "held_out_reward", "entropy", "kl", "clip_fraction", "ratio_min", "ratio_max")
AS_GRPO, BELOW = 0.02, 0.1              # differences that count as equal: noise of evaluation and seeds; with SmolLM2
TASKS = "reverse", "countdown"
SMALL = ("--threads", "1", "--total-steps", "300", "--lr", "3e-4", "--warmup", "10")
STEPS, REAL_STEPS = ("--minibatches", "4"), ("--minibatches", "2")      # gradient steps per batch, if there is a ratio
METHODS = {                             # name: method, its settings on small models, colour, words
    "grpo": ("grpo", (), "#0072B2", "GRPO"),
    "gspo": ("gspo", ("--clip-low", "0.03", "--clip-high", "0.04"), "#D55E00", "GSPO, a wider clip range"),
    "gspo-paper": ("gspo", (), "#E69F00", "GSPO, the clip range of the paper"),
    "cispo": ("cispo", (), "#009E73", "CISPO"),
    "sapo": ("sapo", (), "#CC79A7", "SAPO")}
FREE = ("grpo", "gspo-paper")           # without a goal; learning rates of small models need a wider clip range
REAL, SENTENCE = "smollm2", "sentence"
EQUAL = ("--held-out", "64", "--total-steps", "7", "--lr", "2e-5")      # with SmolLM2; the preset of GRPO
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))                  # of their curves
ALL = {"grpo": "GRPO", "gspo": "GSPO", "cispo": "CISPO", "sapo": "SAPO", "dr_grpo": "Dr. GRPO", "dapo": "DAPO",
       "rloo": "RLOO"}                  # GSPO has the clip range of the paper, RLOO one step per batch
ABSENT = "is not on this machine"       # words of the error if SmolLM2 was not fetched


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with each loss on each task and seed, then SmolLM2 with the first seed."""
    kinds = list(product(TASKS, METHODS))
    trained = by_kind(kinds, seeds, workers, lambda kind, seed: small(*kind, seed, log_dir))
    found = dict(zip(together(trained), in_turn(accuracy, together(trained), workers), strict=True))
    reached = {kind: [found[folder] for folder in folders] for kind, folders in trained.items()}
    sentences = real(seeds[0], log_dir)
    last = {method: final(folder) for method, folder in sentences.items()}
    lines = []
    for task in TASKS:
        mine = {method: mean(reached[task, method]) for method in METHODS}
        for method, (*_, words) in METHODS.items():
            goal = "" if method in FREE else f">= {mine['grpo'] - AS_GRPO:.3f}"
            lines.append(Line(f"{task}: accuracy, {words}", "", mine[method], goal,
                              method in FREE or mine[method] >= mine["grpo"] - AS_GRPO))
    for method, found in last.items():
        least = last["grpo"]["held_out_accuracy"] - BELOW
        lines.append(Line(f"{SENTENCE}, SmolLM2-135M: accuracy, {ALL[method]}", "", found["held_out_accuracy"],
                          "" if method == "grpo" else f">= {least:.3f}", found["held_out_accuracy"] >= least))
        lines.append(Line(f"{SENTENCE}, SmolLM2-135M: mean reward, {ALL[method]}", "", found["held_out_reward"]))

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(TASKS) + bool(sentences))
        for axis, task in zip(axes, TASKS, strict=False):
            for (method, (_, _, colour, words)), dashes in zip(METHODS.items(), DASHES, strict=True):
                plot_mean(axis, trained[task, method], "steps", "held_out_accuracy", label=words, color=colour,
                          linestyle=dashes, linewidth=1.6)
            axis.set(title=task, xlabel="updates", ylabel="held-out accuracy")
        title = f"{' and '.join(TASKS)}: mean of {len(seeds)} seeds"
        if sentences:
            order = sorted(last, key=lambda method: last[method]["held_out_reward"])
            axes[-1].plot([last[method]["held_out_reward"] for method in order], range(len(order)), "o")
            axes[-1].set_yticks(range(len(order)), [ALL[method] for method in order])
            axes[-1].set(title=SENTENCE, xlabel="reward of SmolLM2")
            axes[-1].margins(x=0.15)
            title += f"; {SENTENCE}: after seven updates, one seed"
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, title=title)

    raw = {"accuracy": {task: {method: reached[task, method] for method in METHODS} for task in TASKS},
           SENTENCE: last, "seeds": list(seeds),
           "curves": {task: {method: [columns(folder, *CURVES) for folder in trained[task, method]]
                             for method in METHODS} for task in TASKS}
           | {SENTENCE: {method: columns(folder, *CURVES) for method, folder in sentences.items()}}}
    return Paper("Losses of the probability ratio: GRPO, GSPO, CISPO, SAPO", lines, draw, raw), [
        *together(trained), *sentences.values()]


def small(task: str, name: str, seed: int, log_dir: Path) -> Path:
    """Train a small model; return the folder of the run."""
    method, flags, *_ = METHODS[name]
    return run(f"llm {method}", task, seed, log_dir, *SMALL, *STEPS, *flags, label=name)


def real(seed: int, log_dir: Path) -> dict[str, Path]:
    """Train SmolLM2 with each method, one at a time; return the folders of the runs. There are none without it."""
    found = {}
    for method in ALL:
        steps = () if method == "rloo" else REAL_STEPS
        try:
            found[method] = run(f"llm {method}", SENTENCE, seed, log_dir, "--model", REAL, *EQUAL, *steps,
                                label="losses")
        except UserError as error:
            if ABSENT not in str(error):
                raise
            print(f"the part with SmolLM2-135M is left out: the model {ABSENT}; type: spinup llm fetch {REAL}")
            break
    return found


def final(folder: Path) -> dict[str, float]:
    """The last held-out numbers of a run's log."""
    progress = read_progress(folder)
    return {name: progress[name][-1] for name in ("held_out_accuracy", "held_out_greedy", "held_out_reward")}
