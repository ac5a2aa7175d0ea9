"""Episodes played with a policy that does not learn from them: what evaluation, test returns and `watch` share."""
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

UNSEEN = 1_000_000      # added to the seed, so that no episode was trained on: runs are seeded with small numbers
LONGEST = 100_000       # steps after which an episode is taken to have no end


def play_episodes(policy: Policy, env: EnvSource, episodes: int, *, deterministic: bool = True,
                  seed: int = 0) -> tuple[list[float], list[int]]:
    """Returns and lengths of `episodes` fresh episodes, by copy of the environment; the policy is left as it was.

    How many episodes each copy plays is fixed beforehand: the first to finish, of all copies, would be the short ones.
    UserError: the policy does not fit the environment, or an episode has no end.
    """
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
    return list(returns), list(lengths)


def settings_in(policy: Policy, env: EnvSource) -> dict[str, Any]:
    """Settings of `env`, as the policy knows them: the protocol of an Atari game, the episodes of a trial."""
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
