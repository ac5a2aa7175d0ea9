"""Deep reinforcement learning in code that you can read in an evening and run in minutes, up to language models.

    from spinup import ppo
    result = ppo("CartPole-v1", total_steps=50_000)
    result.policy.act(obs)

Each algorithm of `spinup/algos` and each variant has a public function. The function `load` loads the policy of a run.
Each function is created at its first use, so `import spinup` does not wait for torch.
"""
import os
from importlib.util import find_spec
from typing import Any

__version__ = "0.1.0"

# GNU OpenMP reads GOMP_SPINCOUNT when torch is loaded: an idle thread checks for work this many times before it sleeps.
# The default, 300,000, keeps the cores busy: two runs of DQN with two threads each took 67 seconds in parallel on two
# cores. With 3,000 the same runs take 20 to 23 seconds. Sleeping at once makes a single run of SAC about 10 % slower.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
# torch reads this when it is loaded: it then asks for memory in pages of 2 MB, not 4 kB. Linux must set up each new
# page, and an update of a language model uses gigabytes of them. Large pages save 5 to 7 % of its processor time.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def __getattr__(name: str) -> Any:
    if name == "load":
        from spinup.runs.public import load
        return load
    from spinup.registry import algorithms, installed
    if name == "__all__":
        return sorted([*algorithms(), "load"])
    part = name.startswith("_") or find_spec(f"spinup.{name}")            # a submodule: `import` finds it
    if not part and name in {**algorithms(), **installed(), **installed().faults}:
        from spinup.runs.public import trainer
        return trainer(name)
    raise AttributeError(f"module 'spinup' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
