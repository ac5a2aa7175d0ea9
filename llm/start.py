"""Initial policy of a method: a given one, or a small model after supervised fine-tuning (SFT)."""
import hashlib
import json
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from llm.algos import sft
from llm.config import LanguageConfig, PreferenceConfig
from llm.policy.fsdp import check as check_fsdp
from llm.policy.load import Start, check_compiler, check_judge, initial, load_model, on_device
from llm.policy.policy import check_context
from llm.tasks.check import demonstration_of, problems_of, rewards_of
from llm.tasks.make import is_own, make_task
from llm.tasks.names import fingerprints, without_wrappers
from llm.tasks.task import Task, key_of, longest_prompt, stateful
from llm.tasks.user import taught
from llm.tasks.wrappers.wrapper import innermost, layers
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs import ranks
from spinup.runs.config import settings_of
from spinup.runs.display import short
from spinup.runs.folders import check_writable, describe, free_directory
from spinup.runs.presets import choose_preset
from spinup.runs.records import config_to_json, finished, read_result

COPIED = 200            # SFT updates if the task is a file of pairs, whose chosen responses are the teacher
# Settings that do not change the result of SFT.
ELSEWHERE = {"log_dir", "exp_name", "quiet", "tensorboard", "wandb", "threads", "device", "dtype", "checkpoint_steps",
             "system", "template", "lora", "lora_alpha", "compile", "workers", "shard", "fsdp"}
# Settings of the method that the SFT run before it does not share.
NOT_ITS = ("total_steps", "max_tokens", "micro_batch", "gradient_checkpointing", "adam_eps", "dtype", "lora",
           "lora_alpha", "compile", "workers", "shard", "fsdp")


def find_start(cfg: LanguageConfig, task: Task, resume: str | Path | None = None) -> Start:
    """Return the initial policy: `--model`, or a small model after SFT up to `sft_accuracy`, or without SFT if the task
    is `uniform`.

    The small model comes from an ordinary run of `sft` in the same log folder. Its name contains a digest of its
    settings, so the next run that needs this policy finds it and trains nothing. Raise UserError if a run that is
    resumed began with a model that cannot be loaded, and KeyboardInterrupt if you stop the SFT run.
    """
    start = check(cfg, task) if resume is None else None      # find the run's own errors before SFT takes minutes
    if cfg.model or task.uniform:
        try:
            start = start or initial(cfg, task)
        except UserError as error:
            if resume is None:
                raise
            raise UserError(f"this run started from the model {cfg.model}, which cannot be loaded ({error}); restore "
                            "it") from None
        return on_device(start, cfg)
    if start:
        free_directory("llm", task.name, cfg)
    cfg, task = unwrapped(cfg, task)
    given = {name: getattr(cfg, name) for name in settings_of(LanguageConfig) if name not in NOT_ITS}
    if (task.judge and task.gold) or task.pairs:              # SFT uses no reward model: its policy stays the same
        given["reward"] = ""
    stop = {"total_steps": COPIED, "stop_accuracy": 0.0} if task.pairs is not None else {
        "stop_accuracy": cfg.sft_accuracy}                  # in a file of pairs, accuracy does not apply
    settings = {**choose_preset(find("llm sft"), task.name)[1], **given, **stop, "temperature": 1.0}
    wanted = sft.Config(**settings)
    plain = {k: v for k, v in config_to_json(wanted).items() if k not in ELSEWHERE} | {"task": identity(cfg, task)}
    name = f"start_{task.name}_{hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8]}"
    directory, seconds = Path(cfg.log_dir) / name / f"{name}_s{cfg.seed}", 0.0
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(Path(cfg.log_dir) / f".{directory.name}"):   # one process trains it, the others wait
        if not finished(directory):
            wanted.exp_name = name
            with ranks.alone():
                result = sft.train(wanted, resume=directory if (directory / "config.json").exists() else None)
            if result.status != "finished":
                if not cfg.quiet:
                    print(f"this was the SFT run before {cfg.algorithm}; repeat the same command to finish it and "
                          f"continue with {cfg.algorithm}", flush=True)
                raise KeyboardInterrupt
            seconds = read_result(directory)["seconds"]
    if not cfg.quiet:
        reached, what = read_result(directory).get(task.measure), "true reward" if task.gold else short(task.measure)
        print(f"initial policy: {describe(directory)}" + (f", {what} {reached:.2f}" if reached is not None else "")
              + (f", trained by SFT in {seconds:.0f} s" if seconds else ""), flush=True)
    start = on_device(load_model(directory), cfg)
    start.made_in = seconds
    return start


