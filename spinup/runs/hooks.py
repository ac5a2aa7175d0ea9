"""Methods of a training run that depend on its environments or task; `Run` and `llm.run.Run` override them."""
from collections.abc import Mapping
from typing import Any


class Hooks:
    """Methods that `Training` calls and that depend on the environments or task. Most do nothing unless overridden.

    Attributes:
        measure: the column of `progress.csv` that measures the quality of the policy.
        unit: what the run counts, as its lines name it.
        next_words: the commands that a finished run recommends.
        may_grow: False if a finished run must not be trained further.
        program: the words before `resume` in the command that resumes the run.
        epochs: rows of `progress.csv` in a run.
        results: the files that a finished run names, by kind.
        status: "running", then "finished", "interrupted" or "failed".
    """

    measure = "return_mean_100"
    unit = "steps"
    next_words: tuple[str, ...] = ("plot", "watch", "eval", "resume")
    may_grow = True
    program = "spinup"
    epochs = 200
    results: Mapping[str, str] = {"curve": "curve.png"}
    status = "running"

    def describe_subject(self) -> dict[str, Any]:
        """Entries of `config.json` in addition to the settings."""
        return {}

    def prepare_folder(self) -> None:
        """Write the files that the folder of a new run must hold from the beginning."""

    def announce(self) -> None:
        """Print notes for the user before the first update."""

    def after_update(self) -> None:
        """Process the events of an update, such as finished episodes."""

    def row(self) -> dict[str, float]:
        """First numbers of a row, including `measure`."""
        raise NotImplementedError

    def diagnose(self, row: dict[str, float]) -> list[str]:
        """Return warnings about a row that shows a known training problem; the run prints each kind of warning once."""
        return []

    def outcome(self) -> dict[str, Any]:
        """Entries of `result.json`, including `measure`."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return a short summary of the result."""
        raise NotImplementedError

    def save_subject(self) -> Any:
        """Return the state of the environments or task for a checkpoint."""

    def load_subject(self, state: Any) -> None:
        """Restore the state that `save_subject` returned."""

    def recover(self, state: Any) -> str:
        """Restore the data of a resumed run that is stored outside the checkpoint. Return which data was lost, as the
        end of a sentence."""
        return ""

    def after_save(self) -> None:
        """Delete files that only the previous checkpoint needed; called after a checkpoint is written."""

    def close_subject(self) -> None:
        """Close the environments or task."""
