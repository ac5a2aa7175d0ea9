"""Load the policy or reward model of a run from its folder."""
from pathlib import Path

from llm.config import LanguageConfig
from llm.policy.load import judges, load_model, load_reward_model
from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.tasks.make import speaking_task
from llm.tasks.task import speech
from spinup.runs.config import Count, Positive, checked
from spinup.runs.folders import read_run
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
        with reading(f"{start.directory}/config.json", "restore it or train again"):
            tokens = checked("max_tokens", Count, data["max_tokens"])
            temperature = checked("temperature", Positive, data["config"]["temperature"])
            speaking = speech(speaking_task(data["config"]["task"]))
    return LanguagePolicy(start.model.to(device), start.tokenizer, tokens, temperature, **speaking)
