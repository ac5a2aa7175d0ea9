"""Language models on a GPU: recorded steps, kernels, runs and resumed runs."""
import copy

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import llm
from llm.policy import generate
from llm.policy.generate import Prompts, Sampler
from llm.policy.score import score
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer, attend
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError

SHAPE = Shape(50, 256, 2, 64, 4, 2, 16, 128)
ROWS = [[1, 2, 3, 4, 5, 6, 7], [3, 1], [4, 9, 2, 8]]
TINY = {"task": "reverse:length=2,symbols=10", "preset": "none", "held_out": 8, "quiet": True, "tensorboard": False}
SAMPLED = {"prompts": 4, "samples": 4}
OWN = {"sft": {"batch": 16, "reward": ""}, "dpo": {"batch": 4, "pairs": 8},
       "reward_model": {"batch": 4, "pairs": 8, "calibration": 16}, "vapo": {**SAMPLED, "value_warmup": 0}}
METHODS = ["sft", "reinforce", "rloo", "grpo", "dapo", "ppo", "vapo", "best_of_n", "dpo", "reward_model"]


def early(prompt: str, response: str) -> float:
    """A reward that is above 0 for some responses of any model."""
    return sum(letter in "abcde" for letter in response) / 3


@pytest.fixture
def model(device) -> Transformer:
    torch.manual_seed(0)
    return Transformer(SHAPE).to(device)


@pytest.fixture(scope="session")
def start(tmp_path_factory) -> str:
    return str(llm.sft(**TINY, layers=1, width=32, heads=2, total_steps=30, device="cpu",
                       log_dir=str(tmp_path_factory.mktemp("start"))).directory)


def sample(model, monkeypatch, recorded: bool, **settings):
    monkeypatch.setattr(generate, "RECORDED", ("cuda",) if recorded else ())
    return Sampler(model, end=0)(Prompts.of(ROWS, model.device), **settings)


def check_equal(found, wanted):
    for name in ("lengths", "finished", "mask"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert torch.equal(found.ids * found.mask.long(), wanted.ids * wanted.mask.long())
    torch.testing.assert_close(found.logp, wanted.logp, atol=1e-3, rtol=1e-3)


# Catches: a recorded step whose result differs from that of an eager one, for dropped rows or prompts of unequal
# length.
def test_recorded_step_equals_an_eager_one(model, monkeypatch):
    monkeypatch.setattr(generate, "LOOK_EVERY", (2, 2))
    settings = {"samples": 8, "max_tokens": 60, "generator": None}
    check_equal(sample(model, monkeypatch, True, **settings), sample(model, monkeypatch, False, **settings))


# Catches: a compiled layer, sampled token or log-probability that differs from that of an eager model.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_model_equals_an_eager_one(dtype, device):
    torch.manual_seed(0)
    plain = Transformer(Shape(1500, 256, 2, 64, 4, 2, 16, 128, qkv_bias=True)).to(device, dtype)
    fast = copy.deepcopy(plain)
    fast.compile_layers()
    prompts, found = Prompts.of(ROWS, device), []
    ids = torch.randint(1, 1500, (24, 40), device=device)
    of = torch.arange(24, device=device) // 8
    for model in (plain, fast):
        said = Sampler(model, end=-1)(prompts, samples=8, max_tokens=40,
                                      generator=torch.Generator(device).manual_seed(1))
        logp, entropy = score(model, prompts, of, ids)
        logp.sum().backward()
        found.append((said.ids, logp.detach(), entropy, model.blocks[0].qkv.weight.grad.float()))
    close = {"atol": 2e-3, "rtol": 2e-3} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.1}
    torch.testing.assert_close(found[1][1:3], found[0][1:3], **close)
    assert torch.cosine_similarity(found[1][3].flatten(), found[0][3].flatten(), 0) > 0.99
    assert (found[1][0][:, 0] == found[0][0][:, 0]).float().mean() > 0.9              # later tokens depend on these


