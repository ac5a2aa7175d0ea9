"""Adapters: what they compute, which weights learn or are shared, training runs, and the format of PEFT."""
import inspect
import json

import pytest
import safetensors.torch
import torch
import transformers
from torch.nn.utils import parameters_to_vector

import llm
from llm.family import competitor
from llm.memory import needed
from llm.policy.export import save_adapters, save_pretrained
from llm.policy.load import load_model, load_unmerged
from llm.policy.lora import AdaptedLinear, adapt, adapted_like, duplicate, frozen_copy, merged
from llm.policy.peft import CONFIG, WEIGHTS
from llm.policy.scalar import ScalarModel
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.records import read_run
from tests.llm.conftest import SMALL, suite_of

RANK, ALPHA = 3, 12.0
LETTERS = CharTokenizer("abcdefghij>")
IDS = torch.randint(12, (3, 10), generator=torch.Generator().manual_seed(0))
LAYERS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
          "mlp.up_proj", "mlp.down_proj")


def network(bias: bool = False) -> Transformer:
    torch.manual_seed(0)
    return Transformer(Shape(12, context=64, layers=2, width=32, heads=4, kv_heads=2, head_size=8, hidden=40,
                             qkv_bias=bias))


@pytest.fixture
def adapted() -> Transformer:
    """A model with adapters that are not 0, so that they change its outputs."""
    model = adapt(network(), RANK, ALPHA)
    with torch.no_grad():
        for layer in layers(model):
            for up in layer.lora_b:
                up.normal_(std=0.3)
    return model


def layers(model: Transformer) -> list[AdaptedLinear]:
    return [m for m in model.modules() if isinstance(m, AdaptedLinear)]


# Catches: a B that is not 0 at first; frozen weights that learn; adapters that do not learn; a layer without adapters.
def test_only_adapters_learn_and_the_initial_function_is_unchanged():
    model, before = adapt(network(), RANK, ALPHA), network()
    assert torch.equal(model(IDS), before(IDS))
    optimizer, kept = FlatAdam(model.parameters(), lr=0.1), {n: p.clone() for n, p in model.named_parameters()}
    for _ in range(2):                                                    # A has no gradient as long as B is 0
        optimizer.zero_grad()
        model(IDS).logsumexp(-1).mean().backward()
        optimizer.step()
    for name, p in model.named_parameters():
        assert torch.equal(p, kept[name]) == (".lora_" not in name), name
    widths = [(32, 32), (32, 16), (32, 16), (32, 32), (32, 40), (32, 40), (40, 32)]           # of q, k, v, out, ...
    assert sum(optimizer.sizes) == 2 * RANK * sum(map(sum, widths))


# G is the gradient of the merged weight. Catches: a wrong scale; B of another layer; a missing gradient of x.
def test_adapter_gradients_follow_from_that_of_the_merged_weight(adapted):
    adapted(IDS).logsumexp(-1).mean().backward()
    plain = merged(duplicate(adapted))
    plain(IDS).logsumexp(-1).mean().backward()
    scale = ALPHA / RANK
    for block, other in zip(adapted.blocks, plain.blocks, strict=True):
        for name in ("qkv", "out", "gate_up", "down"):
            layer, slope = getattr(block, name), getattr(other, name).weight.grad
            parts = slope.split([len(up) for up in layer.lora_b])
            for up, g, a in zip(layer.lora_b, parts, layer.lora_a.chunk(len(layer.lora_b)), strict=True):
                torch.testing.assert_close(up.grad, scale * g @ a.T, rtol=1e-4, atol=1e-6)
            want = torch.cat([scale * up.T @ g for up, g in zip(layer.lora_b, parts, strict=True)])
            torch.testing.assert_close(layer.lora_a.grad, want, rtol=1e-4, atol=1e-6)


