"""Result of a training run."""
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spinup.runs.display import number, short
from spinup.runs.folders import describe


@dataclass
class Result:
    """Result of a training run, for environments and language models.

    Attributes:
        policy: `policy.act(obs)` returns an action; a language model has `policy.respond(prompt)`.
        progress: the columns of `progress.csv`.
        directory: the run folder.
        status: "finished" or "interrupted".
        quality: the last value of `measure`.
        measure: the column of `progress.csv` that measures the quality of the policy.
        returns: undiscounted returns of the last 100 training episodes; empty for a language model.
    """

    policy: Any
    progress: dict[str, list[float]]
    directory: Path
    status: str
    quality: float = math.nan
    measure: str = "return_mean_100"
    returns: list[float] = field(default_factory=list)

    def __repr__(self) -> str:
        what = f"{short(self.measure)} {self.quality:.3f}"
        if self.measure == "return_mean_100":
            mean = number(self.quality) if self.returns else "none yet"
            what = f"return of the last {len(self.returns)} episodes {mean}"
        return f"Result({self.status}, {what}, {describe(self.directory)})"
