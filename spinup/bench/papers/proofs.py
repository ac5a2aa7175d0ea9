"""Proofs with a checker, after Kimina-Prover (Wang et al. 2025, arXiv:2504.11354): GRPO on the verdicts of a checker of
natural deduction, a second attempt after its error message, and a search that keeps lemmas, against more attempts at
equal generated tokens."""
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, in_turn, run
from spinup.bench.process import spinup
from spinup.runs.files import read_json

SEEDS = (1,)
TASK = "proofs:turns=2"                 # of the training: theorems of one to four lines, and a repair
LONG = "proofs:lines=8,least=6"         # theorems with longer proofs than any in training
PROBLEMS, LONG_PROBLEMS = 300, 100      # held-out theorems of each search
ATTEMPTS, LONG_ATTEMPTS = 16, 64        # k of k + k; attempts of the search with lemmas
COMPARED = 8                            # k at which k + k is compared with 2k
TIMES = 1.5                             # goal: pass@1 after RL, as a multiple of pass@1 before
SEARCHES = {"attempts": "attempts", "repair": "attempts and repairs", "best": "attempts", "lemmas": "with lemmas"}
COLOURS = {"attempts": "#0072B2", "repair": "#D55E00", "best": "#0072B2", "lemmas": "#009E73"}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train a policy with GRPO; search with the initial and with the final policy, on theorems of both lengths."""
    folders = in_turn(lambda seed: run("llm grpo", TASK, seed, log_dir, "--threads", "1"), seeds, workers)
    policies = {"before": [Path(read_json(f / "config.json")["start"]) for f in folders], "after": folders}
    jobs = [(when, i) for when in policies for i in range(len(seeds))]
    found = in_turn(lambda job: searches(policies[job[0]][job[1]]), jobs, workers)
    curves = {when: [c for (w, _), c in zip(jobs, found, strict=True) if w == when] for when in policies}

    def solved(when: str, name: str, attempts: int) -> list[float]:
        return [next(r["solved"] for r in each[name] if r["attempts"] == attempts) for each in curves[when]]

    one = {when: solved(when, "attempts", 1) for when in curves}
    times = min(b / max(a, 1e-9) for a, b in zip(one["before"], one["after"], strict=True))
    lines = [Line("pass@1, initial policy", "", mean(one["before"])), Line("pass@1 after GRPO", "", mean(one["after"])),
             Line(f"pass@1 after GRPO / before, lowest of {len(seeds)} seeds", "", times, f">= {TIMES:g}",
                  times >= TIMES)]
    for when, words in (("before", "before GRPO"), ("after", "after GRPO")):
        twice, repaired = (mean(solved(when, name, n)) for name, n in (("attempts", 2 * COMPARED),
                                                                       ("repair", COMPARED)))
        lines += [Line(f"solved by {2 * COMPARED} attempts, {words}", "", twice),
                  Line(f"solved by {COMPARED} attempts and {COMPARED} repairs, {words}", "", repaired,
                       f"> {twice:.3f}" if when == "after" else "", when == "before" or repaired > twice)]
    for when, words in (("before", "before GRPO"), ("after", "after GRPO")):
        with_lemmas = mean(each["lemmas"][-1]["solved"] for each in curves[when])
        equal = mean(at_equal_tokens(each) for each in curves[when])
        lines += [Line(f"long theorems solved by attempts at equal tokens, {words}", "", equal),
                  Line(f"long theorems solved with lemmas, {words}", "", with_lemmas,
                       f"> {equal:.3f}" if when == "after" else "", when == "before" or with_lemmas > equal)]

    def draw(figure: Any) -> None:
        for axes, names, title in zip(figure.subplots(1, 2), (("attempts", "repair"), ("best", "lemmas")),
                                      ("theorems of 1 to 4 lines", "theorems of 6 to 8 lines"), strict=True):
            for when, style in (("before", "--"), ("after", "-")):
                for name in names:
                    tokens, share = (np.mean([[r[key] for r in each[name]] for each in curves[when]], 0)
                                     for key in ("tokens", "solved"))
                    axes.plot(tokens, share, style, color=COLOURS[name], marker="o", markersize=3,
                              label=f"{SEARCHES[name]}, {when} GRPO")
            axes.set(title=title, xlabel="generated tokens per theorem", ylabel="theorems proved", xscale="log",
                     ylim=(-0.03, 1.03))
            axes.legend()

    return Paper("Proofs: RL on a checker, repairs and lemmas (Kimina-Prover, Wang et al. 2025)", lines, draw,
                 {"seeds": list(seeds), "curves": curves}), folders


def searches(folder: Path) -> dict[str, list[dict[str, float]]]:
    """Return the rows of all searches with a policy, by their names."""
    found = [*search(folder, TASK, "repair", ATTEMPTS, PROBLEMS),
             *search(folder, LONG, "best", 2 * LONG_ATTEMPTS, LONG_PROBLEMS),
             *search(folder, LONG, "lemmas", LONG_ATTEMPTS, LONG_PROBLEMS)]
    return {name: [row for row in found if row["search"] == name] for name in SEARCHES}


def search(folder: Path, task: str, how: str, samples: int, problems: int) -> list[dict[str, Any]]:
    """Return the rows of `spinup llm search`."""
    return json.loads(spinup("llm", "search", str(folder), "--task", task, "--how", how, "--samples", str(samples),
                             "--episodes", str(problems), "--json"))["rows"]


def at_equal_tokens(curves: dict[str, list[dict[str, float]]]) -> float:
    """Share of long theorems that plain attempts solve with as many tokens as the search with lemmas generated."""
    tokens, solved = ([row[key] for row in curves["best"]] for key in ("tokens", "solved"))
    return float(np.interp(curves["lemmas"][-1]["tokens"], tokens, solved))
