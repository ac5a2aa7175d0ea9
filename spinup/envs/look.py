"""A few steps in an environment of its own before a run begins, so that what is wrong with it is said first."""
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from spinup.envs.make import EnvSource, make, steps_one_by_one
from spinup.envs.spaces import observation_view

STEPS = 3
LONG = 10_000           # numbers of a vector observation; longer ones are often images in disguise


def look(env: EnvSource, seed: int = 0, *, episodes: int = 0, **kwargs: Any) -> None:
    """Make a user's environment, reset it twice, take a few steps with random actions, and close it.

    The environments of this library, of PettingZoo, Atari and EnvPool are left alone, and a vector environment that was
    made already, whose training would miss these steps.
    Takes the arguments of `spinup.envs.make`, of which `episodes` changes nothing here. UserError for a wrong
    observation, reward or end; EnvironmentFailure where the environment raises an exception.
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
            image = "let its Box have dtype uint8 and two to four axes"
            if isinstance(made.observation_space, spaces.Dict | spaces.Tuple):
                image = f"return it alone, not in a {type(made.observation_space).__name__}"
            print(f"spinup: an observation is a vector of {shape[0]:,} numbers; if there is an image in it, {image}, "
                  "or make it smaller", file=sys.stderr)
    finally:
        made.close()


def draws(space: Space) -> bool:
    """Whether `draw` knows such actions."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box)


def draw(space: Space) -> np.ndarray:
    """A random action, `[]` or `[k]`, as one row of what `VectorEnv.step` takes."""
    action = space.sample()
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray(action - space.start)
    return np.asarray(action)
