"""Small environments that lessons need, N copies in one array each; a new one is a new file here and no other edit.

A module that offers environments has a dict `WORLDS`: from each id to a function `(num_envs, seed) -> VectorEnv`, such
as a class or a `functools.partial` of one. Columns that an environment adds to `progress.csv` are described in its
class attribute `MEASURES`. A module whose ids are also Gymnasium's may have a function `as_here(env)`: it wraps
Gymnasium's own environment so that its observations look like those of the copies here.
"""
import importlib
import pkgutil
from types import ModuleType


def find_worlds() -> dict[str, ModuleType]:
    """Each id that a module of this folder offers, and that module. ValueError where two modules offer the same id."""
    found: dict[str, ModuleType] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        for world in getattr(module, "WORLDS", {}):
            if world in found:
                raise ValueError(f"{module.__name__} and {found[world].__name__} both offer {world}")
            found[world] = module
    return found
