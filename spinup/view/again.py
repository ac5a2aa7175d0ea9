"""Command that repeats a run."""
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.convert import flag, in_text
from spinup.runs.presets import configure, without_effect
from spinup.runs.records import config_from_json, config_to_json
from spinup.runs.resuming import HOW


def command(about: dict[str, Any], seeds: Sequence[int], directory: Path) -> str:
    """Return the command that trains these seeds with the settings of a run, as far as they differ from the preset.

    about: the run's config.json. directory: the run's folder. Return "" if the algorithm is unknown, or if a setting or
    the task is a Python object.
    """
    begun = about["config"]
    try:
        algorithm = find(about["algorithm"], run=directory)
        subject = algorithm.load().Config.SUBJECT
        if any(isinstance(value, dict) for value in begun.values()) or not isinstance(begun[subject], str):
            return ""
        given = {subject: begun[subject]} if begun[subject] else {}
        if isinstance(begun.get("data"), str) and begun["data"]:          # a dataset; in other methods, a number
            given["data"] = begun["data"]
        config, _ = configure(algorithm, given)
        idle = without_effect(config_from_json(algorithm, begun))
    except (UserError, KeyError):                             # of another library, or an environment not installed here
        return ""
    usual = config_to_json(config)
    words = ["spinup", *["grid"] * (len(seeds) > 1), *algorithm.name.split()]
    for name, value in given.items():
        words += [flag(name), value]
    words += ["--seed", *map(str, sorted(seeds))]
    for name, value in begun.items():
        if name not in {*HOW, *given, *idle, "seed"} and name in usual and usual[name] != value:
            words += [flag(name), in_text(value)]
    return shlex.join(words)
