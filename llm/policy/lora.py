"""Low-rank adapters (LoRA): small matrices that are trained beside frozen weights. Hu et al. 2021, arXiv:2106.09685.

    y = W x + b + alpha / r * B A x          W [n_out, n_in] is frozen; A [r, n_in] and B [n_out, r] are trained

B is 0 at first, so the function of the model is unchanged. To merge an adapter, add alpha / r * B A to W.
"""
import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from llm.policy.transformer import Block, Transformer
from spinup.core.fast.linear import Linear, fast_linear


class AdaptedLinear(Linear):
    """A frozen linear layer with adapters.

    A fused layer has an adapter for each layer that it fuses, with its own A and B. So its adapters are those that
    other libraries give to q, k and v, or to gate and up.

    Args:
        layer: the layer; its weights are shared, not copied.
        sizes: numbers of outputs of the fused layers; their sum is `n_out`.
        rank, alpha: r and alpha; B A x is multiplied by alpha / r.
        generator: random numbers for A, on the CPU.

    Attributes:
        lora_a: A of all fused layers, one below the other, `[len(sizes) * r, n_in]`.
        lora_b: B of each fused layer, `[size, r]`.
    """

    def __init__(self, layer: Linear, sizes: Sequence[int], rank: int, alpha: float,
                 generator: torch.Generator | None = None):
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias, self.scale = layer.weight, layer.bias, alpha / rank
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        down = torch.empty(len(sizes) * rank, layer.in_features).uniform_(-1, 1, generator=generator)
        self.lora_a = nn.Parameter((down / math.sqrt(layer.in_features)).to(**like))
        self.lora_b = nn.ParameterList(nn.Parameter(torch.zeros(size, rank, **like)) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        small = (self.scale * linear(x, self.lora_a)).chunk(len(self.lora_b), -1)         # views: slow with oneDNN
        added = [linear(part, up) for part, up in zip(small, self.lora_b, strict=True)]
        return fast_linear(x, self.weight, self.bias) + (torch.cat(added, -1) if len(added) > 1 else added[0])

    def adapters(self) -> list[tuple[Tensor, Tensor]]:
        """Return A `[r, n_in]` and B `[size, r]` of each fused layer, as views."""
        return list(zip(self.lora_a.chunk(len(self.lora_b)), self.lora_b, strict=True))

    def whole(self) -> Tensor:
        """Compute W + alpha / r * B A, `[n_out, n_in]`, in the type of W."""
        added = torch.cat([b.float() @ a.float() for a, b in self.adapters()])
        return (self.weight.float() + self.scale * added).to(self.weight.dtype)


def linear_layers(block: Block) -> dict[str, list[int]]:
    """Return the linear layers of a block by attribute, with the numbers of outputs of the layers that each fuses."""
    shape = block.shape
    return {"qkv": [n * shape.head_size for n in (shape.heads, shape.kv_heads, shape.kv_heads)], "out": [shape.width],
            "gate_up": [shape.hidden, shape.hidden], "down": [shape.width]}


def adapt(model: Transformer, rank: int, alpha: float, seed: int = 0) -> Transformer:
    """Freeze a model, and add adapters to all linear layers of its blocks. Return the model."""
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for block in model.blocks:
        for name, sizes in linear_layers(block).items():
            setattr(block, name, AdaptedLinear(getattr(block, name), sizes, rank, alpha, generator))
    return model


def adapted_like(policy: Transformer, model: Transformer) -> Transformer:
    """Add adapters of the same rank to a model if the policy has adapters. Return the model."""
    if is_adapted(policy):
        layer = policy.blocks[0].qkv
        rank = layer.lora_b[0].shape[1]
        adapt(model, rank, layer.scale * rank)
    return model


def is_adapted(model: nn.Module) -> bool:
    """Return whether a model has adapters."""
    return any(isinstance(module, AdaptedLinear) for module in model.modules())


def duplicate(model: Transformer) -> Transformer:
    """Copy a model, to train it. With adapters, only these are copied; the frozen weights are shared."""
    if not is_adapted(model):
        return copy.deepcopy(model).requires_grad_(True)
    return copy.deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


def frozen_copy(model: Transformer) -> Transformer:
    """Copy a model that stays as it is. With adapters, it is the model without them, and shares its weights."""
    if not is_adapted(model):
        return copy.deepcopy(model).requires_grad_(False)
    return with_layers(model, lambda layer: layer.weight)


def merged(model: nn.Module) -> nn.Module:
    """Return a transformer without adapters that computes the same, and learns all weights. It shares those that no
    adapter changes. Return any other model itself."""
    if not isinstance(model, Transformer) or not is_adapted(model):
        return model
    return with_layers(model, AdaptedLinear.whole).requires_grad_(True)


@torch.no_grad()
def with_layers(model: Transformer, weight_of: Callable[[AdaptedLinear], Tensor]) -> Transformer:
    """Return a frozen model with plain linear layers of these weights, `[n_out, n_in]` each. It shares the memory of
    all other weights."""
    found = copy.deepcopy(model, {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()})
    for block in found.blocks:
        for name in linear_layers(block):
            adapted = getattr(block, name)
            layer = Linear(adapted.in_features, adapted.out_features, adapted.bias is not None, device="meta")
            layer.weight, layer.bias = nn.Parameter(weight_of(adapted), requires_grad=False), adapted.bias
            setattr(block, name, layer)
    return found
