"""The policy that a method begins with: a given one, or a small model that imitates a teacher for a while."""
import copy
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from llm.config import LanguageConfig
from llm.policy.policy import check_context
from llm.policy.scalar import RewardModel, ScalarModel
from llm.policy.tokenizer import CharTokenizer, Tokenizer, tokens_with
from llm.policy.transformer import Shape, Transformer
from llm.tasks.task import Task, judge_all
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.registry import find
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.config import settings_of
from spinup.runs.folders import (
    check_writable,
    config_to_json,
    find_run,
    finished,
    free_directory,
    read_result,
    read_run,
)
from spinup.runs.policy import describe

Model = TypeVar("Model", bound=nn.Module)
COPIED = 200            # updates of imitating what was preferred
CONTEXT = 512           # of small models made here: the longest prompt and response together
# Settings that do not change what imitation makes.
ELSEWHERE = {"log_dir", "exp_name", "quiet", "tensorboard", "wandb", "threads", "device", "checkpoint_steps"}


@dataclass
class Start:
    """A policy to begin with. `made_in`: seconds of imitation in this call, 0 where it was there already."""

    model: Transformer
    tokenizer: Tokenizer
    directory: Path | None = None
    made_in: float = 0.0

    def reference(self) -> Transformer:
        """The policy as it is now, kept for comparison."""
        return copy.deepcopy(self.model).requires_grad_(False)


def fresh(cfg: LanguageConfig, task: Task) -> Start:
    """A small model that has learned nothing, for the characters of a task. UserError where it could not read the
    task's text.
    """
    if task.alphabet is None:
        raise UserError(f"the prompts of {task.name} are ordinary text, which a small character model cannot read; "
                        "give --model the folder of a checkpoint with a tokenizer")
    if cfg.width % cfg.heads or cfg.width // cfg.heads % 2:
        raise UserError(f"--heads {cfg.heads} must divide --width {cfg.width} into even parts; choose --heads 4 and a "
                        "--width of 64 or 128")
    tokenizer = CharTokenizer(task.alphabet)
    shape = Shape(tokenizer.vocab_size, CONTEXT, cfg.layers, cfg.width, cfg.heads, cfg.heads, cfg.width // cfg.heads,
                  3 * cfg.width)
    torch.manual_seed(cfg.seed)
    return Start(Transformer(shape), tokenizer)


def load_model(folder: str | Path) -> Start:
    """The policy in the folder of a run or of a Hugging Face checkpoint. UserError where there is none."""
    path = Path(folder)
    config = path / "config.json"
    if not list(path.glob("**/progress.csv")) and not (config.exists() and '"algorithm"' in config.read_text()):
        from llm.policy.checkpoint import load_pretrained
        return Start(*load_pretrained(folder), path)
    path = find_run(path)
    data = read_run(path)
    if data.get("judges"):
        raise UserError(f"{describe(path)} holds a reward model, which judges and does not write; give its folder as "
                        "--reward")
    model, tokenizer = blank(path, data)
    return Start(fill(model, path), tokenizer, path)


def judges(folder: str | Path) -> bool:
    """Whether a folder holds a reward model's run."""
    runs = [Path(folder), *Path(folder).glob("*_s*")]
    return any((run / "progress.csv").exists() and read_run(run).get("judges", False) for run in runs)


def load_reward_model(folder: str | Path) -> RewardModel:
    """The reward model in the folder of a run. UserError where there is none."""
    path = find_run(Path(folder))
    data = read_run(path)
    if not data.get("judges"):
        raise UserError(f"{describe(path)} is a run of {data['algorithm']}, not a reward model; make one with: spinup "
                        "llm reward_model")
    body, tokenizer = blank(path, data)
    return RewardModel(fill(ScalarModel(body), path).to(find_device("auto", True)), tokenizer)


def blank(path: Path, data: dict[str, Any]) -> tuple[Transformer, Tokenizer]:
    """A model of the shape that a run's `config.json` gives, nothing in it yet, and its tokenizer. UserError for a run
    of agents.
    """
    if "shape" not in data:
        raise UserError(f"{describe(path)} is a run of {data['algorithm']}, which has no language model")
    shape = Shape(**{k: tuple(v) if isinstance(v, list) else v for k, v in data["shape"].items()})
    if "alphabet" in data:
        return Transformer(shape), CharTokenizer(data["alphabet"])
    from llm.policy.tokenizer import HFTokenizer
    return Transformer(shape), HFTokenizer(data["tokenizer"])


def fill(model: Model, path: Path) -> Model:
    """The model with what the run in `path` has learned. UserError where its checkpoint has another shape."""
    try:
        model.load_state_dict(load_checkpoint(path / "checkpoint.pt")["parts"]["model"])
    except (RuntimeError, KeyError) as error:
        raise UserError(f"{describe(path)}/checkpoint.pt does not belong to the config.json beside it "
                        f"({str(error).splitlines()[0]}); restore the folder or train again") from None
    return model


