"""Commands on runs of agents in environments; `llm/family.py` has the same functions for language models."""
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spinup import registry
from spinup.envs import make
from spinup.envs.atari import in_words, protocol
from spinup.envs.goals import GoalVectorEnv
from spinup.envs.make import EnvSource
from spinup.envs.spaces import observation_view, space_from_json
from spinup.envs.zoo import num_agents
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.registry import Algorithm
from spinup.runs.best import UNUSED, Best
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.config import BaseConfig
from spinup.runs.display import number
from spinup.runs.divided import check_share
from spinup.runs.folders import check_writable, describe
from spinup.runs.policy import Policy, initial, policy_state
from spinup.runs.reading import FAULTS, load_weights, reading
from spinup.runs.records import config_from_json, read_run
from spinup.view import statistics
from spinup.view import watch as watching
from spinup.view.evaluate import evaluate as play

LESS_MEMORY = ("choose smaller values of settings such as --num-envs, --rollout-steps, --batch-size or --hidden")


def kinds_of_model(settings: Mapping[str, Any]) -> list[str]:
    """Return the kinds of a run's initial policy that may have separate defaults; always empty."""
    return []


def kinds(env: EnvSource) -> list[str]:
    """Kinds of an environment for which an algorithm may have defaults: the class of the action space, such as Box,
    "images" or "vectors", and "goals" if it has goals. UserError if the environment cannot be made."""
    made = make(env, num_agents(env), exact=False)
    try:
        images = len(observation_view(made.observation_space)[0]) == 3
        found = [type(made.action_space).__name__, "images" if images else "vectors"]
        return [*found, "goals"] if isinstance(made, GoalVectorEnv) else found
    finally:
        made.close()


def kindred(env: EnvSource, presets: Iterable[str]) -> list[str]:
    """Return the presets of similar environments: other versions of this one, and environments of the same set. A set
    is all Atari games, or all ids with the same part before a /."""
    def family(name: str) -> str:
        return "Atari" if protocol(name) else name.rpartition("/")[0] or name.rpartition("-v")[0]
    return [name for name in presets if isinstance(env, str) and family(env) == family(name)]


def remarks(config: BaseConfig, given: Iterable[str]) -> list[str]:
    """Return warnings about valid settings with an unexpected effect; always empty."""
    return []


def load(directory: Path, device: str = "cpu", best: bool = False) -> Policy:
    """Load the policy of a run from its last checkpoint. best: the one that --keep-best kept, instead of the last one.

    UserError, with the text of a RuntimeError, if there is no checkpoint, or it is damaged or does not match its
    config.json.
    """
    data = read_run(directory)
    algorithm = registry.find(data["algorithm"], run=directory)
    trained_by, weights = policy_state(directory)
    if best:
        if directory.is_file():
            raise UserError("the shelf keeps no best policy; leave out --best")
        weights = best_of(load_checkpoint(directory / "checkpoint.pt", "best"), directory).policy
    cfg = config_from_json(algorithm, data["config"])
    keys = ("observation_space", "action_space")
    if missing := [key for key in keys if key not in data]:
        raise UserError(f"{describe(directory)}/config.json lacks {missing[0]!r}; restore it or train again")
    with reading(f"{describe(directory)}/config.json", "restore it or train again"):
        spaces = [space_from_json(data[key]) for key in keys]
        policy = algorithm.load().make_policy(cfg, *spaces)
    try:
        if trained_by != data["algorithm"]:
            raise RuntimeError(f"it is a checkpoint of {trained_by}")
        load_weights(policy, weights)
    except FAULTS as error:
        raise UserError(f"{describe(directory)}/checkpoint.pt does not match the config.json in the same folder "
                        f"({str(error).splitlines()[0]}); restore the folder or train again") from None
    return Policy(policy.to(device), *spaces, seed=cfg.seed, env_settings=cfg.env_settings)


