"""Checks of a module that is used as an algorithm, and of its TOML file."""
import inspect
from functools import cache
from types import ModuleType
from typing import Any

from spinup.errors import UserError, check_names
from spinup.registry import Algorithm, find
from spinup.runs.config import RunConfig, types_of
from spinup.runs.convert import checked

# Family -> the base class of its Configs, and the required functions with their arguments; resume is optional.
BASES = {"": "spinup.runs.config.BaseConfig", "llm": "llm.config.LanguageConfig"}
FUNCTIONS = {"": {"train": "cfg, resume=None", "make_policy": "cfg, observation_space, action_space"},
             "llm": {"train": "cfg, resume=None"}}
WORDS = ("config", "help", "preset")                                      # flags that are not settings


def load(algorithm: Algorithm) -> ModuleType:
    """Import an algorithm's module. UserError if the module or its TOML file lacks what the library needs."""
    module = algorithm.load()
    check(algorithm, module)
    return module


@cache
def check(algorithm: Algorithm, module: ModuleType) -> None:
    """UserError, before anything is created, if an algorithm's module or TOML file lacks what the library needs."""
    config, path = getattr(module, "Config", None), algorithm.path
    if not (inspect.isclass(config) and issubclass(config, RunConfig)):
        raise UserError(f"{path}: Config must be a dataclass derived from {BASES[algorithm.family]}")
    check_family(algorithm, config)
    if "__dataclass_fields__" not in vars(config):
        raise UserError(f"{path}: Config must be a dataclass; write @dataclass(kw_only=True) above it")
    hints = types_of(config)
    for name in hints:
        if name in WORDS:
            raise UserError(f"{path}: the setting {name} of Config must have another name: --{name} is a flag of every "
                            "command")
        if not hasattr(config, name):
            raise UserError(f"{path}: the setting {name} of Config must have a default, as in {name}: Count = 16")
    rules = config.ONLY_WITH
    if not (isinstance(rules, dict) and all(is_rule(name, rule, hints) for name, rule in rules.items())):
        raise UserError(f"{path}: ONLY_WITH of Config must map a setting to another one, as in "
                        '{"beta": "prioritised"}, or to another one with its values, as in {"tau": ("loss", "gate")}')
    for name, arguments in FUNCTIONS[algorithm.family].items():
        if not takes(getattr(module, name, None), arguments):
            raise UserError(f"{path}: there must be a function {name}({arguments})")
    check_toml(algorithm, hints)


def is_rule(name: Any, rule: Any, hints: dict[str, Any]) -> bool:
    """Return whether `rule` can be an entry of `ONLY_WITH` for the setting `name`."""
    other = rule[0] if isinstance(rule, tuple) and len(rule) > 1 else rule
    return isinstance(other, str) and {name, other} <= hints.keys()


def check_family(algorithm: Algorithm, config: type[RunConfig]) -> None:
    """UserError, with the correct command, if the Config is of another family."""
    family = config.FAMILY
    if family != algorithm.family:
        name = algorithm.module + (f":{algorithm.variant}" if algorithm.variant else "")
        is_none = "not a method for language models" if algorithm.family else "a method for language models"
        raise UserError(f"{algorithm.method} is {is_none}; type: {' '.join(f'spinup {family} {name}'.split())}")


def takes(function: Any, arguments: str) -> bool:
    """Return whether `function` accepts these arguments by position, and those with a default also by name."""
    names = [argument.partition("=")[0] for argument in arguments.split(", ")]
    needed = [argument for argument in arguments.split(", ") if "=" not in argument]
    try:
        signature = inspect.signature(function)
        signature.bind(*needed)
        signature.bind(*names)
        signature.bind(*needed, **dict.fromkeys(names[len(needed):]))
    except (TypeError, ValueError):
        return False
    return True


def check_toml(algorithm: Algorithm, hints: dict[str, Any]) -> None:
    """UserError if the TOML file names an unknown parent or setting, or has a value outside its range."""
    path = algorithm.path.with_suffix(".toml")
    tables = {f"variants.{name}": settings for name, settings in algorithm.variants.items()}
    tables |= {f"defaults.{name}": settings for name, settings in algorithm.defaults.items()}
    tables |= {f'presets."{name}"': preset["settings"] for name, preset in algorithm.presets.items()}
    for table, settings in tables.items():
        check_names(settings, [*hints], f"{path}: [{table}] has a key that is not a setting of Config:")
        for name, value in settings.items():
            try:
                checked(name, hints[name], value)
            except UserError as error:
                raise UserError(f"{path}: in [{table}], {error}") from None
    for parent in algorithm.parents:
        try:
            find(parent)
        except UserError as error:
            raise UserError(f"{path}: parent = {parent!r}: {error}") from None
