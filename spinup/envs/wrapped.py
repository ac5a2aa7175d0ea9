"""Base of wrappers that change the observations of a vectorised environment."""
from spinup.envs.vector import VectorEnv


class Wrapped(VectorEnv):
    """Wrapper of another environment, `env`. A subclass sets the spaces and implements what `VectorEnv` demands."""

    def __init__(self, env: VectorEnv):
        super().__init__(env.num_envs)
        self.env, self.action_space, self.shown_by = env, env.action_space, env.shown_by

    @property
    def can_save(self) -> bool:
        return self.env.can_save

    @property
    def why_not_saved(self) -> str:
        """Reason why the copies cannot be saved; "" if they can."""
        return self.env.why_not_saved

    def measures(self) -> dict[str, float]:
        return self.env.measures()

    def close(self) -> None:
        self.env.close()
