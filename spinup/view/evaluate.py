"""Evaluation of a policy: its return in new episodes and the uncertainty of the mean."""
from dataclasses import dataclass
from typing import Any

import numpy as np

from spinup.envs.make import EnvSource
from spinup.envs.zoo import num_agents
from spinup.errors import UserError
from spinup.runs.episodes import play_episodes
from spinup.runs.policy import Policy
from spinup.view import statistics


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted return and length of each episode, ordered by environment copy, not by time."""

    returns: list[float]
    lengths: list[int]
    agents: int = 1         # number of agents per game; the returns of one game are adjacent

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval (Student's t) of the mean over episodes of this policy; None for fewer than three.

        The agents of one game count as one episode, with their mean return. Policies of other training seeds vary more.
        """
        return statistics.interval(np.reshape(self.returns, (-1, self.agents)).mean(1).tolist())

    @property
    def min(self) -> float:
        """Smallest return."""
        return min(self.returns)

    @property
    def max(self) -> float:
        """Largest return."""
        return max(self.returns)

    def as_dict(self) -> dict[str, Any]:
        """Return all values as plain data, for JSON."""
        return {"episodes": len(self.returns), "mean": self.mean, "interval": self.interval,
                "min": self.min, "max": self.max, "length_mean": float(np.mean(self.lengths)),
                "returns": self.returns, "lengths": self.lengths}


def evaluate(policy: Policy, env: EnvSource, *, episodes: int = 100, deterministic: bool = True,
             seed: int = 0) -> Evaluation:
    """Evaluate a policy in `episodes` episodes. The policy stays unchanged, including its normaliser and random
    generator.

    Args:
        env: a Gymnasium id, or a function that makes an environment. Up to 100 copies of classic control run in
            parallel, up to 10 of other environments. An Atari game uses the protocol of the training run, and reports
            its true score.
        deterministic: take the most likely actions; otherwise sample from the policy.
        seed: random seed of the episodes and the sampled actions; the copies get seeds from 1,000,000 + seed on, which
            training does not use.
    UserError: the policy does not fit the environment, or an episode does not end.
    """
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}")
    played = play_episodes(policy, env, episodes, deterministic=deterministic, seed=seed)
    return Evaluation(*played, num_agents(env))
