"""Fixtures and settings for tests of whole runs: small models, and a sampler that records its steps on the CPU."""
import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from llm.columns import Means
from llm.rollout import Batch
from llm.run import Run
from spinup.registry import algorithms

SMALL = {"task": "reverse:length=2,symbols=10", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
         "tensorboard": False, "threads": 1, "preset": "none"}
# The defaults of `suite_of`: those of a policy gradient, which clips nothing.
USUAL = {"settings": {"prompts": 4, "samples": 4}, "own": [], "logged": [], "lacking": ["kl", "clip_fraction"]}


@cache
def suite_of(method: str) -> dict[str, Any]:
    """The literal SUITE of the test file of a method. Entries that it lacks are those of `USUAL`.

    `settings`: small settings, with which the method learns something at once; `own`: columns that it adds, measured at
    every update; `logged`: columns that it adds, measured at every row; `lacking`: columns that are NaN. Under the name
    of a variant are the entries in which it differs.
    """
    path = Path(__file__).with_name("algos") / f"test_{algorithms('llm')[method].path.stem}.py"
    assert path.exists(), f"{method} has no test file tests/llm/algos/{path.name}"
    found: dict[str, Any] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SUITE":
            found = ast.literal_eval(node.value)
    return {**USUAL, **found, **found.get(method, {})}


class Stop(Exception):
    """Ends a training run at a call of `Run.backward`. It holds the arguments of the call."""


@dataclass
class Call:
    """A call of `Run.backward`."""

    run: Run
    batch: Batch
    rows: torch.Tensor
    loss: Any
    per_row: list
    whole: dict

    def gradient(self, micro_batch=0, **changes):
        """The gradient and the diagnostics of the call with these changes."""
        c, grads = replace(self, **changes), [p.grad for p in self.run.model.parameters()]
        for grad in grads:
            grad.zero_()
        self.run.config.micro_batch = micro_batch
        self.run.means = Means()
        stats = Run.backward(c.run, c.batch, c.rows, c.loss, *c.per_row, **c.whole) | self.run.means.extremes
        return torch.cat([grad.flatten() for grad in grads]), {name: float(x) for name, x in stats.items()}

    def responses(self, **changes):
        """The batch with other responses."""
        return replace(self.batch, responses=replace(self.batch.responses, **changes))


@pytest.fixture(scope="session")
def make_model(tmp_path_factory) -> Callable[..., str]:
    """Train a small model by SFT and return the folder of its run: `make_model(total_steps=2)`."""
    def make(**settings: object) -> str:
        import llm
        folder = tmp_path_factory.mktemp("model")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "epochs", 1)                             # no test reads its curve
            return str(llm.sft(**{**SMALL, **settings}, log_dir=str(folder)).directory)
    return make


@pytest.fixture(scope="session")
def beginner(make_model) -> str:
    """The folder of a model after two updates of SFT: its responses have random letters and are often too long."""
    return make_model(total_steps=2)


@pytest.fixture
def two_rows(monkeypatch) -> None:
    """Let a run have two rows, so that its evaluations do not take longer than its updates."""
    monkeypatch.setattr(Run, "epochs", 2)


@pytest.fixture
def recorded(monkeypatch) -> list[int]:
    """Let the sampler record its steps on the CPU, as on CUDA. A replayed step uses the memory of its recording.

    A replay raises AssertionError if the weights have moved to other memory since the recording. The list gets the
    length of the cache of each recording.
    """
    from llm.policy import generate
    lengths: list[int] = []

    def record(step, cache, pool):
        lengths.append(cache.length)
        model, used, rows = inspect.getclosurevars(step).nonlocals["model"], cache.used, cache.rows
        token, position = torch.zeros(rows, dtype=torch.long), torch.full((rows,), cache.length - 1)
        places = [p.data_ptr() for p in model.parameters()]
        kept = step(token, position).clone()

        def play(new_token, new_position):
            assert places == [p.data_ptr() for p in model.parameters()], "the weights have moved to other memory"
            token.copy_(new_token)
            position.copy_(new_position)
            now, cache.used, cache.rows = (cache.used, cache.rows), used, rows
            kept.copy_(step(token, position))
            cache.used, cache.rows = now
            return kept
        return play
    monkeypatch.setattr(generate, "RECORDED", ("cpu",))
    monkeypatch.setattr(generate, "record", record)
    return lengths
