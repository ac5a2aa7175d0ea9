"""How good a policy is: its return in fresh episodes, each counted once, with the uncertainty of the mean."""
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space

from spinup.envs import make
from spinup.envs.atari import protocol
from spinup.envs.make import OURS, EnvSource, env_name
from spinup.envs.spaces import observation_view
from spinup.envs.zoo import num_agents
from spinup.errors import UserError
from spinup.runs.policy import Policy
from spinup.view import statistics

UNSEEN = 1_000_000      # added to the seed, so that no episode was trained on: runs are seeded with small numbers
LONGEST = 100_000       # steps after which an episode is taken to have no end


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
        """95 % bootstrap interval of the mean over episodes of this one policy, None for fewer than three.

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

    How many episodes each copy plays is fixed beforehand: the first to finish, of all copies, would be the short ones.
    UserError: the policy does not fit the environment, or an episode has no end.
    """
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}")
    agents = num_agents(env)
    copies = agents * max(1, min(episodes, 100 if env in OURS else 10) // agents)
    envs = make(env, copies, UNSEEN + seed, exact=False, **settings_in(policy, env))
    copies = envs.num_envs                                                # a vector environment may have its own number
    try:
        check_fits(policy, envs.observation_space, envs.action_space, env)
        player = Policy(policy.module, policy.observation_space, policy.action_space, seed)     # has its own generator
        wanted = [episodes // copies + (i < episodes % copies) for i in range(copies)]
        played: list[list[tuple[float, int]]] = [[] for _ in range(copies)]
        obs, left = envs.reset(), episodes
        while left:
            obs = envs.step(player.act_batch(obs, deterministic)).obs
            for i, episode in zip(np.flatnonzero(envs.episode_length == 0), envs.take_finished(), strict=True):
                if len(played[i]) < wanted[i]:
                    played[i].append(episode)
                    left -= 1
            check_ends(envs.episode_length.max(), env)
    finally:
        envs.close()
    returns, lengths = zip(*(episode for copy in played for episode in copy), strict=True)
    return Evaluation(list(returns), list(lengths))


def settings_in(policy: Policy, env: EnvSource) -> dict[str, Any]:
    """What `env` is made with, as the policy knows it: the protocol of an Atari game, the episodes of a trial."""
    return policy.env_settings if protocol(env) or "episodes" in policy.env_settings else {}


def check_fits(policy: Policy, observation_space: Space, action_space: Space, env: EnvSource) -> None:
    """UserError where a policy was trained on other observations or actions than those of `env`."""
    if observation_view(observation_space)[:2] != (policy.shape, policy.dtype) or action_space != policy.action_space:
        raise UserError(f"the policy was trained on {policy.observation_space} and {policy.action_space}, but "
                        f"{env_name(env)} has {observation_space} and {action_space}; choose the environment that it "
                        "was trained in")


def check_ends(length: int, env: EnvSource) -> None:
    """UserError where an episode is so long that it has no end: a loop that the policy will not leave."""
    if length >= LONGEST:
        raise UserError(f"an episode of {env_name(env)} did not end within {LONGEST:,} steps; put "
                        "gymnasium.wrappers.TimeLimit around it")
