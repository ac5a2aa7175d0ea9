"""RLHF as one pipeline (Ouyang et al. 2022): a policy that imitates, a model of which of its responses are preferred,
and PPO with that model as the reward.

Each stage is an ordinary run in a folder of its own. What is done is read from these folders, so that the same call
again does what is missing, whatever stopped it.
"""
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from llm.algos import ppo, reward_model, sft
from llm.config import LanguageConfig
from llm.restore import load
from llm.run import Result
from llm.tasks.make import make_task
from llm.warmup import check as check_start
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.registry import find
from spinup.runs.config import check_names, flag, settings_of
from spinup.runs.display import short
from spinup.runs.folders import check_exp_name, describe
from spinup.runs.log import check_wandb, read_progress
from spinup.runs.presets import configure, read_toml
from spinup.view.grid import Job, check_job

STAGES = (sft, reward_model, ppo)
TASK = "taste"                          # unless another is asked for
CHAIN = ("model", "reward")             # the setting that is the first stage's folder in all that follow, the second's
SHAPE = ("layers", "width", "heads", "start_accuracy")                    # of a model that the first stage has made


@dataclass
class Stage:
    """A run of the pipeline, there or to come. `run` is its folder, and what that says."""

    method: str
    module: ModuleType
    cfg: LanguageConfig
    preset: str
    run: Job


def rlhf(task: Any = None, *, sft: dict[str, Any] | None = None, reward_model: dict[str, Any] | None = None,
         ppo: dict[str, Any] | None = None, **shared: Any) -> Result:
    """Imitation, a reward model from comparisons, then PPO on its reward: three runs, one after another.

    Args:
        task: as each of them takes it; taste, if no other is given.
        sft, reward_model, ppo: settings of one stage, such as `ppo={"kl_coef": 0.1}`; they count over the shared ones.
        shared: settings of all stages; `model` and `reward` are for those that do not get one from the stages before.

    With an `exp_name` the runs are NAME_sft, NAME_reward_model and NAME_ppo, and the same call again skips what is
    finished and goes on with what was stopped; without one the name is the first free rlhf_TASK_1, rlhf_TASK_2, ...
    Returns the Result of PPO. UserError, before anything is made, for a setting of any stage. KeyboardInterrupt where
    it was stopped; what was under way is saved.
    """
    shared |= {} if task is None else {"task": task}
    return work(plan(shared, [given or {} for given in (sft, reward_model, ppo)]))


def plan(shared: dict[str, Any], own: Sequence[dict[str, Any]]) -> list[Stage]:
    """The stages with all their settings; `own` are those of each alone. UserError where one of them could not begin,
    or where its folder holds a run of other settings."""
    stages, name = [], ""
    for module, given in zip(STAGES, own, strict=True):
        method, chained = module.__name__.rpartition(".")[2], CHAIN[:len(stages)]
        for key in given:
            if key in ("exp_name", *chained, *(SHAPE if chained else ())):
                raise UserError(f"{flag(f'{method}.{key}')} cannot be given: the stages share a name, and begin with "
                                "what those before them made; leave it out")
        asked = shared | given
        preset, file = asked.pop("preset", "auto"), asked.pop("config", None)
        algorithm = find(f"llm {method}")
        check_names(asked, settings_of(module.Config), f"{method} has no setting")
        asked = {"task": TASK} | (read_toml(Path(file), module.Config, algorithm) if file else {}) | asked
        cfg, preset = configure(algorithm, asked, preset)
        name = name or cfg.exp_name or free_name(cfg)
        check_exp_name(name)
        cfg.exp_name = f"{name}_{method}"
        for key, earlier in zip(chained, stages, strict=False):
            setattr(cfg, key, str(earlier.run.directory))
        folder = Path(cfg.log_dir) / cfg.exp_name / f"{cfg.exp_name}_s{cfg.seed}"
        stages.append(Stage(method, module, cfg, preset, Job(cfg.exp_name, cfg.seed, {}, folder)))
        check_job(f"llm {method}", stages[-1].run, cfg)
    for before, after in pairwise(s.run for s in stages):
        if after.directory.exists() and before.status != "finished":
            raise UserError(f"{describe(after.directory)} is there, but {describe(before.directory)}, of which it was "
                            "made, is not finished; choose another --exp-name")
    check([s for s in stages if s.run.status != "finished"])
    return stages


def free_name(cfg: LanguageConfig) -> str:
    """The first name of a pipeline on this task that no folder has."""
    stem = re.sub(r"[^\w.-]+", "-", f"rlhf_{make_task(cfg.task, cfg.reward or None).name}")
    return next(f"{stem}_{n}" for n in count(1) if not list(Path(cfg.log_dir).glob(f"{stem}_{n}_*")))


def check(stages: Sequence[Stage]) -> None:
    """UserError where one of the stages to come could not begin: the first has a model or makes one, for all."""
    start, to_come = None, [str(stage.run.directory) for stage in stages]
    for stage in stages:
        cfg = stage.cfg
        try:
            find_device(cfg.device, True)
            check_wandb(cfg.wandb)
            task = make_task(cfg.task, (lambda prompt, response: 0.0) if cfg.reward in to_come else cfg.reward or None)
            start = check_start(cfg, task, start)
        except UserError as error:
            raise UserError(f"in the stage {stage.method}: {error}") from None


def work(stages: Sequence[Stage]) -> Result:
    """Run what is not finished, and print what each stage came to. KeyboardInterrupt where it was stopped."""
    folder, say = stages[-1].run.directory, (lambda text: None) if stages[-1].cfg.quiet else partial(print, flush=True)
    for i, stage in enumerate(stages, 1):
        title, where = f"stage {i} of {len(stages)}, {stage.method}", stage.run.directory
        if stage.run.status == "finished":
            say(f"{title}: finished, {describe(where)}")
            continue
        say(f"{title}: preset {stage.preset}")
        result = stage.module.train(stage.cfg, where if (where / "config.json").exists() else None)
        if result.status != "finished":
            raise KeyboardInterrupt
    say("\n".join(["", *map(summary, stages), "", *(f"  spinup {word} {shlex.quote(describe(folder))}"
                                                    for word in ("plot", "watch", "eval", "llm chat"))]))
    done = stages[-1].run.result()
    return Result(load(folder), read_progress(folder), folder, "finished", done[done["measure"]], done["measure"])


def summary(stage: Stage) -> str:
    """A line of the table: seconds, and what the stage came to."""
    done = stage.run.result()
    said = f"{short(done['measure'])} {done[done['measure']]:.3f}"
    if stage.module is STAGES[-1]:
        gold = f", held-out gold {done['held_out_gold']:.3f} (true)" if "held_out_gold" in done else ""
        nats = read_progress(stage.run.directory)["kl_of_response"][-1]
        said += f" (learned){gold}, {nats:.1f} nats from the start"
    return f"{stage.method:<13}{done['seconds']:>7,.0f} s   {said}"
