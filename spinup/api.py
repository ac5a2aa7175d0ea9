"""The public functions: one per algorithm, and `load`."""
import importlib
import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.cli import ALGORITHMS
from spinup.envs.spaces import space_from_json
from spinup.errors import UserError, nearest
from spinup.runs.config import check_names, comments, read_toml
from spinup.runs.files import load_checkpoint
from spinup.runs.folders import config_from_json, find_run, read_run
from spinup.runs.policy import Policy, describe
from spinup.runs.presets import choose_preset
from spinup.runs.run import Result


def algorithm(name: str) -> ModuleType:
    """The module of an algorithm. UserError with the nearest name."""
    if name not in ALGORITHMS:
        raise UserError(f"there is no algorithm {name!r}.{nearest(name, ALGORITHMS)} `spinup algos` lists them")
    return importlib.import_module(ALGORITHMS[name])


def configure(module: ModuleType, given: dict[str, Any], preset: str = "auto",
              file: str | Path | None = None) -> tuple[Any, str]:
    """The Config that layers make, and the name of the preset in it.

    The layers, the later over the earlier: default, preset, TOML file, given.
    """
    from_file = read_toml(Path(file), module.Config) if file else {}
    env = given.get("env") or from_file.get("env") or module.Config.env
    name, values = choose_preset(module, env, preset)
    return module.Config(**{**values, **from_file, **given, "env": env}), name


def _trainer(name: str) -> Callable[..., Result]:
    module = algorithm(name)

    def train(env: str | Callable | None = None, *, preset: str = "auto", config: str | Path | None = None,
              resume: str | Path | None = None, **given: Any) -> Result:
        check_names(given, [f.name for f in fields(module.Config)], f"{name} has no setting")
        cfg, _ = configure(module, given if env is None else {"env": env, **given}, preset, config)
        return module.train(cfg, resume)

    help_of = comments(module.Config)
    lines = [f"    {f.name} = {f.default!r}: {help_of[f.name]}" for f in fields(module.Config) if f.name != "env"]
    train.__name__ = train.__qualname__ = name
    train.__doc__ = "\n".join([
        inspect.getdoc(module).splitlines()[0], "", "Args:",
        f"    env: {help_of['env']}; without one, that of the file, or {module.Config.env}",
        "    preset: auto (that of the environment), none, or a name from `spinup algos`",
        "    config: a TOML file of settings",
        "    resume: the folder of a run of the same settings to go on with", *lines, "",
        "Settings count in this order, the later over the earlier: default, preset, file, arguments.",
        "Returns a Result with `policy`, `progress`, `directory`, `status` and `returns`."])
    return train


ppo = _trainer("ppo")
vpg = _trainer("vpg")


def load(directory: str | Path, device: str = "cpu") -> Policy:
    """The policy that a run has learned, from its last checkpoint: `load("runs/NAME/NAME_s1").act(obs)`.

    UserError where there is no checkpoint, or it is damaged or does not belong to its config.json.
    """
    directory = find_run(Path(directory))
    data = read_run(directory)
    module = algorithm(data["algorithm"])
    state = load_checkpoint(directory / "checkpoint.pt")
    cfg = config_from_json(module.Config, data["config"])
    spaces = [space_from_json(data[key]) for key in ("observation_space", "action_space")]
    policy = module.make_policy(cfg, *spaces)
    try:
        if state["algorithm"] != data["algorithm"]:
            raise RuntimeError(f"it is of {state['algorithm']}")
        policy.load_state_dict(state["parts"]["policy"])
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{describe(directory)}/checkpoint.pt does not belong to the config.json beside it "
                        f"({str(error).splitlines()[0]}); restore the folder or train again") from None
    return Policy(policy.to(device), *spaces, seed=cfg.seed)