# Catches: a reference policy with adapters; copies of frozen weights; a copy that shares the adapters of the original.
def test_copies_share_the_frozen_weights(adapted):
    reference, copy, whole = frozen_copy(adapted), duplicate(adapted), merged(duplicate(adapted))
    assert torch.equal(reference(IDS), network()(IDS)) and not any(p.requires_grad for p in reference.parameters())
    assert torch.equal(copy(IDS), adapted(IDS))
    torch.testing.assert_close(whole(IDS), adapted(IDS), rtol=1e-4, atol=1e-5)
    assert not layers(whole) and all(p.requires_grad for p in whole.parameters())
    weight = adapted.blocks[1].qkv.weight
    for other in (reference, copy):
        assert other.blocks[1].qkv.weight.data_ptr() == weight.data_ptr()
        assert other.embed.weight.data_ptr() == adapted.embed.weight.data_ptr()
    assert copy.blocks[1].qkv.lora_a.data_ptr() != adapted.blocks[1].qkv.lora_a.data_ptr()
    value = ScalarModel(adapted)
    assert value.body.embed.weight is adapted.embed.weight and value.head.weight.requires_grad
    assert len(layers(adapted_like(adapted, network()))) == 8 and not layers(adapted_like(network(), network()))
    full = ScalarModel(network().requires_grad_(False))                   # without adapters, all weights learn
    assert all(p.requires_grad for p in full.parameters())


@pytest.fixture
def theirs(tmp_path):
    """A folder as PEFT writes it, with adapters for some layers, and transformers' logits with merged adapters."""
    base, folder, g = tmp_path / "base", tmp_path / "adapters", torch.Generator().manual_seed(2)
    save_pretrained(base, network(bias=True), LETTERS)
    model, stored = transformers.AutoModelForCausalLM.from_pretrained(base), {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            layer = name.removesuffix(".weight")
            if layer.endswith(("q_proj", "v_proj", "gate_proj", "down_proj")) and name.endswith("weight"):
                a, b = (torch.randn(n, m, generator=g) for n, m in ((RANK, p.shape[1]), (len(p), RANK)))
                p += ALPHA / RANK * b @ a * 0.01
                stored |= {f"base_model.model.{layer}.lora_A.weight": a * 0.1,
                           f"base_model.model.{layer}.lora_B.weight": b * 0.1}
        logits = model(IDS).logits
    folder.mkdir()
    safetensors.torch.save_file(stored, folder / WEIGHTS)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "base_model_name_or_path": str(base), "bias": "none",
              "target_modules": ["q_proj", "v_proj", "gate_proj", "down_proj"], "lora_dropout": 0.1, "use_dora": False}
    (folder / CONFIG).write_text(json.dumps(config))
    return folder, logits


# Catches: the base model's tokenizer for adapters that were trained with their own, as TRL saves them.
def test_tokenizer_beside_adapters_replaces_that_of_the_base_model(theirs):
    folder, _ = theirs
    base = load_unmerged(folder).tokenizer
    CharTokenizer(base.alphabet[::-1]).save(folder)
    assert load_unmerged(folder).tokenizer.encode(base.alphabet[0]) == [len(base.alphabet)]
    CharTokenizer("".join(map(chr, range(200, 900)))).save(folder)
    with pytest.raises(UserError, match="has 701 tokens and its base model .*; remove the tokenizer's files to use"):
        load_unmerged(folder)


