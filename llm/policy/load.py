"""Initial models: a new small one, or the model of a run or of a Hugging Face checkpoint."""
import copy
import json
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from llm.config import LanguageConfig
from llm.models import path_of
from llm.policy.action_values import ActionValues, ValuePolicy
from llm.policy.checkpoint import FETCH, load_pretrained, read
from llm.policy.gguf import is_gguf, load_gguf
from llm.policy.hf import HFTokenizer, load_tokenizer
from llm.policy.lora import adapt, adapted_like, frozen_copy, merged
from llm.policy.peft import CONFIG as ADAPTERS
from llm.policy.peft import load_adapters
from llm.policy.peft import settings as adapter_settings
from llm.policy.scalar import RewardModel, ScalarModel
from llm.policy.shape import Shape
from llm.policy.tokenizer import CHARACTERS, FILES, CharTokenizer, Tokenizer, template_arguments
from llm.policy.transformer import Transformer
from spinup.errors import UserError
from spinup.machine import check_compile, find_device
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.display import quoted
from spinup.runs.folders import describe, find_run
from spinup.runs.reading import FAULTS, load_weights, reading
from spinup.runs.records import finished, read_run

Model = TypeVar("Model", bound=nn.Module)
FLAT = 0.02             # weights of the last norm of a uniform model: its logits differ by about 0.01
CONTEXT = 512           # context of new small models: longest prompt plus response, in tokens


@dataclass
class Start:
    """Initial policy of a run. `made_in`: seconds of SFT in this call; 0 if the policy existed already."""

    model: Transformer
    tokenizer: Tokenizer
    directory: Path | None = None
    made_in: float = 0.0

    def reference(self) -> Transformer:
        """Return the reference policy: a frozen copy of the initial policy."""
        return frozen_copy(self.model)

    def described(self, tokenizer: str) -> dict[str, Any]:
        """Return the entries of a run's `config.json` from which `blank` makes the model again, and those of the start.

        tokenizer: name of the folder of Hugging Face's tokenizer, beside `config.json`.
        """
        own = self.tokenizer
        return {"shape": asdict(self.model.shape),
                **({"alphabet": own.alphabet} if isinstance(own, CharTokenizer)
                   else {"tokenizer": tokenizer, "system": own.system, "template": own.arguments}),
                "parameters": sum(p.numel() for p in self.model.parameters()),
                "start": str(self.directory) if self.directory else None, "start_seconds": round(self.made_in, 3)}

    def checksum(self) -> int:
        """CRC-32 of the weights, the tokens and the chat template."""
        template = getattr(getattr(self.tokenizer, "tokenizer", None), "chat_template", None)
        return zlib.crc32(json.dumps([vocabulary(self.tokenizer), template], sort_keys=True).encode(),
                          checksum(self.model))


def checksum(model: nn.Module) -> int:
    """CRC-32 of the weights of a model."""
    found = 0
    for weight in model.state_dict().values():
        found = zlib.crc32(weight.cpu().flatten().contiguous().view(torch.uint8).numpy(), found)
    return found


def fresh(cfg: LanguageConfig, task: Any) -> Start:
    """Create a small model with random weights, for the characters of a task.

    task: any object with a `name` and an `alphabet`. If it has `uniform`, all tokens have nearly the same probability.
    Raise UserError if the task has no alphabet, or if `width / heads` is not an even number. A task has no alphabet,
    for example, if a problem of its list has no demonstration.
    """
    if task.alphabet is None:
        for problem in getattr(task, "train", ()):
            task.demonstration(problem, np.random.default_rng(cfg.seed))
        raise UserError(f"the prompts of {task.name} are ordinary text, which a small character model cannot read; "
                        "add --model with the folder of a checkpoint that has a tokenizer")
    if cfg.width % cfg.heads or cfg.width // cfg.heads % 2:
        raise UserError(f"--heads {cfg.heads} must divide --width {cfg.width} into heads of even size; choose --heads "
                        "4 and a --width of 64 or 128")
    tokenizer = CharTokenizer(task.alphabet)
    shape = Shape(tokenizer.vocab_size, CONTEXT, cfg.layers, cfg.width, cfg.heads, cfg.heads, cfg.width // cfg.heads,
                  3 * cfg.width)
    torch.manual_seed(cfg.seed)
    model = Transformer(shape)
    if getattr(task, "uniform", False):
        nn.init.constant_(model.norm.weight, FLAT)
    return Start(model, tokenizer)


