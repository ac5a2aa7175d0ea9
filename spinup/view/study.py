"""Plan of a study: the flags of `spinup tune`, checked before anything is created."""
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spinup.errors import UserError
from spinup.registry import Algorithm
from spinup.runs import plugin
from spinup.runs.config import RunConfig
from spinup.runs.flags import from_flags, in_words
from spinup.runs.folders import HOW, check_exp_name, config_to_json
from spinup.view.grid import safe
from spinup.view.space import Dimension, recommended, space_of

SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Plan:
    """A study as the user wants it.

    Attributes:
        base: the settings without those that are searched.
        make: returns the Config for these additional flags; UserError if they contradict each other.
        seeds: the seeds of every trial's runs.
        folder: the folder of the trials.
        storage: the SQLite file.
        trials: number of trials, with those of earlier commands.
    """

    algorithm: Algorithm
    base: RunConfig
    space: list[Dimension]
    make: Callable[[dict[str, str]], RunConfig]
    seeds: list[int]
    folder: Path
    storage: Path
    trials: int

    def about(self) -> dict[str, str]:
        """Return all that must not change between two commands, by name."""
        searched = {d.name: str(d) for d in self.space}
        others = config_to_json(self.base).items()
        settings = {name: json.dumps(value) for name, value in others if name not in {*HOW, "seed", *searched}}
        return {"algorithm": self.algorithm.name, "seeds": " ".join(map(str, self.seeds)), **settings, **searched}


def plan(algorithm: Algorithm, given: dict[str, list[str]], check: Callable[[dict[str, str]], RunConfig], *,
         trials: int, seeds: list[int], storage: str) -> Plan:
    """Return the plan of a study.

    Args:
        given: flag without dashes -> its values as text; no value for a flag without one.
        check: returns the Config for these flags; UserError if a run with them could not start.
        storage: the SQLite file; "" = `study.db` in the folder of the study.
    UserError: a flag or value is wrong, or the storage is not an SQLite file.
    """
    if "seed" in given:
        raise UserError("the seeds of a study are those of all its trials; instead of --seed type --seeds 100 101")
    fixed, space = space_of(plugin.load(algorithm).Config, given)
    for word, texts in fixed.items():
        if len(texts) > 1:
            check({word: texts[0]})                                       # if the flag is unknown, say so
            raise UserError(f"--{word} takes one value in a study: all trials have the same")
    flags = {word: texts[0] if texts else "" for word, texts in fixed.items()}
    base = check(flags)

    def make(more: dict[str, str]) -> RunConfig:
        return from_flags(algorithm, in_words({**flags, **more}))[0]

    def works(more: dict[str, str]) -> bool:
        try:
            make(more)
        except UserError:
            return False
        return True

    space = space or recommended(base, fixed, works)
    if not space:
        raise UserError(f"no setting of {algorithm.name} has a recommended range; give one, such as --lr 1e-4:1e-2")
    name = base.exp_name or safe(f"{algorithm.name}_{getattr(base, base.SUBJECT)}_tune")
    check_exp_name(name)
    folder = Path(base.log_dir) / name
    file = Path(storage) if storage else folder / "study.db"
    if storage and not file.absolute().parent.is_dir():
        raise UserError(f"--storage {file}: there is no folder {file.absolute().parent}; create it first")
    if file.exists() and not (file.is_file() and file.read_bytes()[:len(SQLITE)] in (SQLITE, b"")):
        raise UserError(f"{file} is not an SQLite file; choose another --storage")
    return Plan(algorithm, base, space, make, seeds, folder, file, trials)
