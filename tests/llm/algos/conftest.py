"""Fixtures for tests of methods: training runs whose batches, updates or parts are recorded, and a task with pairs."""
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from llm import preferences
from llm.run import Run
from llm.tasks.user import UserTask
from spinup.registry import algorithms
from tests.llm.conftest import SMALL

LETTERS = "abcdefghij"
PROMPTS = ["".join(LETTERS[(7 * i + 3 * j) % 10] for j in range(i % 4 + 1)) + ">" for i in range(40)]
TINY = {name: x for name, x in SMALL.items() if name != "preset"} | {"device": "cpu"}
PAIRS = {"pairs": 12, "batch": 6, "total_steps": 1, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
         "device": "cpu"}


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=1e-6, rtol=1e-5)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@dataclass
class Watched:
    """A training run: its result, its sampled batches, and for each call of `Run.backward` the batch, the rows, the
    advantages and the denominator."""

    result: Any = None
    drawn: list = field(default_factory=list)
    updates: list = field(default_factory=list)

    def adv(self, update):
        return self.updates[update][2][:, 0]


@pytest.fixture
def watch(beginner, tmp_path, monkeypatch):
    """Train with given rewards, as in `watch("grpo", lambda draw: [1, 0, 1, 0])`.

    script: function from the number of a sampled batch to its rewards. likeliest: rewards of the greedy responses.
    interrupt: number of the call of `Run.backward` in which Ctrl-C is pressed.
    """
    sample, backward = Run.sample, Run.backward

    def watch(method, script=None, likeliest=None, interrupt=None, resume=None, **given):
        seen = Watched()

        def scripted(run, problems, samples=1, greedy=False, generator=None):
            batch = sample(run, problems, samples, greedy, generator)
            if greedy and generator is None:                              # not those of an evaluation
                batch.rewards = torch.tensor(likeliest, dtype=torch.float32)
            elif samples > 1:
                if script:
                    batch.rewards = torch.tensor(script(len(seen.drawn)), dtype=torch.float32)
                seen.drawn.append(batch)
            return batch

        def spy(run, batch, rows, loss, *per_row, **whole):
            seen.updates.append((batch, rows, per_row[0].clone() if per_row else None, whole["denominator"]))
            if len(seen.updates) == interrupt:
                run.interruption.received = 2
            return backward(run, batch, rows, loss, *per_row, **whole)

        monkeypatch.setattr(Run, "sample", scripted)
        monkeypatch.setattr(Run, "backward", spy)
        module = algorithms("llm")[method].load()
        settings = TINY | {"model": beginner, "prompts": 2, "samples": 4} | algorithms("llm")[method].settings | given
        seen.result = module.train(module.Config(**settings, algorithm=f"llm {method}", log_dir=str(tmp_path)), resume)
        return seen
    return watch


def earned(prompt, response):
    """Reward of 0, .5 or 1, plus a little for the length, so that few rewards are equal."""
    return sum(map(ord, response)) % 3 / 2 + len(response) / 100


def make_task(reward=earned):
    """Prompts of 2 to 5 characters. After each a of the policy, a tool writes bb."""
    task = UserTask(PROMPTS, reward, max_tokens=7, alphabet=LETTERS + ">")
    task.tool = lambda text: "bb" if text.endswith("a") else None
    return task


@pytest.fixture(scope="module")
def train(beginner, tmp_path_factory):
    """Train with a method on pairs of `make_task`, a task with several lengths and a tool: `train("ipo", seed=2)`."""
    def train(method, resume=None, **given):
        module = algorithms("llm")[method].load()
        settings = PAIRS | {"task": make_task(), "model": beginner} | algorithms("llm")[method].settings
        settings |= {"log_dir": str(tmp_path_factory.mktemp(method))} | given
        return module.train(module.Config(**settings, algorithm=f"llm {method}"), resume)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preferences, "HELD_OUT_PAIRS", 8)
        yield train


@pytest.fixture
def parts(monkeypatch):
    """A list with the parts of the checkpoint of each training run, in order; the model is one of the parts."""
    keep, seen = Run.keep, []

    def spy(run, **parts):
        seen.append(parts)
        keep(run, **parts)

    monkeypatch.setattr(Run, "keep", spy)
    return seen
