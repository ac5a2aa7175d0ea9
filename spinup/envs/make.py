"""Create a vectorised, seeded environment with the fastest implementation that exists for it."""
import inspect
import os
import re
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import gymnasium
import torch
from gymnasium import Env

from spinup.envs.adapter import VectorAdapter
from spinup.envs.atari import AtariVector, protocol
from spinup.envs.envpool import EnvPoolVector, is_envpool
from spinup.envs.faults import making
from spinup.envs.games import Duels, Game
from spinup.envs.goals import copies_of
from spinup.envs.ids import BOX2D, OURS, WORLDS, find_id, newest_version, plug_in
from spinup.envs.memory import Inputs, Memory
from spinup.envs.stack import FrameStack
from spinup.envs.vector import VectorEnv
from spinup.envs.workers import WorkerVectorEnv
from spinup.envs.zoo import find_zoo_id, is_parallel, is_zoo, make_zoo
from spinup.errors import UserError, source_name

EnvSource = str | Callable[..., Env | gymnasium.vector.VectorEnv] | gymnasium.vector.VectorEnv | type[Game]

ON_DEVICE = {world: made for module in WORLDS.values() for world, made in getattr(module, "ON_DEVICE", {}).items()}


def make(env: EnvSource, num_envs: int = 1, seed: int = 0, workers: int = 0, *, episodes: int = 0,
         inputs: Inputs = "transition", frame_stack: int = 1, exact: bool = True, device: torch.device | None = None,
         **kwargs: Any) -> VectorEnv:
    """Create `num_envs` copies of an environment, with autoreset in the same step (`spinup.envs.vector.VectorEnv`).

    Args:
        env: one of these:
            a Gymnasium id ("Hopper-v5"), or "package:Id-v0", which first imports the package that registers the id;
            a PettingZoo id ("classic/chess-v6"; see `spinup.envs.zoo`), or "envpool:Id";
            a function that takes `kwargs` and makes a Gymnasium environment;
            a vector environment with Gymnasium's interface, or a function that makes one (it gets `num_envs` if it has
            such a parameter);
            a subclass of `spinup.envs.games.Game`, or of PettingZoo's `ParallelEnv`.
        num_envs: number of environment copies; copies times agents, if several agents act simultaneously.
        seed: random seed; it determines every random number in the copies.
        workers: number of processes that step the copies of a Gymnasium environment; 0: this process.
        episodes, inputs: episodes per trial, for policies with a memory (`spinup.envs.memory.Memory`); 0: no trials.
        frame_stack: number of successive observations in one, the newest last (`spinup.envs.stack.FrameStack`).
        exact: reject a vector environment whose number of copies is not `num_envs`; if False, use its number.
        device: device of the policy. With `episodes`, bandits and small MDPs are on it too, unless it is a CPU; their
            observations, rewards and actions are then tensors. All other environments are on the CPU.
        kwargs: settings of the environment, as for `gymnasium.make`; for an Atari game those of
            `spinup.envs.atari.AtariVector`.

    Classic control and some MiniGrid grids use this library's numpy versions. Atari games use ale-py's emulator. All
    other Gymnasium ids use Gymnasium's own environments, stepped one after the other.
    UserError: there is no such environment (with the nearest name), a package is missing (with the pip command), a
    vector environment has another number of copies, or `workers` does not support this environment.
    """
    if episodes:
        on_device = device is not None and device.type != "cpu" and (inputs, frame_stack) == ("transition", 1)
        name = find_id(env) if on_device and isinstance(env, str) else ""
        if name in ON_DEVICE:
            return ON_DEVICE[name](num_envs, seed, episodes, device)
        return Memory(make(env, num_envs, seed, workers, exact=exact, frame_stack=frame_stack, **kwargs), episodes,
                      inputs)
    if frame_stack > 1:
        return FrameStack(make(env, num_envs, seed, workers, exact=exact, **kwargs), frame_stack)
    if workers:
        return make_in_workers(env, num_envs, seed, workers, **kwargs)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return VectorAdapter(check_copies(env, num_envs, exact), seed, close_it=False)
    if isinstance(env, type) and issubclass(env, Game):
        return Duels(env, num_envs, seed)
    if is_envpool(env):
        return EnvPoolVector(env, num_envs, seed, **kwargs)
    if is_zoo(env) or is_parallel(env):
        return make_zoo(find_zoo_id(env) if is_zoo(env) else env, num_envs, seed, **kwargs)
    if isinstance(env, str) and env not in OURS:
        env = find_id(env)
    if env in OURS and not kwargs:
        return OURS[env](num_envs, seed)
    if protocol(env):                                                     # an Atari game
        return AtariVector(env, num_envs, seed, **kwargs)
    first = call(env, num_envs, **kwargs) if callable(env) else make_one(env, **kwargs)
    if isinstance(first, gymnasium.vector.VectorEnv):
        return VectorAdapter(check_copies(first, num_envs, exact), seed, close_it=True)
    return copies_of(lambda: make_one(env, **kwargs), num_envs, seed, first)


