"""Report on a comparison of algorithms: a page with aggregates over environments and results in each environment.

The aggregates are those of Agarwal et al. (2021), arXiv:2108.13264: see `spinup.bench.aggregate`.
"""
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from spinup.bench import pictures
from spinup.bench.aggregate import RUNS, SAMPLES, between, improvement, iqm
from spinup.bench.compared import (
    RECENT,
    SOLVED,
    Groups,
    Trained,
    evaluated,
    grouped,
    labels,
    limits,
    published,
    read,
    results,
    steps_to,
)
from spinup.bench.page import Page, check_pictures
from spinup.bench.pictures import FEWER
from spinup.bench.process import check_out
from spinup.errors import UserError
from spinup.runs.display import duration, number, short
from spinup.runs.files import check_pair
from spinup.view.again import command
from spinup.view.statistics import ENOUGH, interval, range_of

SAME_STEPS = 0.95       # runs with a smaller share of the longest run's steps are reported as shorter
MEASURES = {"return_mean_100": ("R100", "E100")}            # names of a measure: in training, and evaluated


def report(directories: Sequence[Path], out: Path | None = None) -> list[Path]:
    """Write a page that compares the finished runs in these folders, as HTML and Markdown; return the paths.

    out: the HTML or Markdown file; by default `report.html` in the first folder. UserError if no run is finished, or
    the page cannot be written.
    """
    out = Path(directories[0], "report.html") if out is None else out
    if out.suffix not in (".html", ".md"):
        raise UserError(f"--out {out} cannot be written; give a name that ends in .html or .md, in a writable folder")
    check_pictures(out)
    for file in check_pair(out, (".html", ".md")):
        check_out(file)
    runs, failed, others = read(directories)
    groups = grouped(runs)
    scores = {env: normalised(here) for env, here in groups.items()}
    page = Page(heading(runs))
    page.text(introduction(runs, failed, others, groups))
    for place, envs in enumerate(common(groups)):
        over_all(page, place, envs, groups, scores)
    for place, (env, here) in enumerate(groups.items()):
        one_environment(page, place, env, here, pictures.looks(labels(groups)))
    about(page, runs, groups)
    return page.write(out)


def heading(runs: Sequence[Trained]) -> str:
    """Return the heading of the page, such as "2 algorithms in 1 environment"."""
    counts = {"algorithm": len({run.curves.algorithm for run in runs}),
              "environment": len({run.curves.env for run in runs})}
    return " in ".join(f"{n} {noun}{'s' * (n > 1)}" for noun, n in counts.items())


def normalised(here: dict[str, list[Trained]]) -> dict[str, np.ndarray]:
    """Return the normalised scores `[runs]` of each label in an environment."""
    low, high = limits(here)
    return {label: (values - low) / (high - low) for label, values in results(here).items()}


def common(groups: Groups) -> list[list[str]]:
    """Return the sets of environments for which to aggregate, the largest first: for each algorithm, the environments
    in which it was trained. Sets that only one algorithm covers are left out if several algorithms cover another
    set."""
    sets = Counter(tuple(env for env in groups if label in groups[env]) for label in labels(groups))
    compared = [envs for envs in sets if sum({*envs} <= {*others} for others in sets.elements()) > 1]
    return [list(envs) for envs in sorted(compared or sets, key=lambda envs: (-len(envs), envs))]


def introduction(runs: Sequence[Trained], failed: Sequence[str], others: Sequence[str], groups: Groups) -> str:
    """Return the first paragraph: the runs, and the result of a run that the page compares. `failed` and `others` name
    the algorithm and environment of each run that failed, and of each run that is left out for another reason."""
    seeds = sorted({run.curves.seed for run in runs})
    commits = sorted({run.about["git"] for run in runs if run.about.get("git")}) or ["unknown"]        # a peer has none
    changed = " (+: with uncommitted changes)" if any(commit.endswith("+") for commit in commits) else ""
    if len(commits) > 1:
        changed += "; the runs come from different code"
    agents = all(run.curves.measure == "return_mean_100" for run in runs)
    tested = [env for env, here in groups.items() if evaluated(here)]
    by_test = "E100, the mean return of its final policy in 100 new episodes, without exploration" if agents else (
        "an evaluation of its final policy")
    by_training = "R100, the mean return of its last 100 training episodes" if agents else (
        "the last value of its measure in training")
    if len(tested) == len(groups):
        result = f"The result of a run is {by_test}."
    elif not tested:
        result = f"The result of a run is {by_training}, because not all runs have been evaluated."
    else:
        result = (f"The result of a run is {by_test}, in {'; '.join(tested)}. Elsewhere it is {by_training}, "
                  "because not all runs there have been evaluated.")
    left = ""
    if others:
        left = f" Runs that are unfinished or repeated, or in which no episode ended, are left out: {counted(others)}."
    fair = "No run is selected by its result."
    if failed:
        fair = (f"Failed runs, which are left out: {counted(failed)}. The results of these algorithms are those of the "
                "other runs, so they may be too high.")
    return (f"{len(runs)} finished run{'s' * (len(runs) > 1)}, {'seed' if len(seeds) == 1 else 'seeds'} "
            f"{ranges(seeds)}, commit {', '.join(commits)}{changed}.{left} "
            f"{result} {fair} The section Definitions explains the terms.")


