"""Tables of the methods: all of them, or the settings that differ between some of them."""
from collections.abc import Sequence
from typing import Any

from spinup import registry
from spinup.errors import UserError, nearest
from spinup.registry import Algorithm
from spinup.runs.config import settings_of

NONE = "-"              # in the table: the method has no such setting


def overview() -> str:
    """Return one line per method: the first line of its file, or the settings in which a variant differs from it."""
    found = registry.algorithms("llm")
    widest = max(map(len, found))
    return "\n".join(f"{name:{widest}}  {about(algorithm)}" for name, algorithm in found.items())


def about(algorithm: Algorithm) -> str:
    """Describe a method in one line."""
    if not algorithm.variant:
        return algorithm.summary
    own = ", ".join(f"{name} {in_words(value)}" for name, value in algorithm.settings.items())
    return f"{algorithm.path.stem} with {own}"


def comparison(names: Sequence[str]) -> str:
    """Return a table of the settings that differ between two or more methods, with their values before any preset.

    Raise UserError for fewer names, and for the first one that is no method.
    """
    methods = [values_of(found(name)) for name in names]
    if len(names) < 2:
        raise UserError(f"a comparison needs two methods or more; add a second one to {' '.join(names)}, such as "
                        f"{next(name for name in registry.algorithms('llm') if name not in names)}")
    settings = dict.fromkeys(setting for method in methods for setting in method)
    rows = [[setting, *(in_words(method[setting]) if setting in method else NONE for method in methods)]
            for setting in settings if any(method.get(setting, NONE) != methods[0].get(setting, NONE)
                                           for method in methods)]
    if not rows:
        return f"no setting differs between {' and '.join(names)}"
    return in_columns([["", *names], *rows])


def found(name: str) -> Algorithm:
    """Return the method of that name. Raise UserError, with the nearest name, if there is none."""
    algorithm = registry.look_up(f"llm {name}")
    if algorithm is None:
        near = nearest(name, [*registry.algorithms("llm"), *registry.installed("llm")])
        raise UserError(f"there is no method {name!r}.{near} `spinup llm methods` lists them")
    return algorithm


def values_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return the settings of a method: the defaults of its file, and those of its variant."""
    config = algorithm.load().Config
    return {name: getattr(config, name) for name in settings_of(config)} | algorithm.settings


def in_words(value: Any) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value != "" else "(empty)"


def in_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts as aligned lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)
