"""A trained policy that maps an observation to an action."""
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from spinup.envs.spaces import observation_view, to_native
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.folders import find_run
from spinup.runs.reading import FAULTS, load_weights, reading
from spinup.runs.records import read_run
from spinup.runs.shelf import ADVICE, read_about
from spinup.runs.tensors import in_memory


class Policy:
    """A trained policy, with its normaliser frozen, ready for `env.step`.

    Args:
        module: the algorithm's network; it has `dist` and `actor()`, like `spinup.core.networks.ActorCritic`.
        observation_space, action_space: those of one environment.
        seed: random seed of the sampled actions.
        env_settings: the settings, in addition to the id, that `spinup.envs.make` got in training.
    """

    def __init__(self, module: nn.Module, observation_space: Space, action_space: Space, seed: int = 0,
                 env_settings: dict[str, Any] | None = None):
        self.module, self.observation_space, self.action_space = module, observation_space, action_space
        self.shape, self.dtype, self.view = observation_view(observation_space)
        self.rng = np.random.default_rng([seed, 1])           # differs from the numbers of env.reset(seed=seed)
        self.env_settings = env_settings or {}
        self.outputs = module.actor()

    def act(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the action for one observation, as the environment's `step` needs it.

        deterministic: take the most likely action; otherwise sample from the policy. ValueError if `obs` is not one
        observation of `observation_space`; a batch is an error too.
        """
        space = self.observation_space
        if isinstance(space, Dict) and not (isinstance(obs, Mapping) and {*space} <= {*obs}):
            form = ", ".join(f'"{key}": ...' for key in space)
            raise ValueError(f"one observation must be {{{form}}}, as the environment returns it")
        if isinstance(space, Box):
            obs = np.asarray(obs)
            if obs.shape != space.shape:
                advice = ("; use act_batch for several" if obs.shape[1:] == space.shape else
                          "; make the environment with spinup.envs.make(ID, 1, seed=0, **policy.env_settings), and use "
                          "act_batch" if self.env_settings else "")
                raise ValueError(f"one observation has shape {space.shape}, but this one has {obs.shape}{advice}")
        elif isinstance(space, Discrete | MultiDiscrete | MultiBinary) and not space.contains(obs):
            raise ValueError(f"{obs!r} is not an observation of {space}")
        batch = np.asarray(self.view(obs), self.dtype)[None]
        return to_native(self.action_space, self.act_batch(batch, deterministic)[0])

    def act_batch(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """Return actions for N observations `[N, *shape]` of a `VectorEnv`, as its `step` needs them. A list of
        dictionaries is a batch too. ValueError for a single observation, or another shape."""
        if isinstance(obs, list | tuple) and any(isinstance(one, Mapping) for one in obs):
            obs = [self.view(one) for one in obs]
        obs = np.asarray(obs, self.dtype)
        if obs.shape[1:] != self.shape or not obs.ndim:
            raise ValueError(f"a batch of observations has shape [{', '.join(['N', *map(str, self.shape)])}], but this "
                             f"one has {[*obs.shape]}; use act for one observation")
        params, dist = self.outputs(obs), self.module.dist
        act = dist.mode(params) if deterministic else dist.sample(params, dist.noise(self.rng, (len(obs),)))
        return dist.to_env(act)


def policy_state(directory: Path) -> tuple[str, Any]:
    """Return the name of the algorithm and the weights of a policy, `[...]` each: of the last checkpoint of a run, or
    of a file on the shelf. UserError if they are missing or damaged."""
    if directory.suffix != ".safetensors":
        state = load_checkpoint(directory / "checkpoint.pt", "policy")
        if "policy" not in state["parts"]:
            raise UserError(f"the checkpoint of {directory} has no part called policy; in the function train of "
                            f"{state['algorithm']}, write run.keep(policy=...), and train again")
        return state["algorithm"], state["parts"]["policy"]
    with reading(str(directory), ADVICE):
        return read_about(directory)["algorithm"], in_memory(bytearray(directory.read_bytes()))


def initial(policy: nn.Module, run: str) -> nn.Module:
    """Load the policy weights of another run into `policy`, in place; without a run, leave it unchanged. Return it.

    UserError if the run does not exist, has no policy for environments, or its policy has another network.
    """
    if run:
        folder = find_run(Path(run))
        if read_run(folder)["algorithm"].startswith("llm "):
            raise UserError(f"--init {run} is a run of a language model; choose a run of the same algorithm, "
                            "environment and layers")
        try:
            load_weights(policy, policy_state(folder)[1])
        except FAULTS as error:
            raise UserError(f"--init {run}: the policy of that run has another network "
                            f"({str(error).splitlines()[-1].strip()}); choose a run of the same algorithm, environment "
                            "and layers") from None
    return policy
