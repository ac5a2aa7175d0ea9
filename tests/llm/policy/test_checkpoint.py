"""Small models that transformers writes and this library reads, and the reverse."""
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers

from llm.policy.checkpoint import load_pretrained, names
from llm.policy.export import save_pretrained
from llm.policy.generate import Prompts, Sampler
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from spinup.errors import UserError

LETTERS = CharTokenizer("".join(map(chr, range(ord("0"), ord("0") + 49))))
SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-3, "bos_token_id": None,
         "eos_token_id": 0}
ROPE = {"rope_type": "default", "rope_theta": 300.0}
# With an original context of 32, some frequencies stay the same, some are interpolated and some are scaled.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 300.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
CASES = {
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, rope_parameters=dict(ROPE), tie_word_embeddings=True),
    "qwen2-untied": lambda: transformers.Qwen2Config(**SIZES, rope_parameters=dict(ROPE)),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, rope_parameters=dict(ROPE), head_dim=12),
    "llama": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=dict(ROPE)),
    "llama3": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=dict(LLAMA3), tie_word_embeddings=True)}
each_case = pytest.mark.parametrize("case", CASES)
IDS = torch.randint(50, (3, 40), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`made(case)`: transformers' model and its folder. Biases and norms are random too; they would else be 0 and 1."""
    kept = {}

    def make(case):
        if case not in kept:
            model = transformers.AutoModelForCausalLM.from_config(CASES[case]()).eval()
            g = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.copy_(torch.randn(p.shape, generator=g) * 0.15 + ("norm" in name))
            folder = tmp_path_factory.mktemp(case)
            model.save_pretrained(folder)
            LETTERS.save(folder)
            kept[case] = model, folder
        return kept[case]
    return make


@pytest.fixture
def copy(made, tmp_path):
    """A copy of a case's folder, which a test may damage."""
    def copied(case):
        return shutil.copytree(made(case)[1], tmp_path / "copy", dirs_exist_ok=True)
    return copied


def edit(folder, **changes):
    """Set keys of config.json; None removes a key."""
    config = json.loads((folder / "config.json").read_text())
    config = {k: v for k, v in (config | changes).items() if v is not None}
    (folder / "config.json").write_text(json.dumps(config))


def reweigh(folder, **changes):
    """Set weights; __ in a name stands for a dot, and None removes a weight."""
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights = {k: v for k, v in (weights | {k.replace("__", "."): v for k, v in changes.items()}).items()
               if v is not None}
    safetensors.torch.save_file(weights, folder / "model.safetensors")


@torch.no_grad()
def logits(model, ids=IDS):
    out = model(ids)
    return out if isinstance(out, torch.Tensor) else out.logits


def same(model, theirs):
    torch.testing.assert_close(logits(model), logits(theirs), atol=1e-5, rtol=1e-5)


def refused(folder, *words):
    """Assert that `load_pretrained` raises a UserError of one sentence with these words. Return the message."""
    with pytest.raises(UserError) as error:
        load_pretrained(folder)
    message = str(error.value)
    assert all(word in message for word in words), message
    assert "\n" not in message and not message.endswith(".")
    return message


# Catches: exchanged q and k, or gate and up; missing biases or q_norm; the default eps, theta or head_size; frequencies
# without the scaling; the embedding as the head of an untied model.
@each_case
def test_logits_equal_those_of_transformers(case, made):
    theirs, folder = made(case)
    ours, tokenizer = load_pretrained(folder)
    same(ours, theirs)
    assert ours.dtype == torch.float32 and all(p.requires_grad and p.is_leaf for p in ours.parameters())
    assert tokenizer.alphabet == LETTERS.alphabet


# Catches: positions that start at L in place of each prompt's own length.
@each_case
def test_greedy_batch_equals_single_prompts_in_transformers(case, made):
    theirs, folder = made(case)
    ours, _ = load_pretrained(folder)
    prompts = [IDS[0, :n].tolist() for n in (3, 11, 7)]
    out = Sampler(ours, end=0)(Prompts.of(prompts), max_tokens=20, generator=None)
    for b, prompt in enumerate(prompts):
        whole = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=0,
                                pad_token_id=0)[0]
        assert out.ids[b, :out.lengths[b]].tolist() == whole[len(prompt):].tolist()


