"""Checks of a comparison of returns with stable-baselines3, and its settings from RL Baselines3 Zoo (`zoo.toml`)."""
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium

from spinup.errors import UserError

REFERENCES = {"sb3": "stable-baselines3", "zoo": "stable-baselines3 with the settings of RL Baselines3 Zoo"}


def zoo(algorithm: str, env: str) -> dict[str, Any]:
    """Return the settings of RL Baselines3 Zoo, as in `zoo.toml`. UserError if they are not there."""
    known = settings()
    if env not in known.get(algorithm, {}):
        raise UserError(f"--against zoo has no settings for {algorithm} in {env}, only for {all_of_the_zoo()}; use "
                        "--against sb3")
    return known[algorithm][env]


def settings() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the content of `zoo.toml`: settings by algorithm and environment."""
    return tomllib.loads(Path(__file__).with_name("zoo.toml").read_text(encoding="utf-8"))


def all_of_the_zoo() -> str:
    """Return the algorithms and their environments in `zoo.toml`, in words."""
    return "; ".join(f"{name} in {', '.join(envs)}" for name, envs in settings().items())


def has(algorithm: str) -> bool:
    """Return whether stable-baselines3 has an algorithm of this name."""
    import stable_baselines3
    from stable_baselines3.common.base_class import BaseAlgorithm
    found = getattr(stable_baselines3, algorithm.upper(), None)           # HER is a class that only raises an error
    return isinstance(found, type) and issubclass(found, BaseAlgorithm)


def check_peer(env: str, algorithm: str = "") -> None:
    """UserError if stable-baselines3 is not installed, has no such algorithm, or cannot train in the environment."""
    if find_spec("stable_baselines3") is None:
        raise UserError("--against needs stable-baselines3; type: pip install 'spinup-rl[bench]'")
    if algorithm and not has(algorithm):
        raise UserError(f"stable-baselines3 has no {algorithm}; leave out --against")
    if not has_vectors(env):
        raise UserError(f"--against needs an environment of Gymnasium with vector observations, and {env} is not one; "
                        "leave out --against")


def has_vectors(env: str) -> bool:
    """Return whether Gymnasium can make the environment, and its observations are vectors."""
    try:
        made = gymnasium.make(env)
    except (gymnasium.error.Error, UserError):
        return False
    made.close()
    return isinstance(made.observation_space, gymnasium.spaces.Box) and len(made.observation_space.shape) == 1
