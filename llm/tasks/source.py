"""Import Python files of the user: reward functions and task classes."""
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from llm.faults import described
from spinup.errors import UserError, nearest


def import_file(file: str, given: str) -> ModuleType:
    """Import a Python file of the user. Raise UserError, which starts with `given`, if this fails."""
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{given}: there is no file {file}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)                                           # the file may import its neighbours
    spec = spec_from_file_location(f"of_the_user_{path.stem}", path)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module                                       # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"{given}: {file} cannot be imported: {described(error)}") from error
    return module


def named_in(module: ModuleType, place: str, name: str, given: str, advice: str) -> Any:
    """Return the function or class of that name in a module of the user.

    place: the module or its file, as the user typed it. Raise UserError, which starts with `given`, if it is missing.
    """
    if not hasattr(module, name):
        names = [key for key, item in vars(module).items() if callable(item) and not key.startswith("_")]
        raise UserError(f"{given}: there is no {name!r} in {place}.{nearest(name, names)}")
    if not callable(getattr(module, name)):
        raise UserError(f"{given}: {name} is not a function; {advice}")
    return getattr(module, name)