# Catches: q and k that are exchanged only in saving; a separate head in a tied model; a missing eos_token_id, which
# Llama reads as 2; another family.
@each_case
def test_loaded_model_is_saved_unchanged(case, made, tmp_path):
    theirs, folder = made(case)
    ours, tokenizer = load_pretrained(folder)
    save_pretrained(tmp_path / "saved", ours, tokenizer)
    # Another user's server must be able to read all files.
    assert len({file.stat().st_mode for file in (tmp_path / "saved").iterdir()}) == 1
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    assert type(again) is type(theirs) and torch.equal(logits(again), logits(theirs))
    assert again.generation_config.eos_token_id == 0 and again.generation_config.bos_token_id is None
    before, after = (safetensors.torch.load_file(x / "model.safetensors") for x in (folder, tmp_path / "saved"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    reloaded, tokenizer = load_pretrained(tmp_path / "saved")
    assert reloaded.shape == ours.shape and tokenizer.alphabet == LETTERS.alphabet
    assert all(torch.equal(a, b) for a, b in zip(reloaded.parameters(), ours.parameters(), strict=True))


# Catches: `rope_scaling` or `rope_theta` of older files that is not read; the default 10,000 in place of the file's
# theta; `type`, the older name of `rope_type`, that is not read.
@pytest.mark.parametrize("case", ["qwen3", "llama3"])
def test_rotary_settings_of_older_folders_are_read(case, made, copy):
    folder = copy(case)
    scaling = {k: v for k, v in LLAMA3.items() if k != "rope_theta"} if case == "llama3" else None
    edit(folder, rope_parameters=None, rope_theta=300, rope_scaling=scaling)
    same(load_pretrained(folder)[0], made(case)[0])
    edit(folder, rope_scaling={"type": "linear", "factor": 2.0})
    refused(folder, "rotary positions of type linear")


# Catches: a missing rope_theta or rope_scaling; rope_parameters without the scaling.
@pytest.mark.parametrize("unknown", [["rope_parameters"], ["rope_theta", "rope_scaling"]])
def test_saved_folder_works_for_older_and_newer_readers(unknown, made, tmp_path):
    model, tokenizer = load_pretrained(made("llama3")[1])
    save_pretrained(tmp_path / "x", model, tokenizer)
    edit(tmp_path / "x", **dict.fromkeys(unknown))
    assert load_pretrained(tmp_path / "x")[0].shape == model.shape


# Catches: a reader of the first file only.
def test_weights_in_several_files_are_read(made, tmp_path):
    theirs, _ = made("qwen2")
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    LETTERS.save(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2
    same(load_pretrained(tmp_path)[0], theirs)
    shards[1].unlink()
    refused(tmp_path, shards[1].name, "is missing", "fetch it again")


# Catches: an ignored dtype; rotations that are cast with the weights, as without `Transformer._apply`.
def test_bf16_weights_keep_fp32_rotations(made, tmp_path):
    theirs = made("qwen2")[0]
    half = type(theirs)(theirs.config).to(torch.bfloat16)
    half.load_state_dict(theirs.state_dict())
    half.save_pretrained(tmp_path)
    LETTERS.save(tmp_path)
    whole, (ours, tokenizer) = load_pretrained(tmp_path)[0], load_pretrained(tmp_path, dtype=torch.bfloat16)
    theirs = type(theirs).from_pretrained(tmp_path, dtype=torch.float32)  # half.float() keeps rounded rotations
    same(whole, theirs)
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16} and {p.dtype for p in whole.parameters()} == {
        torch.float32}
    assert ours.cos.dtype == torch.float32 and torch.equal(ours.cos, whole.cos) and torch.equal(ours.sin, whole.sin)
    save_pretrained(tmp_path / "again", ours, tokenizer)
    for name, weight in safetensors.torch.load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(safetensors.torch.load_file(tmp_path / "again/model.safetensors")[name], weight)
    assert json.loads((tmp_path / "again/config.json").read_text())["dtype"] == "bfloat16"


# Catches: `mkdir` of the last folder only; another family.
def test_model_of_this_library_is_saved_as_llama(tmp_path):
    model = Transformer(Shape(50))
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()           # as FlatAdam stores them
    torch.nn.utils.vector_to_parameters(flat, model.parameters())
    save_pretrained(tmp_path / "new/model", model, LETTERS)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "new/model")
    assert isinstance(theirs, transformers.LlamaForCausalLM)
    same(theirs, model)
    with pytest.raises(UserError, match="no family .* both qkv_bias and qk_norm"):
        save_pretrained(tmp_path / "other", Transformer(Shape(50, qkv_bias=True, qk_norm=True)), LETTERS)
    assert not (tmp_path / "other").exists()


# Catches: `Transformer(shape)` outside of the meta device, which samples weights that are then discarded.
def test_loading_uses_no_random_numbers(made):
    folder, before = made("qwen2")[1], torch.get_rng_state()
    load_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), before)


