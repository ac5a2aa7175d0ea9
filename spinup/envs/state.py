"""State of an environment as plain data: random number generator, attributes, wrappers, MuJoCo's state."""
import sys
from operator import index
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space


def save_rng(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of a generator from `np.random.default_rng`, with its two 128-bit integers as strings.

    Raises TypeError for generators whose state is an array (MT19937, Philox).
    """
    state = rng.bit_generator.state
    return state | {"state": {name: str(index(number)) for name, number in state["state"].items()}}


def load_rng(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Restore the state of `rng` from the output of `save_rng`."""
    rng.bit_generator.state = state | {"state": {name: int(number) for name, number in state["state"].items()}}


class Unsaveable(TypeError):
    """Error for an environment with an attribute that is neither plain data nor known to be constant."""


def layers(env: Env) -> list[Env]:
    """Return the wrappers, outermost first, and the environment itself."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


def spaces_in(space: Space) -> list[Space]:
    """Return a space and the spaces that it consists of. Each has a generator once it has been seeded or sampled."""
    held = [x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else [x]
            for x in vars(space).values()]
    return [space, *(one for parts in held for part in parts if isinstance(part, Space) for one in spaces_in(part))]


# Types of attributes that do not change while an environment runs, except for the generator of a space.
CONSTANT = (Space, gymnasium.envs.registration.EnvSpec, type, FunctionType, MethodType, BuiltinFunctionType, ModuleType)
# Names of windows and renderers, which do not influence the state. Plain data with these names is saved too, because
# for example a `clock` may count steps.
CONSTANT_NAMES = {"mujoco_renderer", "screen", "clock", "surf", "viewer", "window", "font", "model", "metadata",
                  "_np_random_seed", "_cached_spec", "_metadata", "render_mode", "_saved_kwargs", "_ezpickle_args",
                  "_ezpickle_kwargs", "_spinup_ticket"}
# Names that may also belong to a state, such as a window of past prices. The object is then from no package in DRAWING.
AMBIGUOUS, DRAWING = {"clock", "window", "model"}, {"pygame", "mujoco", "gymnasium", "glfw", "pyglet", "matplotlib"}


def save_layers(env: Env) -> list[dict[str, Any]]:
    """Return the state of an environment and its wrappers as plain data. Unsaveable, with the name of the part, if a
    part is not plain data."""
    seen: dict[Any, str] = {}
    return [save_layer(layer, seen) for layer in layers(env)]


def load_layers(env: Env, saved: list[dict[str, Any]]) -> None:
    """Restore the output of `save_layers`."""
    made: dict[str, Any] = {}
    for layer, attributes in zip(layers(env), saved, strict=True):
        load_layer(layer, attributes, made)


def save_layer(layer: Env, seen: dict[Any, str]) -> dict[str, Any]:
    """Return the state of one wrapper or environment, by its `state_dict` if it has one. Unsaveable if parts of it are
    not plain data. For `seen` see `_plain`.
    """
    kind = type(layer).__name__
    if hasattr(type(layer), "state_dict") and hasattr(type(layer), "load_state_dict"):
        return {"state_dict": _plain(layer.state_dict(), f"{kind}.state_dict()", {})}
    saved = {}
    for name, value in vars(layer).items():
        if isinstance(value, MethodType) and getattr(layer, method := getattr(value, "__name__", ""), None) == value:
            saved[name] = {"method": method}                  # which one it is may be part of the state
            continue
        if isinstance(value, Space) and any(drawn := [part._np_random and save_rng(part._np_random)
                                                      for part in spaces_in(value)]):
            saved[name] = {"space": drawn}
            continue
        if isinstance(value, CONSTANT) or (name == "env" and isinstance(layer, gymnasium.Wrapper)):
            continue
        if isinstance(value, np.random.Generator):
            if not isinstance(value.bit_generator, np.random.PCG64):
                raise Unsaveable(f"{kind}.{name} uses {type(value.bit_generator).__name__}, not np.random.default_rng")
            saved[name] = {"generator": save_rng(value)}
        elif _is_mujoco_data(value):
            saved[name] = {"mujoco": _save_mujoco(layer.model, value)}
        else:
            try:
                saved[name] = {"value": _plain(value, f"{kind}.{name}", {} if name in CONSTANT_NAMES else seen)}
            except Unsaveable:
                drawing = type(value).__module__.partition(".")[0] in DRAWING
                if name not in CONSTANT_NAMES or (name in AMBIGUOUS and not drawing):
                    raise
        if isinstance(value, np.ndarray) and name in saved:
            saved[name]["offset"] = _offset(value)
    return saved


def load_layer(layer: Env, saved: dict[str, Any], made: dict[str, Any]) -> None:
    """Restore the output of `save_layer`. For `made` see `_restored`.

    It fills arrays in place, because an array may share memory with an object that is not saved. If a view shows
    another part of its array than in the saved state, such as another row of a table, it is replaced. The table stays
    unchanged.
    """
    if "state_dict" in saved and hasattr(type(layer), "load_state_dict"):
        layer.load_state_dict(_restored(saved["state_dict"], f"{type(layer).__name__}.state_dict()", {}))
        return
    filled = set()
    for name, entry in saved.items():
        kind, value = next(iter(entry.items()))
        current = getattr(layer, name, None)
        if kind == "generator":
            load_rng(current, value)
        elif kind == "space":
            for part, state in zip(spaces_in(current), value, strict=True):
                if state is not None:
                    load_rng(part.np_random, state)
        elif kind == "mujoco":
            _load_mujoco(layer.model, current, value)
        elif kind == "method":
            setattr(layer, name, getattr(layer, value))
        else:
            path = f"{type(layer).__name__}.{name}"
            again, value = _is_same(value), _restored(value, path, made)
            if isinstance(value, list) and isinstance(current, np.ndarray) and current.dtype.kind in "SU":
                value = np.array(value, current.dtype.kind)
            moved = "offset" in entry and isinstance(current, np.ndarray) and _offset(current) != entry["offset"]
            if not again and not moved and _fits(current, value) and id(current) not in filled:   # one may become two
                filled.add(id(current))
                current[...] = value
            else:
                setattr(layer, name, value)
            made[path] = getattr(layer, name)


def _fits(current: Any, value: Any) -> bool:
    return (isinstance(current, np.ndarray) and isinstance(value, np.ndarray) and current.ndim > 0
            and current.flags.writeable and current.shape == value.shape and current.dtype == value.dtype)


SAME = "the same object as"


def _plain(value: Any, path: str, seen: dict[Any, str]) -> Any:
    """Return a copy of plain data. Unsaveable, with its path, for other data.

    Subclasses (enum, namedtuple, defaultdict) count as other data, because they would lose their methods.
    seen: path of each list, dict and array so far, by identity. A repeated object is saved as `{SAME: path}`. Otherwise
    two names for one object would become two objects after loading, and only one of them would change.
    """
    if isinstance(value, np.float64 | np.int64 | np.bool_ | np.str_):     # they behave like Python's types
        return value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return np.array(value)
    if type(value) is tuple:
        return tuple(_plain(v, f"{path}[{i}]", seen) for i, v in enumerate(value))
    if id(value) in seen:
        return {SAME: seen[id(value)]}
    seen[id(value)] = path
    if type(value) is np.ndarray and value.dtype.kind in "biufSU":
        other = seen.setdefault(("memory", id(_owner(value))), path)
        if other != path and "]" in path[-1] + other[-1]:                 # in a list they would become two arrays
            raise Unsaveable(f"{path} and {other} are views of one array")
        return value.astype(str).tolist() if value.dtype.kind in "SU" else np.array(value)
    if type(value) is list:
        return [_plain(v, f"{path}[{i}]", seen) for i, v in enumerate(value)]
    if type(value) is dict and all(type(k) in (str, int) for k in value):
        return {k: _plain(v, f"{path}[{k!r}]", seen) for k, v in value.items()}
    raise Unsaveable(f"{path} is of type {type(value).__name__}")


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    return _owner(array.base) if isinstance(array.base, np.ndarray) else array


def _offset(array: np.ndarray) -> int | None:
    """Return where a view begins in the array that owns its memory, in bytes; None if the array is no view."""
    first, owners = (x.__array_interface__["data"][0] for x in (array, _owner(array)))
    return None if _owner(array) is array else first - owners


def _is_same(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == [SAME]


def _restored(value: Any, path: str, made: dict[str, Any]) -> Any:
    """Inverse of `_plain`, also after a checkpoint has converted arrays to tensors.

    made: the lists, dicts and arrays so far, by path.
    """
    if isinstance(value, tuple):
        return tuple(_restored(v, f"{path}[{i}]", made) for i, v in enumerate(value))
    if _is_same(value):
        return made[value[SAME]]
    if isinstance(value, list):
        made[path] = new = []
        new += [_restored(v, f"{path}[{i}]", made) for i, v in enumerate(value)]
        return new
    if isinstance(value, dict):
        made[path] = new = {}
        new |= {k: _restored(v, f"{path}[{k!r}]", made) for k, v in value.items()}
        return new
    if hasattr(value, "shape"):
        made[path] = array = np.asarray(value).copy()
        return array[()] if array.ndim == 0 else array                    # a numpy number keeps its precision
    return value


def _is_mujoco_data(value: Any) -> bool:
    return type(value).__name__ == "MjData" and "mujoco" in sys.modules


def _save_mujoco(model: Any, data: Any) -> dict[str, np.ndarray]:
    """Return the integration state and all derived arrays, because a reward may use an array that was computed before
    the last forward pass."""
    import mujoco
    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    saved = {"integration": state}
    for name in dir(data):
        value = None if name.startswith("_") else getattr(data, name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.size:
            saved[name] = value.copy()
    return saved


def _load_mujoco(model: Any, data: Any, saved: dict[str, Any]) -> None:
    import mujoco
    mujoco.mj_resetData(model, data)
    mujoco.mj_setState(model, data, np.asarray(saved["integration"]), mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)                                        # creates contacts; their number changes
    for name, value in saved.items():
        target = getattr(data, name, None)
        if isinstance(target, np.ndarray) and target.shape == tuple(value.shape) and target.flags.writeable:
            target[...] = np.asarray(value)
