"""One copy of a vectorised environment as a `gymnasium.Env`, for single steps and for watching."""
from typing import Any

import numpy as np
from gymnasium import Env

from spinup.envs.vector import VectorEnv


class Single(Env):
    """`VectorEnv` with one copy as a `gymnasium.Env`. At an episode end, `step` returns the last observation, and
    `reset` then returns the first observation of the next episode.

    game: the environment that draws, or None.
    """

    def __init__(self, env: VectorEnv, game: Env | None = None):
        self.env, self.game, self.first = env, game, None
        self.observation_space, self.action_space = env.observation_space, env.action_space
        if game is not None:
            self.render_mode, self.metadata = game.render_mode, game.metadata

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if not hasattr(self.env, "obs"):
            self.env.reset()
        if seed is not None:
            self.env.restart(0, seed)
        elif self.env.episode_length[0]:                                  # not its first episode again
            try:
                self.env.reseed(int(self.np_random.integers(2**31)))
            except NotImplementedError:
                self.env.reset()
        return self._shaped(self.env.obs), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        first = getattr(self.action_space, "start", 0)                    # the vectorised environment adds it
        step = self.env.step((np.asarray(action) - first)[None])
        info = dict(step.info[0]) if step.info else {}
        obs = step.obs if step.final_obs is None else step.final_obs
        return self._shaped(obs), float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info

    def _shaped(self, obs: np.ndarray) -> np.ndarray:
        return obs[0].reshape(self.observation_space.shape).copy()

    def render(self) -> Any:
        return None if self.game is None else self.game.render()

    @property
    def unwrapped(self) -> Env:
        return self if self.game is None else self.game.unwrapped

    def close(self) -> None:
        self.env.close()
