"""Evaluation of a policy: its return in new episodes, each counted once, with the uncertainty of the mean."""
from dataclasses import dataclass
from typing import Any

import numpy as np

from spinup.envs.make import EnvSource
from spinup.errors import UserError
from spinup.runs.episodes import play_episodes
from spinup.runs.policy import Policy
from spinup.view import statistics


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted return and length of each episode; the order is by copy of the environment, not by time."""

    returns: list[float]
    lengths: list[int]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval (Student's t) of the mean over episodes of this one policy, None for fewer than three.

        Other training seeds vary more.
        """
        return statistics.interval(self.returns)

    @property
    def min(self) -> float:
        """The smallest return."""
        return min(self.returns)

    @property
    def max(self) -> float:
        """The largest return."""
        return max(self.returns)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        return {"episodes": len(self.returns), "mean": self.mean, "interval": self.interval,
                "min": self.min, "max": self.max, "length_mean": float(np.mean(self.lengths)),
                "returns": self.returns, "lengths": self.lengths}


def evaluate(policy: Policy, env: EnvSource, *, episodes: int = 100, deterministic: bool = True,
             seed: int = 0) -> Evaluation:
    """Play `episodes` episodes with a policy, which is left as it was, its normaliser and random generator included.

    Args:
        env: a Gymnasium id, or a function that makes an environment. Up to 100 copies of classic control play
            together, up to 10 of all else. An Atari game is played by the protocol that the policy learned under, and
            its true score counts.
        deterministic: the likeliest actions; otherwise drawn as in training.
        seed: decides the episodes and the drawn actions; the copies are seeded with 1,000,000 + seed, far from any
            training.
    UserError: the policy does not fit the environment, or an episode has no end.
    """
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}")
    return Evaluation(*play_episodes(policy, env, episodes, deterministic=deterministic, seed=seed))
