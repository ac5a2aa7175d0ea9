"""EnvPool's environments (Weng et al. 2022, arXiv:2206.10558): N copies in C++ threads, with ids envpool:Id.

Rules and settings are EnvPool's: the protocol of `envpool:Pong-v5` differs from that of `ALE/Pong-v5`.
"""
from importlib.util import find_spec
from typing import Any

import numpy as np

from spinup.envs.adapter import VectorAdapter
from spinup.envs.vector import copy_seeds
from spinup.errors import UserError, nearest

PREFIX = "envpool:"


def is_envpool(env: object) -> bool:
    """True if this is an id of the form envpool:Id."""
    return isinstance(env, str) and env.startswith(PREFIX)


def find_envpool_id(env: str) -> str:
    """Return the id unchanged. UserError if the package is missing, or, with the nearest name, if EnvPool does not have
    this environment."""
    if find_spec("envpool") is None:
        raise UserError(f"{env} needs envpool; type: pip install 'spinup-rl[envpool]'")
    import envpool
    name, ids = env.removeprefix(PREFIX), envpool.list_all_envs()
    if name in ids:
        return env
    raise UserError(f"EnvPool has no environment {name!r}.{nearest(name, ids)} envpool.list_all_envs() lists them all")


class EnvPoolVector(VectorAdapter):
    """N copies of an EnvPool environment. It uses one thread per core, but at most one per copy.

    Args:
        env: the id, envpool:Id.
        seed: copy i gets a seed made from (seed, i).
        settings: settings of the environment, as for `envpool.make_gymnasium`.
    UserError: no such environment, or it does not take these settings.
    """

    why_not_saved = "EnvPool gives no access to its state"
    shown_by = ()

    def __init__(self, env: str, num_envs: int, seed: int, **settings: Any):
        name = find_envpool_id(env).removeprefix(PREFIX)
        import envpool
        seeds = [s >> 1 for s in copy_seeds(seed, num_envs)]              # EnvPool seeds have 31 bits
        try:
            pool = envpool.make_gymnasium(name, num_envs=num_envs, seed=seeds, **settings)
        except TypeError as error:
            raise UserError(f"{env} does not take these settings: {error}") from None
        super().__init__(pool, seed, close_it=True)

    def _restarts_by_mask(self) -> bool:
        return True                                                       # at once, and the next step is normal

    def _reset(self) -> np.ndarray:
        return self._seen(self.env.reset()[0], self.num_envs)             # the constructor seeded it

    def _restarted(self, ended: np.ndarray, obs: np.ndarray) -> np.ndarray:
        raw, _ = self.env.reset(options={"reset_mask": ended})            # observations of these copies only
        return self._seen(raw, np.count_nonzero(ended))
