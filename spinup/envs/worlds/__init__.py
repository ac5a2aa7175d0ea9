"""Small environments for lessons, with N copies in one array. To add one, add a file here; no other edit is needed.

A module with environments has a dict `WORLDS`: from each id to a function `(num_envs, seed) -> VectorEnv`, such as a
class or a `functools.partial` of one. The class attribute `MEASURES` describes the columns that an environment adds to
`progress.csv`. A module may also have a dict `ON_DEVICE`: from ids to functions `(num_envs, seed, episodes, device) ->
VectorEnv`, whose copies are tensors on a device, with trials of `episodes` episodes. If its ids are also Gymnasium ids,
the module may have a function `as_here(env)`, which wraps Gymnasium's environment so that its observations equal those
of the copies here.
"""
import importlib
import pkgutil
from types import ModuleType


def find_worlds() -> dict[str, ModuleType]:
    """Return the module of each id that this folder defines. ValueError if two modules define the same id."""
    found: dict[str, ModuleType] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        for world in getattr(module, "WORLDS", {}):
            if world in found:
                raise ValueError(f"{module.__name__} and {found[world].__name__} both define {world}")
            found[world] = module
    return found
