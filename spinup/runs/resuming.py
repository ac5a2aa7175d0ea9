"""Checks that a folder holds the run that the settings describe, for example before it is resumed."""
import json
from collections.abc import Set
from pathlib import Path
from reprlib import Repr
from typing import Any

from spinup.data.dataset import load_about
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.config import RunConfig
from spinup.runs.display import quoted
from spinup.runs.folders import describe
from spinup.runs.records import config_to_json, lost_checkpoint, read_result, read_run

# Settings that change where and how a run trains, but not its result: a run may resume with other values.
HOW = {"device", "threads", "log_dir", "exp_name", "checkpoint_steps", "tensorboard", "wandb", "quiet", "compile",
       "workers", "shard", "fsdp", "save_replay", "env_workers"}


def movable(begun: dict[str, Any]) -> set[str]:
    """Return the names of the settings that may differ because a file was moved: `data`, if the run has a dataset. Its
    checksum is compared instead."""
    return {"data"} if "dataset" in begun else set()


SHORT = Repr()                                                           # of a list of prompts, for example


def check_same(directory: Path, algorithm: str, config: RunConfig, but: Set[str], advice: str) -> None:
    """UserError, with the advice, if the run in `directory` has another algorithm or other settings, except those in
    `but`. Python functions are not compared, because config.json knows only their names."""
    begun, given = read_run(directory), config_to_json(config)
    but = but | movable(begun)
    if begun["algorithm"] != algorithm:
        raise UserError(f"{describe(directory)} is a run of {begun['algorithm']}; {advice}")
    for name, was in begun["config"].items():
        if name in config.AUTOMATIC and given.get(name) == 0:
            continue
        both_python = isinstance(was, dict) and isinstance(given.get(name), dict)
        if name in given and name not in but and given[name] != was and not both_python:
            was, now = (f"the Python function {x['callable']}" if isinstance(x, dict) else
                        x if isinstance(x, str) else SHORT.repr(x) for x in (was, given[name]))
            raise UserError(f"{describe(directory)} is a run with {name} {was}, not {now}; {advice}")
    if "dataset" in begun:
        check_dataset(directory, config.data)


def check_dataset(directory: Path, data: str) -> None:
    """UserError if the dataset in the file `data` is not the one that the run in `directory` learned from."""
    if read_run(directory).get("dataset", {}).get("sha256") != load_about(data).get("sha256"):
        raise UserError(f"{describe(directory)} was trained on a dataset other than {describe(data)}; restore that "
                        "file, or train again under another --exp-name")


def check_unchanged(directory: Path, settings: dict[str, Any]) -> None:
    """UserError if the config.json of a run has other values than `settings`, those of its checkpoint. Settings that
    may change when a run resumes are not compared."""
    begun = read_run(directory)
    now = begun["config"]
    for name in now.keys() & settings.keys() - HOW - movable(begun) - {"total_steps"}:
        if now[name] != json.loads(json.dumps(settings[name])):          # a tuple becomes a list
            raise UserError(f"{describe(directory)}/config.json has changed since the checkpoint: {name} was "
                            f"{settings[name]} and is {now[name]}; restore it, or train again under another name")


def check_longer(directory: Path, config: RunConfig, state: dict[str, Any] | None) -> None:
    """Check a new `total_steps` for a resumed run. UserError if the run has already done more steps, or if it is
    finished and the new total is smaller or its checkpoint is missing.

    state: its checkpoint, if there is one.
    """
    before = read_result(directory)
    if state is None and (lost := lost_checkpoint(directory)):
        raise UserError(lost)
    begun, done = read_run(directory)["config"].get("total_steps"), state["steps"] if state else 0
    whole = before.get("status") == "finished" and state and not state["stopped"]
    least = max(done, begun) if whole and begun else done
    if config.total_steps != begun and config.total_steps < least:
        raise UserError(f"{describe(directory)} has already done {done:,} steps; --total-steps must be at least "
                        f"{least}, not {config.total_steps}")


def state_to_resume(directory: Path, config: RunConfig) -> dict[str, Any] | None:
    """Return the state in the checkpoint of a run folder; None if it has no checkpoint yet. UserError if the run has
    another algorithm or other settings than `config`."""
    advice = "give the same settings again, or leave out resume"
    check_same(directory, config.algorithm, config, HOW | {"total_steps"}, advice)
    state = None
    if (directory / "checkpoint.pt").exists():
        state = load_checkpoint(directory / "checkpoint.pt")
        if state["algorithm"] != config.algorithm:
            where = describe(directory)
            raise UserError(f"{where} holds a checkpoint of {state['algorithm']}, not of {config.algorithm}; type: "
                            f"spinup resume {quoted(where)}")
        check_unchanged(directory, state["settings"])
    check_longer(directory, config, state)
    return state
