"""Base of wrappers that change the observations of a vectorised environment."""
import numpy as np

from spinup.envs.vector import VectorEnv


class Wrapped(VectorEnv):
    """Wrapper of another environment, `env`. A subclass sets the spaces and implements what `VectorEnv` demands."""

    def __init__(self, env: VectorEnv):
        super().__init__(env.num_envs)
        self.env, self.action_space = env, env.action_space
        self.shown_by = tuple(name for name in env.shown_by if name == "watch")      # games show one position at a time
        self.trial_episodes, self.trial_steps = env.trial_episodes, env.trial_steps

    def reseed(self, seed: int) -> None:
        self.env.reseed(seed)
        self.episode_return[:] = self.episode_length[:] = self.episode_cost[:] = 0
        self.obs = self._begun(self.env.obs)

    def _reset(self) -> np.ndarray:
        return self._begun(self.env.reset())

    def _begun(self, obs: np.ndarray) -> np.ndarray:
        """Reset the wrapper's own state after `env` has started new episodes. Return the wrapper's first observations.

        obs: those of `env`.
        """
        raise NotImplementedError

    def measures(self) -> dict[str, float]:
        return self.env.measures()

    def close(self) -> None:
        self.env.close()
