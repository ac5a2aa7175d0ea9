"""Messages for faults in an environment: its name, the place, and the last action."""
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space

from spinup.envs.spaces import shorter
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError

LARGEST = 3e38          # largest reward in float32


def name_of(env: Env | gymnasium.vector.VectorEnv) -> str:
    """Return the id of an environment, or its class if it has no id."""
    kind = type(env.unwrapped)
    return env.spec.id if env.spec is not None else f"{kind.__module__}.{kind.__qualname__}"


def place(step: int | None = None, copy: int | None = None, action: Any = None) -> str:
    """Describe a place: step of an episode (None: in reset), copy, and the action."""
    words = ["in reset" if step is None else f"at step {step} of an episode"]
    if copy is not None:
        words.append(f"in copy {copy}")
    if action is not None:
        shown = np.array2string(np.asarray(action), precision=4, threshold=20, separator=", ")
        words.append(f"after the action {shown}")
    return ", ".join(words)


def failed(name: str, error: Exception, where: str) -> Exception:
    """Return the exception to raise for an environment's exception; a UserError if `reset` takes no seed, or `step`
    does not return five values."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in str(error):
        return UserError(f"reset of {name} has no parameter seed; write def reset(self, *, seed=None, options=None)")
    if isinstance(error, ValueError) and "(expected 5, got" in str(error) and in_gymnasium(error):
        return UserError(f"step of {name} did not return five values: observation, reward, terminated, truncated and "
                         "info")
    return EnvironmentFailure(f"{name} raised {type(error).__name__}: {error}, {where}")


def in_gymnasium(error: Exception) -> bool:
    """Return whether Gymnasium's own code raised an error, such as a wrapper that takes the result of a step apart."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return "gymnasium" in Path(frame.f_code.co_filename).parts


@contextmanager
def making(name: str) -> Iterator[None]:
    """Context for creating an environment: exceptions of its code become the exception that `failed` returns."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise failed(name, error, "when it was made") from error


def check_space(name: str, what: str, space: Any) -> None:
    """Raise a UserError if an observation_space or action_space is not a space."""
    if not isinstance(space, Space):
        raise UserError(f"the {what} of {name} is {space!r}; it must be a space of gymnasium.spaces, such as Box")


def finite(*numbers: np.ndarray | None) -> bool:
    """True if all numbers in these arrays are finite."""
    return all(x is None or np.isfinite(x).all() for x in numbers)


def check_finite(name: str, obs: np.ndarray, reward: np.ndarray | None = None, action: np.ndarray | None = None,
                 steps: Sequence[int] | None = None, first: int = 0) -> None:
    """Raise a UserError for the first copy with a non-finite observation or reward. The message names the last action.

    obs: `[N, *shape]`. reward: `[N]`. action: `[N, ...]`. steps: `[N]`, the number of this step in each copy's episode.
    first: number of the first copy.
    NonFiniteError if the action was not finite, because then the policy is at fault.
    """
    if finite(obs, reward):
        return
    wrong_obs = ~np.isfinite(obs.reshape(len(obs), -1))
    wrong = wrong_obs.any(1) if reward is None else wrong_obs.any(1) | ~np.isfinite(reward)
    i = int(wrong.argmax())
    where = place(None if steps is None else int(steps[i]), first + i, None if action is None else action[i])
    if action is not None and not np.isfinite(action[i]).all():
        raise NonFiniteError(f"the policy gave {name} an action that is not finite, {where}; "
                             "try a smaller learning rate first")
    if wrong_obs[i].any():
        k = int(wrong_obs[i].argmax())
        value = obs[i].ravel()[k]
        raise UserError(f"{name} returned an observation with {value} at index {k} of {obs[i].size}, {where}; make it "
                        "return finite numbers")
    raise UserError(f"{name} returned a reward of {reward[i]}, {where}; make it return finite numbers")


def check_step(name: str, obs: np.ndarray, reward: np.ndarray, final_obs: np.ndarray | None, action: np.ndarray,
               steps: Sequence[int], first: int = 0) -> None:
    """Check the result of a step. Raise the errors of `check_finite`.

    obs, final_obs: `[N, *shape]`, as in `spinup.envs.vector.Step`. If `final_obs` is given, the step returned it, and
    `obs` may come from a reset.
    """
    if not finite(obs, reward, final_obs):
        check_finite(name, obs if final_obs is None else final_obs, reward, action, steps, first)
        check_finite(name, obs, first=first)


def one_number(value: Any, name: str = "reward") -> float:
    """Convert a reward or a cost, a number or an array with one element, to a float. UserError for anything else."""
    try:
        if isinstance(value, str | bytes):                                # float() would parse it
            raise ValueError
        number = float(value)
        if abs(number) > LARGEST and math.isfinite(number):               # others are reported with the step
            raise UserError(f"the environment returned a {name} of {value!r}, but float32 holds at most {LARGEST}; "
                            f"divide the {name}s")
        return number
    except (TypeError, ValueError, OverflowError):
        if isinstance(value, np.ndarray) and value.size == 1:
            return value.item()
        raise UserError(f"the environment returned a {name} of {shorter(value)}; it must be one number") from None
