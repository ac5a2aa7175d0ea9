"""Refusal of Python code in a folder of runs that the config.json of a run names."""
import re
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.registry import inside


def check_modules(run: Path, settings: dict[str, Any]) -> None:
    """UserError if the environment, task or reward in the settings of a run is Python code in its folder of runs. Such
    a folder may come from anybody. Files directly in the current folder are allowed."""
    for name in ("env", "task", "reward"):
        text = settings.get(name)
        for place in re.findall(r"[^\s,+*:]+(?=:)", text) if isinstance(text, str) else ():
            stem = Path(place.removesuffix(".py")) if place.endswith(".py") else Path(*place.split("."))
            files = [stem.with_name(f"{stem.name}.py"), stem] if stem.name else []       # a module, or a package
            if any(file.exists() and file.resolve().parent != Path.cwd() and inside(file, run) for file in files):
                raise UserError(f"the {name} {text} of {run} is Python code in a folder of runs, which is not "
                                "imported; move the file to the current folder, and train again with its new name")
