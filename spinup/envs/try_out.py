"""Check a user's environment with a few steps in a separate copy, so that a run reports its faults before it starts."""
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from spinup.envs.make import EnvSource, make, steps_one_by_one
from spinup.envs.spaces import observation_view

STEPS = 3
LONG = 10_000           # numbers in a vector observation; longer ones are often flattened images


def try_out(env: EnvSource, seed: int = 0, *, episodes: int = 0, inputs: str = "", frame_stack: int = 1,
         **kwargs: Any) -> None:
    """Create a user's environment, reset it twice, take a few steps with random actions, and close it.

    It skips the environments of this library, PettingZoo, Atari and EnvPool. It also skips an existing vector
    environment, because training would miss these steps.
    It takes the arguments of `spinup.envs.make`, but `episodes`, `inputs` and `frame_stack` have no effect. UserError
    for a wrong observation, reward or episode end; EnvironmentFailure if the environment raises an exception.
    """
    if isinstance(env, gymnasium.vector.VectorEnv) or not steps_one_by_one(env, **kwargs):
        return
    made = make(env, 1, seed, exact=False, **kwargs)
    try:
        made.reset()
        if draws(made.action_space):
            made.action_space.seed(seed)
            for _ in range(STEPS):
                made.step(np.stack([draw(made.action_space) for _ in range(made.num_envs)]))
            made.reset()
        shape = observation_view(made.observation_space)[0]
        if len(shape) == 1 and shape[0] > LONG:
            image = "give its Box dtype uint8 and two to four axes"
            if isinstance(made.observation_space, spaces.Dict | spaces.Tuple):
                image = f"return it alone, not in a {type(made.observation_space).__name__}"
            print(f"spinup: an observation is a vector of {shape[0]:,} numbers; if it contains an image, {image}, or "
                  "make it smaller", file=sys.stderr)
    finally:
        made.close()


def draws(space: Space) -> bool:
    """True if `draw` supports such actions."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box)


def draw(space: Space) -> np.ndarray:
    """Sample a random action, `[]` or `[k]`, in the format of one row of `VectorEnv.step`."""
    action = space.sample()
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray(action - space.start)
    return np.asarray(action)
