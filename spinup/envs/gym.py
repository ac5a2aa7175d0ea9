"""Any Gymnasium environment: N copies, stepped one after the other in this process, saved attribute by attribute.

The copies do not run in parallel: for up to 32 copies of CartPole or HalfCheetah, several processes were always slower.
"""
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import Env

from spinup.envs.faults import check_finite, check_space, check_step, failed, name_of, one_number, place
from spinup.envs.spaces import describe, fits, observation_view, to_native
from spinup.envs.state import load_layers, save_layers
from spinup.envs.vector import Step, VectorEnv, copy_seeds
from spinup.errors import UserError


class GymVectorEnv(VectorEnv):
    """N copies made by `make_one()`. Copy i gets a seed made from (seed, i), so no two runs share an episode.

    first: the first copy, if it exists already. seeds: seeds of the copies, instead of those from `seed`. begin: the
    number of the first copy in messages.
    """

    def __init__(self, make_one: Callable[[], Env], num_envs: int, seed: int, first: Env | None = None,
                 seeds: list[int] | None = None, begin: int = 0):
        super().__init__(num_envs)
        self.envs = [make_one() if first is None else first, *(make_one() for _ in range(num_envs - 1))]
        self.name, self.begin = name_of(self.envs[0]), begin
        if len({id(env.unwrapped) for env in self.envs}) < num_envs:
            raise UserError(f"the function that makes {self.name} returned the same object twice; make it return a new "
                            "environment at each call")
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        check_space(self.name, "observation_space", self.observation_space)
        check_space(self.name, "action_space", self.action_space)
        self.shape, self.dtype, self.view = observation_view(self.observation_space)
        self.seeds = seeds or copy_seeds(seed, num_envs)
        self.taken = [0] * num_envs                                       # steps of each copy's episode, for messages
        self.ticket = object()
        for env in self.envs:                                             # only its last user has an object's ticket
            with suppress(AttributeError):                                # an object with slots
                env.unwrapped._spinup_ticket = self.ticket

    def _reset(self) -> np.ndarray:
        obs = np.empty((self.num_envs, *self.shape), self.dtype)
        for i, seed in enumerate(self.seeds):
            obs[i] = self._begin(i, seed=seed)
        check_finite(self.name, obs, first=self.begin)
        return obs

    def _restart(self, i: int, seed: int) -> np.ndarray:
        return self._begin(i, seed=seed)

    def _begin(self, i: int, **how: int) -> np.ndarray:
        if getattr(self.envs[i].unwrapped, "_spinup_ticket", self.ticket) is not self.ticket:
            raise UserError(f"another run or evaluation has used the same object of {self.name}; let the function that "
                            "makes it return a new environment at each call")
        try:
            made = self.envs[i].reset(**how)
        except Exception as error:
            raise failed(self.name, error, place(copy=self.begin + i)) from error
        self.taken[i] = 0
        if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], dict):
            kinds = " and ".join(type(x).__name__ for x in made) if isinstance(made, tuple) else type(made).__name__
            raise UserError(f"reset of the environment returned {kinds}, not an observation and a dict; write return "
                            "obs, {}")
        return self._see(made[0])

    def _see(self, raw: Any) -> np.ndarray:
        if not fits(self.observation_space, raw):
            space = self.observation_space
            raise UserError(f"the environment returned {describe(raw, space)}, but its observation_space is {space}; "
                            "make them agree")
        return self.view(raw)

    def _step(self, action: np.ndarray) -> Step:
        obs = np.empty((self.num_envs, *self.shape), self.dtype)
        reward = np.empty(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        final_obs, infos, taken = None, [], [t + 1 for t in self.taken]
        action = np.array(action)                             # a copy, because an environment may change its action
        for i, env in enumerate(self.envs):
            native = to_native(self.action_space, action[i])
            self.taken[i] += 1
            try:
                made = env.step(native)
            except Exception as error:
                raise failed(self.name, error, place(self.taken[i], self.begin + i, native)) from error
            if not isinstance(made, tuple) or len(made) != 5:
                number = f"{len(made)} values" if isinstance(made, tuple) else type(made).__name__
                raise UserError(f"step of the environment returned {number}, not five: observation, reward, "
                                "terminated, truncated and info")
            raw, earned, ended, cut, info = made
            if not isinstance(info, dict):
                raise UserError(f"step of the environment returned {info!r} for info; it must be a dict, such as {{}}")
            try:
                obs[i], reward[i] = self._see(raw), one_number(earned)
                over = true_or_false(ended, "terminated") | true_or_false(cut, "truncated")
            except UserError as error:
                raise UserError(f"{error} ({place(self.taken[i], self.begin + i, native)})") from None
            infos.append(info)
            if over:
                terminated[i], truncated[i] = ended, cut
                if final_obs is None:
                    final_obs = obs.copy()
                final_obs[i] = obs[i]
                obs[i] = self._begin(i)
            elif final_obs is not None:
                final_obs[i] = obs[i]
        check_step(self.name, obs, reward, final_obs, action, taken, self.begin)
        return Step(obs, reward, terminated, truncated, final_obs, self._cost(infos), infos)

    def close(self) -> None:
        faults = set()                                        # of all copies; print each once, because none loses data
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                faults.add(f"{type(error).__name__}: {error}")
        for fault in sorted(faults):
            print(f"spinup: {self.name} raised {fault}, when it was closed", file=sys.stderr)

    def _save(self) -> list[list[dict[str, Any]]]:
        return [save_layers(env) for env in self.envs]

    def _load(self, state: list[list[dict[str, Any]]], taken: list[int] | None = None) -> None:
        self.taken = self.episode_length.tolist() if taken is None else taken
        for env, saved in zip(self.envs, state, strict=True):
            load_layers(env, saved)


def true_or_false(end: Any, name: str) -> bool:
    """Convert `terminated` or `truncated` to a bool. Valid are a bool, 0, 1 and an array with one such element; else
    UserError."""
    if isinstance(end, bool | np.bool_) or np.size(end) == 1 and np.isin(end, (0, 1)).all():
        return bool(end)
    raise UserError(f"the environment returned {end!r} for {name}; it must be True or False")