# Catches: a reader that holds all tensors before it copies the first.
def test_weights_are_loaded_one_tensor_at_a_time(made, monkeypatch):
    import weakref

    import llm.policy.checkpoint as module
    folder, alive, most = made("qwen2-untied")[1], weakref.WeakSet(), []

    def watched(stored):
        def read():
            tensor = stored.read()
            alive.add(tensor)
            most.append(len(alive))
            return tensor
        return stored._replace(read=read)

    fill = module.fill
    monkeypatch.setattr(module, "fill", lambda model, source, *rest: fill(
        model, {name: watched(stored) for name, stored in source.items()}, *rest))
    load_pretrained(folder)
    assert len(most) == 2 * 12 + 3 and max(most) <= 2                     # a tensor is freed when the next is read


# Catches: `fill` without one of its two deletions; no comparison of head and embedding.
def test_redundant_tensors_are_ignored(made, copy):
    folder = copy("qwen2")
    embedding = safetensors.torch.load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    reweigh(folder, lm_head__weight=embedding.clone(), model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4))
    model, _ = load_pretrained(folder)
    assert model.head is None
    same(model, made("qwen2")[0])
    reweigh(folder, lm_head__weight=embedding + 1)
    refused(folder, "an unknown lm_head.weight")


# Catches: a missing line of `unlike`.
@pytest.mark.parametrize(("case", "changes", "words"), [
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "layer_types": None},
     "sliding window"),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]},
     "sliding window"),
    ("qwen3", {"attention_bias": True}, "biases in its attention"),
    ("llama", {"attention_bias": True}, "biases in its attention"),
    ("llama", {"mlp_bias": True}, "biases in its MLP"),
    ("llama", {"hidden_act": "gelu"}, "gelu in its MLP"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantised weights"),
    ("qwen2", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rotary positions of type yarn"),
])
def test_unsupported_models_are_refused(case, changes, words, copy):
    folder = copy(case)
    edit(folder, **changes)
    refused(folder, f"the model in {folder} has", words, "choose another one, such as Qwen/Qwen2.5-0.5B-Instruct")


# Catches: the refusal of a sliding window that no layer uses.
@pytest.mark.parametrize("changes", [
    {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0, "layer_types": None},
    {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2, "layer_types": None},
    {"use_sliding_window": False, "max_window_layers": None, "layer_types": None},
    {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["full_attention", "full_attention"]}])
def test_sliding_window_that_no_layer_uses_is_accepted(changes, made, copy):
    folder = copy("qwen2")
    edit(folder, **changes)
    same(load_pretrained(folder)[0], made("qwen2")[0])


