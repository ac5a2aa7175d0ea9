"""Refusal of Python code that the config.json of a run names, if the code is in a folder of runs."""
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.modules import inside

PROSE = {"system", "template"}          # settings that name no code; neither does a list of prompts as `task`


def check_modules(run: Path, settings: dict[str, Any]) -> None:
    """UserError if a setting of a run, such as its environment, task or reward, names Python code in its folder of
    runs. Such a folder may come from anybody. Files directly in the current folder are allowed, unless that folder
    belongs to the run."""
    here, experiment = Path.cwd(), run.resolve().parent
    own = here == experiment or experiment in here.parents
    for name, value in settings.items():
        for text in () if name in PROSE or (name == "task" and not isinstance(value, str)) else texts(value):
            for place in places(text):
                stem = Path(place.removesuffix(".py")) if place.endswith(".py") else Path(*place.split("."))
                files = [stem.with_name(f"{stem.name}.py"), stem] if stem.name else []   # a module, or a package
                if any(os.path.exists(file) and inside(file, run) and (own or file.resolve().parent != here)
                       for file in files):                                # `exists` of a Path raises for long names
                    advice = ("copy the file to another folder, and type the command there" if own else
                              "move the file to the current folder, and train again with its new name")
                    raise UserError(f"the {name} {text} of {run} is Python code in a folder of runs, which is not "
                                    f"imported; {advice}")


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value from a JSON file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def places(text: str) -> Iterator[str]:
    """Yield all parts of a text that may be the module in `module:name`. A module or the path of a file may contain
    spaces and other separators, so a part may begin after any of them."""
    for part in text.split(":")[:-1]:
        for start in [0, *(found.end() for found in re.finditer(r"[\s,+*=]", part))]:
            if place := part[start:].strip():
                yield place
