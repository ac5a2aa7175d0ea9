"""`config.json` and `result.json` of a run: their contents, and how they are read."""
import json
import math
import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args

import torch

from spinup.errors import UserError, check_names, source_name
from spinup.machine import git_revision
from spinup.registry import Algorithm
from spinup.runs import plugin
from spinup.runs.config import RunConfig, settings_of, types_of
from spinup.runs.convert import LARGEST
from spinup.runs.files import read_json, write_json
from spinup.runs.folders import describe
from spinup.runs.shelf import read_about
from spinup.runs.trust import check_modules

KINDS = {"measure": str, "unit": str, "versions": dict, "git": str | None, "start": str | None}      # of config.json
NUMBERS = dict.fromkeys(("seed", "total_steps", "num_envs"), int)        # of the settings in it


def read_result(directory: Path) -> dict[str, Any]:
    """Read the result.json of a run; {} if the run has never ended. UserError if the file is damaged."""
    path = directory / "result.json"
    if not path.exists():
        return {}
    advice = "delete it, and `spinup resume` continues from the last checkpoint"
    data = read_json(path, advice)
    if not is_result(data):
        raise UserError(f"{describe(directory)}/result.json is not the result of a spinup run; {advice}")
    return data


def lost_checkpoint(directory: Path) -> str:
    """Return the error message for a run that has saved a checkpoint and has none; "" if it has not saved one yet."""
    before = read_result(directory)
    if before.get("status") != "finished" and not before.get("saved_steps"):
        return ""
    how = "is finished" if before["status"] == "finished" else f"was saved after {before['saved_steps']:,} steps"
    return (f"{describe(directory)} {how}, but its checkpoint.pt is missing; restore the file, or train again under "
            "another --exp-name")


def is_result(data: Any) -> bool:
    """Return whether the content of a result.json has all entries, with the right types."""
    def is_number(x: Any) -> bool:
        return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < math.inf

    def is_steps(x: Any) -> bool:
        return is_number(x) and 0 <= x < LARGEST and x == int(x)

    if not isinstance(data, dict) or "status" not in data:
        return False
    if not is_steps(data.get("steps")) or not is_steps(data.get("saved_steps", 0)):
        return False
    if data["status"] != "finished":
        return True
    measure = data.get("measure")
    if not isinstance(measure, str) or measure not in data:
        return False
    value = data[measure]                                                 # None: no episode ended
    return data["steps"] > 0 and is_number(data.get("seconds")) and is_number(data.get("steps_per_second")) and (
        value is None or is_number(value))


def finished(directory: Path) -> bool:
    """Return whether the run exists and is complete."""
    return read_result(directory).get("status") == "finished"


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Return the settings as plain data; a Python function or object becomes its name."""
    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        try:
            return json.loads(json.dumps(value))                          # a tuple becomes a list, as in a file
        except (TypeError, ValueError, RecursionError):                   # a list may hold anything
            return {"callable": source_name(value)}
    return {name: plain(getattr(config, name)) for name in settings_of(config)}


def by_command(config: RunConfig) -> bool:
    """Return whether a command can make these settings again: none is a Python function or object."""
    return not any(isinstance(value, dict) and "callable" in value for value in config_to_json(config).values())


@cache
def versions() -> dict[str, str]:
    """Versions of all software that affects a run's numbers; read once per process."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "torch": torch.__version__}
    for name in ("spinup-rl", "numpy", "gymnasium", "mujoco", "ale-py", "box2d"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Absent:
    """A Python function in the settings of a run; config.json stores only its name."""

    setting: str
    name: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise UserError(f"the {self.setting} of this run was the Python function {self.name}, which config.json cannot "
                        "store; give it again, from Python")


def config_from_json(algorithm: Algorithm, data: dict[str, Any]) -> RunConfig:
    """Return the settings of an earlier run. A Python function among them is known only by name (`Absent`, or text).

    UserError for a setting that this version does not have.
    """
    config, settings = plugin.load(algorithm).Config, {}
    check_names(data, settings_of(config), "config.json has a setting that this version does not have:")
    for name, value in data.items():
        if isinstance(value, dict) and not isinstance(value.get("callable"), str):
            raise UserError(f"config.json has {value!r} for {name}, which is not a setting; restore it or train again")
        if isinstance(value, dict):
            text = str in get_args(types_of(config)[name])
            value = f"python function {value['callable']}" if text else Absent(name, value["callable"])
        settings[name] = value
    return config(**settings, algorithm=algorithm.name)


def read_run(directory: Path) -> dict[str, Any]:
    """Read the config.json of a run, or that of a policy on the shelf. UserError if it is missing, damaged, or not that
    of a run."""
    data = read_about(directory) if directory.suffix == ".safetensors" else read_json(directory / "config.json")
    if not isinstance(data, dict) or not isinstance(data.get("algorithm"), str) or not isinstance(
            data.get("config"), dict):
        raise UserError(f"{describe(directory)}/config.json does not belong to a spinup run; give the folder of a run, "
                        "such as runs/NAME/NAME_s1")
    for entries, kinds in ((data, KINDS), (data["config"], NUMBERS)):
        for name in entries.keys() & kinds:
            if not isinstance(entries[name], kinds[name]):
                raise UserError(f"{describe(directory)}/config.json has {entries[name]!r} for {name}; restore it or "
                                "train again")
    check_modules(directory, data["config"])
    return data


def note_total_steps(directory: Path, steps: int) -> None:
    """Write a new total of steps into the config.json of a run."""
    begun = read_run(directory)
    begun["config"]["total_steps"] = steps
    write_json(directory / "config.json", begun)


def note_revision(directory: Path) -> None:
    """Add the revision of the code, and new versions of the software, to those in the config.json of a run."""
    begun, now = read_run(directory), git_revision()
    earlier = begun.get("git") if isinstance(begun.get("git"), str) else ""
    noted = {**begun, "versions": merge_versions(begun["versions"], versions())} if "versions" in begun else {**begun}
    if now is not None and earlier.split(", ")[-1] != now:
        noted["git"] = ", ".join(filter(None, (earlier, now)))
    if noted != begun:
        write_json(directory / "config.json", noted)


def merge_versions(earlier: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """Return the versions of the software by package. Different versions of a package are separated by semicolons."""
    def both(package: str) -> str:
        found = [x for given in (earlier, now) for x in str(given.get(package, "")).split("; ")]
        return "; ".join(dict.fromkeys(filter(None, found)))
    return {package: both(package) for package in {**earlier, **now}}
