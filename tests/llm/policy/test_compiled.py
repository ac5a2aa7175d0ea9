"""A compiled model: functions without graph breaks, and the results of an eager model."""
import copy

import pytest
import torch
import torch._dynamo.config

import llm.algos.grpo
from llm.policy import generate, load, score, transformer
from llm.policy.generate import Prompts, Sampler
from llm.policy.lora import adapt
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.start import check
from spinup import machine
from spinup.errors import UserError

TINY = {"task": "reverse:length=2,symbols=10", "preset": "none", "layers": 1, "width": 16, "heads": 2,
        "sft_accuracy": 0.01, "compile": True, "quiet": True, "tensorboard": False}
SHAPE = Shape(1500, 64, 2, 512, 4, 2, 128, 512, qkv_bias=True, qk_norm=True)


def traced(monkeypatch, compile) -> list[str]:
    """Replace the compiler by `compile`. Return the list of the functions that it gets."""
    names = []
    for module in (generate, score, transformer):
        monkeypatch.setattr(module, "compiled", lambda function: names.append(function.__name__) or compile(function))
    return names


# Catches: code that torch.compile cannot trace, such as that of adapters, or of packed weights (width 512);
# a compiled function with another result.
@pytest.mark.long
@torch._dynamo.config.patch(recompile_limit=64)
def test_compiled_model_has_no_graph_breaks_and_equals_an_eager_model(monkeypatch):
    names = traced(monkeypatch, lambda f: torch.compile(f, backend="eager", fullgraph=True, dynamic=True))
    torch.manual_seed(0)
    plain = adapt(Transformer(SHAPE), 2, 4.0)
    for p in plain.parameters():
        p.data.add_(0.01 * torch.randn_like(p) * p.requires_grad)         # adapters are 0 at first
    fast = copy.deepcopy(plain)
    fast.compile_layers()
    prompts, found = Prompts.of([[1, 2, 3, 4], [5, 6]]), []
    for model in (plain, fast):
        said = Sampler(model, end=0)(prompts, samples=3, max_tokens=4, generator=torch.Generator().manual_seed(1))
        logp, entropy = score.score(model, prompts, said.of, said.ids, temperature=0.7)
        (logp * said.mask).sum().backward()
        gradients = [p.grad for p in model.parameters() if p.requires_grad]
        found.append((said.ids * said.mask.long(), said.logp, logp, entropy, gradients))
    torch.testing.assert_close(found[1], found[0], atol=2e-4, rtol=2e-4)
    assert {"project", "finish", "draw", "log_probs_in_one_pass"} <= set(names)


# Catches: a --compile that has no effect on the policy or on the reference policy.
def test_run_compiles_the_policy_and_the_reference_policy(monkeypatch, tmp_path):
    monkeypatch.setattr(load, "check_compile", lambda: None)
    cfg = llm.algos.grpo.Config(task=TINY["task"], layers=1, width=16, heads=2, compile=True, log_dir=str(tmp_path))
    start = load.on_device(check(cfg), cfg)
    assert all(model.compiled and model.blocks[0].compiled for model in (start.model, start.reference()))


# Catches: torch's traceback if there is no compiler; an error that comes only after the SFT run.
@pytest.mark.parametrize(("compiler", "words"), [(None, r"a C\+\+ compiler"), ("c++", "Python.h")])
def test_missing_compiler_is_reported_before_training(compiler, words, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "find_compiler", lambda: compiler)
    monkeypatch.setattr(machine.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match=f"--compile needs {words}; `spinup doctor` shows"):
        llm.grpo(**TINY, log_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())