def find_start(cfg: LanguageConfig, task: Task, resume: str | Path | None = None) -> Start:
    """The policy that learning begins with: `--model`, or imitation up to `start_accuracy`, made once and kept.

    What imitation makes is an ordinary run of `sft` in the same folder of experiments, named after a digest of its
    settings: the next run that needs it finds it there.
    """
    from llm.algos import sft
    start = check(cfg, task) if resume is None else None      # what would stop the run itself, before minutes are spent
    if cfg.model:
        return on_device(start or load_model(cfg.model), cfg)
    if start:
        free_directory("llm", task.name, cfg)
    from spinup.runs.presets import choose_preset
    not_its = ("total_steps", "max_tokens", "micro_batch", "checkpointing")
    given = {name: getattr(cfg, name) for name in settings_of(LanguageConfig) if name not in not_its}
    if hasattr(task, "gold") or hasattr(task, "pairs"):       # imitation needs no reward model: the start is the same
        given["reward"] = ""
    stop = {"total_steps": COPIED, "stop_accuracy": 0.0} if hasattr(task, "pairs") else {
        "stop_accuracy": cfg.start_accuracy}                  # of pairs nobody will guess what was preferred
    settings = {**choose_preset(find("llm sft"), task.name)[1], **given, **stop, "temperature": 1.0}
    wanted = sft.Config(**settings)
    plain = {k: v for k, v in config_to_json(wanted).items() if k not in ELSEWHERE} | {"task": identity(cfg, task)}
    name = f"start_{task.name}_{hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8]}"
    directory, seconds = Path(cfg.log_dir) / name / f"{name}_s{cfg.seed}", 0.0
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(Path(cfg.log_dir) / f".{directory.name}"):   # one makes it, others that need it wait
        if not finished(directory):
            wanted.exp_name = name
            result = sft.train(wanted, resume=directory if (directory / "config.json").exists() else None)
            if result.status != "finished":
                raise KeyboardInterrupt
            seconds = read_result(directory)["seconds"]
    reached = read_result(directory)["held_out_accuracy"]
    if not cfg.quiet:
        print(f"start: {describe(directory)}, held-out accuracy {reached:.2f}"
              + (f", made by imitation in {seconds:.0f} s" if seconds else ""), flush=True)
    start = on_device(load_model(directory), cfg)
    start.made_in = seconds
    return start


def value_body(policy: Transformer, tokenizer: Tokenizer, task: Task) -> Transformer:
    """What a value function begins as: the reward model that judges the task, which knows what it will have to say, or
    the policy where there is none of the same tokens."""
    from llm.tasks.make import ModelJudged
    if isinstance(task, ModelJudged):
        judge = task.function
        if vocabulary(tokenizer) == vocabulary(judge.tokenizer):
            return copy.deepcopy(judge.model.body).to(policy.device, policy.dtype)
    return policy


def vocabulary(tokenizer: Tokenizer) -> Any:
    """What tells a tokenizer from another: the number of each of its tokens."""
    if isinstance(tokenizer, CharTokenizer):
        return tokenizer.alphabet
    return tokenizer.tokenizer.get_vocab(), tokenizer.end


def identity(cfg: LanguageConfig, task: Task) -> Any:
    """What tells a task from another of the same name: its options, the contents of its file, or where it or its reward
    is a Python object, some of its problems, what its teacher answers, and what that earns."""
    if isinstance(cfg.task, str) and not callable(cfg.reward):
        path = Path(cfg.task)
        return [cfg.task, hashlib.sha256(path.read_bytes()).hexdigest()] if path.is_file() else cfg.task
    rng = np.random.default_rng(0)
    problems = task.problems(16, rng)
    texts = [task.demonstration(p, rng) for p in problems]
    earned = judge_all(task, problems, texts) if callable(cfg.reward) or not cfg.reward else ()
    name = cfg.task if isinstance(cfg.task, str) else type(cfg.task).__name__
    return [name, [p.prompt for p in problems], texts, [float(x) for x in earned]]


def on_device(start: Start, cfg: LanguageConfig) -> Start:
    """The model where it is to work: bf16 on a GPU, fp32 elsewhere."""
    device = find_device(cfg.device, gpu_helps=True)
    start.model.to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    return start


def longest_prompt(task: Task, tokenizer: Tokenizer) -> int:
    """Tokens of the longest prompt, of all where a task has a list of them, else of a few."""
    listed = [*getattr(task, "train", ()), *getattr(task, "held_out", ())]
    return max(len(tokenizer.prompt(p.prompt)) for p in listed or task.problems(8, np.random.default_rng(0)))


def check_judge(task: Task, tokenizer: Tokenizer) -> None:
    """UserError where a reward model judges the task that cannot read what a policy with this tokenizer writes."""
    from llm.tasks.make import ModelJudged
    judge = task.function.tokenizer if isinstance(task, ModelJudged) else None
    if isinstance(judge, CharTokenizer) and isinstance(tokenizer, CharTokenizer):
        strange = "".join(sorted(set(tokenizer.alphabet) - set(judge.alphabet)))
        if strange:
            raise UserError(f"the reward model does not fit the task {task.name}, for it cannot read {strange!r}; make "
                            "one for this task with: spinup llm reward_model")


def check(cfg: LanguageConfig, task: Task | None = None, start: Start | None = None) -> Start:
    """What a run of these settings would begin with, unless that is given as `start`; UserError where it could not
    begin. Makes nothing."""
    from llm.tasks.make import make_task
    task = task or make_task(cfg.task, cfg.reward or None)
    start = start or (load_model(cfg.model) if cfg.model else fresh(cfg, task))
    prompt, response = longest_prompt(task, start.tokenizer), cfg.max_tokens or task.max_tokens
    check_context(prompt, response, start.model)
    check_context(prompt, response + getattr(cfg, "overlong", 0), start.model, "--overlong")
    tokens_with(getattr(cfg, "step", ""), start.tokenizer)
    check_judge(task, start.tokenizer)
    check_writable(Path(cfg.log_dir))
    return start
