"""Hints for a rare language, after LANG (2026, arXiv:2605.22567, of which only the abstract was read): sums in two
alphabets, Latin and Greek. The imitated teacher answers Greek prompts mostly in Latin letters. GRPO is compared with a
reward for consistency of the language, and with that reward and hints that fade."""
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import (
    PROBLEMS,
    Line,
    Paper,
    at_least,
    by_kind,
    columns,
    evaluated,
    plot_runs,
    run,
    start_of,
    together,
)

SEEDS = (1,)
CURVES = "steps", "held_out_accuracy", "reward_hint_latin", "reward_hint_greek", "held_out_reward_language"
POINTS, CONSISTENT = 0.10, 0.95
SETTINGS = ("--threads", "1", "--total-steps", "600", "--layers", "2", "--sft-accuracy", "0.85")
TASK = "two_scripts:rare=0.02"          # 2 % of the demonstrations for Greek prompts are in Greek
KINDS = {                               # name: wrappers, colour, words
    "grpo": ("language,coef=0:", "#D55E00", "GRPO"),    # GRPO's reward, with the column of the language
    "language": ("language,mode=times,strict=yes:", "#0072B2", "GRPO + consistency"),
    "hints": ("hints:language,mode=times,strict=yes:", "#009E73", "GRPO + consistency + hints")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with each reward from the same initial policy; evaluate on Greek prompts without hints."""
    of = by_kind(KINDS, seeds, workers, lambda kind, seed: run(
        "llm grpo", f"{KINDS[kind][0]}{TASK}", seed, log_dir, *SETTINGS, label=kind))
    policies = {"initial": [start_of(folder) for folder in of["grpo"]], **of}
    right, greek = ({kind: [in_greek(folder, rule) for folder in found] for kind, found in policies.items()}
                    for rule in ("strict", "script"))
    lines = []
    for kind, words in {"initial": "initial policy", **{kind: words for kind, (_, _, words) in KINDS.items()}}.items():
        what = f"Greek prompts: answers in Greek, {words}"
        lines += [Line(f"Greek prompts: right and in Greek, {words}", "", mean(right[kind])),
                  at_least(what, mean(greek[kind]), CONSISTENT) if kind == "hints" else
                  Line(what, "", mean(greek[kind]))]
    more = {kind: mean(right["hints"]) - mean(right[kind]) for kind in ("grpo", "language")}
    lines += [at_least(f"accuracy in Greek by hints, beyond {KINDS['grpo'][2]}", more["grpo"], POINTS),
              Line(f"accuracy in Greek by hints, beyond {KINDS['language'][2]}", "", more["language"])]

    def draw(figure: Any) -> None:
        left, axes = figure.subplots(1, 2)
        for kind, (_, colour, words) in KINDS.items():
            plot_runs(axes, of[kind], "steps", "held_out_reward_language", words, color=colour,
                      linestyle=(0, (2, 4)) if kind == "language" else "-")         # dots: these lines cover GRPO's
        for script, style in (("latin", "--"), ("greek", "-")):
            plot_runs(left, of["hints"], "steps", f"reward_hint_{script}", f"prompts in {script.title()}",
                      color="#009E73", linestyle=style)
        left.set(title="hints", xlabel="updates", ylabel="share of the answer in the prompt", ylim=(-0.03, 1.03))
        axes.set(title="letters in the alphabet of the prompt", xlabel="updates", ylabel="share on held-out prompts",
                 ylim=(-0.03, 1.03))
        left.legend(fontsize="small")
        axes.legend(fontsize="small", loc="lower right")

    raw = {"right": right, "greek": greek, "seeds": list(seeds),
           "curves": {kind: [columns(folder, *CURVES) for folder in found] for kind, found in of.items()}}
    return Paper("Hints for a rare language (after LANG 2026)", lines, draw, raw), together(of)


def in_greek(folder: Path, rule: str) -> float:
    """Share of sampled responses to held-out Greek prompts that are in Greek, and also right with the rule "strict"."""
    task = f"two_scripts:script=greek,rule={rule}"
    return evaluated(folder, "--task", task, "--episodes", str(PROBLEMS))["held_out_accuracy"]
