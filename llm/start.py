"""Old names of `llm.policy.load` and `llm.warmup`, until the command line and `llm.api` import from there."""
from llm.policy.load import judges, load_model, load_reward_model
from llm.warmup import check

__all__ = ["check", "judges", "load_model", "load_reward_model"]
