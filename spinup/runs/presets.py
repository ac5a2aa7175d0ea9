"""Presets: settings that were measured for one environment, as data beside the algorithm's file."""
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.errors import UserError, nearest


def read_presets(algorithm: ModuleType) -> dict[str, dict[str, Any]]:
    """All presets of an algorithm, by name: `settings`, the return `reached` here, and the best `published` one."""
    path = Path(algorithm.__file__).with_suffix(".toml")
    tables = tomllib.loads(path.read_text()) if path.exists() else {}
    return {name: {"settings": {k: v for k, v in table.items() if k not in ("reached", "published")},
                   "reached": table.get("reached"), "published": table.get("published")}
            for name, table in tables.items()}


def choose_preset(algorithm: ModuleType, env: str | Callable, choice: str = "auto") -> tuple[str, dict[str, Any]]:
    """Name and settings of the preset to use: "auto" takes the environment's, "none" none. UserError for any other."""
    presets = read_presets(algorithm)
    if choice == "auto":
        choice = env if isinstance(env, str) and env in presets else "none"
    if choice == "none":
        return "none", {}
    if choice not in presets:
        raise UserError(f"there is no preset {choice!r}; choose from {', '.join(['auto', 'none', *presets])}."
                        f"{nearest(choice, presets)}")
    return choice, presets[choice]["settings"]