# Catches: q, k and v in another order; a scale other than alpha / r; adapters that are lost in merging.
def test_adapters_of_peft_are_read_and_written(theirs, tmp_path):
    folder, logits = theirs
    torch.testing.assert_close(load_model(folder).model(IDS), logits, rtol=1e-4, atol=1e-4)
    save_adapters(tmp_path / "mine", load_unmerged(folder).model, folder)
    torch.testing.assert_close(load_model(tmp_path / "mine").model(IDS), logits, rtol=1e-4, atol=1e-4)
    config, stored = (json.loads((tmp_path / "mine" / CONFIG).read_text()),
                      safetensors.torch.load_file(tmp_path / "mine" / WEIGHTS))
    given = safetensors.torch.load_file(folder / WEIGHTS)
    assert stored.keys() == {f"base_model.model.model.layers.{i}.{place}.lora_{x}.weight"
                             for i in range(2) for place in LAYERS for x in "AB"}
    assert all(torch.equal(stored[name], x) for name, x in given.items())
    assert (config["peft_type"], config["task_type"], config["r"], config["lora_alpha"], config["bias"]) == (
        "LORA", "CAUSAL_LM", RANK, ALPHA, "none")
    assert config["target_modules"] == [place.split(".")[1] for place in LAYERS]
    json.dump(json.loads((folder / CONFIG).read_text()) | {"use_rslora": True}, (folder / CONFIG).open("w"))
    assert load_unmerged(folder).model.blocks[0].qkv.scale == pytest.approx(ALPHA / RANK**0.5)


# Catches: a missing check.
@pytest.mark.parametrize("change, says", [
    ({"use_dora": True}, "use_dora True, which this library does not support; merge the adapters"),
    ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights 'pissa_niter_4', which this library does not support"),
    ({"modules_to_save": ["lm_head"]}, r"modules_to_save \['lm_head'\], which this library does not"),
    ({"rank_pattern": {"q_proj": 2}}, "has rank_pattern"), ({"peft_type": "IA3"}, "has peft_type 'IA3'"),
    ({"r": 0}, "lacks a base model, a rank r or lora_alpha"), ({"lora_alpha": "x"}, "lacks a base model"),
    ({"r": 10**9}, "lacks a base model"), ({"base_model_name_or_path": "SELF"}, "which holds adapters too; give the"),
    ({"r": 2}, "has the shape .* instead of .*; its base model is another one"),
    ({"base_model_name_or_path": "nowhere"}, "the base model of the adapters in .* cannot be loaded: nowhere")])
def test_invalid_settings_of_adapters_are_refused(change, says, theirs):
    folder, _ = theirs
    given = {name: str(folder) if x == "SELF" else x for name, x in change.items()}
    (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | given))
    with pytest.raises(UserError, match=says):
        load_model(folder)


@pytest.mark.parametrize("spoil, says", [
    (lambda stored: {"x": torch.zeros(1)}, "has an unknown x; give adapters of the attention"),
    (lambda stored: {n: x * float("nan") for n, x in stored.items()}, "numbers that are not finite"),
    (lambda stored: None, "is missing, damaged or incomplete")])
def test_invalid_weights_of_adapters_are_refused(spoil, says, theirs):
    folder, _ = theirs
    stored = spoil(safetensors.torch.load_file(folder / WEIGHTS))
    if stored is None:
        (folder / WEIGHTS).write_bytes(b"no")
    else:
        safetensors.torch.save_file(stored, folder / WEIGHTS)
    with pytest.raises(UserError, match=says):
        load_model(folder)


def short(prompt: str, response: str) -> float:
    return 1 - len(response) / 10


# Catches: a method whose optimiser changes frozen weights, whose reference policy learns too, or that loses its
# adapters; a policy with action values that cannot be loaded.
@pytest.mark.parametrize("method", ["grpo", "ppo", "dpo", "es", "rloo", "sft", "reward_model", "param_noise", "dqn"])
def test_methods_train_only_the_adapters(method, beginner, tmp_path):
    result = getattr(llm, method)(**SMALL, **suite_of(method)["settings"], model=beginner, reward=short, lora=2,
                                  total_steps=2, log_dir=str(tmp_path))
    start = load_model(beginner).model.state_dict()
    state = load_checkpoint(result.directory / "checkpoint.pt")["parts"]["model"]
    prefix = next(name for name in state if name.endswith("embed.weight")).removesuffix("embed.weight")
    assert all(torch.equal(state[prefix + name], x) for name, x in start.items())
    assert any(x.any() for name, x in state.items() if ".lora_b." in name)
    if method == "reward_model":
        assert result.quality >= 0
        return
    assert result.progress["kl_to_initial"][-1] > 0
    found = load_model(result.directory).model(IDS % 11)
    assert found.isfinite().all() and not torch.equal(found, load_model(beginner).model(IDS % 11))


