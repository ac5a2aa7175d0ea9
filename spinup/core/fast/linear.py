"""Fully connected layers, faster on a CPU than torch's own: large products by oneDNN, and an MLP in one autograd step.

torch ships oneDNN, but by itself uses it for convolutions only. Its linear layer asks MKL, which does without AVX-512
on processors that are not Intel's: on an AMD EPYC a product of 256 x 256 x 256 takes 320 µs so, and 160 by oneDNN.
Small products, where the call itself counts, stay with MKL.
"""
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

LARGE = 2**21           # multiplications from which on oneDNN is faster
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, `[B, n_out]` of `[B, n_in]`, `[n_out, n_in]` and `[n_out]`, without derivatives."""
    if ONEDNN and x.numel() * weight.shape[0] >= LARGE:                   # its own ReLU would turn NaN to 0: none here
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return x.mm(weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def inputs_and_output(x: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """What comes to each layer, `[..., in]`, then what the last one gives: of weights and biases by turns, ReLU between
    layers.
    """
    found = [x]
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        found.append(product(found[-1], weight, bias).relu_())
    return [*found, product(found[-1], *params[-2:])]


class Layers(torch.autograd.Function):
    """Products with ReLU between them. One step of autograd: at a width of 256, 20 % faster than a step for each."""

    @staticmethod
    def forward(ctx, x: Tensor, *params: Tensor) -> Tensor:
        *inputs, output = inputs_and_output(x, params)
        ctx.save_for_backward(*params[::2], *inputs)
        return output

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all that `forward` took, each of its shape `[...]`. RuntimeError for a second derivative."""
        if torch.is_grad_enabled():                                       # it would be wrong, and nobody told
            raise RuntimeError("these layers have no second derivative; use nn.Linear where create_graph is asked for")
        saved = ctx.saved_tensors                                         # once: a checkpoint allows no second time
        n = len(saved) // 2
        weights, inputs = saved[:n], saved[n:]
        wanted, found = ctx.needs_input_grad, [None] * (2 * n + 1)
        for i in reversed(range(n)):
            if wanted[2 * i + 1]:
                found[2 * i + 1] = product(grad.t(), inputs[i].t())
            if wanted[2 * i + 2]:
                found[2 * i + 2] = grad.sum(0)
            if any(wanted[:2 * i + 1]):
                grad = product(grad, weights[i].t())
                if i:
                    grad = torch.ops.aten.threshold_backward(grad, inputs[i], 0)          # 0 where ReLU gave 0
        found[0] = grad if wanted[0] else None
        return tuple(found)


def can_be_faster(x: Tensor) -> bool:
    """Whether `Layers` serves for `x`, `[..., in]`: float32 on a CPU, not compiled, where the compiler does as well."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling()


class Linear(nn.Linear):
    """nn.Linear, faster for large products on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not can_be_faster(x) or x.numel() * self.out_features < LARGE:
            return super().forward(x)
        return Layers.apply(x.reshape(-1, self.in_features), self.weight, self.bias).view(*x.shape[:-1], -1)


class ReluMLP(nn.Sequential):
    """Fully connected layers with ReLU between them, as `relu_mlp` makes them."""

    def forward(self, x: Tensor) -> Tensor:
        layers = [layer for layer in self if isinstance(layer, nn.Linear)]
        if x.ndim != 2:
            return self(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], layers[-1].out_features)
        largest = max([layer.weight.numel() for layer in layers]) * x.shape[0]
        if largest < LARGE or not can_be_faster(x):                       # there torch's own steps are 25 % faster
            return super().forward(x)
        params = [p for layer in layers for p in (layer.weight, layer.bias)]
        return Layers.apply(x, *params) if torch.is_grad_enabled() else inputs_and_output(x, params)[-1]


def relu_mlp(*sizes: int, layer_norm: bool = False) -> nn.Sequential:
    """An MLP with ReLU from `sizes[0]` inputs to `sizes[-1]` outputs, initialised as torch does: uniform and small.

    layer_norm: what comes to each ReLU has mean 0 and deviation 1 over the layer, and neither gain nor shift.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), *([nn.LayerNorm(n_out, elementwise_affine=False)] if layer_norm else []),
                   nn.ReLU()]
    last = -2 if layer_norm else -1
    return nn.Sequential(*layers[:last]) if layer_norm else ReluMLP(*layers[:last])
