"""A study: its plan from the flags of `spinup tune`, checked before anything is created, and its file."""
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from spinup.data.dataset import load_about
from spinup.errors import UserError
from spinup.registry import Algorithm
from spinup.runs import plugin
from spinup.runs.config import RunConfig, types_of
from spinup.runs.flags import from_flags, in_words
from spinup.runs.folders import check_exp_name, describe, safe, writable
from spinup.runs.offline import OfflineConfig
from spinup.runs.reading import reading
from spinup.runs.records import config_to_json
from spinup.runs.resuming import HOW
from spinup.view.space import Dimension, recommended, space_of

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage

SQLITE = b"SQLite format 3\0"
REPORTS = 20            # times in a run at which it is compared with the earlier trials
UNPRUNED = 5            # of them, at the start of a trial, after which it never ends early


@dataclass(frozen=True)
class Plan:
    """A study as the user wants it.

    Attributes:
        base: the settings before the search; of those that are searched, the current values.
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
        if "data" in settings and isinstance(self.base, OfflineConfig):
            settings["dataset"] = load_about(self.base.data)["sha256"][:12]
            del settings["data"]                                          # the file may move
        folder, root = self.folder.resolve(), self.storage.resolve().parent
        if folder.drive == root.drive:
            folder = os.path.relpath(folder, root)                        # both may move together
        return {"algorithm": self.algorithm.name, "folder": str(folder), "seeds": " ".join(map(str, self.seeds)),
                **settings, **searched}

    def lock(self) -> FileLock:
        """Make the lock of the storage: one process at a time opens the study, chooses a trial, or records one."""
        return FileLock(f"{self.storage}.lock")

    @property
    def elsewhere(self) -> str:
        """Advice for a storage that cannot be used. Another storage cannot continue its trials."""
        both = self.storage.parent != self.folder
        return f"choose another --exp-name{' and another --storage' if both else ''}"


def plan(algorithm: Algorithm, given: dict[str, list[str]], check: Callable[[dict[str, str]], RunConfig], *,
         trials: int, seeds: list[int], storage: str) -> Plan:
    """Return the plan of a study.

    Args:
        given: flag without dashes -> its values as text; no value for a flag without one.
        check: returns the Config for these flags; UserError if a run with them could not start.
        storage: the SQLite file; "" = `study.db` in the folder of the study.
    UserError: a flag or value is wrong, or the storage is not an SQLite file that can be written.
    """
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise UserError(f"--seeds has {twice[0]} more than once; give each seed once")
    if "seed" in given:
        raise UserError("the seeds of a study are those of all its trials; instead of --seed type --seeds 100 101")
    fixed, space = space_of(plugin.load(algorithm).Config, given)
    for word, texts in fixed.items():
        if len(texts) > 1:
            check({word: texts[0]})                                       # if the flag is unknown, say so
            raise UserError(f"--{word} takes one value in a study: all trials have the same")
    flags = {word: texts[0] if texts else "" for word, texts in fixed.items()}
    base = start_of(flags, space, check)

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
    if storage and not (root := file.absolute().parent).is_dir():
        raise UserError(f"--storage {file}: there is no folder {root}; create it first")
    if storage and not writable(root):
        raise UserError(f"--storage {file}: {root} cannot be written to; choose a file in another folder")
    if file.exists() and not (file.is_file() and file.read_bytes()[:len(SQLITE)] in (SQLITE, b"")):
        raise UserError(f"{file} is not an SQLite file; choose another {'--storage' if storage else '--exp-name'}")
    return Plan(algorithm, base, space, make, seeds, folder, file, trials)


def start_of(flags: dict[str, str], space: list[Dimension], check: Callable[[dict[str, str]], RunConfig]) -> RunConfig:
    """Return the settings before the search. If no run fits the current values of the searched settings, the first or
    the last candidates of all take their place. UserError, that of the current values, if no run fits those either."""
    try:
        return check(flags)
    except UserError:
        for end in (0, -1) if space else ():
            with suppress(UserError):
                return check({**flags, **{d.name.replace("_", "-"): d.ends()[end] for d in space}})
        raise


def open_study(plan: Plan) -> "Study":
    """Open the study, or create it with the settings of the user as its first trial. UserError if it is another study,
    or the folder holds trials of another one."""
    import optuna
    if (file := plan.folder / "best.toml").is_dir():
        raise UserError(f"{describe(file)} is a folder, and the best settings need this name; rename it, or choose "
                        "another --exp-name")
    trained = any(plan.folder.glob("trial_*"))                            # before the lock: a study precedes its trials
    lost = UserError(f"{describe(plan.folder)} holds the trials of a study that is not in {plan.storage}; give the "
                     "--storage of that study, or choose another --exp-name")
    if trained and not plan.storage.exists():
        raise lost
    plan.storage.parent.mkdir(parents=True, exist_ok=True)
    with plan.lock(), reading(str(plan.storage), plan.elsewhere):
        storage = open_storage(plan)
        if trained and plan.folder.name not in optuna.get_all_study_names(storage):
            raise lost
        pruner = optuna.pruners.MedianPruner(n_warmup_steps=UNPRUNED)
        study = optuna.create_study(storage=storage, study_name=plan.folder.name, direction="maximize", pruner=pruner,
                                    load_if_exists=True)
        about, before = plan.about(), study.user_attrs.get("about")
        if before is None:
            study.set_user_attr("about", about)
            hints = types_of(type(plan.base))
            places = {d.name: d.place(getattr(plan.base, d.name), hints[d.name]) for d in plan.space}
            study.enqueue_trial({name: place for name, place in places.items() if place is not None})
            before = about
        for name in {**before, **about}:
            if before.get(name) != about.get(name):
                raise UserError(f"{plan.storage} holds the study {plan.folder.name} with {name} "
                                f"{before.get(name, '-')}, not {about.get(name, '-')}; choose another --exp-name")
    plan.folder.mkdir(parents=True, exist_ok=True)
    return study


def open_storage(plan: Plan) -> "RDBStorage":
    """Open the SQLite file, or create it. UserError if another version of Optuna wrote it."""
    from optuna.storages import RDBStorage
    if "?" in str(plan.storage.absolute()):                               # the URL of the file would end there
        raise UserError(f"the path {plan.storage} has a question mark; {plan.elsewhere}")
    try:
        return RDBStorage(f"sqlite:///{plan.storage.absolute()}", engine_kwargs={"connect_args": {"timeout": 100}})
    except RuntimeError:
        raise UserError(f"{plan.storage} has the format of another version of Optuna; install that version, or "
                        f"{plan.elsewhere}") from None
