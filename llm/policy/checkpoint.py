"""Read and write models in Hugging Face's format: the families Llama, Qwen2 (and 2.5) and Qwen3.

Nothing is ever downloaded. A folder holds config.json, the weights in *.safetensors, and a tokenizer.
"""
import json
import math
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llm.policy.hf import load_tokenizer
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer, Tokenizer
from llm.policy.transformer import Transformer
from spinup.errors import UserError
from spinup.runs.reading import reading, room_for

# By architecture: its model_type; True if query, key and value have biases; True if query and key have norms.
FAMILIES = {"LlamaForCausalLM": ("llama", False, False),
            "Qwen2ForCausalLM": ("qwen2", True, False),
            "Qwen3ForCausalLM": ("qwen3", False, True)}
# By field of Shape: its name in config.json.
FIELDS = {"vocab_size": "vocab_size", "context": "max_position_embeddings", "layers": "num_hidden_layers",
          "width": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
          "head_size": "head_dim", "hidden": "intermediate_size", "eps": "rms_norm_eps", "tied": "tie_word_embeddings"}
LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")    # Shape.rope_scaling


FETCH = "fetch the whole folder of the model again"
TOGETHER = "fetch the weights and config.json from the same place"


def names(model: Transformer) -> dict[str, Tensor]:
    """Map Hugging Face's names to the tensors of a model, as views `[...]`. Views of q, k and v share our one matrix.

    Loading copies into these views; saving writes them.
    """
    shape = model.shape
    heads = [n * shape.head_size for n in (shape.heads, shape.kv_heads, shape.kv_heads)]
    table = {"model.embed_tokens.weight": model.embed.weight, "model.norm.weight": model.norm.weight}
    if model.head is not None:
        table["lm_head.weight"] = model.head.weight
    for i, block in enumerate(model.blocks):
        parts = {"input_layernorm.weight": block.norm_attention.weight,
                 "self_attn.o_proj.weight": block.out.weight,
                 "post_attention_layernorm.weight": block.norm_mlp.weight,
                 "mlp.down_proj.weight": block.down.weight}
        for kind in ("weight", "bias") if shape.qkv_bias else ("weight",):
            fused = getattr(block.qkv, kind)
            parts |= {f"self_attn.{x}_proj.{kind}": part for x, part in zip("qkv", fused.split(heads), strict=True)}
        for x, part in zip(("gate", "up"), block.gate_up.weight.chunk(2), strict=True):
            parts[f"mlp.{x}_proj.weight"] = part
        if block.q_norm is not None:
            parts |= {"self_attn.q_norm.weight": block.q_norm.weight, "self_attn.k_norm.weight": block.k_norm.weight}
        table |= {f"model.layers.{i}.{name}": part for name, part in parts.items()}
    return {name: part.detach() for name, part in table.items()}


def load_pretrained(folder: str | Path, dtype: torch.dtype = torch.float32) -> tuple[Transformer, Tokenizer]:
    """Load the model in `folder`, on the CPU with weights of type `dtype`, and its tokenizer.

    Raise UserError if the folder is missing or incomplete, or if `Transformer` does not support the model.
    """
    folder = existing(folder)
    library = safetensors(folder)
    with reading(f"{folder}/config.json", FETCH):
        shape = shape_of(folder)
    files = weight_files(folder)
    with reading(f"the tokenizer in {folder}", FETCH):
        tokenizer = load_tokenizer(folder)
    few, many = tokenizer.vocab_size, shape.vocab_size       # hub models often have more tokens than their tokenizer
    if few > many or few < many and isinstance(tokenizer, CharTokenizer):
        raise UserError(f"the tokenizer in {folder} has {few} tokens and its model {many}; fetch both from the same "
                        "place, or remove tokens that the model does not have from the tokenizer's files")
    with ExitStack() as stack, room_for(folder):
        source = {}
        for file in files:
            try:
                weights = stack.enter_context(library.safe_open(file, framework="pt"))
            except (OSError, RuntimeError, library.SafetensorError):
                raise UserError(f"{file} is missing, damaged or incomplete; fetch it again") from None
            listed = weights.keys()
            source |= {name: Stored(weights.get_slice(name).get_shape(), partial(weights.get_tensor, name))
                       for name in listed}
        if (last := f"model.layers.{shape.layers - 1}.input_layernorm.weight") not in source:
            raise UserError(f"the weights in {folder} lack {last}; {TOGETHER}")
        with torch.device("meta"):                                        # needs no memory and no random numbers
            model = Transformer(shape)
        fill(model, source, folder, dtype)
    return model, tokenizer


class Stored(NamedTuple):
    """A tensor in a file: its shape, and a function that reads it."""

    shape: list[int]
    read: Callable[[], Tensor]


def fill(model: Transformer, source: dict[str, Stored], folder: Path, dtype: torch.dtype) -> None:
    """Fill a model on the meta device with the weights of `source`, one by one; memory never holds two copies of it.

    Raise UserError if a weight is missing, unknown or of the wrong shape, before memory is allocated. Also raise it if
    a weight is not of floating point or not finite.
    """
    table, head = names(model), "lm_head.weight"
    source = {name: x for name, x in source.items() if not name.endswith("rotary_emb.inv_freq")}         # old Llamas
    if model.head is None and head in source:                             # tied head that the file repeats
        both = [source[name].read() for name in (head, "model.embed_tokens.weight") if name in source]
        if torch.equal(both[0], both[-1]):
            del source[head]
    for says, wrong in (("lack", table.keys() - source.keys()), ("have an unknown", source.keys() - table.keys())):
        if wrong:
            others = f" and {len(wrong) - 1} others" if len(wrong) > 1 else ""
            raise UserError(f"the weights in {folder} {says} {min(wrong)}{others}; {TOGETHER}")
    for name, part in table.items():
        if (found := source[name].shape) != [*part.shape]:
            raise UserError(f"{name} in {folder} has the shape {found} instead of {[*part.shape]}; {TOGETHER}")
    model.to(dtype).to_empty(device="cpu")
    for name, part in names(model).items():
        weight = source[name].read()
        fault = "numbers that are not finite" if weight.is_floating_point() else f"numbers of type {weight.dtype}"
        if not weight.is_floating_point() or not torch.isfinite(weight).all():
            raise UserError(f"{name} in {folder} has {fault}; {FETCH}")
        part.copy_(weight)


