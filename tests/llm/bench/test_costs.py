"""Computed costs of an update by model size."""
import json

import pytest

from llm.algos import grpo
from llm.bench.costs import MODELS, cost, costs
from llm.policy.shape import Shape
from spinup.errors import UserError


# Catches: the output head of an untied model left out of its parameters; bytes of fp32 weights in bf16.
def test_costs_use_the_published_model_sizes(capsys):
    assert costs() == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]}
    published = {"SmolLM2-135M": 134.5, "Qwen2.5-0.5B": 494.0, "Qwen2.5-1.5B": 1543.7, "Qwen2.5-3B": 3085.9,
                 "Qwen2.5-7B": 7615.6}                                    # millions of parameters, from the model cards
    assert {name: round(row["parameters"] / 1e6, 1) for name, row in rows.items()} == published
    assert all(18 < row["memory_gb"] / (row["parameters"] / 1e9) < 40 for row in rows.values())
    with pytest.raises(UserError, match="Choose one of"):
        costs(gpu="H10")


# Catches: missing keys and values; a prompt that is counted once per response; a whole untied
# embedding in the bytes of a sampling step, which reads only a few of its rows.
def test_costs_equal_a_manual_calculation():
    cfg = grpo.Config(task="reverse", prompts=8, samples=8, micro_batch=16, dtype="bfloat16")
    shape = Shape(100, 512, 1, 8, 2, 1, 4, 16, tied=False)
    found = cost(shape, cfg, bandwidth=1e3, flops=1e6)
    n = found["parameters"] - 100 * 8
    assert found["sampling_seconds"] == pytest.approx(256 * 2 * (n + 2 * 4 * 64 * 256) / 170, abs=0.01)
    assert found["learning_seconds"] == pytest.approx((8 * n + 8 * 8 * 384) * (8 * 128 + 64 * 256) / 2.4e5, abs=0.01)
    assert set(MODELS) >= {"Qwen2.5-0.5B"}
