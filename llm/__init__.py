"""The algorithms of `spinup` for language models: a prompt is a state, a token an action, a response an episode.

    import llm
    result = llm.grpo("reverse")
    result.policy.respond("abcdef>")

The loss functions are imported from `spinup.algos`, not copied. There is one public function for each method and
variant in `llm/algos`, and also `recipe`, `rlhf` and `load`. They are created on first use, so `import llm` does not
load torch.
"""
import importlib
from importlib.util import find_spec
from typing import Any

from spinup.registry import algorithms, installed

OTHERS = {"load": "llm.restore", "recipe": "llm.pipeline", "rlhf": "llm.pipeline"}


def __getattr__(name: str) -> Any:
    if name in OTHERS:
        return getattr(importlib.import_module(OTHERS[name]), name)
    if name == "__all__":
        return sorted([*algorithms("llm"), *OTHERS])
    part = name.startswith("_") or find_spec(f"llm.{name}")               # a module or package: `import` finds it
    if not part and name in {**algorithms("llm"), **installed("llm"), **installed("llm").faults}:
        from spinup.runs.public import trainer
        return trainer(f"llm {name}")
    raise AttributeError(f"module 'llm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
