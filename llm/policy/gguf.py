"""Read a model from a GGUF file, the format of llama.cpp: the families Llama, Qwen2 (and 2.5) and Qwen3.

Quantised weights become floating-point numbers, so training starts from the rounded weights. Nothing is downloaded.
"""
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from llm.policy.checkpoint import FAMILIES, Stored, fill
from llm.policy.hf import HFTokenizer
from llm.policy.shape import Shape
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer
from spinup.errors import UserError
from spinup.runs.reading import reading, room_for

MAGIC = b"GGUF"
AGAIN = "fetch the file again"
# By field of Shape: its key, without the architecture in front.
KEYS = {"context": "context_length", "layers": "block_count", "width": "embedding_length",
        "heads": "attention.head_count", "hidden": "feed_forward_length", "eps": "attention.layer_norm_rms_epsilon"}
# GGUF's names of tensors, and Hugging Face's.
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
IN_BLOCK = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def is_gguf(path: str | Path) -> bool:
    """Return whether a path is a GGUF file, by its name or its first bytes."""
    path = Path(path)
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return path.suffix == ".gguf" or file.read(4) == MAGIC


def load_gguf(file: str | Path, dtype: torch.dtype = torch.float32) -> tuple[Transformer, Tokenizer]:
    """Load the model in a GGUF file, on the CPU with weights of type `dtype`, and its tokenizer.

    Raise UserError if the file is damaged, or if `Transformer` does not support the model.
    """
    file, library = Path(file), gguf(file)
    with open(file, "rb") as opened:
        if opened.read(4) != MAGIC:
            raise UserError(f"{file} is not a GGUF file; {AGAIN}")
    with reading(str(file), AGAIN), room_for(file):
        try:
            content = library.GGUFReader(file)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise UserError(f"{file} is damaged or incomplete ({str(error).splitlines()[0][:200]}); {AGAIN}") from None
        facts = {key: field.contents() for key, field in content.fields.items() if not key.startswith("tokenizer.")}
        if (parts := facts.get("split.count", 0)) > 1:
            raise UserError(f"{file} is one of {parts} parts of a model; join them with llama-gguf-split --merge, or "
                            "choose a file in one part")
        words = content.fields.get("tokenizer.ggml.pre")
        shape = shape_of(file, facts, {t.name: [int(n) for n in t.shape[::-1]] for t in content.tensors})
        heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads} if facts["general.architecture"] == "llama" else {}
        source = {}
        for tensor in content.tensors:
            name, turns = renamed(tensor.name), heads.get(tensor.name.split(".")[-2])
            source[name] = Stored([int(n) for n in tensor.shape[::-1]], partial(numbers, library, tensor, turns))
        with torch.device("meta"):                                        # needs no memory and no random numbers
            model = Transformer(shape)
        fill(model, source, file, dtype)
    with reading(f"the tokenizer in {file}", AGAIN):
        tokenizer = HFTokenizer(file)
    if words is not None and words.contents() == "smollm":                # transformers does not know this name
        tokenizer.tokenizer.backend_tokenizer.pre_tokenizer = single_digits()
    if tokenizer.vocab_size > shape.vocab_size:
        raise UserError(f"the tokenizer in {file} has {tokenizer.vocab_size} tokens and its model {shape.vocab_size}; "
                        f"{AGAIN}")
    return model, tokenizer


def single_digits() -> Any:
    """Return the rule of SmolLM's tokenizer that splits text into words: each digit is one."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])


def shape_of(file: Path, facts: dict[str, Any], sizes: dict[str, list[int]]) -> Shape:
    """Read the shape from the metadata and the sizes of the tensors.

    Raise UserError if `Transformer` does not support the model, and KeyError if a key is missing.
    """
    name = str(facts["general.architecture"])
    family = next((x for x in FAMILIES.values() if x[0] == name), None)
    if family is None:
        known = ", ".join(kind for kind, *_ in FAMILIES.values())
        raise UserError(f"{file} has the architecture {name}, which this library does not support; choose a model of "
                        f"one of these: {known}")
    facts = {key.removeprefix(f"{name}."): value for key, value in facts.items()}
    scaling, given = facts.get("rope.scaling.type", "none"), {ours: facts[theirs] for ours, theirs in KEYS.items()}
    head_size = facts.get("attention.key_length", given["width"] // given["heads"])
    unlike = {f"rotary positions of type {scaling}": scaling != "none",
              "scaled rotary positions": "rope_freqs.weight" in sizes or any(
                  facts.get(key, 1) not in (0, 1) for key in ("rope.scaling.factor", "rope.scale_linear")),
              "partial rotary positions": facts.get("rope.dimension_count", head_size) != head_size,
              "a sliding window": facts.get("attention.sliding_window"),
              "several experts": facts.get("expert_count")}
    for what, so in unlike.items():
        if so:
            raise UserError(f"the model in {file} has {what}, which this reader does not support; fetch the model as a "
                            "folder with *.safetensors, or choose another one")
    _, bias, norm = family
    return Shape(vocab_size=sizes["token_embd.weight"][0], **given, tied="output.weight" not in sizes, qkv_bias=bias,
                 kv_heads=facts.get("attention.head_count_kv", given["heads"]), qk_norm=norm,
                 head_size=head_size,
                 rope_theta=float(facts.get("rope.freq_base", 10_000.0)))


def renamed(name: str) -> str:
    """Return Hugging Face's name of a tensor; an unknown name is returned unchanged, and `fill` reports it."""
    stem, _, kind = name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    first, _, rest = stem.partition(".")
    number, _, part = rest.partition(".")
    return f"model.layers.{number}.{IN_BLOCK[part]}.{kind}" if first == "blk" and part in IN_BLOCK else name


def numbers(library: ModuleType, tensor: Any, heads: int | None) -> Tensor:
    """Dequantise a tensor, `[*shape]`. With `heads`, restore Hugging Face's order of the rows of each head: llama.cpp
    stores the two halves of a rotary pair next to each other. Raise UserError for an unknown kind of quantisation."""
    try:
        found = torch.from_numpy(library.dequantize(tensor.data, tensor.tensor_type).copy())
    except NotImplementedError:
        raise UserError(f"{tensor.name} is quantised as {tensor.tensor_type.name}, which the library gguf cannot read; "
                        "choose another file of this model, such as Q8_0 or F16") from None
    if heads is None:
        return found
    return found.view(heads, -1, 2, *found.shape[1:]).transpose(1, 2).reshape(found.shape)


def gguf(file: Path) -> ModuleType:
    """Import the library gguf. Raise UserError with the install command if it is missing."""
    try:
        import gguf
    except ImportError:
        raise UserError(f"{file} needs the library gguf; type: pip install 'spinup-rl[hf]'") from None
    return gguf
