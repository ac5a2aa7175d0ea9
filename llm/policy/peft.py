"""Read and write adapters in the format of the library PEFT: adapter_config.json and adapter_model.safetensors."""
import math
import shutil
from pathlib import Path

import torch
from torch import Tensor

from llm.policy.checkpoint import FETCH, read, safetensors
from llm.policy.transformer import Transformer
from spinup.errors import UserError
from spinup.runs.files import write_json

LARGEST = 1024          # rank
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Names of the layers that a linear layer of a block fuses, in Hugging Face's format.
PLACES = {"qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "out": ("self_attn.o_proj",),
          "gate_up": ("mlp.gate_proj", "mlp.up_proj"), "down": ("mlp.down_proj",)}
# Settings of PEFT that change what an adapter computes, and the values that this library supports.
PLAIN = {"peft_type": ("LORA",), "use_dora": (False, None), "bias": ("none", None), "modules_to_save": (None, []),
         "fan_in_fan_out": (False, None), "rank_pattern": ({}, None), "alpha_pattern": ({}, None),
         "layers_to_transform": (None,), "layer_replication": (None,), "trainable_token_indices": (None,),
         "target_parameters": (None, []), "alora_invocation_tokens": (None,), "lora_bias": (False, None),
         "use_qalora": (False, None), "use_bdlora": (False, None)}


# Initialisations of adapters with which PEFT also changes the base weights when it loads the adapters.
SHIFTED = ("pissa", "olora", "corda", "loftq")


def adapter_names(model: Transformer) -> dict[str, Tensor]:
    """Map PEFT's names to the adapters of a model, as views: A `[r, n_in]` and B `[n_out, r]` of each layer."""
    found = {}
    for i, block in enumerate(model.blocks):
        for attribute, places in PLACES.items():
            for place, (a, b) in zip(places, getattr(block, attribute).adapters(), strict=True):
                where = f"base_model.model.model.layers.{i}.{place}"
                found |= {f"{where}.lora_A.weight": a.detach(), f"{where}.lora_B.weight": b.detach()}
    return found


def write_adapters(folder: Path, model: Transformer, base: str) -> None:
    """Write the adapters of a model into a folder, which exists. base: the folder or name of its frozen weights."""
    layer = model.blocks[0].qkv
    rank = layer.lora_b[0].shape[1]
    weights = {name: x.contiguous() for name, x in adapter_names(model).items()}
    safetensors(folder).torch.save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / CONFIG, {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank,
        "lora_alpha": layer.scale * rank, "lora_dropout": 0.0, "bias": "none", "inference_mode": True,
        "target_modules": [place.split(".")[1] for places in PLACES.values() for place in places]})
    # safetensors makes the file unreadable for other users.
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)


def settings(folder: Path) -> tuple[str, int, float]:
    """Read the base model of adapters, their rank, and their alpha. Raise UserError for what is not supported."""
    config = read(folder / CONFIG)
    begun = str(config.get("init_lora_weights")).lower()
    for name, plain in {**PLAIN, **({"init_lora_weights": (True,)} if begun.startswith(SHIFTED) else {})}.items():
        if config.get(name, plain[0]) not in plain:
            raise UserError(f"{folder / CONFIG} has {name} {config[name]!r}, which this library does not support; "
                            "merge the adapters into the model with PEFT, and use the merged model")
    base, rank, alpha = (config.get(name) for name in ("base_model_name_or_path", "r", "lora_alpha"))
    if not (isinstance(base, str) and base and type(rank) is int and 0 < rank <= LARGEST
            and type(alpha) in (int, float) and 0 < alpha < math.inf):
        raise UserError(f"{folder / CONFIG} lacks a base model, a rank r or lora_alpha; {FETCH}")
    if (Path(base) / CONFIG).is_file():
        raise UserError(f"{folder / CONFIG} names {base} as its base model, which holds adapters too; give the folder "
                        "of a whole model")
    return base, rank, alpha * math.sqrt(rank) if config.get("use_rslora") else alpha


@torch.no_grad()
def load_adapters(folder: Path, model: Transformer) -> None:
    """Fill the adapters of a model, made with the rank in the folder's settings. Layers without any stay unchanged.

    Raise UserError if the file is missing, damaged, of another model, or holds numbers that are not finite.
    """
    library, table, file = safetensors(folder), adapter_names(model), folder / WEIGHTS
    try:
        stored = library.torch.load_file(file)
    except (OSError, RuntimeError, library.SafetensorError):
        raise UserError(f"{file} is missing, damaged or incomplete; {FETCH}") from None
    for name, x in stored.items():
        if name not in table:
            raise UserError(f"{file} has an unknown {name}; give adapters of the attention and MLP layers only")
        if x.shape != table[name].shape:
            raise UserError(f"{name} in {file} has the shape {[*x.shape]} instead of {[*table[name].shape]}; its base "
                            "model is another one")
        if not x.is_floating_point() or not torch.isfinite(x).all():
            raise UserError(f"{name} in {file} has numbers that are not finite; {FETCH}")
        table[name].copy_(x)
