"""Ids of environments: the full id for a short one, the package that registers it, and a list of all ids."""
import importlib
import sys
from importlib.util import find_spec

import gymnasium

from spinup.envs.envpool import find_envpool_id, is_envpool
from spinup.envs.worlds import find_worlds
from spinup.envs.zoo import find_zoo_id, is_zoo, missing, zoo_ids
from spinup.errors import UserError, nearest

# Packages that register environments on import: prefix of the id -> (module, our extra that installs it).
PLUGINS = {"ALE/": ("ale_py", "atari"), "MiniGrid-": ("minigrid", "grid"), "BabyAI-": ("minigrid", "grid")}
WORLDS = find_worlds()                                                    # id -> the module that defines it
OURS = {world: module.WORLDS[world] for world, module in WORLDS.items()}  # id -> the function that makes our copies
BOX2D = ("LunarLander", "BipedalWalker", "CarRacing")


def full_id(env: str) -> str:
    """Return the full id of an environment, with the package that registers it if `env` names one: for a command in
    another process. UserError as for `find_id`."""
    name = find_id(env)
    return env if ":" in env else name


def find_id(env: str) -> str:
    """Return the full id of an environment, after importing the package that registers it. UserError, with the nearest
    name, if there is none."""
    if is_zoo(env):
        return find_zoo_id(env)
    if is_envpool(env):
        return find_envpool_id(env)
    if own := [i for i in OURS if env in (i, i.rpartition("-v")[0])]:     # they need no other package
        return own[-1]
    package, colon, name = env.rpartition(":")
    if colon and not package:
        raise UserError(f"{env!r} names no module before the colon; write MODULE{env}, or {name} alone")
    plug_in(name)
    if package:
        try:
            importlib.import_module(package)
        except ImportError as error:
            stem = package.removesuffix(".py")
            advice = f"write {stem}:{name}" if stem != package else (
                "install it, start the command in the folder of its file, or write the id alone")
            raise UserError(f"{env!r} names the package {package!r}, which cannot be imported ({error}); "
                            f"{advice}") from None
        except (Exception, SystemExit) as error:
            raise UserError(f"{env!r} names the package {package!r}, which raises {type(error).__name__} when it is "
                            f"imported: {error}; correct it first") from None
    if name in (ids := [*gymnasium.registry, *OURS]):
        return name
    if (newest := newest_version(f"{name}-v0")) in ids:
        return newest
    if package:
        its = [f"{package}:{i}" for i, spec in gymnasium.registry.items()
               if getattr(spec.entry_point, "__module__", str(spec.entry_point)).startswith(package)]
        if hasattr(sys.modules[package], name):
            raise UserError(f"{package}.{name} is not a registered id; in {package}, add gymnasium.register("
                            f"\"{name}-v0\", entry_point={name}), and write {package}:{name}-v0; or train in Python "
                            f"with env={name}")
        raise UserError(f"there is no environment {env!r}.{nearest(env, its)} {package} registers "
                        f"{', '.join(its) or 'none of its own'}")
    near = nearest(name, [*ids, *[i.rpartition("-v")[0] for i in ids]])
    raise UserError(f"there is no environment {env!r}.{near} `spinup envs` lists them all; for your own, write MODULE:"
                    f"{name}")


def plug_in(env: str) -> None:
    """Import the package that registers an environment of an extra. UserError if it is missing."""
    for prefix, (module, extra) in PLUGINS.items():
        if env.startswith(prefix) or (module == "ale_py" and "NoFrameskip" in env):
            if find_spec(module) is None:
                raise UserError(f"{env} needs {module}; type: pip install 'spinup-rl[{extra}]'")
            importlib.import_module(module)


def newest_version(env: str) -> str:
    """Return the id of the newest registered version of an environment: Hopper-v5 for Hopper-v2."""
    stem = env.rpartition("-v")[0]
    endings = [i.removeprefix(f"{stem}-v") for i in [*gymnasium.registry, *OURS] if i.startswith(f"{stem}-v")]
    versions = [int(ending) for ending in endings if ending.isdigit()]
    return f"{stem}-v{max(versions)}" if versions else env


def registered() -> list[str]:
    """Return the ids that can be created here, with those of installed extras, sorted."""
    for module, _ in PLUGINS.values():
        if find_spec(module) is not None:
            importlib.import_module(module)
    ids = {*gymnasium.registry, *OURS, *(i for i in zoo_ids() if not missing(i))}
    unmade = ("phys2d/", "tabular/", "GymV", *(() if find_spec("Box2D") else BOX2D))
    return sorted(i for i in ids if not i.startswith(unmade) and not outdated(i))


def outdated(env: str) -> bool:
    """True if this MuJoCo environment is registered in Gymnasium, but the mujoco package cannot create it."""
    return env in gymnasium.registry and "mujoco" in str(gymnasium.spec(env).entry_point) and (
        env.endswith(("-v2", "-v3")) or env == "Pusher-v4")
