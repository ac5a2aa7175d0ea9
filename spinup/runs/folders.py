"""Run folders: their location, their config.json, and how to find them again."""
import json
import math
import os
import platform
import re
import tempfile
from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args

import torch
from filelock import FileLock, Timeout

from spinup.data.dataset import load_about
from spinup.errors import UserError, check_names, source_name
from spinup.parser import printable
from spinup.registry import Algorithm
from spinup.runs import plugin
from spinup.runs.config import RunConfig, settings_of, types_of
from spinup.runs.display import quoted
from spinup.runs.files import read_json, write_json
from spinup.runs.presets import up_to_date
from spinup.runs.shelf import find_policy, read_about
from spinup.runs.trust import check_modules

# Settings that change where and how a run trains, but not its result: a run may resume with other values.
HOW = {"device", "threads", "log_dir", "exp_name", "checkpoint_steps", "tensorboard", "wandb", "quiet", "compile",
       "workers", "shard", "fsdp", "save_replay", "env_workers"}
LONGEST = 200           # bytes of a name: file systems allow 255; the rest is for the seed and suffixes


def free_directory(algorithm: str, subject: str, config: RunConfig) -> Path:
    """Return the folder for a new run. UserError if a run with the given name and seed exists."""
    root, leaf = Path(config.log_dir), config.exp_name
    if leaf:
        check_exp_name(leaf)
        directory = root / leaf / f"{leaf}_s{config.seed}"
        if (directory / "config.json").exists():
            where = describe(directory)
            raise UserError(f"{where} exists; type `spinup resume {quoted(where)}` to resume it, or choose another "
                            "--exp-name or --seed")
        return directory
    stem = re.sub(r"[^\w.-]+", "-", f"{algorithm}_{subject}")
    taken = [int(m[1]) for p in root.glob(f"{stem}_*") if (m := re.fullmatch(re.escape(stem) + r"_(\d+)", p.name))]
    leaf = f"{stem}_{max(taken, default=0) + 1}"
    return root / leaf / f"{leaf}_s{config.seed}"