def shape_of(folder: Path) -> Shape:
    """Read the shape from config.json.

    Raise UserError if `Transformer` does not support it, and ValueError for values of wrong types.
    """
    file = folder / "config.json"
    config = read(file)
    listed = config.get("architectures") or ["none given"]
    if not isinstance(listed, list) or not all(isinstance(x, str) for x in listed):
        raise ValueError(f"architectures must be a list of names, not {listed!r}")
    family = next((x for x in listed if x in FAMILIES), None)
    if family is None:
        raise UserError(f"{file} has an unsupported architecture ({', '.join(listed)}); "
                        f"choose a model with {', '.join(FAMILIES)}")
    # Version 5 of transformers writes rope_parameters; older versions write rope_theta and rope_scaling.
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    optional = {"num_key_value_heads", "head_dim", "tie_word_embeddings"}
    lacking = [key for key in FIELDS.values() if config.get(key) is None and key not in optional]
    lacking += [key for key in LLAMA3 if rope_type == "llama3" and key not in rope]
    if lacking:
        raise UserError(f"{file} lacks {lacking[0]}; fetch it again")
    model_type, bias, norm = FAMILIES[family]
    layers, windows = config["num_hidden_layers"], config.get("layer_types")
    if not isinstance(windows, list | None):
        raise ValueError(f"layer_types must be a list of names, not {windows!r}")
    first = 28 if config.get("max_window_layers") is None else config["max_window_layers"]
    windowed = "sliding_attention" in windows if windows else first < layers
    unlike = {"a sliding window": config.get("use_sliding_window") and config.get("sliding_window") and windowed,
              "biases in its attention": model_type != "qwen2" and config.get("attention_bias"),
              "biases in its MLP": config.get("mlp_bias"),
              f"rotary positions of type {rope_type}": rope_type not in ("default", "llama3"),
              f"{config.get('hidden_act')} in its MLP": config.get("hidden_act", "silu") != "silu",
              "quantised weights": config.get("quantization_config")}
    for what, so in unlike.items():
        if so:
            raise UserError(f"the model in {folder} has {what}, which this library does not support; choose another "
                            "one, such as Qwen/Qwen2.5-0.5B-Instruct")
    heads = config["num_attention_heads"]
    given = {"num_key_value_heads": heads, "head_dim": config["hidden_size"] // heads, "tie_word_embeddings": False}
    given |= {key: value for key, value in config.items() if value is not None}
    if rope_type == "llama3" and not positive(rope, "low_freq_factor") < positive(rope, "high_freq_factor"):
        raise ValueError("high_freq_factor must be above low_freq_factor")
    return Shape(**{ours: given[theirs] for ours, theirs in FIELDS.items()}, qkv_bias=bias, qk_norm=norm,
                 rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
                 rope_scaling=tuple(positive(rope, key) for key in LLAMA3) if rope_type == "llama3" else None)


def positive(table: dict[str, Any], key: str) -> float:
    """Return a number of a table. Raise ValueError unless it is finite and above 0."""
    if type(number := table[key]) not in (int, float) or not 0 < number < math.inf:
        raise ValueError(f"{key} must be a number above 0, not {number!r}")
    return number


def weight_files(folder: Path) -> list[Path]:
    """Return the single weight file, or all files that the index lists. Raise UserError if there are none."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        raise UserError(f"{folder} holds no model.safetensors; fetch the whole folder of a model in this format")
    listed = read(index).get("weight_map")
    if not isinstance(listed, dict) or not listed or any(
            not isinstance(name, str) or Path(name).name != name for name in listed.values()):
        raise UserError(f"{index} does not list files of its folder; {FETCH}")
    return [folder / name for name in sorted(set(listed.values()))]


def existing(folder: str | Path) -> Path:
    """Return `folder` as a path if it exists. Else raise UserError, which explains how to fetch a model of the hub."""
    path, name = Path(folder), str(folder)
    if path.is_dir():
        return path
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name) and not path.parent.is_dir():
        local = f"models/{path.name}"
        raise UserError(f"{name} is not on this disk; fetch it with `hf download {name} --local-dir {local}`, then "
                        f"type --model {local}")
    raise UserError(f"{name} is not a folder; give one that holds a config.json and *.safetensors")


def read(file: Path) -> dict[str, Any]:
    """Read a JSON file of a model's folder. Raise UserError if it is missing or not a JSON object."""
    try:
        config = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file.parent} holds no {file.name}; fetch the whole folder of the model") from None
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise UserError(f"{file} is damaged; fetch it again")
    return config


def safetensors(folder: str | Path) -> ModuleType:
    """Import the library safetensors with its `torch` part. Raise UserError with the install command if missing."""
    try:
        import safetensors.torch
    except ImportError:
        raise UserError(f"{folder} needs safetensors; type: pip install 'spinup-rl[hf]'") from None
    return safetensors
