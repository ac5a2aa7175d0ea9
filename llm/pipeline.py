"""RLHF as one pipeline (Ouyang et al. 2022): supervised fine-tuning, a reward model, and PPO on its rewards.

Each stage is an ordinary run in its own folder. The folders record which stages are finished. If something stops the
pipeline, repeat the same call: it runs the missing stages only.
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
from spinup.runs.log import check_logs, read_progress
from spinup.runs.presets import configure, read_toml
from spinup.view.grid import Job, check_job

STAGES = (sft, reward_model, ppo)
TASK = "taste"                          # the default task
CHAIN = ("model", "reward")             # later stages get stage 1's folder as `model` and stage 2's as `reward`
SHAPE = ("layers", "width", "heads", "sft_accuracy")                    # settings that only the first stage uses


@dataclass
class Stage:
    """One run of the pipeline, finished or not. `run` is its folder with its status."""

    method: str
    module: ModuleType
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

    With an `exp_name`, the runs are NAME_sft, NAME_reward_model and NAME_ppo. The same call again skips finished
    stages and resumes a stopped one. Without it, NAME is the first free one of rlhf_TASK_1, rlhf_TASK_2, ...

    Return the Result of PPO. Raise UserError for a wrong setting of any stage, before anything is created. Raise
    KeyboardInterrupt if you stop it; the current run is saved.
    """
    shared |= {} if task is None else {"task": task}
    return work(plan(shared, [given or {} for given in (sft, reward_model, ppo)]))


def plan(shared: dict[str, Any], own: Sequence[dict[str, Any]]) -> list[Stage]:
    """Return the stages with all their settings. `own`: the settings of each stage alone.

    Raise UserError if a stage could not start, or if its folder holds a run with other settings.
    """
    stages, name = [], ""
    for module, given in zip(STAGES, own, strict=True):
        method, chained = module.__name__.rpartition(".")[2], CHAIN[:len(stages)]
        for key in given:
            if key in ("exp_name", *chained, *(SHAPE if chained else ())):
                raise UserError(f"{flag(f'{method}.{key}')} cannot be set, because all stages share a name and each "
                                "one starts from the results of the earlier ones; leave it out")
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
            raise UserError(f"{describe(after.directory)} exists, but {describe(before.directory)}, the stage "
                            "before it, is not finished; choose another --exp-name")
    check([s for s in stages if s.run.status != "finished"])
    return stages


def free_name(cfg: LanguageConfig) -> str:
    """First unused name for a pipeline on this task."""
    stem = re.sub(r"[^\w.-]+", "-", f"rlhf_{make_task(cfg.task, cfg.reward or None).name}")
    return next(f"{stem}_{n}" for n in count(1) if not list(Path(cfg.log_dir).glob(f"{stem}_{n}_*")))


def check(stages: Sequence[Stage]) -> None:
    """Raise UserError if one of the unfinished stages could not start. All stages share the first stage's model."""
    start, to_come = None, [str(stage.run.directory) for stage in stages]
    for stage in stages:
        cfg = stage.cfg
        try:
            find_device(cfg.device, True)
            check_logs(cfg)
            task = make_task(cfg.task, (lambda prompt, response: 0.0) if cfg.reward in to_come else cfg.reward or None)
            start = check_start(cfg, task, start)
        except UserError as error:
            raise UserError(f"in the stage {stage.method}: {error}") from None


def work(stages: Sequence[Stage]) -> Result:
    """Run the unfinished stages and print the result of each stage. Raise KeyboardInterrupt if you stop it."""
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
    """One line of the table: the seconds and the result of a stage."""
    done = stage.run.result()
    said = f"{short(done['measure'])} {done[done['measure']]:.3f}"
    if stage.module is STAGES[-1]:
        gold = f", held-out gold {done['held_out_gold']:.3f} (true)" if "held_out_gold" in done else ""
        nats = read_progress(stage.run.directory)["kl_of_response"][-1]
        said += f" (learned){gold}, {nats:.1f} nats from the initial policy"
    return f"{stage.method:<13}{done['seconds']:>7,.0f} s   {said}"
