"""A compiled model: its functions in one piece, and with the numbers of an eager one."""
import copy

import pytest
import torch
import torch._dynamo.config

import llm
from llm.policy import generate, load, score, transformer
from llm.policy.generate import Prompts, Sampler
from llm.policy.transformer import Shape, Transformer
from spinup.errors import UserError

TINY = {"task": "reverse:length=2,symbols=10", "preset": "none", "layers": 1, "width": 16, "heads": 2,
        "sft_accuracy": 0.01, "compile": True, "quiet": True, "tensorboard": False}
SHAPE = Shape(1500, 64, 2, 32, 4, 2, 8, 48, qkv_bias=True)


# Turned red by: code that torch.compile cannot trace; a compiled function with another result.
@pytest.mark.parametrize("qk_norm", [False, True])
@torch._dynamo.config.patch(recompile_limit=64)
def test_a_compiled_model_is_traced_whole_and_equals_an_eager_one(qk_norm, monkeypatch):
    traced = []

    def compiled(function):
        traced.append(function.__name__)
        return torch.compile(function, backend="eager", fullgraph=True)
    for module in (generate, score, transformer):
        monkeypatch.setattr(module, "compiled", compiled)
    torch.manual_seed(0)
    plain = Transformer(Shape(**{**vars(SHAPE), "qk_norm": qk_norm}))
    fast = copy.deepcopy(plain)
    fast.compile_layers()
    prompts = Prompts.of([[1, 2, 3, 4], [5, 6]])
    found = []
    for model in (plain, fast):
        said = Sampler(model, end=0)(prompts, samples=3, max_tokens=12, generator=torch.Generator().manual_seed(1))
        logp, entropy = score.score(model, prompts, said.of, said.ids, temperature=0.7)
        (logp * said.mask).sum().backward()
        found.append((said.ids * said.mask.long(), said.logp, logp, entropy, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-4)
    assert {"project", "finish", "draw", "log_probs_in_one_pass"} <= set(traced)


# Turned red by: --compile that a run ignores, for its policy or for the reference policy.
def test_a_run_compiles_its_model(monkeypatch, tmp_path):
    called = []
    monkeypatch.setattr(transformer, "compiled", lambda function: called.append(function.__name__) or function)
    monkeypatch.setattr(load, "find_compiler", lambda: "c++")
    llm.grpo(**TINY, total_steps=1, prompts=2, samples=2, held_out=2, log_dir=str(tmp_path))
    assert {"project", "finish"} <= set(called)


# Turned red by: torch's traceback where there is no compiler.
def test_without_a_compiler_a_sentence_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(load, "find_compiler", lambda: None)
    with pytest.raises(UserError, match="--compile needs a C"):
        llm.grpo(**TINY, log_dir=str(tmp_path))
