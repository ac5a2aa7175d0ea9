"""Finished runs grouped for a comparison: by environment, and within it by algorithm and settings."""
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.suite import measured, suites
from spinup.errors import UserError
from spinup.registry import FAMILIES, algorithms, find
from spinup.runs.curve import Curves, subject_of
from spinup.runs.display import short
from spinup.runs.folders import runs_below
from spinup.runs.records import read_result, read_run
from spinup.runs.resuming import HOW
from spinup.view.plots import find_curves
from spinup.view.statistics import SHARE, range_of

SOLVED = 0.9            # normalised score of `steps_to`
LONG = 30               # characters of a setting in a label
LARGEST = 1e300         # absolute value of a result; larger whole numbers overflow
RECENT = 20             # episodes, at least, in each point of `Trained.learning`


@dataclass
class Trained:
    """A finished run.

    Attributes:
        about: content of its config.json.
        result: content of its result.json.
        evaluated: the mean in its evaluation.json, or None without this file.
        data: name of its dataset in labels; None for the setting `data`.
    """

    curves: Curves
    about: dict[str, Any]
    result: dict[str, Any]
    evaluated: float | None
    data: str | None = None

    @property
    def dataset(self) -> str:
        """Checksum of the dataset that the run learned from; "" without one."""
        about = self.about.get("dataset")
        return str(about.get("sha256", "")) if isinstance(about, dict) else ""

    def value(self, name: str) -> Any:
        """Return a setting, or None if the run has no such setting."""
        return self.data if name == "data" and self.data is not None else self.about["config"].get(name)

    @property
    def settings(self) -> dict[str, str]:
        """Settings that change the result of a run, except its seed, as JSON."""
        idle = {*HOW - {"compile"}, "seed", "keep_best"}                  # compiled code rounds differently
        if self.curves.measure != "test_return":                          # test episodes do not change the training
            idle.add("test_episodes")
        return {name: json.dumps(self.value(name)) for name in self.about["config"] if name not in idle}

    def without_seed(self, name: str) -> str:
        """Return a setting as JSON; in a path, _s* replaces the seed of the run."""
        return re.sub(rf"_s{self.curves.seed}\b", "_s*", self.settings.get(name, ""))

    @property
    def logged(self) -> float:
        """Last value of its measure. For a return, this is the mean of the last 100 training episodes, or of all if
        there are fewer."""
        return float(self.result[self.curves.measure])

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and the measure, `[rows]` each."""
        return self.curves.xy("steps", self.curves.measure)

    def learning(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and the measure, `[rows]` each, for statements about the speed of learning.

        For training returns, each value is the mean of the last rows with at least RECENT episodes: R100 lags, because
        it includes old episodes. The first value comes after two episodes per copy of the environment. Before that,
        nearly all finished episodes are short, and in some environments only successes are short.
        """
        steps, means = self.curves.xy("steps", "return_mean")
        _, episodes = self.curves.xy("return_mean", "episodes")
        if self.curves.measure != "return_mean_100" or not len(steps):
            return self.curve()
        counts, totals = (np.concatenate([[0.0], np.cumsum(x)]) for x in (episodes, episodes * means))
        begins = np.searchsorted(counts, np.maximum(counts[1:] - RECENT, 0), "right") - 1
        values = (totals[1:] - totals[begins]) / (counts[1:] - counts[begins])
        enough = counts[1:] >= max(RECENT, 2 * self.about["config"].get("num_envs", 1))
        enough[-1] = True                                                 # a short run has one value
        return steps[enough], values[enough]


Groups = dict[str, dict[str, list[Trained]]]                              # by environment and label


def read(directories: Sequence[Path]) -> tuple[list[Trained], list[str], list[str]]:
    """Return the finished runs in these folders, and the algorithm and environment of each run that failed and of each
    other run. The others are unfinished, have no finished episode, or repeat a run with the same settings and seed.
    UserError if no run is finished.

    Of equal runs, the first one with an evaluation counts, otherwise the first one, in the order of their paths. The
    SFT runs that runs of language models start from are left out.
    """
    found: dict[Any, Trained] = {}                                        # by what must differ between two runs
    about = {run.resolve(): read_run(run) for directory in directories for run in runs_below(Path(directory))}
    names = {Path(data["start"]).name for data in about.values() if data.get("start")}
    about = {run: data for run, data in about.items() if run.name not in names or data["algorithm"] != "llm sft"}
    failed = [run for run in sorted(about) if read_result(run).get("status") == "failed"]
    for run in sorted(find_curves(directories), key=lambda run: run.directory):
        if run.directory not in about:                                    # an SFT run from which another run starts
            continue
        result = read_result(run.directory)
        final = result.get(run.measure)
        whole = result.get("status") == "finished" and isinstance(final, int | float) and abs(final) < LARGEST
        if whole and len(run.xy("steps", run.measure)[0]):
            one = Trained(run, about[run.directory], result, measured(run.directory, run.measure))
            one.data = one.dataset or None                                # its file may have another name now
            key = run.algorithm, run.env, run.seed, *sorted(one.settings.items())
            if key not in found or (found[key].evaluated is None and one.evaluated is not None):
                found[key] = one
    if not found:
        raise UserError(f"no run in {', '.join(map(str, directories))} is finished; give folders with finished runs")
    name_datasets([*found.values()])
    others = about.keys() - {one.curves.directory for one in found.values()} - {*failed}
    words = {run: f"{data['algorithm']} in {subject_of(run, data['config'])}" for run, data in about.items()}
    return [*found.values()], [words[run] for run in failed], [words[run] for run in sorted(others)]


