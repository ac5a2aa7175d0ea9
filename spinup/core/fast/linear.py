"""Fully connected layers that are faster on a CPU than torch's: large products use oneDNN, and an
MLP is one autograd step.

In plain torch `relu_mlp` is nn.Sequential of nn.Linear and nn.ReLU, `Linear` is nn.Linear, and this
file is not needed. torch's layers give the same numbers, only more slowly.

torch includes oneDNN, but uses it only for convolutions. Its linear layer calls MKL, which does not
use AVX-512 on processors other than Intel's. On an AMD EPYC with AVX-512, a product of
256 x 256 x 256 takes 320 µs with MKL and 160 with oneDNN. Small products still use MKL, because for
them the cost of the call matters. Without AVX-512, oneDNN is faster only for products that are
larger than those of most MLPs: on another EPYC, 100 x 256 x 256 takes 175 µs with MKL and 210 with
oneDNN.
"""
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

LARGE = 2**21           # multiplications of a layer from which `Layers` saves time
AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
FOR_ONEDNN = LARGE if AVX512 else 2**25                       # oneDNN is faster from this number
MATRIX = 2**17          # numbers in a weight from which `packed` saves time
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x weight^T + bias without gradients, `[B, n_out]`, from `[B, n_in]`, `[n_out, n_in]`
    and `[n_out]`."""
    if ONEDNN and x.numel() * weight.shape[0] >= FOR_ONEDNN:
        # Plain: linear(x, weight, bias). Its built-in ReLU is off, because it turns NaN into 0.
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return x.mm(weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def inputs_and_output(x: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Return the input of each layer, `[B, in]`, and the output of the last, without gradients.
    `params` alternates weights and biases. There is a ReLU between layers."""
    found = [x]
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        found.append(product(found[-1], weight, bias).relu_())
    return [*found, product(found[-1], *params[-2:])]


class Layers(torch.autograd.Function):
    """Linear layers with ReLU between them, as one autograd step. At a width of 256 this is 20 %
    faster than one step per layer. Plain: linear(x, weight, bias).relu() for each layer, the last
    without ReLU."""

    @staticmethod
    def forward(ctx, x: Tensor, *params: Tensor) -> Tensor:
        *inputs, output = inputs_and_output(x, params)
        ctx.save_for_backward(*inputs, *params)
        return output

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for all arguments of `forward`, each with the argument's shape `[...]`.

        With `create_graph`, for second derivatives, it uses differentiable operations and computes
        the layer inputs again.
        """
        saved = ctx.saved_tensors                             # once: checkpointing allows only one
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
    """Return the input of each layer, `[B, in]`, like `inputs_and_output`, but with gradients."""
    inputs = [x]
    for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        inputs.append(linear(inputs[-1], weight, bias).relu())
    return inputs


def can_be_faster(x: Tensor) -> bool:
    """True if `Layers` supports `x`, `[..., in]`: float32 on a CPU, outside of torch.compile.
    Compiled code is as fast without `Layers`."""
    is_float32_on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
    return is_float32_on_cpu and not torch.compiler.is_compiling()


def can_be_packed(weight: Tensor) -> bool:
    """True if oneDNN computes products with this weight, `[n_out, n_in]`, on this machine."""
    types = [torch.float32]
    if ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        types.append(torch.bfloat16)
    return ONEDNN and weight.device.type == "cpu" and weight.dtype in types


@contextmanager
def packed(weights: Iterable[Tensor], rows: int) -> Iterator[None]:
    """Within the block, `fast_linear` without gradients reads these weights, `[n_out, n_in]`, from
    copies in the order of oneDNN's kernels. Otherwise each product rearranges its weight again. Do
    not change the weights within the block.

    With 64 rows this is 20 % faster, with 8 rows 30 %. Small weights are left out. rows: the usual
    number of rows of a product. Plain: nothing.
    """
    large = [w for w in weights if w.numel() >= MATRIX and can_be_packed(w)]
    try:
        for weight in large:
            weight.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
        yield
    finally:
        for weight in large:
            weight.packed = None


def fast_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x weight^T + bias, `[..., n_out]`, from `[..., n_in]`, `[n_out, n_in]` and `[n_out]`.
    Plain: linear(x, weight, bias)."""
    copied = getattr(weight, "packed", None)
    if copied is not None and not torch.is_grad_enabled() and x.numel() * len(weight) >= LARGE:
        return torch.ops.mkldnn._linear_pointwise(x, copied, bias, "none", [], "")
    if not can_be_faster(x) or x.numel() * weight.shape[0] < FOR_ONEDNN:
        return linear(x, weight, bias)
    y = Layers.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return y.view(*x.shape[:-1], -1)


class Linear(nn.Linear):
    """nn.Linear, faster for large products on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return fast_linear(x, self.weight, self.bias)


class ReluMLP(nn.Sequential):
    """Fully connected layers with ReLU between them; create one with `relu_mlp`."""

    def forward(self, x: Tensor) -> Tensor:
        layers = [layer for layer in self if isinstance(layer, nn.Linear)]
        if x.ndim != 2:
            y = self(x.reshape(-1, x.shape[-1]))
            return y.view(*x.shape[:-1], layers[-1].out_features)
        largest = max([layer.weight.numel() for layer in layers]) * x.shape[0]
        if largest < LARGE or not can_be_faster(x):           # torch's layers are 25 % faster
            return super().forward(x)
        params = [p for layer in layers for p in (layer.weight, layer.bias)]
        if torch.is_grad_enabled():
            return Layers.apply(x, *params)
        return inputs_and_output(x, params)[-1]


def relu_mlp(*sizes: int, layer_norm: bool = False) -> nn.Sequential:
    """Create a ReLU MLP with `sizes[0]` inputs and `sizes[-1]` outputs, initialised as in torch.

    layer_norm: normalise the input of each ReLU over the layer, without gain or shift.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes[:-1]):
        layers.append(nn.Linear(n_in, n_out))
        if layer_norm:
            layers.append(nn.LayerNorm(n_out, elementwise_affine=False))
        layers.append(nn.ReLU())
    layers.append(nn.Linear(*sizes[-2:]))
    return nn.Sequential(*layers) if layer_norm else ReluMLP(*layers)
