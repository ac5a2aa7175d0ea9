"""Episodes played without learning; shared by evaluation, test returns and `watch`."""
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Space

from spinup.envs import make
from spinup.envs.atari import protocol
from spinup.envs.ids import OURS, find_id
from spinup.envs.make import EnvSource
from spinup.envs.spaces import observation_view, space_to_json
from spinup.envs.vector import VectorEnv
from spinup.envs.zoo import num_agents
from spinup.errors import UserError, source_name
from spinup.runs.policy import Policy

UNSEEN = 1_000_000      # added to the seed; training uses small seeds, so these episodes are new to the policy
ANY = ("episodes", "inputs", "frame_stack")             # settings of `make` for any environment
LONGEST = 200_000       # steps after which an episode counts as endless; a game of Atari ends after 108,000 frames


def play_episodes(policy: Policy, env: EnvSource, episodes: int, *, deterministic: bool = True,
                  seed: int = 0) -> tuple[list[float], list[int]]:
    """Play `episodes` new episodes and return their returns and lengths, ordered by environment copy. The policy stays
    unchanged.

    Where several agents act simultaneously, each has its own return. All agents of a game are counted, so there may be
    more than `episodes`, and the returns of a game are adjacent.
    The number of episodes per copy is fixed in advance. Taking the first episodes to finish would favour short ones.
    UserError if the policy does not fit the environment, or an episode does not end.
    """
    player = Policy(policy.module, policy.observation_space, policy.action_space, seed)         # has its own generator
    with unseen(env, episodes, seed, settings_in(policy, env)) as envs:
        check_fits(policy, envs.observation_space, envs.action_space, env)
        return played(envs, env, episodes, lambda obs: player.act_batch(obs, deterministic))


@contextmanager
def unseen(env: EnvSource, episodes: int, seed: int, settings: dict[str, Any]) -> Iterator[VectorEnv]:
    """A context with the copies of an environment that play `episodes` new episodes. settings: those of `make`."""
    agents = num_agents(env)
    copies = agents * max(1, min(episodes, 100 if isinstance(env, str) and find_id(env) in OURS else 10) // agents)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):       # the start of the run has warned
        envs = make(env, copies, UNSEEN + seed, exact=False, **settings)
    try:
        yield envs
    finally:
        envs.close()


def played(envs: VectorEnv, env: EnvSource, episodes: int,
           act: Callable[[np.ndarray], np.ndarray]) -> tuple[list[float], list[int]]:
    """Play as `play_episodes` does, with any function from observations `[N, *shape]` to actions `[N, ...]`."""
    agents, copies = num_agents(env), envs.num_envs           # a vector environment sets its own number of copies
    games, places = -(-episodes // agents), copies // agents
    wanted = [games // places + (i // agents < games % places) for i in range(copies)]
    ended: list[list[tuple[float, int]]] = [[] for _ in range(copies)]
    obs, left = envs.reset(), games * agents
    while left:
        obs = envs.step(act(obs)).obs
        for i, episode in zip(np.flatnonzero(envs.episode_length == 0), envs.take_finished(), strict=True):
            if len(ended[i]) < wanted[i]:
                ended[i].append(episode)
                left -= 1
        check_ends(envs.episode_length.max(), env)
    found = [episode for i in range(0, copies, agents) for game in zip(*ended[i:i + agents], strict=True)
             for episode in game]
    returns, lengths = zip(*found, strict=True)
    return list(returns), list(lengths)


def settings_in(policy: Policy, env: EnvSource) -> dict[str, Any]:
    """Settings of `env` stored with the policy: those of any environment, and the protocol of an Atari game."""
    return {name: value for name, value in policy.env_settings.items() if protocol(env) or name in ANY}


def check_fits(policy: Policy, observation_space: Space, action_space: Space, env: EnvSource) -> None:
    """UserError if the policy was trained with other observations or actions than those of `env`."""
    # As JSON, because a saved space has no data type: int32 actions are as good as int64.
    same = space_to_json(action_space) == space_to_json(policy.action_space)
    if observation_view(observation_space)[:2] != (policy.shape, policy.dtype) or not same:
        raise UserError(f"the policy was trained on {policy.observation_space} and {policy.action_space}, but "
                        f"{source_name(env)} has {observation_space} and {action_space}; choose the environment that "
                        "it was trained in")


def check_ends(length: int, env: EnvSource) -> None:
    """UserError if an episode is so long that it seems endless: the policy is in a loop."""
    if length >= LONGEST:
        raise UserError(f"an episode of {source_name(env)} did not end within {LONGEST:,} steps; give "
                        "it a time limit, such as gymnasium.wrappers.TimeLimit(env, 1000)")
