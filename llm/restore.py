"""Load the policy or reward model of a run from its folder, with its task, and let it answer."""
from pathlib import Path
from typing import Any

import torch

from llm.config import LanguageConfig
from llm.faults import SHORT
from llm.policy.load import judges, load_model, load_reward_model
from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.rollout import sample
from llm.tasks.make import make_task, speaking_task
from llm.tasks.task import Problem, Task, speech
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.runs.config import Count, Positive
from spinup.runs.convert import checked
from spinup.runs.folders import describe, find_run
from spinup.runs.reading import FAULTS, reading
from spinup.runs.records import read_run


def load(directory: str | Path, device: str = "cpu") -> LanguagePolicy | RewardModel:
    """Load the policy of a run or of a Hugging Face checkpoint: `load(folder).respond("abc>")`.

    For a run of `reward_model`, load the reward model: `load(folder)("abc>", "cba")`. Raise UserError if the folder
    holds neither or is damaged, if a reward model is not finished, or if there is no such device.
    """
    if not isinstance(directory, str | Path):
        raise UserError(f"load takes the folder of a run or of a checkpoint, not {directory!r}")
    try:
        is_judge = judges(directory)
    except (OSError, ValueError) as error:                                # such as a name that is too long
        raise UserError(f"{SHORT.repr(str(directory))} is not a folder ({error}); give the folder of a run") from None
    if is_judge:
        return load_reward_model(directory, device)
    start = load_model(directory)
    tokens, temperature, speaking = 256, LanguageConfig.temperature, {}
    if (start.directory / "checkpoint.pt").exists():
        data = read_run(start.directory)
        tokens, temperature = sampling_of(start.directory, data)
        with reading(f"{start.directory}/config.json", "restore it or train again"):
            speaking = speech(speaking_task(data["config"]["task"]))
    return LanguagePolicy(start.model.to(find_device(device, True)), start.tokenizer, tokens, temperature, **speaking)


def sampling_of(folder: Path, data: dict[str, Any]) -> tuple[int, float]:
    """Return the longest response and the temperature in the config.json `data` of a run. Raise UserError if it is
    damaged."""
    try:
        return (checked("max_tokens", Count, data["max_tokens"]),
                checked("temperature", Positive, data["config"]["temperature"]))
    except (UserError, *FAULTS) as error:
        raise UserError(f"{folder}/config.json is damaged ({error}); restore it or train again") from None


def start_of(folder: Path, data: dict[str, Any]) -> Path:
    """Return the folder of a run's initial policy. Raise UserError if it no longer exists."""
    start = data.get("start")
    if not isinstance(start, str) or not Path(start).exists():
        raise UserError(f"{describe(folder)} starts from {start}, which does not exist; restore it, or type the "
                        "command in the folder where you trained it")
    return Path(start)


def open_run(directory: Path) -> tuple[Path, dict[str, Any], Task]:
    """Return a run's folder, config.json and task. Raise UserError if task or reward was a Python object."""
    folder = find_run(directory)
    data = read_run(folder)
    with reading(f"{describe(folder)}/config.json", "restore it or train again"):
        given = {name: data["config"][name] for name in ("task", "reward")}
    for name, value in given.items():
        if isinstance(value, dict):
            raise UserError(f"the {name} of {describe(folder)} is a Python object; load the run in Python: "
                            f"llm.load({str(folder)!r})")
    return folder, data, make_task(given["task"], given["reward"] or None)


def writer(folder: Path, data: dict[str, Any], device: str, seed: int = 0) -> LanguagePolicy:
    """Load the policy in a folder, in fp32, with the sampling settings of the config.json `data`."""
    start = load_model(folder)
    start.tokenizer.set_chat(data.get("system"), data.get("template") or {})             # the initial policy may differ
    return LanguagePolicy(start.model.to(find_device(device, True)), start.tokenizer, *sampling_of(folder, data), seed)


def answers(policy: LanguagePolicy, task: Task, problems: list[Problem], samples: int,
            greedy: bool = False) -> tuple[list[str], torch.Tensor]:
    """Sample `samples` responses to each problem; return them and their rewards `[P, samples]`, on the CPU."""
    batch = sample(policy.sampler, task, policy.tokenizer, problems, samples=samples, max_tokens=policy.max_tokens,
                   generator=None if greedy else policy.generator, temperature=policy.temperature)
    return batch.texts, batch.rewards.view(-1, samples).cpu()