def unwrapped(cfg: LanguageConfig, task: Task) -> tuple[LanguageConfig, Task]:
    """Return settings and task without wrappers, which change no demonstration: with them, SFT would be the same."""
    inside, cfg = innermost(task), copy(cfg)
    if inside is not task:
        cfg.task = without_wrappers(cfg.task) if isinstance(cfg.task, str) else inside
    return cfg, inside


def identity(cfg: LanguageConfig, task: Task) -> Any:
    """Fingerprint of a task; an initial policy is reused only for the same fingerprint.

    It consists of the task's options and the contents of its file and of the reward's file. If the task or its reward
    is Python code, it consists of the task's attributes, the rows of its list, some problems, the teacher's responses,
    and their rewards.
    """
    if isinstance(cfg.task, str) and isinstance(cfg.reward, str) and not is_own(cfg.task):
        files = fingerprints(cfg.task, cfg.reward).values()
        return [cfg.task, *files] if files else cfg.task
    rng = np.random.default_rng(0)
    problems = problems_of(task, 16, rng)
    texts = [demonstration_of(task, p, rng) for p in problems]
    earned = rewards_of(task, problems, texts) if not isinstance(cfg.reward, str) or not cfg.reward else ()
    name = cfg.task if isinstance(cfg.task, str) else type(cfg.task).__name__
    rows = [[key_of(p), p.answer, taught(p)] for p in (*task.train, *task.held_out)]
    return [name, task.alphabet, int(task.max_tokens), task.end_of_turn, task.measure,
            *fingerprints(cfg.task, cfg.reward).values(),
            hashlib.sha256(json.dumps(rows).encode()).hexdigest(), [key_of(p) for p in problems], texts,
            [*map(float, earned)]]


def check(cfg: LanguageConfig, task: Task | None = None, start: Start | None = None) -> Start:
    """Return the policy that a run with these settings would start from; `start` itself if it is given.

    Create nothing. Raise UserError if the run could not start.
    """
    if cfg.shard and ranks.wanted(cfg.workers) == 1:
        raise UserError("--shard divides Adam's moments among processes, and this run has one; add --workers 2, or "
                        "leave out --shard")
    check_fsdp(cfg)
    check_compiler(cfg)
    task = task or make_task(cfg.task, cfg.given_reward)
    start = start or initial(cfg, task)
    check_groups(cfg, task)
    if start.tokenizer.chats and (changing := [type(x).name for x in layers(task) if x.changes_prompt]):
        raise UserError(f"{changing[0]}: puts the beginning of a response into the prompt, and a chat model does not "
                        f"continue it; leave out {changing[0]}:")
    prompt = longest_prompt(task, start.tokenizer)
    check_context(prompt, cfg.max_tokens or task.max_tokens, start.model)
    check_context(prompt, cfg.response_tokens(task), start.model, cfg.LENGTH)
    cfg.check_tokenizer(start.tokenizer)
    check_judge(task.judge, start.tokenizer, task.name)
    if task.judge is not None:                                            # it reads an end token, too
        asked = longest_prompt(task, task.judge.tokenizer)
        check_context(asked, cfg.response_tokens(task) + 1, task.judge.model.body)
    check_writable(Path(cfg.log_dir))
    if cfg.off_policy:
        from llm.ahead import check_engine  # not above: other runs need neither processes nor HTTP
        check_engine(cfg, task, start.model, start.tokenizer, prompt + cfg.response_tokens(task))
    return start


def check_groups(cfg: LanguageConfig, task: Task) -> None:
    """Raise UserError if the method samples too few responses to a prompt for the rewards of the task, or if it cannot
    keep the task's state."""
    # Perturbed policies of es and param_noise, and the greedy response of remax, are rewarded by themselves.
    apart = hasattr(cfg, "decoding") or hasattr(cfg, "perturbations") or getattr(cfg, "baseline", "") == "greedy"
    if apart and (task.fewest > 1 or any(x.own_state() for x in layers(task))):
        what = "compare the responses to one prompt" if task.fewest > 1 else "depend on earlier batches"
        raise UserError(f"the rewards of {task.name} {what}, and {cfg.algorithm.removeprefix('llm ')} rewards some "
                        "responses separately; choose another method, such as grpo")
    samples = getattr(cfg, "samples", 0)
    each = samples or (2 if isinstance(cfg, PreferenceConfig) else task.fewest)            # fixed pairs without samples
    if each < task.fewest:
        advice = f"set --samples to {task.fewest} or more" if samples else "a pair has two; choose another task"
        raise UserError(f"the rewards of {task.name} compare the responses to one prompt; {advice}")
    if stateful(task) and (ranks.wanted(cfg.workers) > 1 or cfg.off_policy):
        raise UserError(f"the rewards or prompts of {task.name} depend on earlier responses, so one process must see "
                        "them all in turn; leave out --workers, --lag and --engine")
