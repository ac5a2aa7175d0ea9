"""Load the policy or reward model of a run from its folder."""
from pathlib import Path
from typing import Any

from llm.config import LanguageConfig
from llm.policy.load import judges, load_model, load_reward_model
from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.tasks.make import speaking_task
from llm.tasks.task import speech
from spinup.errors import UserError
from spinup.runs.config import Count, Positive, checked
from spinup.runs.folders import describe, read_run
from spinup.runs.values import reading


def load(directory: str | Path, device: str = "cpu") -> LanguagePolicy | RewardModel:
    """Load the policy of a run or of a Hugging Face checkpoint: `load(folder).respond("abc>")`.

    For a run of `reward_model`, load the reward model: `load(folder)("abc>", "cba")`. Raise UserError if the folder
    holds neither, or if it is damaged.
    """
    if judges(directory):
        return load_reward_model(directory, device)
    start = load_model(directory)
    tokens, temperature, speaking = 256, LanguageConfig.temperature, {}
    if (start.directory / "checkpoint.pt").exists():
        data = read_run(start.directory)
        tokens, temperature = sampling_of(start.directory, data)
        with reading(f"{start.directory}/config.json", "restore it or train again"):
            speaking = speech(speaking_task(data["config"]["task"]))
    return LanguagePolicy(start.model.to(device), start.tokenizer, tokens, temperature, **speaking)


def sampling_of(folder: Path, data: dict[str, Any]) -> tuple[int, float]:
    """Return the longest response and the temperature in the config.json `data` of a run. Raise UserError if it is
    damaged."""
    with reading(f"{folder}/config.json", "restore it or train again"):
        return (checked("max_tokens", Count, data["max_tokens"]),
                checked("temperature", Positive, data["config"]["temperature"]))


def start_of(folder: Path, data: dict[str, Any]) -> Path:
    """Return the folder of a run's initial policy. Raise UserError if it no longer exists."""
    start = data.get("start")
    if not isinstance(start, str) or not Path(start).exists():
        raise UserError(f"{describe(folder)} starts from {start}, which does not exist; restore it, or type the "
                        "command in the folder where you trained it")
    return Path(start)
