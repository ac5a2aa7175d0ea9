"""Proofs with a checker, after Kimina-Prover (Wang et al. 2025, arXiv:2504.11354): GRPO on the verdicts of a checker of
natural deduction, a second attempt after its error message, and a search that keeps lemmas, compared with more attempts
at an equal number of generated tokens."""
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from spinup.bench.papers.paper import Line, Paper, at_least, by_kind, run, start_of, together
from spinup.bench.process import spinup

SEEDS = (1,)
TASK = "proofs"                         # theorems with proofs of one to four lines; one attempt
REPAIRED = "proofs:turns=2"             # the same theorems, with a second attempt after an error message
LONG = "proofs:lines=8,least=6"         # theorems with longer proofs than any in training
PROBLEMS, LONG_PROBLEMS = 300, 50       # held-out theorems of each search
ATTEMPTS, LONG_ATTEMPTS = 16, 128       # k of k + k; attempts of the search with lemmas
COMPARED = 8                            # k at which k + k is compared with 2k
TIMES = 1.5                             # goal: pass@1 after RL, as a multiple of pass@1 before
PARTS = {"best": (TASK, "best", 2 * ATTEMPTS, PROBLEMS), "long": (LONG, "best", 2 * LONG_ATTEMPTS, LONG_PROBLEMS),
         "lemmas": (LONG, "lemmas", LONG_ATTEMPTS, LONG_PROBLEMS)}        # searches with the policy of TASK
WORDS = {"best": "attempts", "attempts": "attempts, policy with repairs", "repair": "attempts and repairs",
         "long": "attempts", "lemmas": "with lemmas"}
LOOKS = {                               # colour and marker of each search
    "best": ("#0072B2", "o"), "attempts": ("#CC79A7", "s"), "repair": ("#D55E00", "^"), "long": ("#0072B2", "o"),
    "lemmas": ("#009E73", "D")}
WHEN = {"before": ("--", "before GRPO"), "after": ("-", "after GRPO")}


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train a policy with single attempts, and one with repairs. Search with both, before and after GRPO."""
    of = by_kind((TASK, REPAIRED), seeds, workers, lambda task, seed: run(
        "llm grpo", task, seed, log_dir, "--threads", "1"))
    curves = by_kind(WHEN, range(len(seeds)), workers, lambda when, i: searches(of[TASK][i], of[REPAIRED][i], when))

    def solved(when: str, name: str, attempts: int) -> list[float]:
        return [next(r["solved"] for r in each[name] if r["attempts"] == attempts) for each in curves[when]]

    one = {when: solved(when, "best", 1) for when in WHEN}
    times = min(b / max(a, 1e-9) for a, b in zip(one["before"], one["after"], strict=True))
    lines = [Line("pass@1, initial policy", "", mean(one["before"])), Line("pass@1 after GRPO", "", mean(one["after"])),
             at_least(f"pass@1 after GRPO / before, lowest of {len(seeds)} seeds", times, TIMES)]
    lines += [Line(f"pass@{2 * ATTEMPTS} {words}", "", mean(solved(when, "best", 2 * ATTEMPTS)))
              for when, (_, words) in WHEN.items()]
    repairs = {when: mean(solved(when, "repair", COMPARED)) for when in WHEN}
    lines += [Line(f"solved by {COMPARED} attempts and {COMPARED} repairs, {words}", "", repairs[when])
              for when, (_, words) in WHEN.items()]
    for name, words in (("attempts", "the same policy"), ("best", "the policy without repairs")):
        twice = mean(solved("after", name, 2 * COMPARED))
        lines += [Line(f"solved by {2 * COMPARED} attempts of {words}, after GRPO", "", twice),
                  gain(f"gain by repairs over attempts of {words}, after GRPO", repairs["after"] - twice)]
    for when, (_, words) in WHEN.items():
        equal, most = (mean(map(function, curves[when])) for function in (at_equal_tokens, with_lemmas))
        lines += [Line(f"longer theorems solved by attempts, at equal tokens, {words}", "", equal),
                  Line(f"longer theorems solved with lemmas, {words}", "", most),
                  gain(f"gain by lemmas at equal tokens, {words}", most - equal)]

    raw = {"seeds": list(seeds), "curves": curves}
    return Paper("Proofs: RL on a checker, repairs and lemmas (Kimina-Prover, Wang et al. 2025)", lines,
                 lambda figure: draw(figure, raw), raw), together(of)


def draw(figure: Any, raw: dict[str, Any]) -> None:
    """Draw the share of solved theorems against the tokens of each search: means over the seeds."""
    for axes, names, title in zip(figure.subplots(1, 2), (("best", "attempts", "repair"), ("long", "lemmas")),
                                  ("1 to 4 lines", "6 to 8 lines"), strict=True):
        for when, (style, _) in WHEN.items():
            for name in names:
                tokens, share = (np.mean([[r[key] for r in each[name]] for each in raw["curves"][when]], 0)
                                 for key in ("tokens", "solved"))
                colour, mark = LOOKS[name]
                axes.plot(tokens, share, style, color=colour, marker=mark, markersize=5,
                          label=WORDS[name] if when == "after" else None)
        axes.set(title=f"{title} (dashed: before GRPO)", xlabel="generated tokens per theorem",
                 ylabel="theorems proved", xscale="log", ylim=(-0.03, 1.03))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.legend(loc="upper left", fontsize=7)


def gain(what: str, ours: float) -> Line:
    """Return the line of a difference that must be positive."""
    return Line(what, "", ours, "> 0", ours > 0)


def searches(single: Path, repaired: Path, when: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all searches, by name, with the policies of two runs; before GRPO, with their initial ones."""
    if when == "before":
        single, repaired = start_of(single), start_of(repaired)
    found = {name: search(single, *part) for name, part in PARTS.items()}
    rows = search(repaired, REPAIRED, "repair", ATTEMPTS, PROBLEMS)
    return found | {name: [row for row in rows if row["search"] == name] for name in ("attempts", "repair")}


def search(folder: Path, task: str, how: str, samples: int, problems: int) -> list[dict[str, Any]]:
    """Return the rows of `spinup llm search`."""
    return json.loads(spinup("llm", "search", str(folder.absolute()), "--task", task, "--how", how, "--samples",
                             str(samples), "--episodes", str(problems), "--json"))["rows"]


def with_lemmas(curves: dict[str, list[dict[str, Any]]]) -> float:
    """Share of longer theorems that the search with lemmas solves."""
    return curves["lemmas"][-1]["solved"]


def at_equal_tokens(curves: dict[str, list[dict[str, Any]]]) -> float:
    """Share of longer theorems that attempts solve with as many tokens as the search with lemmas generated."""
    tokens, solved = ([row[key] for row in curves["long"]] for key in ("tokens", "solved"))
    return float(np.interp(curves["lemmas"][-1]["tokens"], tokens, solved))
