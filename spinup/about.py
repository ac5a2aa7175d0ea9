"""The TOML file beside an algorithm's Python file. It adds what the code does not contain; every key is optional.

    order = 20                          # position in lists
    parent = "vpg"                      # parent algorithm, or a list of parents; the code may import pure
                                        # functions from its parents and from their parents
    actions = ["Discrete", "Box"]       # classes of action spaces that it supports (environments)
    observations = ["vectors"]          # "vectors", "images"; "goals": needs an environment with goals

    rewards = true                      # it learns from rewards (language models)
    family = ""                         # its family if that is not the one of its folder: "" for environments

    [metrics]                           # columns of progress.csv that no other algorithm has
    rating = "Elo rating of the learner"

    [variants.double_dqn]               # a name for some settings: `spinup double_dqn`
    double = true

    [defaults.Box]                      # settings for environments with such actions or observations ("images"), or
    epochs = 10                         # for a "pretrained" model, if no preset is used; a later table overrides an
                                        # earlier one

    [presets."CartPole-v1"]             # settings for an environment or task; `reached` and `published` are results
    total_steps = 100_000
"""
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spinup.errors import UserError, nearest

# Kinds of environments and models that may have their own defaults, in words.
ACTIONS = {"Discrete": "discrete actions", "MultiDiscrete": "several discrete actions", "MultiBinary": "binary actions",
           "Box": "continuous actions", "Dict": "actions in a Dict", "Tuple": "actions in a Tuple"}
OBSERVATIONS = {"vectors": "vectors", "images": "images", "goals": "vectors with goals"}
KINDS = ACTIONS | OBSERVATIONS | {"pretrained": "pretrained models"}


def texts(value: Any) -> bool:
    """Return whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def tables(value: Any) -> bool:
    """Return whether a value is a table of tables."""
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {  # the allowed value, in words and as a test
    "order": ("a whole number", lambda value: type(value) is int),
    "parent": ("the name of an algorithm, or a list of names", lambda value: isinstance(value, str) or texts(value)),
    "actions": (f"a list of some of {', '.join(ACTIONS)}", lambda value: texts(value) and {*value} <= {*ACTIONS}),
    "observations": (f"a list of some of {', '.join(OBSERVATIONS)}",
                     lambda value: texts(value) and {*value} <= {*OBSERVATIONS}),
    "family": ("the first word of its command, or an empty string", lambda value: isinstance(value, str)),
    "rewards": ("true or false", lambda value: isinstance(value, bool)),
    "metrics": ("a table of strings, such as rating = \"Elo rating\"",
                lambda value: isinstance(value, dict) and texts([*value.values()])),
    "variants": ("tables of settings, such as [variants.NAME]", tables),
    "defaults": (f"tables of settings, such as [defaults.Box], for some of {', '.join(KINDS)}",
                 lambda value: tables(value) and {*value} <= {*KINDS}),
    "presets": ("tables of settings, such as [presets.\"CartPole-v1\"], in which `reached` is a table and `published` "
                "a string",
                lambda value: tables(value) and all(
                    isinstance(preset.get("reached", {}), dict) and isinstance(preset.get("published", ""), str)
                    for preset in value.values()))}


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file; {} if it does not exist. UserError if it is not valid TOML, or has an unknown key or a value of
    the wrong type. Names and values of settings are checked when the algorithm is loaded."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); restore it or write it again") from None
    for key, value in found.items():
        if key not in KEYS:
            raise UserError(f"{path}: there is no key {key!r}.{nearest(key, KEYS)} Known keys: {', '.join(KEYS)}")
        belongs, fits = KEYS[key]
        if not fits(value):
            raise UserError(f"{path}: {key} must be {belongs}, not {value!r}")
    return found