def describe(directory: Path) -> str:
    """Return a folder as messages show it: relative to the working directory if it is inside."""
    try:
        return str(Path(directory).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(Path(directory))


def make_directory(directory: Path, resumed: bool, algorithm: str, subject: str, config: RunConfig) -> Path:
    """Create the folder of a run, and return it. If another run has just taken its number, use the next one. UserError
    if it cannot be created."""
    while True:
        try:
            if not (resumed or config.exp_name):
                directory.parent.mkdir(parents=True)          # the number is that of an experiment, not of a seed
            directory.mkdir(parents=True, exist_ok=resumed or bool(config.exp_name))
            return directory
        except OSError as error:
            if not isinstance(error, FileExistsError) or config.exp_name:
                raise UserError(f"cannot create {directory} ({error.strerror.lower()}); choose another --log-dir or "
                                "--exp-name") from None
            taken, directory = directory, free_directory(algorithm, subject, config)
            if directory == taken:
                raise UserError(f"{directory.parent.parent} cannot be read; choose another --log-dir") from None


def saved_at(directory: Path) -> int:
    """Return the time of a run's checkpoint in nanoseconds; 0 without one."""
    try:
        return (directory / "checkpoint.pt").stat().st_mtime_ns
    except OSError:
        return 0


def lock(directory: Path, seen: int | None = None) -> FileLock:
    """Lock the folder of a run. The system releases the lock whenever the process ends. UserError if another process
    holds the lock, if the folder is not writable, or if the checkpoint has another time than `seen`, which
    `saved_at` returned; None: any time."""
    taken = FileLock(directory / ".lock", timeout=0)
    try:
        taken.acquire()
    except Timeout:
        raise UserError(f"another process is training in {describe(directory)}; wait until it ends, or stop "
                        "it") from None
    except OSError as error:
        raise UserError(f"{describe(directory)} cannot be written to ({error.strerror.lower()}); copy the run to a "
                        "folder of your own, and resume it there") from None
    if seen is not None and saved_at(directory) != seen:
        taken.release()
        if not (seen or (directory / "config.json").exists()):
            raise UserError(f"{describe(directory)} holds a checkpoint without a config.json; restore it, or choose "
                            "another --exp-name")
        raise UserError(f"another process has just trained in {describe(directory)}; type the same command again")
    return taken


def read_result(directory: Path) -> dict[str, Any]:
    """Read the result.json of a run; {} if the run has never ended. UserError if the file is damaged."""
    path = directory / "result.json"
    if not path.exists():
        return {}
    advice = "delete it, and `spinup resume` continues from the last checkpoint"
    data = read_json(path, advice)
    done = isinstance(data, dict) and data.get("status") == "finished"
    numbers = ("steps", "seconds", "steps_per_second") if done else ("steps",)
    if not isinstance(data, dict) or "status" not in data or not all(
            isinstance(data.get(name), int | float) and math.isfinite(data[name]) for name in numbers) or done and (
            not isinstance(data.get("measure"), str) or data["measure"] not in data):
        raise UserError(f"{describe(directory)}/result.json is not the result of a spinup run; {advice}")
    return data


def finished(directory: Path) -> bool:
    """Return whether the run exists and is complete."""
    return read_result(directory).get("status") == "finished"


def check_exp_name(name: str) -> None:
    """UserError unless the name is valid for a folder and for the folders of its runs."""
    if Path(name).name != name or name in (".", ".."):
        raise UserError(f"--exp-name must be the name of a folder, not {name!r}; use --log-dir for a path")
    if not printable(name) or name != name.strip():
        raise UserError(f"--exp-name {name!r} has an invalid character; use letters, digits and _")
    if len(os.fsencode(name)) > LONGEST:
        raise UserError(f"the name {name[:40]}... has {len(os.fsencode(name))} bytes, but at most {LONGEST} are "
                        "allowed; choose a shorter --exp-name")


def check_writable(folder: Path, flag: str = "--log-dir", other: str = "runs") -> None:
    """UserError, which suggests another folder for the flag, unless `folder` can be created; creates nothing."""
    if not printable(str(folder)):
        raise UserError(f"{flag} {str(folder)!r} has an invalid character; use letters, digits and _")
    if not writable(folder):
        other = Path(os.path.expanduser("~")) / other if folder == Path(other) else other
        raise UserError(f"{flag} {folder} cannot be written to; choose a folder that you can write to, such as {flag} "
                        f"{other}")


def writable(folder: Path) -> bool:
    """Return whether a folder, or files in it, can be created. It tries this with an unnamed temporary file."""
    existing = next((p for p in [folder, *folder.absolute().parents] if p.exists()), Path("/"))
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError:
        return False
    return True


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Return the settings as plain data; a Python function or object becomes its name."""
    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):                   # a list may hold anything
            return {"callable": source_name(value)}
        return value
    return {name: plain(getattr(config, name)) for name in settings_of(config)}


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
    data = up_to_date(algorithm, data, say=False)
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
            data.get("config"), dict) or not isinstance(data.get("measure", ""), str):
        raise UserError(f"{describe(directory)}/config.json does not belong to a spinup run; give the folder of a run, "
                        "such as runs/NAME/NAME_s1")
    check_modules(directory, data["config"])
    return data


def check_same(directory: Path, algorithm: str, config: RunConfig, but: Set[str], advice: str) -> None:
    """UserError, with the advice, if the run in `directory` has another algorithm or other settings, except those in
    `but`. Python functions are not compared, because config.json knows only their names."""
    begun, given = read_run(directory), json.loads(json.dumps(config_to_json(config)))             # tuples to lists
    if begun["algorithm"] != algorithm:
        raise UserError(f"{describe(directory)} is a run of {begun['algorithm']}; {advice}")
    for name, was in begun["config"].items():
        if name in config.AUTOMATIC and given.get(name) == 0:
            continue
        both_python = isinstance(was, dict) and isinstance(given.get(name), dict)
        if name in given and name not in but and given[name] != was and not both_python:
            was, now = (f"the Python function {x['callable']}" if isinstance(x, dict) else x
                        for x in (was, given[name]))
            raise UserError(f"{describe(directory)} is a run with {name} {was}, not {now}; {advice}")
    if "dataset" in begun:
        check_dataset(directory, config.data)


def check_dataset(directory: Path, data: str) -> None:
    """UserError if the dataset in the file `data` is not the one that the run in `directory` learned from."""
    if read_run(directory).get("dataset", {}).get("sha256") != load_about(data).get("sha256"):
        raise UserError(f"{describe(directory)} was trained on another dataset than {describe(data)}; restore that "
                        "file, or train again under another --exp-name")


def check_unchanged(directory: Path, settings: dict[str, Any]) -> None:
    """UserError if the config.json of a run has other values than `settings`, those of its checkpoint. Settings that
    may change when a run resumes are not compared."""
    now = read_run(directory)["config"]
    for name in now.keys() & settings.keys() - HOW - {"total_steps"}:
        if now[name] != json.loads(json.dumps(settings[name])):
            raise UserError(f"{describe(directory)}/config.json has changed since the checkpoint: {name} was "
                            f"{settings[name]} and is {now[name]}; restore it, or train again under another name")


def check_longer(directory: Path, config: RunConfig, state: dict[str, Any] | None) -> None:
    """Check a new `total_steps` for a resumed run. UserError if the run has already done more steps, or if it is
    finished and the new total is smaller or its checkpoint is missing.

    state: its checkpoint, if there is one.
    """
    if state is None and finished(directory):
        raise UserError(f"{describe(directory)} is finished, but its checkpoint.pt is missing; restore the file, or "
                        "train again under another --exp-name")
    begun, done = read_run(directory)["config"].get("total_steps"), state["steps"] if state else 0
    whole = read_result(directory).get("status") == "finished" and state and not state["stopped"]
    least = max(done, begun) if whole and begun else done
    if config.total_steps != begun and config.total_steps < least:
        raise UserError(f"{describe(directory)} has already done {done:,} steps; --total-steps must be at least "
                        f"{least}, not {config.total_steps}")


def note_total_steps(directory: Path, steps: int) -> None:
    """Write a new total of steps into the config.json of a run."""
    begun = read_run(directory)
    begun["config"]["total_steps"] = steps
    write_json(directory / "config.json", begun)


def find_run(directory: Path) -> Path:
    """Return the run in `directory`: the folder itself, or the only run below it; the file of shelf/NAME. UserError if
    there is none or several."""
    if file := find_policy(directory):
        return file
    if (directory / "config.json").exists():
        return directory
    runs = sorted(p.parent for p in directory.glob("**/config.json"))
    runs = [run for run in runs if b'"algorithm"' in (run / "config.json").read_bytes()] or runs       # not exports
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UserError(f"{directory} holds no run; give the folder of a run, such as runs/NAME/NAME_s1")
    raise UserError(f"{directory} holds {len(runs)} runs; choose one, such as {describe(runs[-1])}")
