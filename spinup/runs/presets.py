"""Presets, measured for one environment or task and kept beside the algorithm's file; and what becomes a Config."""
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.envs.make import find_id
from spinup.errors import UserError, nearest
from spinup.runs.config import check_names, comments, read_toml


def read_presets(algorithm: ModuleType) -> dict[str, dict[str, Any]]:
    """All presets of an algorithm, by name: `settings`, the return `reached` here, and the best `published` one."""
    path = Path(algorithm.__file__).with_suffix(".toml")
    tables = tomllib.loads(path.read_text()) if path.exists() else {}
    return {name: {"settings": {k: v for k, v in table.items() if k not in ("reached", "published")},
                   "reached": table.get("reached"), "published": table.get("published")}
            for name, table in tables.items()}


def choose_preset(algorithm: ModuleType, subject: object, choice: str = "auto",
                  method: str = "") -> tuple[str, dict[str, Any]]:
    """Name and settings of the preset to use: "auto" takes that of an environment or task, "none" none.

    subject: an environment id or a task, whose options do not matter. method: of several in the algorithm's file, of
    which one may have its own preset, named after the task and itself. UserError for any other choice.
    """
    presets = read_presets(algorithm)
    if choice == "auto":
        name = subject.partition(":")[0] if isinstance(subject, str) and method else subject
        fitting = [n for n in (f"{name} {method}", name) if isinstance(name, str) and n in presets]
        choice = fitting[0] if fitting else "none"
    if choice == "none":
        return "none", {}
    if choice not in presets:
        raise UserError(f"there is no preset {choice!r}; choose from {', '.join(['auto', 'none', *presets])}."
                        f"{nearest(choice, presets)}")
    return choice, presets[choice]["settings"]


def configure(module: ModuleType, given: dict[str, Any], preset: str = "auto", file: str | Path | None = None,
              method: str = "") -> tuple[Any, str]:
    """The Config that layers make, and the name of the preset in it.

    The layers, the later over the earlier: default, what the method means, preset, TOML file, given. UserError for an
    environment or task without a name.
    """
    subject = "task" if method else "env"
    from_file = read_toml(Path(file), module.Config) if file else {}
    value = given.get(subject, from_file.get(subject, getattr(module.Config, subject)))
    if isinstance(value, str) and not value:
        raise UserError(f"--{subject} is empty; leave it out for {getattr(module.Config, subject)}")
    full = find_id(value) if isinstance(value, str) and not method else value            # CartPole is CartPole-v1
    name, values = choose_preset(module, full, preset, method)
    fixed = module.METHODS[method] if method else {}
    return module.Config(**{**fixed, **values, **from_file, **given, subject: value}), name


def trainer(name: str, module: ModuleType, method: str = "") -> Callable[..., Any]:
    """A function that trains: `name(env or task, **settings)`, its docstring made from the Config."""
    subject = "task" if method else "env"

    def train(source: Any = None, *, preset: str = "auto", config: str | Path | None = None,
              resume: str | Path | None = None, **given: Any) -> Any:
        given |= {} if source is None else {subject: source}
        check_names(given, [f.name for f in fields(module.Config)], f"{name} has no setting")
        cfg, _ = configure(module, given, preset, config, method)
        return module.train(cfg, resume, **({"method": method} if method else {}))

    help_of = comments(module.Config)
    lines = [f"    {f.name} = {f.default!r}: {help_of[f.name]}" for f in fields(module.Config) if f.name != subject]
    what = [f"{method}: {module.METHODS[method]}" if module.METHODS[method] else method] if method else []
    train.__name__ = train.__qualname__ = name
    train.__doc__ = "\n".join([
        inspect.getdoc(module).splitlines()[0], "", *what, "Args:",
        f"    {subject}, the first argument: {help_of[subject]}; without one, that of the file, or "
        f"{getattr(module.Config, subject)}",
        f"    preset: auto (that of the {'task' if method else 'environment'}), none, or a name from `spinup algos`",
        "    config: a TOML file of settings",
        "    resume: the folder of a run of the same settings to go on with", *lines, "",
        "Settings count in this order, the later over the earlier: default, preset, file, arguments.",
        "Returns a Result with `policy`, `progress`, `directory`, `status`, and how good it is.",
        f"UserError, before anything is written: a setting that is unknown or out of its range, a wrong {subject}, or",
        "a run to resume that was begun with other settings. NonFiniteError: a number became infinite or NaN; the",
        "checkpoint before that is kept."])
    return train