def ranges(seeds: Sequence[int]) -> str:
    """Return sorted seeds in words: 1 to 10, 12."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(", ".join(map(str, part)) if len(part) < 4 else f"{part[0]} to {part[-1]}" for part in parts)


def counted(names: Sequence[str]) -> str:
    """Return the names in words, each with its number."""
    return "; ".join(f"{name}: {n}" for name, n in Counter(names).items())


def over_all(page: Page, place: int, envs: list[str], groups: Groups, scores: dict[str, dict[str, np.ndarray]]) -> None:
    """Add the aggregates over some environments, for each algorithm that was trained in all of them; scores `[runs]`
    by environment and label."""
    each = {label: [scores[env][label] for env in envs]
            for label in groups[envs[0]] if all(label in groups[env] for env in envs)}
    each = {label: each[label] for label in sorted(each, key=lambda label: -iqm(each[label]))}
    looks = pictures.looks(labels(groups))
    page.heading(f"Aggregated over {'; '.join(envs)}" if len(envs) > 1 else f"Scores in {envs[0]}")
    rows, few = [("algorithm", "runs", "IQM", "95 % interval", "mean")], []
    for label, found in each.items():
        spread = between(iqm, found)
        few += [label] * (spread is None)
        rows.append((label, f"{sum(map(len, found))}", score(iqm(found)), " to ".join(map(score, spread or "")) or "-",
                     score(np.mean([np.mean(runs) for runs in found]))))
    page.table(rows)
    if len(few) == len(each):
        page.text(f"No algorithm has an interval, because an interval needs {RUNS} runs, and {ENOUGH} in each "
                  "environment. Differences may be due to chance.")
    elif few:
        page.text(f"These algorithms have no intervals, because they have fewer than {RUNS} runs, or fewer than "
                  f"{ENOUGH} in an environment: {', '.join(few)}. Differences from or between them may be due to "
                  "chance.")
    shorter = [label for label in each if min(
        run.result["steps"] / longest(groups[env]) for env in envs for run in groups[env][label]) < SAME_STEPS]
    if shorter:
        page.text(f"In at least one environment, these algorithms trained for less than {100 * SAME_STEPS:.0f} % "
                  f"of the steps of the longest run there: {'; '.join(shorter)}. The table of each environment shows "
                  "the steps.")
    if any(len({*map(len, found)}) > 1 for found in each.values()):
        page.text("Environments with more runs have a larger weight in the IQM.")
    curves = {label: [pictures.on_grid([run.learning() for run in groups[env][label]], limits(groups[env]),
                                       longest(groups[env])) for env in envs] for label in each}
    ends = {label: max(run.result["steps"] / longest(groups[env]) for env in envs for run in groups[env][label])
            for label in each}
    page.pictures(pictures.intervals(f"iqm_{place}", each, looks), pictures.profiles(f"profiles_{place}", each, looks),
                  pictures.efficiency(f"efficiency_{place}", curves, ends, looks))
    if len(each) > 1:
        page.text("Probability that a run of the algorithm in the row scores higher than a run of the algorithm in the "
                  f"column, whose IQM is not higher. The 95 % interval, in brackets, appears with at least {RUNS} runs "
                  f"of both algorithms, and at least {ENOUGH} in each environment:")
        known = {(ours, theirs): chance(each[ours], each[theirs]) for ours, theirs in combinations(each, 2)}
        page.table([("", *[*each][1:]), *((ours, *(known.get((ours, theirs), "") for theirs in [*each][1:]))
                                          for ours in [*each][:-1])])


def longest(here: dict[str, list[Trained]]) -> float:
    """Return the steps of the longest run in an environment."""
    return max(run.result["steps"] for runs in here.values() for run in runs)


def chance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> str:
    """Return the probability of improvement and its interval in words; scores `[runs]` per environment."""
    spread = between(improvement, ours, theirs)
    return score(improvement(ours, theirs)) + (f" ({' to '.join(map(score, spread))})" if spread else "")


def score(value: float) -> str:
    """Format a score or probability; -0.001 becomes 0.00, not -0.00."""
    return f"{round(float(value), 2) + 0:.2f}"


def one_environment(page: Page, place: int, env: str, here: dict[str, list[Trained]],
                    looks: dict[str, pictures.Look]) -> None:
    """Add the results of an environment: a table and the learning curves."""
    page.heading(env)
    (low, high), found = limits(here), results(here)
    solved = low + SOLVED * (high - low)
    trained, tested = names(next(iter(here.values()))[0])
    rows = [("algorithm", tested, f"{tested} interval", trained, "runs", "steps",
             f"steps to score {SOLVED:g} ({number(solved)})", "seconds", "peak memory", "published")]
    ordered = sorted(here.items(), key=lambda item: -np.mean(found[item[0]]))
    for label, runs in ordered:
        tests = [run.evaluated for run in runs if run.evaluated is not None]
        reached = [n for run in runs if (n := steps_to(run.learning(), solved)) is not None]
        memory = [run.result["peak_memory"] for run in runs if isinstance(run.result.get("peak_memory"), int | float)]
        spread = interval(tests, range_of(runs[0].curves.measure))
        part = f" ({len(tests)} of {len(runs)} runs)" if 0 < len(tests) < len(runs) else ""
        rows.append((label, mean(tests) + part, "{} to {}".format(*map(number, spread)) if spread else "-",
                     mean([run.logged for run in runs]), f"{len(runs)}", mean([run.result["steps"] for run in runs]),
                     f"{np.mean(reached):,.0f} ({len(reached)} of {len(runs)} runs)" if reached else "never",
                     duration(float(np.mean([run.result["seconds"] for run in runs]))),
                     f"{max(memory) / 2**20:,.0f} MiB" if memory else "-", published(runs[0]) or "-"))
    page.table(rows)
    page.pictures(pictures.curves(f"curves_{place}", env, dict(ordered), (low, high), looks))


def names(run: Trained) -> tuple[str, str]:
    """Return the names of a run's measure in training and in the evaluation."""
    measure = short(run.curves.measure)
    return MEASURES.get(run.curves.measure, (f"{measure} in training", f"{measure}, evaluated"))


