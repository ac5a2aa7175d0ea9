"""Checks before a run is resumed: the settings, the checkpoint and the folder must belong together."""
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.runs import folders
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.config import RunConfig
from spinup.runs.folders import HOW, describe


def state_to_resume(directory: Path, config: RunConfig) -> dict[str, Any] | None:
    """Return the state in the checkpoint of a run folder; None if it has no checkpoint yet. UserError if the run has
    another algorithm or other settings than `config`."""
    advice = "give the same settings again, or leave out resume"
    folders.check_same(directory, config.algorithm, config, HOW | {"total_steps"}, advice)
    state = None
    if (directory / "checkpoint.pt").exists():
        state = load_checkpoint(directory / "checkpoint.pt")
        if state["algorithm"] != config.algorithm:
            raise UserError(f"{(where := describe(directory))} holds a checkpoint of {state['algorithm']}, not of "
                            f"{config.algorithm}; type: spinup resume {where}")
        folders.check_unchanged(directory, state.get("settings", {}))
    folders.check_longer(directory, config, state)
    return state
