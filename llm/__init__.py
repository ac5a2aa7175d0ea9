"""The algorithms of `spinup` on transformer policies: a prompt is a state, a token an action, a response an episode.

    import llm
    result = llm.grpo("reverse")
    result.policy.respond("abcdef>")

The losses are those of `spinup.algos`, imported and not copied. The functions named in `__all__` are made when first
used, so that `import llm` does not wait for torch.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm.api import (
        best_of_n,
        dapo,
        dpo,
        dpop,
        dr_grpo,
        grpo,
        ipo,
        kto,
        load,
        online_dpo,
        ppo,
        reinforce,
        reinforce_pp,
        remax,
        reward_model,
        rlhf,
        rloo,
        sft,
        simpo,
        step_dpo,
        tdpo,
        vapo,
    )

__all__ = ["best_of_n", "dapo", "dpo", "dpop", "dr_grpo", "grpo", "ipo", "kto", "load", "online_dpo", "ppo",
           "reinforce", "reinforce_pp", "remax", "reward_model", "rlhf", "rloo", "sft", "simpo", "step_dpo", "tdpo",
           "vapo"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib
        return getattr(importlib.import_module("llm.api"), name)
    raise AttributeError(f"module 'llm' has no attribute {name!r}")
