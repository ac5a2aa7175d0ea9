"""Runs one after another: the stages of a recipe, such as RLHF.

Each stage is an ordinary run in its own folder. The folders record which stages are finished. If something stops a
recipe, repeat the same call: it runs the missing stages only.
"""
import re
import shlex
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from llm.config import SHAPE, LanguageConfig
from llm.policy.load import Start
from llm.recipes.recipe import REWARD, Recipe, Step, find_recipe
from llm.recipes.report import check_folder, report, report_folder
from llm.restore import load
from llm.run import Result
from llm.start import check as check_start
from llm.tasks.make import make_task
from spinup.errors import UserError, check_names
from spinup.machine import find_device
from spinup.registry import find
from spinup.runs import ranks
from spinup.runs.config import settings_of
from spinup.runs.convert import flag
from spinup.runs.folders import check_exp_name, describe
from spinup.runs.log import check_logs, read_progress
from spinup.runs.presets import configure, read_toml
from spinup.runs.records import read_run
from spinup.view.jobs import Job, check_job


@dataclass
class Stage:
    """One run of a recipe, finished or not. `run` is its folder with its status."""

    step: Step
    cfg: LanguageConfig
    preset: str
    run: Job


def rlhf(task: Any = None, *, sft: dict[str, Any] | None = None, reward_model: dict[str, Any] | None = None,
         ppo: dict[str, Any] | None = None, **shared: Any) -> Result:
    """Run SFT, train a reward model on comparisons, then run PPO on its rewards: three runs in sequence.

    Args:
        task: a task, as each stage takes it; the default is taste.
        sft, reward_model, ppo: settings of one stage, such as `ppo={"kl_coef": 0.1}`; they override the shared ones.
        shared: settings of all stages; `model` and `reward` go to stages that do not get one from an earlier stage.

    This is `recipe("rlhf", ...)`; see there for the folders, what is returned, and the errors.
    """
    shared |= {} if task is None else {"task": task}
    return recipe("rlhf", {"sft": sft or {}, "reward_model": reward_model or {}, "ppo": ppo or {}}, **shared)


def recipe(name: str | Path, own: dict[str, dict[str, Any]] | None = None, **shared: Any) -> Result:
    """Run the stages of a recipe, one after another, and report on them.

    Args:
        name: a built-in recipe, or the path of a TOML file of your own.
        own: settings of one stage by its name, such as `{"ppo": {"kl_coef": 0.1}}`; they override the shared ones.
        shared: settings of all stages; they override those of the recipe, but not a reference to an earlier stage.

    With an `exp_name`, the runs are NAME_STAGE. The same call again skips finished stages and resumes a stopped one.
    Without it, NAME is the first free one of RECIPE_TASK_1, RECIPE_TASK_2, ...

    Return the Result of the last stage. Raise UserError for a wrong setting of any stage, before anything is created.
    Raise KeyboardInterrupt if you stop it; the current run is saved.
    """
    found = find_recipe(name)
    return work(found, plan(found, shared, own or {}))


def plan(recipe: Recipe, shared: dict[str, Any], own: dict[str, dict[str, Any]]) -> list[Stage]:
    """Return the stages with all their settings. `own`: the settings of each stage alone, by its name.

    Raise UserError if a stage could not start, or if its folder holds a run with other settings.
    """
    if ranks.wanted(1) > 1:
        raise UserError("the stages of a recipe start their own processes; leave out torchrun, and add --workers")
    check_names(own, [step.name for step in recipe.steps], f"the recipe {recipe.name} has no stage")
    for task in recipe.evaluate:
        try:
            make_task(task)
        except UserError as error:
            raise UserError(f"in evaluate of the recipe {recipe.name}: {error}") from None
    stages: dict[str, Stage] = {}
    roots: dict[str, str] = {}                                            # the model that each stage comes from
    for step in recipe.steps:
        root = roots.get(step.references.get("model", ""), "")
        try:
            cfg, preset = settled(recipe, step, root, shared, own.get(step.name, {}))
        except UserError as error:
            raise UserError(f"in the stage {step.name}: {error}") from None
        if not stages:
            name = cfg.exp_name or free_name(recipe, cfg)
            check_exp_name(name)
        cfg.exp_name, roots[step.name] = f"{name}_{step.name}", root if "model" in step.references else cfg.model
        for key, other in step.references.items():
            setattr(cfg, key, str(stages[other].run.directory))
        folder = Path(cfg.log_dir) / cfg.exp_name / f"{cfg.exp_name}_s{cfg.seed}"
        stages[step.name] = Stage(step, cfg, preset, Job(f"llm {step.method}", cfg.exp_name, cfg.seed, {}, folder))
        check_job(stages[step.name].run, cfg, advice(step, cfg, folder))
        for before in (stages[other].run for other in step.references.values()):
            if folder.exists() and before.status != "finished":
                there = f"type: spinup resume {describe(before.directory)}, or " if before.directory.exists() else ""
                raise UserError(f"{describe(folder)} exists, but {describe(before.directory)}, the stage before it, is "
                                f"not finished; {there}choose another --exp-name")
    check_folder(report_folder(name, list(stages.values())))
    check([s for s in stages.values() if s.run.status != "finished"])
    return list(stages.values())


