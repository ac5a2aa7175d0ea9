"""Shelf of trained policies: add the policy of a run, list the policies, and draw a picture of each."""
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spinup.envs.atari import protocol
from spinup.errors import UserError
from spinup.runs.folders import describe, find_run, safe, writable
from spinup.runs.policy import policy_state
from spinup.runs.public import load
from spinup.runs.records import finished, read_result, read_run
from spinup.runs.resuming import HOW
from spinup.runs.shelf import SHELF, policies, read_about, write_policy
from spinup.view.again import command
from spinup.view.evaluate import evaluate

LARGEST = 10 * 2**20    # bytes of the shelf
GIF = 150, 120          # width in pixels and frames: at most 300 kB


def add(directory: Path, name: str = "") -> Path:
    """Put the final policy of a finished run on the shelf, with its return in 100 new episodes, and return its file.

    name: ALGORITHM-ENVIRONMENT by default. UserError for an unfinished run, a language model, a name that is taken, or
    a shelf that is full or cannot be written to.
    """
    folder = find_run(directory)
    about, result = read_run(folder), read_result(folder) if folder.is_dir() else {}
    if about["algorithm"].startswith("llm ") or not finished(folder):
        raise UserError(f"{describe(folder)} is not a finished run of an agent in an environment; give another")
    env = about["config"].get("env")
    if not isinstance(env, str):
        raise UserError(f"the environment of {describe(folder)} is a Python function, which a file cannot store; train "
                        "in an environment with an id")
    name = name or safe(f"{about['algorithm']}-{env}")
    file = SHELF / f"{name}.safetensors"
    if file.exists():
        raise UserError(f"the shelf has a policy {name} already; delete {describe(file)}, or give another --name")
    if name != safe(name) or not writable(SHELF):
        raise UserError(f"{describe(file)} cannot be written; choose a --name of letters, digits, - and _, and install "
                        "the package in a folder that you can write to")
    found = evaluate(load(folder), env)
    kept = {key: value for key, value in about["config"].items() if key not in HOW or key == "threads"}
    _, weights = policy_state(folder)
    write_policy(file, weights, {**about, "config": kept, "shelf": {
        "return": found.mean, "interval": found.interval, "episodes": len(found.returns), "steps": result["steps"],
        "seconds": result["seconds"], "command": command(about, [about["config"]["seed"]], folder)}})
    if sum(path.stat().st_size for path in SHELF.glob("*.safetensors")) > LARGEST:
        file.unlink()
        raise UserError(f"with {name}, the shelf would be larger than {LARGEST / 2**20:.0f} MiB; delete another policy")
    return file


def listed() -> Iterator[dict[str, Any]]:
    """Yield a row for each policy on the shelf: its name, environment, return with its 95 % interval, steps, bytes and
    command. UserError for a damaged file."""
    for name in policies():
        file = SHELF / f"{name}.safetensors"
        about = read_about(file)
        try:
            row = {"env": about["config"]["env"], **about["shelf"], "git": about["git"]}
        except (KeyError, TypeError):
            raise UserError(f"{describe(file)} is not a policy of the shelf; delete it, or restore it") from None
        yield {"policy": f"shelf/{name}", "bytes": file.stat().st_size, **row}


def gallery(folder: Path) -> Iterator[Path]:
    """Draw the first frames of an episode of each policy on the shelf into a GIF in a folder; yield the files.

    Atari games are left out, because their pictures belong to their makers.
    """
    from spinup.view.watch import draw
    for name in policies():
        file = SHELF / f"{name}.safetensors"
        env = read_about(file)["config"]["env"]
        if not protocol(env):
            yield draw(load(f"shelf/{name}"), env, folder / f"{name}.gif", *GIF)