# Catches: a missing check in `shape_of`, `read`, `weight_files`, `fill` or `load_pretrained`.
def test_incomplete_or_unsuitable_folders_are_refused(copy):
    folder = copy("llama")
    edit(folder, architectures=["MistralForCausalLM"])
    refused(folder, "unsupported architecture (MistralForCausalLM); choose a model with LlamaForCausalLM, Qwen2")
    edit(folder, architectures=None)
    refused(folder, "unsupported architecture (none given)")
    edit(copy("llama"), hidden_size=None)
    refused(folder, "config.json lacks hidden_size; fetch it again")
    edit(copy("llama3"), rope_parameters={k: v for k, v in LLAMA3.items() if k != "factor"})
    refused(folder, "config.json lacks factor; fetch it again")
    for text in ("{", "[]"):
        (folder / "config.json").write_text(text)
        refused(folder, "config.json is damaged; fetch it again")
    (folder / "config.json").unlink()
    refused(folder, f"{folder} holds no config.json; fetch the whole folder")

    reweigh(copy("llama"), model__norm__weight=None)
    refused(folder, f"the weights in {folder} lack model.norm.weight; fetch the weights and config.json from the same ")
    reweigh(folder, lm_head__weight=None)
    refused(folder, "lack lm_head.weight and 1 others;")
    reweigh(copy("llama"), model__norm__bias=torch.ones(32))
    refused(folder, f"the weights in {folder} have an unknown model.norm.bias;")
    reweigh(copy("llama"), model__layers__1__self_attn__k_proj__weight=torch.ones(32, 32))
    refused(folder, "model.layers.1.self_attn.k_proj.weight in", "has the shape [32, 32] instead of [16, 32]; fetch")
    reweigh(copy("llama"), model__norm__weight=torch.ones(1))             # broadcasting would make it fit
    refused(folder, "has the shape [1] instead of [32]")

    weights = copy("llama") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    refused(folder, "model.safetensors is missing, damaged or incomplete; fetch it again")
    weights.rename(folder / "pytorch_model.bin")
    refused(folder, f"{folder} holds no model.safetensors; fetch the whole folder of a model in this format")

    CharTokenizer(LETTERS.alphabet + "äö").save(copy("llama"))
    refused(folder, "has 52 tokens and its model 50; fetch both from the same place")
    (folder / "char_tokenizer.json").unlink()
    refused(folder, f"{folder} holds no tokenizer.json; fetch the whole folder of the model")


# Catches: a value that is used without a check and causes a traceback.
@pytest.mark.parametrize("changes", [
    {"architectures": 7}, {"architectures": [7]}, {"architectures": "LlamaForCausalLM"},
    {"num_attention_heads": "2"}, {"num_attention_heads": 0}, {"num_attention_heads": True},
    {"num_attention_heads": -2},
    {"hidden_size": -16}, {"hidden_size": 0}, {"hidden_size": "16"}, {"hidden_size": 10**12},
    {"num_hidden_layers": 1.5}, {"num_hidden_layers": 0}, {"num_hidden_layers": 10**6},
    {"max_position_embeddings": "x"}, {"rms_norm_eps": "x"}, {"rms_norm_eps": -1}, {"vocab_size": []},
    {"num_key_value_heads": 3}, {"head_dim": 7}, {"intermediate_size": {}}, {"layer_types": 5},
    {"layer_types": "sliding_attention"}, {"rope_theta": "x", "rope_parameters": None},
    {"rope_parameters": {"rope_theta": -1}}, {"rope_scaling": 5}, {"rope_scaling": "x"},
    {"rope_parameters": {**LLAMA3, "factor": "x"}}, {"rope_parameters": {**LLAMA3, "factor": -1}},
    {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 0}}])
def test_wrong_value_in_config_json_gives_one_sentence(changes, copy):
    folder = copy("llama")
    edit(folder, **changes)
    refused(folder)


def test_config_json_that_is_not_text_is_refused(copy):
    from llm.policy.load import load_model
    config = copy("llama") / "config.json"
    config.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserError, match="config.json is damaged; fetch it again"):
        load_model(config.parent)
    config.unlink()
    config.mkdir()
    with pytest.raises(UserError, match="config.json is damaged; fetch it again"):
        load_model(config.parent)


# Catches: the download command for every missing folder; the owner in the name of the local folder.
def test_missing_model_of_the_hub_gives_the_download_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    assert refused(name) == (f"{name} is not on this disk; fetch it with `hf download {name} --local-dir "
                             "models/Qwen2.5-0.5B-Instruct`, then type --model models/Qwen2.5-0.5B-Instruct")
    (tmp_path / "models").mkdir()
    for missing in ("models/other", "nothing", "./a/b", tmp_path / "x/y"):
        assert refused(missing) == f"{missing} is not a folder; give one that holds a config.json and *.safetensors"
    (tmp_path / "file").touch()
    refused("file", "file is not a folder")


# Catches: `import safetensors.torch` at the top of the file.
def test_missing_safetensors_gives_the_pip_command(made, monkeypatch, tmp_path):
    folder, model = made("qwen2")[1], Transformer(Shape(50))
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    refused(folder, f"{folder} needs safetensors; type: pip install 'spinup-rl[hf]'")
    with pytest.raises(UserError, match=re.escape("pip install 'spinup-rl[hf]'")):
        save_pretrained(tmp_path / "x", model, LETTERS)


