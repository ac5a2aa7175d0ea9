"""Commands on runs of language models; `spinup/family.py` has the same functions for agents in environments."""
from collections.abc import Iterable
from pathlib import Path

from llm import restore
from llm import watch as reading
from llm.config import LanguageConfig
from llm.warmup import check as check_start
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.registry import Algorithm

load = restore.load
LESS_MEMORY = "choose a smaller --model, or smaller --layers and --width, or a device with more memory"


def kinds(task: object) -> list[str]:
    """Kinds of tasks for which an algorithm may have defaults: there are none."""
    return []


def kindred(task: object, presets: Iterable[str]) -> list[str]:
    """Presets of tasks of the same kind: there are none, for a preset is that of a task with any options."""
    return []


def watch(directory: Path, *, episodes: int, stochastic: bool, gif: Path | None, seed: int) -> None:
    """Print what a policy writes, or what a reward model says. UserError for a GIF, which there is not."""
    check_drawn(stochastic)
    if gif:
        raise UserError("a language model has no picture to show; leave out --gif to read its responses")
    reading.watch(directory, prompts=episodes, seed=seed)


def evaluate(directory: Path, *, episodes: int, stochastic: bool, seed: int, as_json: bool) -> str:
    """The accuracy or reward of a run on held-out problems, in words or as JSON."""
    check_drawn(stochastic)
    return reading.evaluate(directory, problems=episodes, seed=seed, as_json=as_json)


def check_drawn(stochastic: bool) -> None:
    """UserError for --stochastic, which here is always so."""
    if stochastic:
        raise UserError("the responses of a language model are always drawn; leave out --stochastic (`spinup llm chat "
                        "DIR --greedy` gives the likeliest)")


def check(algorithm: Algorithm, config: LanguageConfig) -> None:
    """Make nothing; UserError for what would stop a run of these settings: task, model, device, folder."""
    check_start(config)
    find_device(config.device, gpu_helps=False)
