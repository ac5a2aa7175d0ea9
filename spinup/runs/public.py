"""Public functions: `spinup.ppo(env, **settings)`, `llm.grpo(task, **settings)`, and `load`."""
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from spinup.errors import ActionsError, UserError, check_names, out_of_memory
from spinup.registry import Algorithm, family, find, serving
from spinup.runs import plugin
from spinup.runs.config import RunConfig, comments, settings_of
from spinup.runs.folders import find_run
from spinup.runs.presets import configure, default_in_words
from spinup.runs.records import read_run

INTERNAL = ("on_row",)  # arguments that are not settings


@contextmanager
def advised(algorithm: Algorithm) -> Iterator[None]:
    """Improve errors in this context. An error about actions becomes a UserError that names the algorithms for such
    actions which learn from the same source: environments or datasets. An algorithm's own file does not know the other
    algorithms. Running out of memory becomes a UserError that names the settings to change."""
    try:
        yield
    except ActionsError as error:
        offline = hasattr(algorithm.load().Config, "data")
        fitting = [name for name in serving(error.kind) if hasattr(find(name).load().Config, "data") == offline]
        raise UserError(f"{error}" + (f"; algorithms for {error.kind} actions: "
                                      f"{', '.join(fitting)}" if fitting else "")) from None
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise UserError(f"not enough memory; {family(algorithm).LESS_MEMORY}") from None


def check_start(algorithm: Algorithm, config: RunConfig) -> None:
    """UserError if a run with these settings could not start. Nothing is created."""
    with advised(algorithm):
        family(algorithm).check(algorithm, config)


@cache
def trainer(name: str) -> Callable[..., Any]:
    """Return the function `NAME(env or task, **settings)` that trains; its docstring is made from the Config.

    name: as the registry finds it. UserError if it is unknown.
    """
    algorithm = find(name)
    module = plugin.load(algorithm)
    config, subject = module.Config, module.Config.SUBJECT

    def train(source: Any = None, *, preset: str = "auto", config: str | Path | None = None,
              resume: str | Path | None = None, **given: Any) -> Any:
        if source is not None:
            if subject in given:
                raise UserError(f"{algorithm.method} got {subject} twice, as its first argument and by name; leave one "
                                "out")
            given[subject] = source
        given = {name: os.fspath(x) if isinstance(x, os.PathLike) else x for name, x in given.items()}
        known = [*settings_of(module.Config), *INTERNAL]
        check_names(given, known, f"{algorithm.method} has no setting")
        with advised(algorithm):
            return module.train(configure(algorithm, given, preset, config)[0], resume)

    help_of, what = comments(config), []
    defaults = {f.name: f.default for f in fields(config)} | algorithm.settings
    if algorithm.variant:
        stem = algorithm.module.rpartition(".")[2]
        what = [f"{algorithm.variant}: {stem} with {algorithm.settings}"]
    train.__name__ = train.__qualname__ = algorithm.method
    train.__doc__ = "\n".join([
        algorithm.summary, "", *what, "Args:",
        f"    {subject}, the first argument: {help_of[subject]}; if omitted, the value in the config file, or "
        f"{defaults[subject]}",
        f"    preset: auto (the preset of the {'environment' if subject == 'env' else subject}), none, or a name from "
        "`spinup algos NAME`",
        "    config: a TOML file of settings",
        "    resume: the folder of a run with the same settings, to resume it",
        "    on_row: a function that is called with each row of progress.csv, a dict",
        *(f"    {name} = {default_in_words(algorithm, name, repr(defaults[name]))}: {help_of[name]}"
          for name in settings_of(config) if name != subject), "",
        "Later settings override earlier ones: default, preset, file, arguments.",
        "Returns a Result with `policy`, `progress`, `directory`, `status`, and `quality`.",
        f"UserError, before anything is written: a setting is unknown or out of its range, the {subject} is wrong, or",
        "the run to resume has other settings. NonFiniteError: a number became infinite or NaN; the last checkpoint",
        "before that is kept."])
    return train


def load(directory: str | Path, device: str = "cpu") -> Any:
    """Load the policy of a run from its last checkpoint: `load("runs/NAME/NAME_s1").act(obs)`.

    A language model has `.respond(prompt)` instead. UserError if there is no checkpoint, or it is damaged or does not
    match its config.json.
    """
    folder = find_run(Path(directory))
    return family(find(read_run(folder)["algorithm"], run=folder)).load(folder, device)