def initial(cfg: LanguageConfig, task: Any) -> Start:
    """Return the policy of `--model`, or a new small one, with the chat settings `--system` and `--template`, and with
    the adapters of `--lora`.

    A setting that is not given stays as in the run of the model. Raise UserError if the model has no chat template, or
    if it is a policy of two models.
    """
    dtype = data_type(cfg, find_device(cfg.device, gpu_helps=True))       # in fp32, a large model would fill the memory
    start = load_model(cfg.model, dtype) if cfg.model else fresh(cfg, task)
    if isinstance(start.model, ValuePolicy):
        raise UserError(f"{cfg.model} holds a policy of two models, one of which has values of tokens; it cannot be "
                        "trained further. Train a copy of it in one model with: spinup llm reinforce --model START "
                        f"--teacher {cfg.model}")
    before = start.tokenizer
    before.set_chat(before.system if cfg.system is None else cfg.system,
                    before.today() | before.arguments | template_arguments(cfg.template))
    if cfg.lora:
        adapt(start.model, cfg.lora, cfg.lora_alpha, cfg.seed)
    return start


def load_model(folder: str | Path, dtype: torch.dtype = torch.float32) -> Start:
    """Load the policy of a run, of a Hugging Face checkpoint or of a GGUF file, or a model by its short name.

    Adapters, also those in a folder of PEFT, are merged into the weights. Raise UserError if there is none.
    dtype: of the weights of a Hugging Face checkpoint or GGUF file without adapters; others keep theirs.
    """
    start = load_unmerged(folder, dtype)
    return replace(start, model=merged(start.model))


def load_unmerged(folder: str | Path, dtype: torch.dtype = torch.float32) -> Start:
    """Load a policy as `load_model` does, but keep its adapters beside the frozen weights. Raise UserError as there."""
    path = path_of(str(folder))
    if (path / ADAPTERS).is_file():
        base, rank, alpha = adapter_settings(path)
        try:
            start = load_model(base)
        except UserError as error:
            raise UserError(f"the base model of the adapters in {path} cannot be loaded: {error}; {ADAPTERS} names it "
                            "in base_model_name_or_path") from None
        load_adapters(path, adapt(start.model, rank, alpha))
        own = any((path / name).is_file() for name in (CHARACTERS, *FILES))           # or else that of the base model
        tokenizer = load_tokenizer(path) if own else start.tokenizer
        if tokenizer.vocab_size > start.model.shape.vocab_size:
            raise UserError(f"the tokenizer in {path} has {tokenizer.vocab_size} tokens and its base model "
                            f"{start.model.shape.vocab_size}; remove the tokenizer's files to use those of {base}")
        return replace(start, tokenizer=tokenizer, directory=path)
    if path.suffix == ".gguf" and not path.exists():
        raise UserError(f"there is no file {path}; give the path of a GGUF file")
    if is_gguf(path):
        return Start(*load_gguf(path, dtype), path)
    config = path / "config.json"
    if not list(path.glob("**/progress.csv")) and not (config.is_file() and b'"algorithm"' in config.read_bytes()):
        return Start(*load_pretrained(path, dtype), path)
    path = find_run(path)
    data = read_run(path)
    if data.get("judges"):
        raise UserError(f"{describe(path)} holds a reward model, which does not generate text; use it with --reward "
                        "instead")
    model, tokenizer = blank(path, data)
    if data.get("action_values"):
        model = ValuePolicy(frozen_copy(model), ActionValues(model))
    return Start(fill(model, path), tokenizer, path)


def pretrained(model: str) -> bool:
    """Return whether `--model` is a real model, or a run that began with one: it has no character tokenizer.

    Raise UserError if a model of `llm.models.KNOWN` is not on this machine.
    """
    path = path_of(model)
    if not model or is_gguf(path):
        return bool(model)
    if (path / ADAPTERS).is_file():
        return pretrained(adapter_settings(path)[0])
    config = path / "config.json"
    if not config.is_file():                                              # the folder of an experiment
        config = next(iter(sorted(path.glob("*/config.json"))), None)
    with reading(f"{path}/config.json", FETCH):
        return config is not None and "alphabet" not in read(config) and not (config.parent / CHARACTERS).exists()


def judges(folder: str | Path) -> bool:
    """Return whether a folder holds the run of a reward model."""
    runs = [Path(folder), *Path(folder).glob("*_s*")]
    return any((run / "progress.csv").exists() and read_run(run).get("judges", False) for run in runs)


