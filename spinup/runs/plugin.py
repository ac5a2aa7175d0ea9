"""Checks of a module that is used as an algorithm, of its TOML file, and of the parts that its run keeps."""
import ast
import inspect
import textwrap
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from spinup.errors import UserError, check_names
from spinup.registry import Algorithm, find
from spinup.runs.config import RunConfig, types_of
from spinup.runs.convert import checked

# Family -> the base class of its Configs, and the required functions with their arguments; resume is optional.
BASES = {"": "spinup.runs.config.BaseConfig", "llm": "llm.config.LanguageConfig"}
FUNCTIONS = {"": {"train": "cfg, resume=None", "make_policy": "cfg, observation_space, action_space"},
             "llm": {"train": "cfg, resume=None"}}
WORDS = ("config", "help", "preset")                                      # flags that are not settings
TYPES = ('bool, int, float, str, a range such as Positive, Literal["a", "b"], tuple[int, ...], or one of these with '
         "| None or | Callable")


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
    check_typed(path, config, hints)
    for name, hint in hints.items():
        if name in WORDS:
            raise UserError(f"{path}: the setting {name} of Config must have another name: --{name} is a flag of every "
                            "command")
        if not supported(hint):
            said = getattr(hint, "__name__", hint) if get_origin(hint) is None else hint
            raise UserError(f"{path}: the setting {name} of Config cannot have the type {said}; use {TYPES}")
        if not hasattr(config, name):
            raise UserError(f"{path}: the setting {name} of Config must have a default, as in {name}: Count = 16")
    rules = config.ONLY_WITH
    if not (isinstance(rules, dict) and all(is_rule(name, rule, hints) for name, rule in rules.items())):
        raise UserError(f"{path}: ONLY_WITH of Config must map a setting to another one, as in "
                        '{"beta": "prioritised"}, or to another one with its values, as in {"tau": ("loss", "gate")}')
    for name, arguments in FUNCTIONS[algorithm.family].items():
        if not takes(getattr(module, name, None), arguments):
            raise UserError(f"{path}: there must be a function {name}({arguments})")
    if not returns(module.train):
        ending = "run.result()" if algorithm.family else "run.result(policy)"
        raise UserError(f"{path}: train of {algorithm.method} must end with `return {ending}`")
    check_toml(algorithm, hints)


def check_typed(path: Path, config: type[RunConfig], hints: dict[str, Any]) -> None:
    """UserError for a value of a Config without a type, which a dataclass ignores. Names in capitals, functions and
    properties are not settings."""
    for cls in config.__mro__[:-1]:
        for name, value in vars(cls).items():
            own = name.startswith("_") or name.isupper() or callable(value) or hasattr(value, "__get__")
            inherited = name not in hints and any(hasattr(parent, name) for parent in cls.__bases__)
            if not (own or inherited or name in inspect.get_annotations(cls)):
                kind = {bool: "bool", int: "int", float: "float", str: "str", tuple: "Widths"}.get(type(value))
                example = f"{name}: {kind} = {value!r}" if kind else "lr: Positive = 2e-3"
                raise UserError(f"{path}: the setting {name} of Config must have a type, as in {example}")


def supported(hint: Any) -> bool:
    """Return whether a setting can have this type: whether `spinup.runs.convert` can convert to it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return supported(args[0]) and all(hasattr(limit, "holds") for limit in args[1:])
    if origin is Literal:
        return all(isinstance(word, str) for word in args)
    if origin is tuple:
        return len({*args} - {...}) == 1 and supported(args[0])
    if origin in (Union, UnionType):
        others = [arg for arg in args if arg is not NoneType]
        return Callable in others or object in others or (len(others) == 1 and supported(others[0]))
    return hint in (bool, int, float, str, Callable)


def returns(function: Callable[..., Any]) -> bool:
    """Return whether a function has a `return` of a value other than None, or ends with `raise`; True if its source
    cannot be read."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError):
        return True
    if not isinstance(definition, ast.FunctionDef) or definition.name != function.__name__:       # the file has changed
        return True
    if isinstance(definition.body[-1], ast.Raise):
        return True
    inside: list[ast.AST] = [*definition.body]
    while inside:
        node = inside.pop()
        if isinstance(node, ast.Return) and not isinstance(node.value, ast.Constant | None):
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):     # which return values of their own
            inside += ast.iter_child_nodes(node)
    return False


def check_kept(config: RunConfig, kept: Collection[str], saved: Collection[str]) -> None:
    """UserError unless a run keeps the part with its policy, and the checkpoint to resume contains this part."""
    part = "model" if config.FAMILY else "policy"
    if part not in kept:
        raise UserError(f"train of {config.algorithm} saves no policy; call run.keep({part}=..., optimizer=...) before "
                        "run.updates")
    if part not in saved:
        raise UserError(f"the checkpoint of this run of {config.algorithm} has no part called {part}, so the run "
                        "cannot resume; train again under another --exp-name")


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
