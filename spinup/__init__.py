"""Deep reinforcement learning that a person can read in an evening, run in minutes, and carry on to language models.

    from spinup import ppo
    result = ppo("CartPole-v1", total_steps=50_000)
    result.policy.act(obs)

The functions named in `__all__` are made when first used, so that `import spinup` does not wait for torch.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spinup.api import curiosity, ddpg, dqn, es, load, param_noise, ppo, rl2, sac, self_play, td3, vpg

__version__ = "0.1.0"
__all__ = ["curiosity", "ddpg", "dqn", "es", "load", "param_noise", "ppo", "rl2", "sac", "self_play", "td3", "vpg"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from spinup import api
        return getattr(api, name)
    raise AttributeError(f"module 'spinup' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
