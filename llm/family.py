"""Commands for runs of language models; `spinup/family.py` has the same functions for agents in environments."""
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from llm import restore
from llm import watch as watching
from llm.config import SHAPE, LanguageConfig
from llm.duels import mover
from llm.evaluate import evaluate as evaluation
from llm.policy.load import load_unmerged, pretrained
from llm.start import check as check_start
from llm.tasks.board_games import BoardGame
from spinup.errors import UserError
from spinup.registry import Algorithm
from spinup.runs.convert import flag
from spinup.runs.folders import describe

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


def remarks(config: LanguageConfig, given: Iterable[str]) -> list[str]:
    """Return warnings about valid settings with an unexpected effect.

    Sizes have no effect with `--model`, but are no error, because a script may give all methods the same settings.
    """
    found = []
    if unused := [flag(name) for name in given if config.model and name in SHAPE]:
        found.append(f"{' and '.join(unused)} {'have' if unused[1:] else 'has'} no effect with --model")
    return found


def watch(directory: Path, *, episodes: int, stochastic: bool, gif: Path | None, seed: int, device: str,
          best: bool = False) -> None:
    """Print responses of a policy, or rewards of a reward model. Raise UserError for `gif`, and for `best`: a language
    model keeps only its last policy."""
    check_drawn(stochastic)
    check_last(best)
    if gif:
        raise UserError("a language model has no frames to show; leave out --gif to read its responses")
    watching.watch(directory, prompts=episodes, seed=seed, device=device)


def evaluate(directory: Path, *, episodes: int, stochastic: bool, seed: int, as_json: bool, device: str,
             best: bool = False) -> str:
    """Evaluate a run on held-out problems; return its accuracy or reward, in words or as JSON. UserError for `best`: a
    language model keeps only its last policy."""
    check_drawn(stochastic)
    check_last(best)
    return evaluation(directory, problems=episodes, seed=seed, as_json=as_json, device=device)


def competitor(directory: Path) -> Callable[[Tensor | None], Callable[..., np.ndarray]]:
    """Return a function that makes a player of a run's game: `llm.duels.mover`.

    Its argument is the weights of a past version, `[parameters]`, or None for the policy of the last checkpoint. Raise
    UserError if the task of the run is no game.
    """
    folder, data, task = restore.open_run(directory)
    if not isinstance(task, BoardGame):
        raise UserError(f"{describe(folder)} was trained on {task.name}, which is not a two-player game; give a "
                        "self_play run")

    def make(weights: Tensor | None) -> Callable[..., np.ndarray]:
        start = load_unmerged(folder)                         # past versions hold the adapters too
        if weights is not None:
            vector_to_parameters(weights, start.model.parameters())
        return mover(task, start.tokenizer, start.model, data["config"]["temperature"])

    return make


def check_drawn(stochastic: bool) -> None:
    """Raise UserError for --stochastic, because responses of language models are always sampled."""
    if stochastic:
        raise UserError("the responses of a language model are always sampled; leave out --stochastic (`spinup llm "
                        "chat DIR --greedy` takes the most likely tokens)")


def check_last(best: bool) -> None:
    """Raise UserError for --best."""
    if best:
        raise UserError("a run of a language model keeps only its last policy; leave out --best")


def check(algorithm: Algorithm, config: LanguageConfig) -> None:
    """Raise UserError if task, model, device or folder would stop a run with these settings. Create nothing."""
    check_start(config)
