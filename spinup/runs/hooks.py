"""Methods of a training that depend on what is trained on: `Run` for environments, `llm.run.Run` for tasks."""
from typing import Any


class Hooks:
    """Methods that `Training` calls and that depend on what is trained on; each does nothing unless it is overridden.

    Attributes:
        measure: the column of `progress.csv` that tells how good the policy is.
        next_words: the commands that a finished run recommends.
        epochs: rows of `progress.csv` in a run.
    """

    measure = "return_mean_100"
    next_words: tuple[str, ...] = ("plot", "watch", "eval", "resume")
    epochs = 200

    def describe_subject(self) -> dict[str, Any]:
        """Its entries in `config.json` beside the settings."""
        return {}

    def announce(self) -> None:
        """Say, before the first update, what the user should know."""

    def after_update(self) -> None:
        """Take what happened during an update."""

    def row(self) -> dict[str, float]:
        """The first numbers of a row, `measure` among them."""
        raise NotImplementedError

    def diagnose(self, row: dict[str, float]) -> list[str]:
        """Sentences about a whole row that shows a known fault; each kind of them is said once."""
        return []

    def outcome(self) -> dict[str, Any]:
        """Entries of `result.json`, `measure` among them."""
        raise NotImplementedError

    def summary(self) -> str:
        """The end in a few words."""
        raise NotImplementedError

    def save_subject(self) -> Any:
        """Its part of a checkpoint."""

    def load_subject(self, state: Any) -> None:
        """Give that back."""

    def recover(self, state: Any) -> str:
        """Give back, once a run is resumed, what is kept outside of the checkpoint; what cannot be had back, as the end
        of a sentence."""
        return ""

    def after_save(self) -> None:
        """A checkpoint was written: what only the one before needed may go."""

    def close_subject(self) -> None:
        """Let it go."""