def load_reward_model(folder: str | Path, device: str = "auto", unfinished: bool = False) -> RewardModel:
    """Load the reward model in the folder of a run. Raise UserError if there is none.

    device: as for training; a run moves the reward model of its task to its own device.
    unfinished: allow a run that is not finished. Its rewards are not yet scaled, so only their order has a meaning.
    """
    path = find_run(Path(folder))
    data = read_run(path)
    if not data.get("judges"):
        raise UserError(f"{describe(path)} is a run of {data['algorithm']}, not a reward model; train one with: spinup "
                        "llm reward_model")
    if not unfinished and not finished(path):
        raise UserError(f"{describe(path)} is not finished, so its rewards are not yet scaled to mean 0 and variance "
                        f"1; type: spinup resume {quoted(describe(path))}")
    body, tokenizer = blank(path, data)
    model = fill(ScalarModel(body), path)
    model.body = merged(model.body)
    return RewardModel(model.to(find_device(device, True)), tokenizer)


def blank(path: Path, data: dict[str, Any]) -> tuple[Transformer, Tokenizer]:
    """Create a model of the shape in a run's `config.json`, without its weights, and its tokenizer.

    Raise UserError for a run of an agent in an environment.
    """
    if "shape" not in data:
        raise UserError(f"{describe(path)} is a run of {data['algorithm']}, which has no language model; choose a run "
                        "of spinup llm")
    with reading(f"{describe(path)}/config.json", "restore it or train again"):
        shape = Shape(**{k: tuple(v) if isinstance(v, list) else v for k, v in data["shape"].items()})
        model, cfg = Transformer(shape), data["config"]
        if cfg.get("lora"):
            adapt(model, cfg["lora"], cfg["lora_alpha"])
        if "alphabet" in data:
            return model, CharTokenizer(data["alphabet"])
        tokenizer = path / data["tokenizer"]                              # older runs have an absolute path
        return model, HFTokenizer(tokenizer, data.get("system"), data.get("template"))


def fill(model: Model, path: Path) -> Model:
    """Load the weights of the checkpoint in `path` into a model. Raise UserError if the shapes differ."""
    try:
        load_weights(model, load_checkpoint(path / "checkpoint.pt", "model")["parts"]["model"])
    except FAULTS as error:
        raise UserError(f"{describe(path)}/checkpoint.pt does not match the config.json beside it "
                        f"({str(error).splitlines()[0]}); restore the folder or train again") from None
    return model


def on_device(start: Start, cfg: LanguageConfig) -> Start:
    """Move the model to the device of the settings, with their data type, and compile it if they say so."""
    check_compiler(cfg)
    device = find_device(cfg.device, gpu_helps=True)
    start.model.to(device, data_type(cfg, device))
    if cfg.compile:
        start.model.compile_layers()
    return start


def check_compiler(cfg: LanguageConfig) -> None:
    """Raise UserError if the settings ask for compiled layers, and torch.compile lacks something."""
    if cfg.compile:
        check_compile()


def data_type(cfg: LanguageConfig, device: torch.device) -> torch.dtype:
    """Return the data type of weights; auto is bf16 on CUDA, and fp32 elsewhere."""
    name = cfg.dtype if cfg.dtype != "auto" else "bfloat16" if device.type == "cuda" else "float32"
    return getattr(torch, name)


def vocabulary(tokenizer: Tokenizer) -> Any:
    """Return the ids of all tokens, to compare tokenizers."""
    if isinstance(tokenizer, CharTokenizer):
        return tokenizer.alphabet
    return tokenizer.tokenizer.get_vocab(), tokenizer.end


def value_body(policy: Transformer, tokenizer: Tokenizer, judge: RewardModel | None) -> Transformer:
    """Return the model that the value function copies.

    It is the task's reward model, if that has the same tokens as the policy; else the policy. It has adapters if the
    policy has.
    """
    if judge is not None and vocabulary(tokenizer) == vocabulary(judge.tokenizer):
        return adapted_like(policy, copy.deepcopy(judge.model.body).to(policy.device, policy.dtype))
    return policy


def check_judge(judge: RewardModel | None, tokenizer: Tokenizer, task: str) -> None:
    """Raise UserError if the reward model of a task cannot read text of a policy with this tokenizer."""
    known = judge.tokenizer if judge is not None else None
    if isinstance(known, CharTokenizer) and isinstance(tokenizer, CharTokenizer):
        strange = "".join(sorted(set(tokenizer.alphabet) - set(known.alphabet)))
        if strange:
            raise UserError(f"the reward model does not fit the task {task}, because it does not know {strange!r}; "
                            "train one for this task with: spinup llm reward_model")