def make_in_workers(env: EnvSource, num_envs: int, seed: int, workers: int, **kwargs: Any) -> VectorEnv:
    """Create copies of a Gymnasium environment in other processes; see `make`. UserError for other environments."""
    if not steps_one_by_one(env, **kwargs):
        raise UserError(f"--env-workers does not support {source_name(env)}, which steps all its environments at once; "
                        "leave out --env-workers")
    # Send the workers "package:Id" as the user typed it, because they must import the package too.
    return WorkerVectorEnv(partial(make_one, env, **kwargs), num_envs, seed, workers, source_name(env))


def steps_one_by_one(env: EnvSource, **kwargs: Any) -> bool:
    """True if `make` steps copies of a Gymnasium environment one by one: neither numpy versions nor an emulator."""
    if isinstance(env, str) and not is_zoo(env) and not is_envpool(env):
        found = find_id(env)
        return not protocol(found) and (found not in OURS or bool(kwargs))
    return callable(env) and not is_parallel(env) and not (isinstance(env, type) and issubclass(env, Game))


def call(env: Callable, num_envs: int, **kwargs: Any) -> Env | gymnasium.vector.VectorEnv:
    """Call a function that was given as env, with `num_envs` if it has such a parameter. UserError for a wrong result,
    EnvironmentFailure if the function raises an exception."""
    try:
        takes_number = "num_envs" in inspect.signature(env).parameters
    except (TypeError, ValueError):                                       # for some classes written in C
        takes_number = False
    with making(source_name(env)):
        made = env(**({"num_envs": num_envs} if takes_number else {}) | kwargs)
    return check_made(made)


def with_spaces(name: str, env: Env) -> Env:
    """Return `env`. UserError if it lacks a space."""
    for space in ("observation_space", "action_space"):
        if not hasattr(env, space):
            raise UserError(f"{name} has no {space}; set self.{space} in its __init__ to a space of gymnasium.spaces")
    return env


def check_made(made: Any) -> Any:
    """Return the result of a function given as env. UserError if it is not an environment."""
    if not isinstance(made, Env | gymnasium.vector.VectorEnv):
        raise UserError(f"the function given as env returned an object of type {type(made).__name__}; it must return a "
                        "gymnasium.Env or a gymnasium.vector.VectorEnv. For several agents, give a class that derives "
                        "from pettingzoo.ParallelEnv")
    return made


def check_copies(env: gymnasium.vector.VectorEnv, num_envs: int, exact: bool) -> gymnasium.vector.VectorEnv:
    """Return `env`; UserError if `exact` is set and its number of copies is not `num_envs`."""
    if exact and env.num_envs != num_envs:
        raise UserError(f"the vector environment has {env.num_envs} environments, but num_envs is {num_envs}; give "
                        f"num_envs={env.num_envs}, or a function with a parameter num_envs that makes that number")
    return env


