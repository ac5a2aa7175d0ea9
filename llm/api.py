"""The public functions: one per method, `rlhf`, and `load`."""
from pathlib import Path

from llm import pipeline
from llm.algos import best_of_n as best_of_n_file
from llm.algos import dpo as dpo_file
from llm.algos import grpo as grpo_file
from llm.algos import ppo as ppo_file
from llm.algos import reinforce as reinforce_file
from llm.algos import reward_model as reward_model_file
from llm.algos import sft as sft_file
from llm.config import LanguageConfig
from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.start import judges, load_model, load_reward_model
from llm.tasks.make import tool_of
from spinup.runs.folders import read_run
from spinup.runs.presets import trainer

sft = trainer("sft", sft_file, "sft")
reinforce = trainer("reinforce", reinforce_file, "reinforce")
rloo = trainer("rloo", reinforce_file, "rloo")
remax = trainer("remax", reinforce_file, "remax")
reinforce_pp = trainer("reinforce_pp", reinforce_file, "reinforce_pp")
grpo = trainer("grpo", grpo_file, "grpo")
dr_grpo = trainer("dr_grpo", grpo_file, "dr_grpo")
dapo = trainer("dapo", grpo_file, "dapo")
best_of_n = trainer("best_of_n", best_of_n_file, "best_of_n")
reward_model = trainer("reward_model", reward_model_file, "reward_model")
ppo = trainer("ppo", ppo_file, "ppo")
vapo = trainer("vapo", ppo_file, "vapo")
dpo = trainer("dpo", dpo_file, "dpo")
ipo = trainer("ipo", dpo_file, "ipo")
dpop = trainer("dpop", dpo_file, "dpop")
tdpo = trainer("tdpo", dpo_file, "tdpo")
kto = trainer("kto", dpo_file, "kto")
simpo = trainer("simpo", dpo_file, "simpo")
step_dpo = trainer("step_dpo", dpo_file, "step_dpo")
online_dpo = trainer("online_dpo", dpo_file, "online_dpo")
rlhf = pipeline.rlhf


def load(directory: str | Path, device: str = "cpu") -> LanguagePolicy | RewardModel:
    """The policy in the folder of a run or of a Hugging Face checkpoint: `load(folder).respond("abc>")`.

    In the folder of a `reward_model`, what judges: `load(folder)("abc>", "cba")`. UserError where there is neither, or
    it is damaged.
    """
    if judges(directory):
        return load_reward_model(directory)
    start = load_model(directory)
    tokens, temperature, tool = 256, LanguageConfig.temperature, None
    if (start.directory / "checkpoint.pt").exists():
        data = read_run(start.directory)
        tokens, temperature = data["max_tokens"], data["config"]["temperature"]
        tool = tool_of(data["config"]["task"])
    return LanguagePolicy(start.model.to(device), start.tokenizer, tokens, temperature, tool=tool)