# Catches: temporary folders that remain; the replacement of a folder with other files, or of a folder of another
# program; old content that is not restored.
def test_folder_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    first, second = Transformer(Shape(50, layers=1)), Transformer(Shape(50, layers=2))
    save_pretrained(tmp_path / "x", first, LETTERS)

    def full(*args, **kwargs):
        raise OSError("disk full")

    rename = Path.rename
    for owner, name, broken in ((safetensors.torch, "save_file", full),
                                (Path, "rename", lambda a, b: (full if a.name == ".x.new" else rename)(a, b))):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(owner, name, broken)
            save_pretrained(tmp_path / "x", second, LETTERS)
        assert load_pretrained(tmp_path / "x")[0].shape == first.shape
    save_pretrained(tmp_path / "x", second, LETTERS)
    assert load_pretrained(tmp_path / "x")[0].shape == second.shape
    (tmp_path / "x/notes.txt").write_text("mine")
    with pytest.raises(UserError, match="x holds notes.txt, which would be lost; give the model a new folder"):
        save_pretrained(tmp_path / "x", first, LETTERS)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file is a file, and it would be lost; give the model a new folder"):
        save_pretrained(tmp_path / "file", first, LETTERS)
    assert load_pretrained(tmp_path / "x")[0].shape == second.shape and (tmp_path / "x/notes.txt").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "x"]
    config = json.loads((tmp_path / "x/config.json").read_text())
    (tmp_path / "x/notes.txt").unlink()
    (tmp_path / "x/config.json").write_text(json.dumps(config | {"written_by": "another program"}))
    with pytest.raises(UserError, match="x is not an empty folder, and it would be lost"):
        save_pretrained(tmp_path / "x", first, LETTERS)


# Catches: the deletion of the old model after a save was killed between its two renames.
def test_killed_save_loses_no_model(tmp_path, monkeypatch):
    model = Transformer(Shape(50))
    save_pretrained(tmp_path / "x", model, LETTERS)
    (tmp_path / "x").rename(tmp_path / ".x.old")
    monkeypatch.setattr(safetensors.torch, "save_file", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_pretrained(tmp_path / "x", model, LETTERS)
    assert torch.equal(names(load_pretrained(tmp_path / "x")[0])["model.norm.weight"], model.norm.weight)


# Catches: a folder of the user that becomes the model or is deleted.
@pytest.mark.parametrize("kind", ["new", "old"])
def test_hidden_folder_of_the_user_is_kept(kind, tmp_path):
    own = tmp_path / f".x.{kind}"
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=f".x.{kind} is in the way; move it, or give the model another folder"):
        save_pretrained(tmp_path / "x", Transformer(Shape(50)), LETTERS)
    assert (own / "notes.txt").read_text() == "mine" and [*tmp_path.iterdir()] == [own]


# Catches: a traceback of pathlib; a folder that is created in part.
def test_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    model = Transformer(Shape(50, 32, 1, 16, 2, 2, 8, 24))
    for folder in (tmp_path / "file/x", Path("/proc/x"), Path("/dev/null/x"), Path("/")):
        with pytest.raises(UserError, match=f"{re.escape(str(folder))} cannot be written to; give a new folder"):
            save_pretrained(folder, model, LETTERS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# Catches: a model of petabytes that is created before its weights are checked; a file header that is trusted.
def test_sizes_beyond_the_memory_are_refused_at_once(copy, monkeypatch):
    for changes, words in (({"num_hidden_layers": 16_000}, "lack model.layers.15999.input_layernorm.weight"),
                           ({"hidden_size": 2**18}, "[50, 32] instead of [50, 262144]")):
        edit(folder := copy("llama"), **changes)
        refused(folder, words, "fetch the weights and config.json from the same place")
    weights = copy("llama") / "model.safetensors"
    whole = weights.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:8 + size])
    header["lm_head.weight"] |= {"shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}
    text, rest = json.dumps(header).encode(), whole[8:]
    for damaged in (len(text).to_bytes(8, "little") + text + rest[size:], (10**13).to_bytes(8, "little") + rest,
                    (2**63).to_bytes(8, "little") + rest):
        weights.write_bytes(damaged)
        refused(folder, "model.safetensors is missing, damaged or incomplete; fetch it again")

    def no_memory(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes")
    monkeypatch.setattr(Transformer, "to_empty", no_memory)
    refused(copy("llama"), f"not enough memory to load {folder}; end other programs, or load it on a larger")
