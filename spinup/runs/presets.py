"""Layers of settings that make a Config: defaults, a variant, a preset, a TOML file, and the user's settings.

The TOML file of an algorithm may have defaults for a kind of environment, such as `[defaults.Box]`. They apply if no
preset is used.
"""
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spinup.errors import UserError, check_names, nearest, unreadable
from spinup.registry import Algorithm, family
from spinup.runs.config import RunConfig, dependencies, settings_of, types_of
from spinup.runs.convert import checked, flag, in_text


def choose_preset(algorithm: Algorithm, subject: Any, choice: str = "auto",
                  kinds: Sequence[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the name and settings of a preset. "auto" is the preset of the environment or task, "none" is no preset.

    UserError, with the nearest name, if the preset does not exist.
    """
    presets = algorithm.presets
    if not isinstance(choice, str):
        raise UserError(f"the preset must be the name of one, not {choice!r}; choose from "
                        f"{', '.join(['auto', 'none', *presets])}")
    if choice == "auto":
        names = algorithm.load().Config.preset_names(subject, algorithm, kinds)
        choice = next((name for name in names if name in presets), "none")
    if choice == "none":
        return "none", {}
    if choice not in presets:
        raise UserError(f"there is no preset {choice!r}; choose from {', '.join(['auto', 'none', *presets])}."
                        f"{nearest(choice, presets)}")
    return choice, presets[choice]["settings"]


def configure(algorithm: Algorithm, given: dict[str, Any], preset: str = "auto",
              file: str | Path | None = None, recipe: Mapping[str, Any] = MappingProxyType({})) -> tuple[Any, str]:
    """Make a Config from the layers of settings. Return it with words that name its preset or defaults.

    A later layer overrides an earlier one: defaults, defaults for the kind of environment (without a preset), preset,
    variant, preset of the variant, `recipe`, TOML file, `given`. UserError if the environment or task is empty, or if
    a setting in the file or in `given` has no effect and is neither the default nor that of the variant.
    """
    config: type[RunConfig] = algorithm.load().Config
    from_file = read_toml(Path(file), config) if file else {}
    asked = {**algorithm.settings, **recipe, **from_file, **given}
    subject, default = config.SUBJECT, config.default_subject(asked)
    value = asked.get(subject, default)
    if isinstance(value, str) and not value:
        raise UserError(f"--{subject} is empty; leave it out for {default}")
    value = checked(subject, types_of(config)[subject], value)
    full = config.full_subject(value)
    kinds = family(algorithm).kinds_of_model(asked)
    name, values = choose_preset(algorithm, full, preset, kinds)
    if name == "none" and algorithm.defaults:
        kinds += family(algorithm).kinds(value)
    kinds = [kind for kind in kinds if kind in algorithm.defaults]
    by_kind = {setting: x for kind in kinds for setting, x in algorithm.defaults[kind].items()}
    own = values if name.endswith(f" {algorithm.variant}") else {}         # such as "reverse dapo", of dapo
    layers = {**by_kind, **values, **algorithm.settings, **own, **recipe, **from_file, **given,
              subject: value if isinstance(value, str) and ":" in value else full}         # with its package
    said = [name, *(f"defaults for {algorithm.kinds[kind]}" for kind in kinds)]
    if said == ["none"]:
        said.append("the defaults apply")
    if name == "none" and preset == "auto":
        said += [f"--preset {near} is for a similar environment"
                 for near in family(algorithm).kindred(full, algorithm.presets)[:1]]
    made = config(**layers, algorithm=algorithm.name)
    for setting, reason in without_effect(made).items():
        usual = algorithm.settings.get(setting, getattr(config, setting))
        if setting in {**from_file, **given} and getattr(made, setting) != usual:
            raise UserError(reason)
    said += [*family(algorithm).remarks(made, {**from_file, **given}), *short_of_warmup(made)]
    return made, "; ".join(said)


def short_of_warmup(config: RunConfig) -> list[str]:
    """Return a warning if a run of a transformer ends before its learning rate has risen to `--lr`; otherwise []."""
    ours = type(config).__module__.startswith("llm.algos.")               # a user's method may not use it
    warmup, frozen = getattr(config, "warmup", 0), getattr(config, "value_warmup", 0)      # frozen: first updates
    if not ours or warmup <= config.total_steps - frozen:
        return []
    after = f" minus --value-warmup {frozen}" * (frozen > 0)
    return [f"--warmup {warmup} is more than --total-steps {config.total_steps}{after}, so the learning rate does not "
            "reach --lr"]


def without_effect(config: RunConfig) -> dict[str, str]:
    """Return the settings that have no effect with the others, as `ONLY_WITH` says, each with an error message."""
    found = {}
    for name, (other, values) in dependencies(type(config)).items():
        value = getattr(config, other)
        if not (value in values if values else value):
            now = "your own function" if callable(value) else in_text(value)
            better = " or ".join(map(in_text, values)) or ("true" if value is False else "above 0")
            found[name] = (f"{flag(name)} has no effect with {flag(other)} {now}; leave it out, or choose "
                           f"{flag(other)} {better}")
    return found


def default_in_words(algorithm: Algorithm, setting: str, default: str) -> str:
    """Return a default, and the defaults for kinds of environments, in words: "4; 10 for continuous actions"."""
    others = [f"{table[setting]} for {algorithm.kinds[kind]}" for kind, table in algorithm.defaults.items()
              if setting in table]
    return "; ".join([default, *others])


def read_toml(path: Path, config: type[RunConfig]) -> dict[str, Any]:
    """Read settings from a TOML file; keys may have - or _. UserError if it is unreadable or has an unknown key."""
    if path.exists() and not path.is_file():
        raise UserError(f"--config {path} is not a regular file; give a readable TOML file")
    try:
        data = tomllib.loads(path.read_text("utf-8-sig"))                 # Windows may add a byte order mark
    except OSError as error:
        raise UserError(f"--config {path}: {error.strerror.lower()}; give a readable TOML file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"--config {path} is not TOML ({unreadable(error)}); write lines such as lr = 0.001") from None
    for name in data:
        if "-" in name and (same := name.replace("-", "_")) in data:
            raise UserError(f"{path} has {name} and {same}, which are the same setting; leave one out")
    data = {k.replace("-", "_"): v for k, v in data.items()}
    check_names(data, settings_of(config), f"{path}: there is no setting")
    for name, value in data.items():
        try:
            checked(name, types_of(config)[name], value)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return data
