"""The result of a training."""
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spinup.runs.display import short
from spinup.runs.folders import describe


@dataclass
class Result:
    """The result of a training, of agents and of language models.

    Attributes:
        policy: `policy.act(obs)` answers an observation; of a language model, `policy.respond(prompt)` a prompt.
        progress: the columns of `progress.csv`.
        directory: the run's folder.
        status: "finished" or "interrupted".
        quality: the last number of `measure`.
        measure: the column of `progress.csv` that tells how good the policy is.
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
            mean = f"{self.quality:.1f}" if self.returns else "none yet"
            what = f"return of the last {len(self.returns)} episodes {mean}"
        return f"Result({self.status}, {what}, {describe(self.directory)})"