def mean(values: Sequence[float]) -> str:
    """Return the mean in words; a dash if there are no values."""
    return number(float(np.mean(values))) if len(values) else "-"


def about(page: Page, runs: Sequence[Trained], groups: Groups) -> None:
    """Add definitions, commands and versions."""
    page.heading("Definitions")
    page.text("Normalised scores: 0 and 1 are these results. " + "; ".join(
        "{}: {} and {}".format(env, *map(number, limits(here))) for env, here in groups.items())
        + ". Where no suite states these two results, they are 0 and 1 if the measure is a share, such as an accuracy. "
              "Otherwise they are the lowest and the highest result of a run here; if these are equal, all scores are "
              "0.")
    page.text(f"IQM: interquartile mean, the mean of the scores without the lowest and the highest quarter. The IQM, "
              f"the performance profile (the share of runs above a score) and the probability of improvement are "
              f"defined as in Agarwal et al. (2021), arXiv:2108.13264. Their intervals are 95 % percentile intervals "
              f"of {SAMPLES:,} stratified bootstrap samples, or {FEWER} for the bands in the pictures. The bands "
              f"are pointwise. The mean is that of the environments' means. In most environments, all runs are "
              f"evaluated in the same initial states, so no interval includes the uncertainty from the choice of "
              f"these states.")
    page.text(f"Intervals of a single environment, and bands around learning curves, are Student's 95 % intervals of "
              f"the mean over runs, from {ENOUGH} runs on. R100 is the mean return of the last 100 training episodes, "
              f"or of all if there are fewer. Steps to a result are the steps until the mean return of the last "
              f"{RECENT} or more training episodes reaches it, averaged over the runs that reach it; the result has "
              f"the normalised score {SOLVED}. Sample efficiency uses the same mean. Seconds are those of training. "
              f"Peak memory is the maximum over the runs, including libraries.")
    page.heading("Commands and versions")
    rows = [("environment", "algorithm", "seeds", "commit", "command")]
    for env, here in groups.items():
        for label, members in here.items():
            commits, first = sorted({run.about.get("git") or "-" for run in members}), members[0]
            words = command(first.about, sorted({run.curves.seed for run in members}), first.curves.directory)
            rows.append((env, label, ranges(sorted(run.curves.seed for run in members)), ", ".join(commits),
                         f"`{words}`" if words else "-"))
    page.table(rows)
    versions: dict[str, set[str]] = {}
    for run in runs:
        for package, version in run.about.get("versions", {}).items():
            versions.setdefault(package, set()).add(f"{version}")
    page.text("Versions: " + "; ".join(f"{package} {', '.join(sorted(found))}" for package, found in versions.items())
              + ".")
