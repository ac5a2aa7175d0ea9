"""The public functions: one per algorithm, and `load`."""
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.cli import ALGORITHMS, METHODS
from spinup.envs.spaces import space_from_json
from spinup.errors import ActionsError, UserError, nearest
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.folders import config_from_json, find_run, read_run
from spinup.runs.policy import Policy, describe
from spinup.runs.presets import trainer
from spinup.runs.run import Result


def algorithm(name: str) -> tuple[ModuleType, str]:
    """The module of an algorithm, and which method of its file is meant, if there are several: "llm dapo".

    UserError with the nearest name.
    """
    family, _, method = name.rpartition(" ")
    known = METHODS if family == "llm" else ALGORITHMS
    if method not in known or family not in ("", "llm"):
        raise UserError(f"there is no {'method' if family else 'algorithm'} {name!r}.{nearest(method, known)} "
                        "`spinup algos` lists them")
    return importlib.import_module(known[method]), method if family else ""


@contextmanager
def advised() -> Iterator[None]:
    """Makes an error about actions a UserError that says which algorithms can act so: an algorithm's file does not know
    the others.
    """
    try:
        yield
    except ActionsError as error:
        fitting = [name for name in ALGORITHMS if error.kind in algorithm(name)[0].ACTIONS]
        raise UserError(f"{error}" + (f"; for {error.kind} actions: {', '.join(fitting)}" if fitting else "")) from None


def public(name: str) -> Callable[..., Result]:
    """The function that trains with an algorithm, as users call it."""
    return advised()(trainer(name, *algorithm(name)))


curiosity = public("curiosity")
ddpg = public("ddpg")
dqn = public("dqn")
es = public("es")
param_noise = public("param_noise")
ppo = public("ppo")
rl2 = public("rl2")
sac = public("sac")
self_play = public("self_play")
td3 = public("td3")
vpg = public("vpg")


def load(directory: str | Path, device: str = "cpu") -> Any:
    """The policy that a run has learned, from its last checkpoint: `load("runs/NAME/NAME_s1").act(obs)`.

    Of a language model: `.respond(prompt)`. UserError, with the words of a RuntimeError, where there is no checkpoint,
    or it is damaged or does not belong to its config.json.
    """
    directory = find_run(Path(directory))
    data = read_run(directory)
    if data["algorithm"].startswith("llm "):
        import llm
        return llm.load(directory, device)
    module, _ = algorithm(data["algorithm"])
    state = load_checkpoint(directory / "checkpoint.pt")
    cfg = config_from_json(module.Config, data["config"])
    keys = ("observation_space", "action_space")
    if missing := [key for key in keys if key not in data]:
        raise UserError(f"{describe(directory)}/config.json lacks {missing[0]!r}; restore it or train again")
    spaces = [space_from_json(data[key]) for key in keys]
    policy = module.make_policy(cfg, *spaces)
    try:
        if state["algorithm"] != data["algorithm"]:
            raise RuntimeError(f"it is of {state['algorithm']}")
        policy.load_state_dict(state["parts"]["policy"])
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{describe(directory)}/checkpoint.pt does not belong to the config.json beside it "
                        f"({str(error).splitlines()[0]}); restore the folder or train again") from None
    return Policy(policy.to(device), *spaces, seed=cfg.seed, env_settings=cfg.env_settings)