# Catches: a resumed run with other adapters; a policy that is loaded without its adapters.
def test_run_with_adapters_is_resumed_loaded_reused_and_exported(beginner, tmp_path, cli):
    settings = {**SMALL, "model": beginner, "lora": 2, "prompts": 4, "lr": 0.01, "anneal": False, "warmup": 0,
                "reward": f"{tmp_path}/mine.py:short"}
    (tmp_path / "mine.py").write_text(inspect.getsource(short))
    whole = llm.grpo(**settings, total_steps=4, log_dir=str(tmp_path), exp_name="whole")
    half = llm.grpo(**settings, total_steps=2, log_dir=str(tmp_path), exp_name="half")
    cli("resume", str(half.directory), "--total-steps", "4")
    models = [load_model(run.directory).model for run in (whole, half)]
    assert all(torch.equal(a, b) for a, b in zip(*(m.state_dict().values() for m in models), strict=True))
    assert not torch.equal(models[0].blocks[0].qkv.weight, load_model(beginner).model.blocks[0].qkv.weight)
    assert read_run(whole.directory)["config"]["lora"] == 2
    done = cli("llm", "export", str(whole.directory), str(tmp_path / "adapters"), "--adapters")
    assert done.out.strip().endswith("adapters")
    again = load_model(tmp_path / "adapters").model
    torch.testing.assert_close(again(IDS % 11), models[0](IDS % 11), rtol=1e-4, atol=1e-4)
    further = llm.grpo(**{**settings, "model": str(whole.directory), "lora": 0}, total_steps=1, log_dir=str(tmp_path))
    assert not layers(load_unmerged(further.directory).model)


# Catches: past versions that are loaded into a model without adapters.
def test_past_versions_of_a_player_have_adapters(tmp_path):
    few = {"task": "tictactoe", "layers": 1, "width": 16, "heads": 2, "games": 8, "rivals": 2, "versions": 2,
           "minibatches": 1, "held_out": 8, "quiet": True, "tensorboard": False, "log_dir": str(tmp_path)}
    first = llm.self_play(**few, total_steps=1)
    second = llm.self_play(**few, total_steps=2, model=str(first.directory), lora=2)
    make, games = competitor(second.directory), [[], [4], [4, 0]]
    weights = parameters_to_vector(load_unmerged(second.directory).model.parameters())
    assert make(weights.detach())(games, None).tolist() == make(None)(games, None).tolist()


def test_adapters_need_a_given_model_and_export_needs_adapters(beginner, tmp_path):
    with pytest.raises(UserError, match="--lora trains adapters beside the weights of a given model; add --model"):
        llm.grpo(**SMALL, lora=4, log_dir=str(tmp_path))
    with pytest.raises(UserError, match="has no adapters; leave out --adapters"):
        save_adapters(tmp_path / "x", load_model(beginner).model, tmp_path)


# Catches: gradients, moments or a reference policy of the frozen weights in the estimate.
def test_memory_estimate_has_gradients_and_moments_of_adapters_only():
    from llm.algos.ppo import Config
    shape, cfg = network().shape, Config(model="x", lora=2)
    full, some = (needed(shape, 1_000_000, cfg, 4, 8, 8, 8, adapters=n) for n in (0, 50_000))
    assert some["gradients"] == full["gradients"] / 20 and some["Adam"] == full["Adam"] / 20
    assert some["weights"] == 4 * (950_000 + 2 * 50_000) and some["frozen models"] == 0