def settled(recipe: Recipe, step: Step, root: str, shared: dict[str, Any],
            own: dict[str, Any]) -> tuple[LanguageConfig, str]:
    """Return the Config of a stage and words that name its preset; references are not yet folders.

    root: the model that the stages before it began with; it decides which defaults apply. A later layer overrides an
    earlier one: preset, the recipe's shared settings, those of its stage, --config, `shared` and `own`. Raise UserError
    for a setting that cannot be chosen.
    """
    fixed = step.references
    for key in own:
        if key == "exp_name" or key in fixed or ("model" in fixed and key in SHAPE):
            raise UserError(f"{flag(f'{step.name}.{key}')} cannot be set, because all stages share a name and this one "
                            "starts from the results of earlier ones; leave it out")
    asked = {key: x for key, x in shared.items() if key not in fixed} | own
    algorithm = find(f"llm {step.method}")
    config, known = algorithm.load().Config, {**recipe.shared, **step.settings}
    preset, file = asked.pop("preset", known.pop("preset", "auto")), asked.pop("config", None)
    check_names(asked, settings_of(config), f"{step.method} has no setting")
    given = (read_toml(Path(file), config) if file else {}) | asked
    if "model" in fixed:                                                  # the sizes apply to the first stage
        given = {key: x for key, x in given.items() if key not in SHAPE}
    fixed = {key: step.settings[key] for key in fixed} | ({"model": root} if root and "model" in fixed else {})
    return configure(algorithm, given | fixed, preset, recipe=known)


def advice(step: Step, cfg: LanguageConfig, folder: Path) -> str:
    """Return what to type if the folder of a stage holds a run with other settings, such as an extended one."""
    there = read_run(folder)["config"] if (folder / "config.json").exists() else {}
    steps = there.get("total_steps", 0)
    longer = f"add {flag(step.name)}.total-steps {steps}, or " * (steps > cfg.total_steps)
    return f"{longer}choose another --exp-name"


def free_name(recipe: Recipe, cfg: LanguageConfig) -> str:
    """First unused name for the runs of a recipe whose first stage has these settings."""
    stem = re.sub(r"[^\w.-]+", "-", f"{recipe.name}_{make_task(cfg.task, cfg.given_reward).name}")
    return next(f"{stem}_{n}" for n in count(1) if not list(Path(cfg.log_dir).glob(f"{stem}_{n}_*")))


def check(stages: Sequence[Stage]) -> None:
    """Raise UserError if one of the unfinished stages could not start.

    For a stage that starts from an unfinished one, check with the initial model of that one: only the weights will
    differ.
    """
    starts: dict[str, Start] = {}                                         # by folder, of stages that are to come
    for stage in stages:
        cfg = stage.cfg
        try:
            find_device(cfg.device, True)
            check_logs(cfg)
            learned = REWARD in stage.step.references and cfg.reward in starts
            task = make_task(cfg.task, (lambda prompt, response: 0.0) if learned else cfg.given_reward)
            shown = copy(cfg)
            for key in stage.step.references.keys() - {"model", REWARD}:
                setattr(shown, key, "" if getattr(cfg, key) in starts else getattr(cfg, key))     # nothing to load yet
            starts[str(stage.run.directory)] = check_start(shown, task, starts.get(cfg.model))
        except UserError as error:
            raise UserError(f"in the stage {stage.step.name}: {error}") from None


def work(recipe: Recipe, stages: Sequence[Stage]) -> Result:
    """Run the unfinished stages, then report on all. Raise KeyboardInterrupt if you stop it."""
    folder, say = stages[-1].run.directory, (lambda text: None) if stages[-1].cfg.quiet else partial(print, flush=True)
    for i, stage in enumerate(stages, 1):
        title, where = f"stage {i} of {len(stages)}, {stage.step.name}", stage.run.directory
        if stage.run.status == "finished":
            say(f"{title}: finished, {describe(where)}")
            continue
        say(f"{title}: preset {stage.preset}")
        module = find(f"llm {stage.step.method}").load()
        status = module.train(stage.cfg, where if (where / "config.json").exists() else None).status
        if status != "finished":
            raise KeyboardInterrupt
    name = stages[0].cfg.exp_name.removesuffix(f"_{stages[0].step.name}")
    say("\n".join(["", *report(recipe, name, stages), "", *(
        f"  spinup {word} {shlex.quote(describe(folder))}" for word in ("plot", "watch", "eval", "llm chat"))]))
    done = stages[-1].run.result()
    return Result(load(folder), read_progress(folder), folder, "finished", done[done["measure"]], done["measure"])
