"""Stack of the last observations, which shows speeds and other changes that one observation does not show."""
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from spinup.envs.spaces import observation_view
from spinup.envs.vector import Step, VectorEnv
from spinup.envs.wrapped import Wrapped
from spinup.errors import UserError


class FrameStack(Wrapped):
    """Wrapper whose observation is the last `size` observations of the episode, the newest last. At the start of an
    episode, the first observation fills the stack. Gymnasium's FrameStackObservation does the same.

    Vectors `[N, d]` become `[N, size * d]`, and images `[N, C, H, W]` become `[N, size * C, H, W]`.

    UserError: the environment's observation is already a stack.
    """

    def __init__(self, env: VectorEnv, size: int):
        super().__init__(env)
        shape, dtype, _ = observation_view(env.observation_space)
        if env.frames > 1:
            raise UserError(f"an observation of this environment is already a stack of {env.frames} frames; leave out "
                            "--frame-stack")
        self.size, self.one = size, shape
        image = len(shape) == 3
        low, high = (0, 255) if image else (-np.inf, np.inf)
        self.observation_space = Box(low, high, (size, *shape) if image else (size * shape[0],), dtype.type)
        self.frames = size if image and shape[0] == 1 else 1             # so that a replay stores each image once

    def _begun(self, obs: np.ndarray) -> np.ndarray:
        return self._filled(obs)

    def _restart(self, i: int, seed: int) -> np.ndarray:
        self.env.restart(i, seed)
        return self._filled(self.env.obs[i:i + 1])[0]

    def check_restart(self) -> None:
        self.env.check_restart()

    def _step(self, action: np.ndarray) -> Step:
        step = self.env.step(action)
        self.env.take_finished()                                          # drop episodes; they count here
        final_obs = self._shifted(step.obs if step.final_obs is None else step.final_obs)
        if step.final_obs is None:
            return step._replace(obs=final_obs)
        obs, ended = final_obs.copy(), step.terminated | step.truncated
        obs[ended] = self._filled(step.obs[ended])
        return step._replace(obs=obs, final_obs=final_obs)

    def _filled(self, obs: np.ndarray) -> np.ndarray:
        """Stacks of `size` times the same observation, of `[n, *shape]`."""
        return np.repeat(obs[:, None], self.size, 1).reshape(len(obs), -1, *self.one[1:])

    def _shifted(self, newest: np.ndarray) -> np.ndarray:
        """The current stacks without their oldest observations, and with these `[N, *shape]` at the end."""
        return np.concatenate([self.obs[:, self.one[0]:], newest], 1)

    def _truth(self, result: Step) -> tuple[np.ndarray, np.ndarray]:
        return self.env._truth(result)

    def _save(self) -> dict[str, Any]:
        return self.env.state_dict()

    def _load(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state)