def make_one(env: EnvSource, **kwargs: Any) -> Env:
    """Create one plain Gymnasium environment, with its own time limit. UserError, with a solution, if this fails;
    EnvironmentFailure if the environment's code raises an exception."""
    if is_parallel(env):
        raise UserError(f"{source_name(env)} has several agents and cannot be rendered here; call its own render")
    if callable(env):
        made = call(env, 1, **kwargs)
        if isinstance(made, gymnasium.vector.VectorEnv):
            made.close()
            raise UserError("a single environment is needed here, and the function given as env returned a vector "
                            "environment; make it return a gymnasium.Env")
        return with_spaces(source_name(env), made)
    if not isinstance(env, str):
        raise UserError("a single environment is needed here; give an id, or a function that makes a gymnasium.Env, "
                        "instead of a vector environment")
    env = find_id(env)
    if is_envpool(env):
        raise UserError(f"{env} has no renderer and cannot be rendered here; use `spinup eval` instead")
    if is_zoo(env):
        raise UserError(f"{env} has several agents and cannot be rendered here; use `spinup eval` instead")
    plug_in(env)
    if env not in gymnasium.registry:
        is_game = isinstance(OURS[env](1, 0), Duels)
        instead = "use `spinup play` instead" if is_game else "use `spinup eval` instead"
        raise UserError(f"{env} exists only in this library, without a renderer; {instead}")
    with making(env):
        return with_spaces(env, make_registered(env, **kwargs))


def make_registered(env: str, **kwargs: Any) -> Env:
    """Create a registered Gymnasium environment. UserError, with a solution, if this fails."""
    try:
        if "mujoco" in str(gymnasium.spec(env).entry_point):
            quiet_mujoco()
        with warnings.catch_warnings():                                   # callers that render raise an error
            warnings.filterwarnings("ignore", "(?s).*is not in the possible render_modes", UserWarning)
            made = gymnasium.make(env, disable_env_checker=True, **kwargs)
        as_here = getattr(WORLDS.get(env), "as_here", None)
        return as_here(made) if as_here else made
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        if env.startswith(BOX2D):
            raise UserError(f"{env} needs Box2D; type: pip install 'spinup-rl[box2d]'") from None
        newest = f"; write {newest_version(env)}" if newest_version(env) != env else ""
        raise UserError(f"{env} cannot be made here: {str(error).splitlines()[0].rstrip('. ')}{newest}") from None
    except gymnasium.error.Error as error:
        raise UserError(f"{env} cannot be made: {str(error).splitlines()[0]}") from None
    except TypeError as error:
        if "render_mode" in kwargs and "render_mode" in str(error):
            raise UserError(f"{env} cannot be rendered, because its class takes no render_mode; write def "
                            "__init__(self, render_mode=None), and add a render method") from None
        if kwargs:
            raise UserError(f"{env} does not take these settings: {error}") from None
        if needed := re.search(r"__init__\(\) missing .*?: ((?:(?:, |,? and )?'\w+')+)", str(error)):
            raise UserError(f"{env} cannot be made, because its class needs {needed[1]}; register the id with "
                            "kwargs={...}, or give the argument a default") from None
        raise


@cache
def quiet_mujoco() -> None:
    """Turn off MuJoCo's warnings, on the screen and in a MUJOCO_LOG.TXT in the user's folder. UserError if MUJOCO_GL
    names a library that cannot draw.
    """
    try:
        import mujoco
    except AttributeError:                                                # MUJOCO_GL names a missing library
        raise UserError(f"MuJoCo cannot draw with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}; unset MUJOCO_GL or set "
                        "it to egl or osmesa") from None
    log = mujoco.MjLogConfig.get()
    log.logto_file = log.logto_console = False
    log.set()
