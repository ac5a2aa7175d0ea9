"""Commands for runs of language models; `spinup/family.py` has the same functions for agents in environments."""
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llm import restore
from llm import watch as reading
from llm.config import LanguageConfig
from llm.policy.load import pretrained
from llm.warmup import check as check_start
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.registry import Algorithm

load = restore.load
LESS_MEMORY = "choose a smaller --model, or smaller --layers and --width, or a device with more memory"


def kinds_of_model(settings: Mapping[str, Any]) -> list[str]:
    """Return the kinds of the initial policy that may have separate defaults: "pretrained", or none.

    Raise UserError if the model is unknown.
    """
    return ["pretrained"] if pretrained(settings.get("model", "")) else []


def kinds(task: object) -> list[str]:
    """Kinds of tasks with separate defaults; language models have none."""
    return []


def kindred(task: object, presets: Iterable[str]) -> list[str]:
    """Presets of tasks of the same kind; always empty, because a task's preset applies to all its options."""
    return []


def watch(directory: Path, *, episodes: int, stochastic: bool, gif: Path | None, seed: int) -> None:
    """Print responses of a policy, or rewards of a reward model. Raise UserError if a GIF is requested."""
    check_drawn(stochastic)
    if gif:
        raise UserError("a language model has no frames to show; leave out --gif to read its responses")
    reading.watch(directory, prompts=episodes, seed=seed)


def evaluate(directory: Path, *, episodes: int, stochastic: bool, seed: int, as_json: bool) -> str:
    """Evaluate a run on held-out problems; return its accuracy or reward, in words or as JSON."""
    check_drawn(stochastic)
    return reading.evaluate(directory, problems=episodes, seed=seed, as_json=as_json)


def check_drawn(stochastic: bool) -> None:
    """Raise UserError for --stochastic, because responses of language models are always sampled."""
    if stochastic:
        raise UserError("the responses of a language model are always sampled; leave out --stochastic (`spinup llm "
                        "chat DIR --greedy` takes the most likely tokens)")


def check(algorithm: Algorithm, config: LanguageConfig) -> None:
    """Raise UserError if task, model, device or folder would stop a run with these settings. Create nothing."""
    check_start(config)
    find_device(config.device, gpu_helps=False)