def best_of(state: dict[str, Any], directory: Path) -> Best:
    """Return the best policy in the checkpoint of a run. UserError if there is none, or it is damaged."""
    if "best" not in state["parts"]:
        raise UserError(f"{describe(directory)} kept no best policy; train with --keep-best and --test-episodes, or "
                        "leave out --best")
    best = Best()
    with reading(f"{describe(directory)}/checkpoint.pt", "restore the folder or train again"):
        best.load_state_dict(state["parts"]["best"])
    if not best.policy:
        raise UserError(f"no policy of {describe(directory)} was tested before its last checkpoint; leave out --best")
    return best


def load_with_env(directory: Path, device: str = "auto", best: bool = False) -> tuple[Policy, str]:
    """Load the policy of a run on a device; auto is the CPU, which acts faster. Also return the id of its environment.
    UserError if the environment is a Python function, because a command cannot make it."""
    env = read_run(directory)["config"].get("env")
    if isinstance(env, dict) and "callable" in env:
        raise UserError(f"the environment of {directory} is a Python function, {env['callable']}; in Python, "
                        f"load the policy with spinup.load({str(directory)!r}), and call policy.act(obs) or "
                        "spinup.view.evaluate.evaluate(policy, FUNCTION)")
    if not isinstance(env, str):
        raise UserError(f"{describe(directory)}/config.json is damaged (env is {env!r}); restore it or train again")
    return load(directory, str(find_device(device, gpu_helps=False)), best), env


def watch(directory: Path, *, episodes: int, stochastic: bool, gif: Path | None, seed: int, device: str,
          best: bool = False) -> None:
    """Show the policy of a run in a window, or in a GIF. best: show the policy that --keep-best kept. UserError if the
    environment cannot be rendered."""
    policy, env = load_with_env(directory, device, best)
    watching.watch(policy, env, episodes=episodes, deterministic=not stochastic, gif=gif, seed=seed)


def evaluate(directory: Path, *, episodes: int, stochastic: bool, seed: int, as_json: bool, device: str,
             best: bool = False) -> str:
    """Evaluate a run's policy in new episodes; return the result in words or as JSON. best: evaluate the policy that
    --keep-best kept, in episodes that did not choose it."""
    policy, env = load_with_env(directory, device, best)
    found = play(policy, env, episodes=episodes, deterministic=not stochastic, seed=seed + UNUSED * best)
    kept = best_of(load_checkpoint(directory / "checkpoint.pt", "best"), directory) if best else None
    if as_json:
        rules = {"protocol": policy.env_settings} if protocol(env) else {}
        chosen = {"best_steps": kept.steps, "best_test_return": kept.test_return} if best else {}
        return json.dumps({"directory": str(directory), "env": env, **rules, **chosen, "deterministic": not stochastic,
                           **found.as_dict()})
    games = np.reshape(found.returns, (-1, found.agents)).mean(1).tolist()          # the agents of a game depend on it
    words = statistics.in_words(games, 1 if max(map(abs, found.returns)) >= 10 else 3)
    said = (f"{describe(directory)}: return {number(found.mean)} ({words}) in {len(games)} fresh episodes of {env}, "
            f"{'stochastic' if stochastic else 'deterministic'}; worst {number(found.min)}, best {number(found.max)}")
    if best:
        said += (f"\nthis is not the run's result, but its best policy by test episodes, of step {kept.steps:,}; there "
                 f"they returned {number(kept.test_return)}")
    return f"{said}\nprotocol: {in_words(policy.env_settings)}" if protocol(env) else said


def check(algorithm: Algorithm, config: BaseConfig) -> None:
    """Check a run's settings without creating anything. UserError if the environment, its spaces, the initial policy,
    the device, the folder or the number of processes would stop the run."""
    if hasattr(algorithm.load(), "make_share"):                           # processes divide the environment copies
        check_share(config)
    env = make(config.env, num_agents(config.env), 0, **config.env_settings)
    initial(algorithm.load().make_policy(config, env.observation_space, env.action_space), config.init)
    env.close()
    find_device(config.device, gpu_helps=False)
    check_writable(Path(config.log_dir))