def name_datasets(runs: Sequence[Trained]) -> None:
    """Name the dataset of each run by the setting `data` of the first run that used it. Add a part of the checksum if
    another dataset had the same path."""
    paths: dict[str, str] = {}
    for run in runs:
        paths.setdefault(run.dataset, str(run.about["config"].get("data", "")))
    for run in runs:
        if run.dataset:
            path = paths[run.dataset]
            run.data = path if [*paths.values()].count(path) == 1 else f"{path} {run.dataset[:6]}"


def grouped(runs: Sequence[Trained]) -> Groups:
    """Return the runs by environment and label, in the order of the registry. The label is the algorithm. If an
    environment has runs of an algorithm with different settings, the label names these settings too. Runs in one
    environment with different measures or units of a step are kept apart: the names of their groups then include the
    measure and the unit."""
    groups: Groups = {}
    known = [algorithm.name for family in FAMILIES for algorithm in algorithms(family).values()]
    order = sorted({run.curves.algorithm for run in runs}, key=lambda name: (
        known.index(name) if name in known else len(known), name))
    for env in sorted({run.curves.env for run in runs}):
        for algorithm in order:
            here = [run for run in runs if (run.curves.env, run.curves.algorithm) == (env, algorithm)]
            names = dict.fromkeys(name for run in here for name in run.settings)
            varied = [name for name in names if len({run.settings.get(name) for run in here}) > 1
                      and len({run.without_seed(name) for run in here}) > 1]
            texts = {name: in_label([run.value(name) for run in here]) for name in varied}
            for i, run in enumerate(here):
                words = [f"{name}={texts[name][i]}" for name in varied]
                groups.setdefault(place(run, runs), {}).setdefault(" ".join([algorithm, *words]), []).append(run)
    return groups


def in_label(values: Sequence[Any]) -> list[str]:
    """Return the values of a setting as labels show them: a Python function by its name, and the end of a long text,
    unless two of the texts would then be equal."""
    texts = [str(value.get("callable", value) if isinstance(value, dict) else value) for value in values]
    ends = [text if len(text) <= LONG else f"…{text[1 - LONG:]}" for text in texts]
    return ends if len({*ends}) == len({*texts}) else texts


def place(run: Trained, runs: Sequence[Trained]) -> str:
    """Return the name of a run's environment, with its measure and unit if `runs` has others there."""
    kinds = {(other.curves.measure, other.curves.unit) for other in runs if other.curves.env == run.curves.env}
    more = f", {short(run.curves.measure)} over {run.curves.unit}" if len(kinds) > 1 else ""
    return run.curves.env + more


def labels(groups: Groups) -> list[str]:
    """Return all labels, in the order of the registry within each environment."""
    return list(dict.fromkeys(label for here in groups.values() for label in here))


def evaluated(here: dict[str, list[Trained]]) -> bool:
    """Return whether all runs in an environment have an evaluation. If not, the comparison uses the training returns of
    all of them."""
    return all(run.evaluated is not None for runs in here.values() for run in runs)


def results(here: dict[str, list[Trained]]) -> dict[str, np.ndarray]:
    """Return the results `[runs]` of each label in an environment, all by evaluation or all by training."""
    by_evaluation = evaluated(here)
    return {label: np.array([run.evaluated if by_evaluation else run.logged for run in runs])
            for label, runs in here.items()}


def limits(here: dict[str, list[Trained]]) -> tuple[float, float]:
    """Return the results with the normalised scores 0 and 1 in an environment: those of `suites.toml`;
    otherwise 0 and 1 for a measure that is a share, such as an accuracy; otherwise the lowest and the highest result of
    a run."""
    run, found = next(iter(here.values()))[0], np.concatenate([*results(here).values()])
    known = next((envs[run.curves.env] for envs in suites().values() if run.curves.env in envs), None)
    if known:
        return known["low"], known["high"]
    if range_of(run.curves.measure) == SHARE:
        return SHARE
    low, high = float(found.min()), float(found.max())
    return low, high if high > low else low + 1


def steps_to(curve: tuple[np.ndarray, np.ndarray], result: float) -> float | None:
    """Return the steps after which a curve of steps and values, `[rows]` each, first reaches a result; or None."""
    steps, values = curve
    return float(steps[values >= result][0]) if (values >= result).any() else None


def published(run: Trained) -> str:
    """Return the best published result of the algorithm in the environment with its source; "" if we know none."""
    try:
        algorithm = find(run.curves.algorithm, run=run.curves.directory)
    except UserError:                                                     # of another library
        return ""
    return algorithm.presets.get(run.curves.env, {}).get("published") or ""