# Catches: a causal mask of torch with another meaning than the explicit one.
@pytest.mark.parametrize("tokens", [2, 9])
def test_prompts_of_equal_length_use_a_causal_mask(tokens, model, device):
    prompts, ids = Prompts.of([[1, 2, 3], [4, 5, 6]], device), torch.randint(1, 50, (4, tokens), device=device)
    of = torch.arange(4, device=device) // 2
    together, _ = score(model, prompts, of, ids)
    whole = model(torch.cat([prompts.ids[of], ids], 1))[:, 2:-1].log_softmax(-1)
    torch.testing.assert_close(together, whole.gather(-1, ids[..., None])[..., 0], atol=1e-3, rtol=1e-3)


# Catches: a graph that keeps the weights from the time of its recording.
def test_recorded_step_uses_the_updated_weights(model, device, monkeypatch):
    monkeypatch.setattr(generate, "RECORDED", ("cuda",))
    optimizer, sampler = FlatAdam(model.parameters(), lr=0.05), Sampler(model, end=0)
    prompts = Prompts.of(ROWS, device)
    for _ in range(3):
        said = sampler(prompts, samples=4, max_tokens=40, generator=torch.Generator(device).manual_seed(1))
        optimizer.zero_grad()
        logp, _ = score(model, prompts, said.of, said.ids)
        torch.testing.assert_close(torch.where(said.mask > 0, logp.detach(), 0), said.logp, atol=1e-3, rtol=1e-3)
        (logp * said.mask).sum().backward()
        optimizer.step()
    assert len(sampler.caches) == 1


# Catches: a mask with which torch uses its slow kernel.
@pytest.mark.parametrize("T", [1, 33])
def test_attention_with_a_mask_has_a_fast_kernel(T, device):
    if device.type == "cpu":
        pytest.skip("needs a CUDA device; the kernels of a CPU are others")
    q, k, v = (torch.randn(4, h, n, 64, device=device, dtype=torch.bfloat16) for h, n in ((14, T), (2, 128), (2, 128)))
    mask = torch.ones(4, 1, T, 128, dtype=torch.bool, device=device).tril(128 - T)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        found = attend(q, k, v, mask, grouped=False)
    with sdpa_kernel([SDPBackend.MATH]):
        wanted = attend(q.float(), k.float(), v.float(), mask, grouped=True)
    torch.testing.assert_close(found.float(), wanted, atol=2e-2, rtol=2e-2)


# Catches: a tensor that stays on the other device; bf16 in a place where a method expects fp32.
@pytest.mark.parametrize("method", METHODS)
def test_method_trains_in_bf16_and_resumes(method, device, start, tmp_path):
    settings = {**TINY, "reward": early, **OWN.get(method, SAMPLED), "model": start, "device": str(device),
                "dtype": "bfloat16", "log_dir": str(tmp_path), "exp_name": "x", "checkpoint_steps": 1}
    first = getattr(llm, method)(**settings, total_steps=2)
    again = getattr(llm, method)(**settings, total_steps=4, resume=first.directory)
    assert first.status == again.status == "finished" and again.progress["steps"][-1] == 4
    if method != "reward_model":
        llm.load(first.directory, str(device)).respond("ab>")


# Catches: work on the first GPU although the second is selected.
def test_second_gpu_samples_the_same_responses_as_the_first(second, monkeypatch):
    torch.manual_seed(0)
    first = Transformer(SHAPE).to("cuda:0")
    other = Transformer(SHAPE)
    other.load_state_dict(first.state_dict())
    settings = {"samples": 4, "max_tokens": 40, "generator": None}
    found = sample(other.to(second), monkeypatch, True, **settings)
    wanted = sample(first, monkeypatch, True, **settings)
    assert found.ids.device == second
    for name in ("ids", "mask"):
        one, two = ((getattr(x, name) * x.mask).cpu() for x in (found, wanted))
        assert torch.equal(one, two), name


# Catches: a traceback of torch if the memory of the GPU is full.
def test_full_gpu_memory_gives_one_sentence(device, start, tmp_path):
    if device.type == "cpu":
        pytest.skip("needs a CUDA device; tests/llm/test_memory.py is about the CPU")
    torch.cuda.set_per_process_memory_fraction(1e-4)
    try:
        with pytest.raises(UserError, match="not enough memory"):
            llm.grpo(**TINY, model=start, device=str(device), prompts=512, samples=64, log_dir=str(tmp_path),
                     total_steps=1)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
