"""Any Gymnasium environment, N copies stepped in turn in this process, saved attribute by attribute.

In turn, not in parallel: up to 32 copies of CartPole or HalfCheetah, processes were slower than one process in every case.
"""
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space

from spinup.envs.spaces import observation_view, to_native
from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv


class GymVectorEnv(VectorEnv):
    """N copies made by `make_one()`; copy i is seeded from (seed, i), so that no two runs share an episode."""

    def __init__(self, make_one: Callable[[], Env], num_envs: int, seed: int):
        super().__init__(num_envs)
        self.envs = [make_one() for _ in range(num_envs)]
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.shape, self.dtype, self.view = observation_view(self.observation_space)
        self.seeds = [int(np.random.SeedSequence((seed, i)).generate_state(1)[0]) for i in range(num_envs)]
        self.why_not_saved = ""

    @property
    def can_save(self) -> bool:
        """Whether every copy can be saved as it stands; if not, `why_not_saved` names what is in the way."""
        try:
            self._save()
        except Unsaveable as error:
            self.why_not_saved = str(error)
            return False
        return True

    def _reset(self) -> np.ndarray:
        obs = np.empty((self.num_envs, *self.shape), self.dtype)
        for i, env in enumerate(self.envs):
            obs[i] = self.view(env.reset(seed=self.seeds[i])[0])
        return obs

    def _step(self, action: np.ndarray) -> Step:
        obs = np.empty((self.num_envs, *self.shape), self.dtype)
        reward = np.empty(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        final_obs = None
        for i, env in enumerate(self.envs):
            raw, reward[i], ended, cut, _ = env.step(to_native(self.action_space, action[i]))
            obs[i] = self.view(raw)
            if ended or cut:
                terminated[i], truncated[i] = ended, cut
                if final_obs is None:
                    final_obs = obs.copy()
                final_obs[i] = obs[i]
                obs[i] = self.view(env.reset()[0])
            elif final_obs is not None:
                final_obs[i] = obs[i]
        return Step(obs, reward, terminated, truncated, final_obs)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _save(self) -> list[list[dict[str, Any]]]:
        return [[save_layer(layer) for layer in layers(env)] for env in self.envs]

    def _load(self, state: list[list[dict[str, Any]]]) -> None:
        for env, saved in zip(self.envs, state, strict=True):
            for layer, attributes in zip(layers(env), saved, strict=True):
                load_layer(layer, attributes)


class Unsaveable(TypeError):
    """An environment holds something that is neither plain data nor known to be constant."""


def layers(env: Env) -> list[Env]:
    """The wrappers from the outermost in, and the environment itself."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


# What an environment holds but does not change while it runs. Windows and renderers belong here: they show, they do not decide.
CONSTANT = (Space, Env, gymnasium.envs.registration.EnvSpec, type, FunctionType, MethodType, BuiltinFunctionType, ModuleType)
CONSTANT_NAMES = {"mujoco_renderer", "screen", "clock", "surf", "viewer", "window", "font", "model", "metadata", "_np_random_seed",
                  "_cached_spec", "_metadata", "render_mode", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs"}


def save_layer(layer: Env) -> dict[str, Any]:
    """What one wrapper or environment remembers, as plain data. `state_dict` is asked first, where it has one."""
    if hasattr(type(layer), "state_dict") and hasattr(type(layer), "load_state_dict"):
        return {"state_dict": layer.state_dict()}
    saved = {}
    for name, value in vars(layer).items():
        if name in CONSTANT_NAMES or (isinstance(value, CONSTANT) and not isinstance(value, np.generic)):
            continue
        if isinstance(value, np.random.Generator):
            saved[name] = {"generator": save_rng(value)}
        elif _is_mujoco_data(value):
            saved[name] = {"mujoco": _save_mujoco(layer.model, value)}
        else:
            saved[name] = {"value": _plain(value, f"{type(layer).__name__}.{name}")}
    return saved


def load_layer(layer: Env, saved: dict[str, Any]) -> None:
    """Give back what `save_layer` took. Arrays are filled in place, so that two names of one array stay one array."""
    if "state_dict" in saved and hasattr(type(layer), "load_state_dict"):
        layer.load_state_dict(saved["state_dict"])
        return
    for name, entry in saved.items():
        (kind, value), = entry.items()
        current = getattr(layer, name, None)
        if kind == "generator":
            load_rng(current, value)
        elif kind == "mujoco":
            _load_mujoco(layer.model, current, value)
        elif isinstance(current, np.ndarray) and current.ndim and current.shape == np.shape(value):
            current[...] = np.asarray(value)
        else:
            setattr(layer, name, _restored(value))


def _plain(value: Any, name: str) -> Any:
    """A copy of plain data; Unsaveable, with its name, where it is not."""
    if isinstance(value, np.float64 | np.int64 | np.bool_ | np.str_):               # these compute as Python's own numbers do
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "biuf":
        return np.array(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "SU":
        return value.astype(str).tolist()
    if isinstance(value, list | tuple):
        items = [_plain(v, name) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict) and all(isinstance(k, str | int) for k in value):
        return {k: _plain(v, f"{name}[{k!r}]") for k, v in value.items()}
    raise Unsaveable(f"{name} is a {type(value).__name__}")


def _restored(value: Any) -> Any:
    """The inverse of `_plain`, also after a checkpoint has made tensors of the arrays."""
    if isinstance(value, list | tuple):
        return type(value)(_restored(v) for v in value)
    if isinstance(value, dict):
        return {k: _restored(v) for k, v in value.items()}
    if hasattr(value, "shape"):
        array = np.array(value)
        return array[()] if array.ndim == 0 else array                    # a numpy number keeps its precision
    return value


def _is_mujoco_data(value: Any) -> bool:
    return type(value).__name__ == "MjData" and "mujoco" in sys.modules


def _save_mujoco(model: Any, data: Any) -> dict[str, np.ndarray]:
    """The integration state, and every derived array: a reward may read a position from before the last step's forward pass."""
    import mujoco
    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    arrays = {name: getattr(data, name) for name in dir(data) if not name.startswith("_")}
    return {"integration": state, **{n: np.array(a) for n, a in arrays.items() if isinstance(a, np.ndarray) and a.dtype.kind in "fiub" and a.size}}


def _load_mujoco(model: Any, data: Any, saved: dict[str, Any]) -> None:
    import mujoco
    mujoco.mj_resetData(model, data)
    mujoco.mj_setState(model, data, np.array(saved["integration"]), mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)                                        # contacts and constraints, which change in number
    for name, value in saved.items():
        target = getattr(data, name, None)
        if isinstance(target, np.ndarray) and target.shape == tuple(value.shape) and target.flags.writeable:
            target[...] = np.asarray(value)
