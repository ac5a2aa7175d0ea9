"""Convert Gymnasium spaces: observations to vectors or images, actions to a distribution, and spaces to JSON."""
from collections.abc import Callable, Mapping
from reprlib import Repr
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.networks import SMALLEST_IMAGE
from spinup.errors import ActionsError, UserError

MOST = 100_000_000      # numbers in an observation
MOST_ACTIONS = 100_000   # the network has one output per action, or per dimension of an action
shorter = Repr().repr    # long arrays and texts, shortened for messages
ObsView = Callable[[Any], np.ndarray]


def observation_view(space: Space) -> tuple[tuple[int, ...], np.dtype, ObsView]:
    """Shape and dtype of a network's input for one observation, and the function that converts to it.

    A Box of bytes with two to four axes becomes an image `[C, H, W]`. The images of a stack, `[K, H, W, C]` or
    `[K, C, H, W]`, are concatenated along the channel axis. Every other space becomes a flat float32 vector `[d]`:
    Discrete and MultiDiscrete values are one-hot, and bytes are divided by the largest upper bound of their Box.
    UserError if an observation has no fixed length or is empty.
    """
    check_supported(space)
    try:
        size = spaces.flatdim(space)
    except (NotImplementedError, ValueError):
        raise UserError(f"observations of {type(space).__name__} have no fixed length; wrap the environment so that "
                        "it returns a Box") from None
    if size > MOST:
        raise UserError(f"an observation of {space} is a vector of {size:,} numbers, but at most {MOST:,} are "
                        "supported; wrap the environment so that it returns fewer")
    if not size:
        raise UserError(f"observations of {space} are empty; give the environment a space with at least one number")
    if isinstance(space, spaces.Box) and space.dtype != np.uint8:
        flat = len(space.shape) == 1
        return (size,), np.dtype(np.float32), (lambda obs: obs) if flat else (lambda obs: np.reshape(obs, size))
    if isinstance(space, spaces.Box) and len(space.shape) in (2, 3, 4):
        shape, turn = _channels_first(space.shape)
        if min(shape[1:]) >= SMALLEST_IMAGE:
            most, times = _brightest(space), np.uint8(255 // _brightest(space))           # 255 is white for the network

            def scaled(obs: np.ndarray) -> np.ndarray:
                if np.max(obs) > most:
                    raise UserError(f"the environment returned an image with the value {np.max(obs)}, but the largest "
                                    f"value of its observation space is {most}; make them agree")
                return turn(obs) * times
            return shape, np.dtype(np.uint8), turn if times == 1 else scaled
    divisor = _divisor(space)
    if (divisor == 1).all():
        return (size,), np.dtype(np.float32), lambda obs: spaces.flatten(space, obs)
    return (size,), np.dtype(np.float32), lambda obs: spaces.flatten(space, obs) / divisor


def check_supported(space: Space) -> None:
    """Raise a UserError for a space, or a part of one, whose elements are not numbers."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            check_supported(part)
    elif isinstance(space, spaces.Text | spaces.Graph | spaces.OneOf):
        raise UserError(f"a space of type {type(space).__name__} is not supported; wrap the environment so that it has "
                        "a Box or Discrete space")


def _channels_first(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ObsView]:
    """Return the shape `[C, H, W]`, and a function that converts an image, or a stack of images, to that shape."""
    if len(shape) == 2:
        return (1, *shape), lambda obs: obs[None]
    last = shape[-1] < min(shape[-3:-1])
    turn = (lambda obs: np.moveaxis(obs, -1, -3)) if last else (lambda obs: obs)
    *stack, channels, height, width = turn(np.empty(shape, np.bool_)).shape
    whole = (channels * int(np.prod(stack)), height, width)
    return whole, turn if not stack else lambda obs: np.reshape(turn(np.asarray(obs)), whole)


def _divisor(space: Space) -> np.ndarray:
    """Divisor of each element of the flat vector, `[size]`: for bytes the largest upper bound of their Box, else 1."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return np.concatenate([_divisor(part) for part in parts])
    bytes_ = isinstance(space, spaces.Box) and space.dtype == np.uint8
    return np.full(spaces.flatdim(space), _brightest(space) if bytes_ else 1, np.float32)


def _brightest(space: spaces.Box) -> int:
    return max(1, int(space.high.max(initial=0)))


def fits(space: Space, obs: Any) -> bool:
    """True if an observation, and each part of a Dict or Tuple, has the shape of its space, and in a discrete space
    values of this space. Without this check NumPy would broadcast a scalar to the whole array."""
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        try:
            if np.shape(obs) != space.shape or not whole(obs, space.dtype):
                return False
            if isinstance(space, spaces.Box):
                return True
            if isinstance(space, spaces.MultiDiscrete) and np.asarray(obs).dtype.kind not in "iub":
                return False                                              # Gymnasium uses them as indices
            choices, start = (2, 0) if isinstance(space, spaces.MultiBinary) else (space.nvec, space.start)
            return bool(((np.asarray(obs) >= start) & (np.asarray(obs) < start + choices)).all())
        except (ValueError, TypeError):                                   # lists of different lengths, texts
            return False
    if isinstance(space, spaces.Discrete):
        return space.contains(obs)
    if isinstance(space, spaces.Dict):
        return isinstance(obs, Mapping) and all(key in obs and fits(part, obs[key]) for key, part in space.items())
    if isinstance(space, spaces.Tuple):
        return isinstance(obs, tuple | list) and len(obs) == len(space.spaces) and all(map(fits, space.spaces, obs))
    return True


def whole(obs: Any, dtype: np.dtype) -> bool:
    """True if this dtype can hold all numbers `[...]` unchanged; in bytes, for example, 256 would wrap around to 0."""
    if dtype.kind not in "iu" or getattr(obs, "dtype", None) == dtype:
        return True
    numbers = np.asarray(obs)
    limits = np.iinfo(dtype)
    return bool(((numbers >= limits.min) & (numbers <= limits.max) & (numbers == np.floor(numbers))).all())


def describe(obs: Any, space: Space) -> str:
    """Describe a wrong observation for an error message: an array by its shape or dtype, others by their repr."""
    if isinstance(obs, np.ndarray | np.generic) and isinstance(space, spaces.Box):
        if obs.shape != space.shape:
            return f"an observation of shape {obs.shape}"
        return f"the observation {shorter(obs.tolist())} of dtype {obs.dtype}"
    return f"the observation {shorter(obs)}"


def action_distribution(space: Space, algorithm: str) -> Categorical | DiagGaussian:
    """Create the action distribution for `space`; ActionsError, a UserError, if there is none."""
    if isinstance(space, spaces.Discrete):
        return Categorical((number_of_actions(space, algorithm),))
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
        return Categorical(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return Categorical((2,) * space.shape[0])
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.low.size:
        check_dimensions(space, algorithm)
        return DiagGaussian(space.low.ravel(), space.high.ravel())
    raise ActionsError(f"{algorithm} cannot act in {space}; it supports Discrete, MultiDiscrete, MultiBinary and Box "
                       "(real numbers) actions; wrap the environment so that it has one of these",
                       type(space).__name__)


def check_dimensions(space: spaces.Box, algorithm: str) -> None:
    """Raise a UserError for actions with very many dimensions."""
    if space.low.size > MOST_ACTIONS:
        raise UserError(f"{algorithm} has one output per action dimension, and these actions have {space.low.size:,} "
                        f"dimensions; wrap the environment so that they have at most {MOST_ACTIONS:,}")


def number_of_actions(space: Space, algorithm: str) -> int:
    """Number of Discrete actions; UserError for very many actions, ActionsError for other spaces."""
    if isinstance(space, spaces.Discrete):
        if space.n > MOST_ACTIONS:
            raise UserError(f"{algorithm} has one output per action, and {space} has more than {MOST_ACTIONS:,}; wrap "
                            "the environment so that it has fewer")
        return int(space.n)
    raise ActionsError(f"{algorithm} cannot act in {space}; it supports Discrete actions", type(space).__name__)


def action_bounds(space: Space, algorithm: str) -> tuple[np.ndarray, np.ndarray]:
    """Low and high, `[k]` each, of Box actions; UserError if they are not finite, ActionsError for other spaces."""
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        check_dimensions(space, algorithm)
        low, high = space.low.ravel(), space.high.ravel()
        if (np.isfinite(high - low) & (low < high)).all():
            return low, high
        raise UserError(f"{algorithm} needs actions with finite bounds, low below high, not {space}; where you make "
                        "the environment, return gymnasium.wrappers.TransformAction(env, lambda a: 5 * a, "
                        f"Box(-1, 1, {space.shape})), for actions from -5 to 5")
    raise ActionsError(f"{algorithm} cannot act in {space}; it supports Box actions (real "
                       "numbers)", type(space).__name__)


def vector_size(space: Space, algorithm: str) -> int:
    """Length of a vector observation; UserError for an image."""
    shape = observation_view(space)[0]
    if len(shape) == 1:
        return shape[0]
    raise UserError(f"{algorithm} supports vector observations, not images of {shape}; wrap the environment so that it "
                    "returns features, or choose an algorithm for images, such as ppo or dqn")


def to_native(space: Space, action: np.ndarray) -> Any:
    """Convert an action `[k]` or `[]` to the format of `env.step`: add the start of the space, restore the shape and
    half precision.
    """
    if isinstance(space, spaces.Discrete):
        return int(action) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return action + space.start
    if space.dtype == np.float16:
        action = action.astype(np.float16)
    return action if action.shape == space.shape else action.reshape(space.shape)


def space_to_json(space: Space) -> dict[str, Any]:
    """Convert a space to plain data for `config.json`. UserError for an unsupported kind."""
    match space:
        case spaces.Box():
            bounds = {name: bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound.tolist()
                      for name, bound in (("low", space.low), ("high", space.high))}         # one if all equal
            return {"kind": "Box", **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
        case spaces.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
        case spaces.Dict():
            return {"kind": "Dict", "spaces": {k: space_to_json(s) for k, s in space.spaces.items()}}
        case spaces.Tuple():
            return {"kind": "Tuple", "spaces": [space_to_json(s) for s in space.spaces]}
    raise UserError(f"a space of type {type(space).__name__} is not supported; wrap the environment so that it has a "
                    "Box or Discrete space")


def space_from_json(data: dict[str, Any]) -> Space:
    """Inverse of `space_to_json`. UserError for an unknown kind."""
    match data["kind"]:
        case "Box":
            dtype = np.dtype(data["dtype"])
            low, high = (np.array(data[name], dtype) for name in ("low", "high"))
            shape = data.get("shape", low.shape)
            return spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), dtype=dtype.type)
        case "Discrete":
            return spaces.Discrete(data["n"], start=data["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(data["nvec"], start=data["start"])
        case "MultiBinary":
            return spaces.MultiBinary(data["n"])
        case "Dict":
            return spaces.Dict([(k, space_from_json(s)) for k, s in data["spaces"].items()])    # a dict would be sorted
        case "Tuple":
            return spaces.Tuple([space_from_json(s) for s in data["spaces"]])
    raise UserError(f"config.json names an unknown kind of space, {data['kind']!r}")
