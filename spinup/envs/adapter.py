"""Adapter from Gymnasium's vector environments to `VectorEnv`, whose copies reset in the step that ends an episode.

Gymnasium has three reset modes (`gymnasium.vector.AutoresetMode`):

    SAME_STEP   as here: `step` returns the first observation of the next episode, and infos["final_obs"] holds the
                last observation of the episode that ended
    DISABLED    the caller resets copies: the adapter calls reset(options={"reset_mask": ...}) right after the step
    NEXT_STEP   the next step resets a copy and ignores its action, which gives a transition without an action

The adapter turns NEXT_STEP into SAME_STEP if `reset_mask` can reset a copy before the next step. Otherwise it rejects
NEXT_STEP.
"""
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper

from spinup.envs.faults import check_finite, check_step, failed, name_of, place
from spinup.envs.spaces import describe, fits, observation_view, to_native
from spinup.envs.vector import Step, VectorEnv, copy_seeds
from spinup.errors import UserError

HOW_TO_MAKE = "gymnasium.make_vec(id, num_envs, 'sync', vector_kwargs={'autoreset_mode': 'SameStep'})"


class VectorAdapter(VectorEnv):
    """Copies of a vector environment with Gymnasium's interface.

    Args:
        env: the vector environment.
        seed: `SyncVectorEnv` and `AsyncVectorEnv` get one seed per copy, as in `GymVectorEnv`; others get one seed.
        close_it: whether `close` also closes `env`; False if the user created it and closes it.
    UserError: `env` does not state its reset mode, or the mode is unsupported. Later calls raise it if another adapter
    has used the same object in the meantime.
    """

    why_not_saved = "a vector environment gives no access to its state"

    def __init__(self, env: gymnasium.vector.VectorEnv, seed: int, *, close_it: bool):
        super().__init__(env.num_envs)
        self.env, self.close_it = env, close_it
        self.same_step = self._restarts_in_step()
        self.name = name_of(env)
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.shape, self.dtype, self.view = observation_view(self.observation_space)
        space = self.observation_space                                    # `plain`: the batch needs no conversion
        self.plain = isinstance(space, Box) and (
            space.dtype.kind == "f" and len(space.shape) == 1
            or space.dtype == np.uint8 == self.dtype and space.shape == self.shape and space.high.min() == 255)
        self.seed = self._own(seed)
        self.ticket = env.unwrapped._spinup_ticket = object()             # only the last adapter of an object has it

    def _own(self, seed: int) -> list[int] | int:
        takes_list = isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        return copy_seeds(seed, self.num_envs) if takes_list else copy_seeds(seed, 1)[0]

    def reseed(self, seed: int) -> None:
        self.seed = self._own(seed)
        self.reset()

    def _restarts_in_step(self) -> bool:
        """True if `env` resets copies itself; False if `_restarted` does. UserError if neither is possible."""
        name, mode = type(self.env.unwrapped).__name__, self.env.metadata.get("autoreset_mode")
        try:
            mode = AutoresetMode(mode)
        except ValueError:
            raise UserError(f"{name} does not declare how its environments reset; set its metadata['autoreset_mode'] "
                            "to a member of gymnasium.vector.AutoresetMode") from None
        if mode is AutoresetMode.NEXT_STEP and not self._restarts_by_mask():
            raise UserError(f"{name} restarts environments in the step after an episode ends "
                            "(AutoresetMode.NEXT_STEP), which would store transitions without an action; make it with "
                            f"SAME_STEP: {HOW_TO_MAKE}")
        outer = self.env
        while mode is not AutoresetMode.SAME_STEP and isinstance(outer, VectorWrapper):
            if (wrapper := type(outer).__name__) in ("NormalizeObservation", "NormalizeReward"):
                raise UserError(f"the vector wrapper {wrapper} cannot restart some of the environments; put "
                                f"Gymnasium's {wrapper} around each of them, with make_vec(..., wrappers=[...])")
            outer = outer.env
        return mode is AutoresetMode.SAME_STEP

    def _restarts_by_mask(self) -> bool:
        """True if `reset_mask` resets a copy completely, so that `env` does not reset it again in its next step."""
        inner = self.env.unwrapped
        if isinstance(inner, AsyncVectorEnv):
            return bool(inner.shared_memory)                              # without it the worker would reset it again
        return isinstance(inner, SyncVectorEnv)

    def _reset(self) -> np.ndarray:
        try:
            raw, _ = self.env.reset(seed=self.seed)
        except Exception as error:
            raise failed(self.name, error, place()) from error
        obs = self._seen(raw, self.num_envs)
        check_finite(self.name, obs)
        return obs

    def _step(self, action: np.ndarray) -> Step:
        if self.env.unwrapped._spinup_ticket is not self.ticket:
            raise UserError("another training run or evaluation has used this vector environment; give a function that "
                            "makes one, so that each run has its own")
        native = self._native(action)
        try:
            raw, reward, terminated, truncated, infos = self.env.step(native)
        except Exception as error:
            raise failed(self.name, error, place(int(self.episode_length.max()) + 1, action=native)) from error
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        obs, final_obs, info = self._seen(raw, self.num_envs), None, Rows(infos, self.num_envs)
        if (ended := terminated | truncated).any():
            final_obs = obs.copy()
            if self.same_step:
                last = infos.get("final_obs")
                if last is None:
                    raise UserError(f"{type(self.env.unwrapped).__name__} declares that it restarts environments "
                                    "within the step (SAME_STEP), but gives no infos['final_obs']; add it, or declare "
                                    "another mode")
                for i in np.flatnonzero(ended):
                    final_obs[i] = self._see(row(last, i))
                info = Rows(infos, self.num_envs, ended)
            else:
                obs[ended] = self._restarted(ended, obs)
        reward = np.array(reward, np.float32)
        check_step(self.name, obs, reward, final_obs, action, self.episode_length + 1)
        return Step(obs, reward, terminated, truncated, final_obs, self._costs(infos, info), info)

    def _restarted(self, ended: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """Reset the copies where `ended`, `[N]` bool. Return their first observations. UserError if the others do not
        keep their observations `obs` `[N, *shape]`, because they may have been reset too."""
        try:
            raw, _ = self.env.reset(options={"reset_mask": ended.copy()})
        except Exception as error:
            raise failed(self.name, error, place()) from error
        new = self._seen(raw, self.num_envs)
        if not np.array_equal(new[~ended], obs[~ended], equal_nan=True):
            raise UserError(f"{self.name} returned other observations for environments that it should not reset; let "
                            "reset() follow options['reset_mask'], and return the observations of the others as they "
                            "were")
        return new[ended]

    def _costs(self, infos: dict[str, Any], info: "Rows") -> np.ndarray | None:
        reported = "cost" in infos or "cost" in infos.get("final_info", ())
        return self._cost(info) if reported or self.reports_cost else None

    def _native(self, action: np.ndarray) -> Any:
        """Convert actions `[N, ...]` to the format of `env.step`."""
        if isinstance(self.action_space, Discrete):
            return np.asarray(action, np.int64) + int(self.action_space.start)
        return np.stack([to_native(self.action_space, a) for a in np.asarray(action)])

    def _seen(self, raw: Any, n: int) -> np.ndarray:
        """Convert the observations of n copies to network inputs: a new array `[n, *shape]`."""
        space = self.observation_space
        if self.plain and isinstance(raw, np.ndarray) and raw.shape == (n, *space.shape) and (
                raw.dtype.kind == space.dtype.kind == "f" or raw.dtype == space.dtype):
            return np.array(raw, self.dtype)
        return np.stack([self._see(row(raw, i)) for i in range(n)]).astype(self.dtype, copy=False)

    def _see(self, raw: Any) -> np.ndarray:
        if not fits(self.observation_space, raw):
            space = self.observation_space
            raise UserError(f"the vector environment returned {describe(raw, space)}, but its single_observation_space "
                            f"is {space}; make them agree")
        return self.view(raw)

    def close(self) -> None:
        if self.close_it:
            self.env.close()


class Rows(Sequence):
    """Infos of a vector environment as one dict per copy, created on access.

    final: `[N]` bool, copies whose episode ended. Their info of the step is in infos["final_info"]; the other entries
        belong to the new episode.
    """

    def __init__(self, infos: dict[str, Any], num_envs: int, final: np.ndarray | None = None):
        self.infos, self.num_envs, self.final = infos, num_envs, final

    def __len__(self) -> int:
        return self.num_envs

    def __getitem__(self, i: int) -> dict[str, Any]:
        if not -self.num_envs <= i < self.num_envs:
            raise IndexError(i)
        infos = self.infos
        if self.final is not None and self.final[i]:
            infos = self.infos.get("final_info", {})
        return info_row(infos, i)


def row(batch: Any, i: int) -> Any:
    """Return copy i of a batch: index the first axis of arrays, and go through dicts and tuples part by part."""
    if isinstance(batch, Mapping):
        return {key: row(part, i) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(row(part, i) for part in batch)
    return batch[i] if np.ndim(batch) else batch


def info_row(infos: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return the info of copy i. A "_key" in infos marks the copies that have a "key"."""
    mine = {}
    for key, part in infos.items():
        is_mask = key.startswith("_") and key[1:] in infos
        if not is_mask and (f"_{key}" not in infos or infos[f"_{key}"][i]):
            mine[key] = info_row(part, i) if isinstance(part, Mapping) else row(part, i)
    return mine
