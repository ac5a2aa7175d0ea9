"""Fully connected layers, faster on a CPU than torch's own: large products by oneDNN, and an MLP in
one autograd step.

In plain torch `relu_mlp` is nn.Sequential of nn.Linear and nn.ReLU, `Linear` is nn.Linear, and this
file is not needed: the numbers are the same, slower.

torch ships oneDNN, but by itself uses it for convolutions only. Its linear layer calls MKL, which
does not use AVX-512 on processors that are not Intel's: on an AMD EPYC a product of 256 x 256 x 256
takes 320 µs with MKL and 160 with oneDNN. Small products, where the call itself counts, stay with
MKL.
"""
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

LARGE = 2**21           # multiplications from which on oneDNN is faster
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias without derivatives, `[B, n_out]` of `[B, n_in]`, `[n_out, n_in]` and
    `[n_out]`."""
    if ONEDNN and x.numel() * weight.shape[0] >= LARGE:
        # Plain: linear(x, weight, bias). Its built-in ReLU would turn NaN to 0, so it has none.
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return x.mm(weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def inputs_and_output(x: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """The input of each layer, `[B, in]`, then the output of the last; `params` are weights and
    biases by turns. ReLU stands between layers. Without derivatives."""
    found = [x]
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        found.append(product(found[-1], weight, bias).relu_())
    return [*found, product(found[-1], *params[-2:])]


class Layers(torch.autograd.Function):
    """Products with ReLU between them, in one step of autograd: at a width of 256, 20 % faster than
    a step for each. Plain: linear(x, weight, bias).relu() for each layer, the last without ReLU."""

    @staticmethod
    def forward(ctx, x: Tensor, *params: Tensor) -> Tensor:
        *inputs, output = inputs_and_output(x, params)
        ctx.save_for_backward(*inputs, *params)
        return output

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all arguments of `forward`, each of its shape `[...]`.

        Where a graph of them is asked for (`create_graph`), for second derivatives, they are made
        by differentiable operations, from inputs that are computed anew.
        """
        saved = ctx.saved_tensors                             # once: a checkpoint allows no more
        n = len(saved) // 3
        inputs, params = saved[:n], saved[n:]
        multiply = product
        if torch.is_grad_enabled():                           # only with create_graph
            multiply, inputs = linear, differentiable_inputs(inputs[0], params)
        wanted, found = ctx.needs_input_grad, [None] * (2 * n + 1)
        for i in reversed(range(n)):
            if wanted[2 * i + 1]:
                found[2 * i + 1] = multiply(grad.t(), inputs[i].t())
            if wanted[2 * i + 2]:
                found[2 * i + 2] = grad.sum(0)
            if any(wanted[:2 * i + 1]):
                grad = multiply(grad, params[2 * i].t())
                if i:                                         # 0 where ReLU gave 0
                    grad = torch.ops.aten.threshold_backward(grad, inputs[i], 0)
        found[0] = grad if wanted[0] else None
        return tuple(found)


def differentiable_inputs(x: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """The input of each layer, `[B, in]`, as `inputs_and_output`, with derivatives."""
    inputs = [x]
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        inputs.append(linear(inputs[-1], weight, bias).relu())
    return inputs


def can_be_faster(x: Tensor) -> bool:
    """Whether `Layers` serves for `x`, `[..., in]`: float32 on a CPU, not being compiled, as the
    compiler does as well."""
    is_float32_on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
    return is_float32_on_cpu and not torch.compiler.is_compiling()


class Linear(nn.Linear):
    """nn.Linear, faster for large products on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not can_be_faster(x) or x.numel() * self.out_features < LARGE:
            return super().forward(x)
        y = Layers.apply(x.reshape(-1, self.in_features), self.weight, self.bias)
        return y.view(*x.shape[:-1], -1)


class ReluMLP(nn.Sequential):
    """Fully connected layers with ReLU between them, as `relu_mlp` makes them."""

    def forward(self, x: Tensor) -> Tensor:
        layers = [layer for layer in self if isinstance(layer, nn.Linear)]
        if x.ndim != 2:
            y = self(x.reshape(-1, x.shape[-1]))
            return y.view(*x.shape[:-1], layers[-1].out_features)
        largest = max([layer.weight.numel() for layer in layers]) * x.shape[0]
        if largest < LARGE or not can_be_faster(x):           # torch's own steps are 25 % faster
            return super().forward(x)
        params = [p for layer in layers for p in (layer.weight, layer.bias)]
        if torch.is_grad_enabled():
            return Layers.apply(x, *params)
        return inputs_and_output(x, params)[-1]


def relu_mlp(*sizes: int, layer_norm: bool = False) -> nn.Sequential:
    """An MLP with ReLU from `sizes[0]` inputs to `sizes[-1]` outputs, initialised as torch does.

    layer_norm: the input of each ReLU is normalised over the layer, without gain or shift.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes[:-1]):
        layers.append(nn.Linear(n_in, n_out))
        if layer_norm:
            layers.append(nn.LayerNorm(n_out, elementwise_affine=False))
        layers.append(nn.ReLU())
    layers.append(nn.Linear(*sizes[-2:]))
    return nn.Sequential(*layers) if layer_norm else ReluMLP(*layers)
