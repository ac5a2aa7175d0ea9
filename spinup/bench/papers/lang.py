"""Hints for a rare language, after LANG (2026, arXiv:2605.22567, of which only the abstract was read): sums in two
alphabets, Latin and Greek. The imitated teacher answers Greek prompts mostly in Latin letters. GRPO is compared with a
reward for consistency of the language, and with that reward and hints that fade."""
import json
from pathlib import Path
from statistics import mean
from typing import Any

from spinup.bench.papers.paper import Line, Paper, columns, run
from spinup.bench.process import in_turn, spinup
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

SEEDS = (1,)
CURVES = "steps", "held_out_accuracy", "reward_hint_latin", "reward_hint_greek", "held_out_reward_language"
PROBLEMS = 500                          # held-out Greek prompts of an evaluation, with eight responses each
POINTS, CONSISTENT = 0.10, 0.95
SETTINGS = ("--threads", "1", "--total-steps", "600", "--layers", "2", "--sft-accuracy", "0.85")
TASK = "two_scripts:rare=0.02"          # 2 % of the demonstrations for Greek prompts are in Greek
KINDS = {                               # name: wrappers, colour, words
    "grpo": ("language,coef=0:", "#D55E00", "GRPO"),    # GRPO's reward, with the column of the language
    "language": ("language,mode=times,strict=yes:", "#0072B2", "GRPO + consistency"),
    "hints": ("hints:language,mode=times,strict=yes:", "#009E73", "GRPO + consistency + hints")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train with each reward from the same initial policy; evaluate on Greek prompts without hints."""
    jobs = [(kind, seed) for kind in KINDS for seed in seeds]
    folders = in_turn(lambda job: run("llm grpo", f"{KINDS[job[0]][0]}{TASK}", job[1], log_dir, *SETTINGS,
                                      label=job[0]), jobs, workers)
    of = {kind: [f for (k, _), f in zip(jobs, folders, strict=True) if k == kind] for kind in KINDS}
    starts = [Path(read_json(folder / "config.json")["start"]) for folder in of["grpo"]]
    policies = {"initial": starts, **of}
    right, greek = ({kind: [in_greek(folder, rule) for folder in found] for kind, found in policies.items()}
                    for rule in ("strict", "script"))
    lines = []
    for kind, words in {"initial": "initial policy", **{kind: words for kind, (_, _, words) in KINDS.items()}}.items():
        consistent = kind == "hints"
        lines += [Line(f"Greek prompts: right and in Greek, {words}", "", mean(right[kind])),
                  Line(f"Greek prompts: answers in Greek, {words}", "", mean(greek[kind]),
                       f">= {CONSISTENT:g}" if consistent else "", not consistent or mean(greek[kind]) >= CONSISTENT)]
    for kind in ("grpo", "language"):
        more = mean(right["hints"]) - mean(right[kind])
        goal = kind == "grpo"
        lines.append(Line(f"accuracy in Greek by hints, beyond {KINDS[kind][2]}", "", more,
                          f">= {POINTS:g}" if goal else "", not goal or more >= POINTS))

    def draw(figure: Any) -> None:
        left, axes = figure.subplots(1, 2)
        for kind, (_, colour, words) in KINDS.items():
            for k, folder in enumerate(of[kind]):
                progress = read_progress(folder)
                axes.plot(progress["steps"], progress["held_out_reward_language"], color=colour,
                          label=None if k else words)
        for folder in of["hints"]:
            progress = read_progress(folder)
            for script, style in (("latin", "--"), ("greek", "-")):
                left.plot(progress["steps"], progress[f"reward_hint_{script}"], color="#009E73", linestyle=style,
                          label=None if folder is not of["hints"][0] else f"prompts in {script.title()}")
        left.set(title="hints", xlabel="updates", ylabel="share of the answer in the prompt", ylim=(-0.03, 1.03))
        axes.set(title="letters in the alphabet of the prompt", xlabel="updates", ylabel="share on held-out prompts",
                 ylim=(-0.03, 1.03))
        left.legend(fontsize="small")
        axes.legend(fontsize="small", loc="lower right")

    raw = {"right": right, "greek": greek, "seeds": list(seeds),
           "curves": {kind: [columns(folder, *CURVES) for folder in found] for kind, found in of.items()}}
    return Paper("Hints for a rare language (after LANG 2026)", lines, draw, raw), folders


def in_greek(folder: Path, rule: str) -> float:
    """Share of sampled responses to held-out Greek prompts that are in Greek, and also right with the rule "strict"."""
    task = f"two_scripts:script=greek,rule={rule}"
    return json.loads(spinup("llm", "eval", str(folder), "--task", task, "--episodes", str(PROBLEMS),
                             "--json"))["held_out_accuracy"]
