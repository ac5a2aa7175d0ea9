"""What every vectorised environment here is: N copies that step together, restart within the step, and can be saved."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from spinup.errors import UserError


class Step(NamedTuple):
    """One step of N copies. Read it by name, `step.reward`: more fields may come."""

    obs: np.ndarray                 # [N, *shape]; the first of the next episode where one has ended
    reward: np.ndarray              # [N] float32, as the environment gives it
    terminated: np.ndarray          # [N] bool: the task ended; nothing follows, its value is 0
    truncated: np.ndarray           # [N] bool: the clock ran out; unless terminated too, the future was worth something
    final_obs: np.ndarray | None    # [N, *shape]; what the step led to, before any restart; None if no episode ended
    cost: np.ndarray | None = None  # [N] float32, what constrained methods keep low; None where no cost is reported
    info: Sequence[dict] = ()       # N dicts, one of each copy, as its environment gives them; () where it gives none


class VectorEnv:
    """N copies of one environment, with autoreset in the same step.

    A subclass sets the spaces and implements `_reset`, `_restart`, `_step`, and to be saved `_save` and `_load`;
    episode statistics are kept here, from raw rewards (`_truth`).

    Attributes:
        num_envs: N, the number of copies.
        observation_space, action_space: those of *one* copy.
        obs: the current observations `[N, *shape]`, which the next action answers.
        finished: (return, length) of each episode that ended since `take_finished` was last called.
        frames: successive frames that an image shows along its first axis, the newest last; 1: it shows one moment.
        can_save: whether `state_dict` holds all that the future depends on.
    """

    num_envs: int
    observation_space: Space
    action_space: Space
    can_save = True
    frames = 1

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.episode_return = np.zeros(num_envs)
        self.episode_length = np.zeros(num_envs, np.int64)
        self.finished: list[tuple[float, int]] = []

    def reset(self) -> np.ndarray:
        """Start N new episodes; returns and keeps `obs`."""
        self.episode_return[:] = 0
        self.episode_length[:] = 0
        self.finished.clear()
        self.obs = self._reset()
        return self.obs

    def restart(self, i: int, seed: int) -> None:
        """Start a new episode in copy i, one that `seed` decides, whatever came before; `obs[i]` is its first."""
        self.episode_return[i] = self.episode_length[i] = 0
        self.obs[i] = self._restart(i, seed)

    def check_restart(self) -> None:
        """UserError where no copy can begin a single episode from a seed."""
        if type(self)._restart is VectorEnv._restart:
            raise UserError(f"{type(self).__name__} begins no single episode from a seed, which this algorithm needs; "
                            "choose an environment of Gymnasium, such as CartPole-v1")

    def step(self, action: np.ndarray) -> Step:
        """Act in every copy.

        action: `[N]` integers (Discrete), `[N, k]` integers (MultiDiscrete) or `[N, *shape]` reals (Box).
        """
        result = self._step(action)
        self.obs = result.obs
        reward, ended = self._truth(result)
        self.episode_return += reward
        self.episode_length += 1
        if result.final_obs is not None:
            self.finished += zip(self.episode_return[ended].tolist(), self.episode_length[ended].tolist(), strict=True)
            self.episode_return[ended] = self.episode_length[ended] = 0
        return result

    def take_finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call, in the order in which they ended."""
        finished, self.finished = self.finished, []
        return finished

    def measures(self) -> dict[str, float]:
        """What this environment has to tell beside returns, since it was last asked, by name: always the same names."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, as plain arrays and numbers."""
        return {"obs": self.obs.copy(), "episode_return": self.episode_return.copy(),
                "episode_length": self.episode_length.copy(), "finished": [list(e) for e in self.finished],
                "copies": self._save()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The copies as they were when `state_dict` gave this."""
        self.obs = np.asarray(state["obs"]).copy()
        self.episode_return[:] = state["episode_return"]
        self.episode_length[:] = state["episode_length"]
        self.finished = [(float(r), int(n)) for r, n in state["finished"]]
        self._load(state["copies"])

    def close(self) -> None:
        """Free what the copies hold."""

    def _reset(self) -> np.ndarray:
        raise NotImplementedError

    def _restart(self, i: int, seed: int) -> np.ndarray:
        raise NotImplementedError

    def _step(self, action: np.ndarray) -> Step:
        raise NotImplementedError

    def _truth(self, result: Step) -> tuple[np.ndarray, np.ndarray]:
        """Reward and end of episode, `[N]` each, that statistics count; for where the learner is told otherwise."""
        return result.reward, result.terminated | result.truncated

    def _save(self) -> Any:
        raise NotImplementedError

    def _load(self, state: Any) -> None:
        raise NotImplementedError
