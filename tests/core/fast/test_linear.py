"""Fast layers, compared with torch's own: the same values and gradients, with and without oneDNN."""
import copy
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from spinup.core.fast import linear
from spinup.core.fast.linear import Layers, Linear, ReluMLP, fast_linear, packed, relu_mlp

SHAPES = {                                                                # leading axes, sizes
    "one layer": ((5,), (3, 2)), "two": ((5,), (3, 8, 2)), "no axis": ((), (3, 8, 2)), "one row": ((1,), (3, 4, 4, 1)),
    "several axes": ((2, 3, 4), (3, 8, 16, 2)), "one output": ((7,), (3, 16, 16, 1)), "nobody": ((0,), (3, 8, 2)),
    "a batch of none": ((2, 0), (3, 2)), "large": ((256,), (17, 256, 256, 2)), "long": ((3, 2000), (40, 24, 33, 5))}
each_shape = pytest.mark.parametrize(("lead", "sizes"), SHAPES.values(), ids=SHAPES)


@pytest.fixture(params=["as it is", "all by oneDNN", "without oneDNN"])
def path(request, monkeypatch):
    """Which products oneDNN computes: large ones if it is available, all of them, or none."""
    if request.param != "as it is":
        monkeypatch.setattr(linear, "LARGE", 1)
        monkeypatch.setattr(linear, "FOR_ONEDNN", 1)
    if request.param == "without oneDNN":
        monkeypatch.setattr(linear, "ONEDNN", False)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_float64(net: nn.Module) -> nn.Module:
    """torch's own layers in float64, with the same weights."""
    layers = net if isinstance(net, nn.Sequential) else [net]
    plain = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            plain.append(nn.Linear(layer.in_features, layer.out_features, layer.bias is not None).double())
            plain[-1].load_state_dict(layer.state_dict())
            for ours, theirs in zip(layer.parameters(), plain[-1].parameters(), strict=True):
                theirs.requires_grad_(ours.requires_grad)
        else:
            plain.append(copy.deepcopy(layer))
    return nn.Sequential(*plain)


def check(net: nn.Module, x: Tensor, wants_input: bool = True) -> None:
    """Assert that values and all gradients are those of torch's layers in float64."""
    plain, far = in_float64(net), x.double()
    x, far = x.clone().requires_grad_(wants_input), far.clone().requires_grad_(wants_input)
    y, expected = net(x), plain(far)
    assert y.dtype == torch.float32 and y.requires_grad == expected.requires_grad
    torch.testing.assert_close(y, expected.float(), rtol=1e-4, atol=1e-5)
    if y.requires_grad:
        direction = numbers(*y.shape, seed=9)
        y.backward(direction)
        expected.backward(direction.double())
    for ours, theirs in zip([x, *net.parameters()], [far, *plain.parameters()], strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            scale = max(1.0, float(theirs.grad.abs().max())) if theirs.grad.numel() else 1.0
            torch.testing.assert_close(ours.grad, theirs.grad.float(), rtol=1e-4, atol=1e-5 * scale)


# Catches: a ReLU after the last layer, or a missing one between layers; a missing `threshold_backward`, or one with the
# inputs of another layer; a `grad` that is not transposed; `grad.sum()` for the bias; `x.shape[:1]`; `-1` as the width
# of the view.
@each_shape
def test_relu_mlp_matches_torch(lead, sizes, path):
    torch.manual_seed(0)
    check(relu_mlp(*sizes), numbers(*lead, sizes[0]))


# Catches: a bias in a layer without one; a wrong `view`; the wrong side of the limit LARGE.
@pytest.mark.parametrize("bias", [True, False])
@each_shape
def test_linear_matches_torch(lead, sizes, bias, path):
    torch.manual_seed(0)
    check(Linear(sizes[0], sizes[1], bias), numbers(*lead, sizes[0]))


# Catches: `needs_input_grad` of the neighbouring argument; an `any(wanted)` that leaves out the previous layers, so
# that they get no gradient; a gradient for a frozen parameter. The test covers all 2^5 combinations.
@pytest.mark.parametrize("large", [False, True])
def test_only_tensors_that_require_gradients_get_them(large, monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 1 if large else 2**40)
    monkeypatch.setattr(linear, "FOR_ONEDNN", 1 if large else 2**40)
    for wants_input, *wanted in product([False, True], repeat=5):
        torch.manual_seed(0)
        net = relu_mlp(3, 8, 2)
        for p, wants in zip(net.parameters(), wanted, strict=True):
            p.requires_grad_(wants)
        check(net, numbers(6, 3), wants_input)


# Catches: `view` in place of `reshape` for the input.
def test_inputs_may_be_non_contiguous(path):
    torch.manual_seed(0)
    net, layer = relu_mlp(3, 8, 2), Linear(3, 8)
    for x in (numbers(3, 6).t(), numbers(6, 7)[:, 2:5], numbers(4, 3, 5).transpose(1, 2), numbers(1, 3).expand(6, 3)):
        torch.testing.assert_close(net(x), nn.Sequential.forward(net, x.contiguous()))
        torch.testing.assert_close(layer(x), nn.functional.linear(x.contiguous(), layer.weight, layer.bias))


# Catches: the built-in ReLU of oneDNN. It turns NaN into 0, so `check_finite` would not find the NaN.
def test_nan_inputs_give_nan_outputs(path):
    net, x = relu_mlp(4, 8, 8, 2), numbers(3, 4)
    x[1, 2] = torch.nan
    for y in (net(x), net(x.requires_grad_())):
        assert y[1].isnan().all() and not y[[0, 2]].isnan().any()


# Catches: oneDNN for all products, or for none, which is twice as slow where it matters; oneDNN for the products of
# MLPs on a processor without AVX-512, where agents then make a tenth fewer updates per second.
def test_only_large_products_use_onednn(monkeypatch):
    monkeypatch.setattr(linear, "FOR_ONEDNN", linear.LARGE)
    calls = []

    def counted(x, weight, bias, *rest):
        calls.append((len(x), x.shape[1], len(weight)))
        return nn.functional.linear(x, weight, bias)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", counted, raising=False)
    monkeypatch.setattr(linear, "ONEDNN", True)
    relu_mlp(3, 64, 2)(numbers(64, 3)).sum().backward()
    Linear(64, 64)(numbers(64, 64)).sum().backward()
    assert not calls
    Linear(128, 128)(numbers(128, 128)).sum().backward()
    assert calls == [(128, 128, 128)] * 2                                 # the input needs no gradient
    calls.clear()
    relu_mlp(128, 128, 1)(numbers(128, 128)).sum().backward()
    assert calls == [(128, 128, 128)] * 2                                 # not the layer with one output
    monkeypatch.setattr(linear, "ONEDNN", False)
    Linear(128, 128)(numbers(128, 128))
    assert len(calls) == 2


# Catches: a missing check of the dtype; a dtype that oneDNN refuses.
def test_other_dtypes_use_torchs_layers():
    torch.manual_seed(0)
    net, layer = relu_mlp(128, 128, 2).double(), Linear(128, 128).double()
    x = numbers(128, 128).double()
    torch.testing.assert_close(net(x), nn.Sequential.forward(net, x), rtol=0, atol=0)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias), rtol=0, atol=0)


# Catches: `Layers` for all products, which takes 30 % longer for small ones; the width of the output in place of the
# size of the layer; a limit that ignores the batch size.
@pytest.mark.parametrize("batch, hidden, ours", [
    (128, (120, 84), False), (256, (256, 256), True), (32, (256, 256), True), (31, (256, 256), False)])
def test_mlp_without_large_products_uses_torchs_layers(batch, hidden, ours, monkeypatch):
    calls, apply = [], linear.Layers.apply
    monkeypatch.setattr(linear.Layers, "apply", lambda *args: calls.append(1) or apply(*args))
    relu_mlp(4, *hidden, 2)(numbers(batch, 4))
    assert bool(calls) is ours


def second_derivatives(net: nn.Module, x: Tensor) -> list[Tensor]:
    """First and second derivatives with respect to the input and the parameters, of a loss that is curved in each of
    them. The second derivatives are those of the gradient along a direction, and of the gradient's squared length,
    which also depends on the gradient with respect to the output."""
    inputs = [x.requires_grad_(), *net.parameters()]
    y = net(x)
    loss = (y * y.sin()).sum()
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    directions = [numbers(*g.shape, seed=k).to(g.dtype) for k, g in enumerate(first)]
    along = sum((g * d).sum() for g, d in zip(first, directions, strict=True))
    length = sum(g.square().sum() for g in first)
    return [*first, *torch.autograd.grad(along, inputs, retain_graph=True), *torch.autograd.grad(length, inputs)]


# Catches: gradients from the inputs that `forward` saved, without their dependence on the weights; `product` in place
# of `linear`, although it has no derivative; the weights of the wrong layer.
@pytest.mark.parametrize("make", [relu_mlp, Linear], ids=["mlp", "layer"])
@pytest.mark.parametrize(("rows", "sizes"), [(6, (3, 8, 2)), (5, (4, 7, 6, 3)), (256, (17, 256, 256, 2))])
def test_second_derivatives_match_those_of_torchs_layers(make, rows, sizes, path):
    torch.manual_seed(0)
    net, x = make(*(sizes if make is relu_mlp else sizes[:2])), numbers(rows, sizes[0])
    plain = in_float64(net)
    for ours, theirs in zip(second_derivatives(net, x), second_derivatives(plain, x.double()), strict=True):
        scale = max(1.0, float(theirs.detach().abs().max()))
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-3, atol=2e-5 * scale)
        assert ours.abs().max() > 0


# Catches: the differentiable path where no graph is requested, which is slower in the most frequent case.
def test_gradients_without_a_graph_use_the_fast_products(monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 1)
    calls, made = [], linear.differentiable_inputs
    monkeypatch.setattr(linear, "differentiable_inputs", lambda *args: calls.append(1) or made(*args))
    net = relu_mlp(3, 8, 2)
    net(numbers(6, 3)).sum().backward()
    assert not calls
    torch.autograd.grad(net(numbers(6, 3)).sum(), list(net.parameters()), create_graph=True)
    assert calls == [1]


# Catches: activations that are changed in place after they were saved; a graph that is freed too early.
def test_gradients_of_two_calls_of_a_network_add_up(path):
    torch.manual_seed(0)
    net = relu_mlp(3, 8, 2)
    plain, x, z = in_float64(net), numbers(6, 3), numbers(4, 3, seed=1)
    (net(x).sum() * net(z).square().sum()).backward()
    (plain(x.double()).sum() * plain(z.double()).square().sum()).backward()
    for ours, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad.float(), rtol=1e-4, atol=1e-4)


# Catches: initial weights other than torch's; an activation after the last layer.
def test_relu_mlp_is_initialised_as_in_torch():
    torch.manual_seed(0)
    net = relu_mlp(3, 8, 4, 2)
    torch.manual_seed(0)
    layers = [nn.Linear(3, 8), nn.Linear(8, 4), nn.Linear(4, 2)]
    assert isinstance(net, ReluMLP)
    assert [type(m) for m in net] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    for ours, theirs in zip(net[::2], layers, strict=True):
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


# Catches: a second read of the saved tensors, which activation checkpointing does not allow.
def test_gradient_works_with_activation_checkpointing():
    x, *params = (numbers(*shape).requires_grad_() for shape in ((5, 3), (4, 3), (4,), (2, 4), (2,)))
    plain = torch.autograd.grad(Layers.apply(x, *params).sum(), [x, *params])
    again = torch.utils.checkpoint.checkpoint(Layers.apply, x, *params, use_reentrant=False)
    for ours, theirs in zip(torch.autograd.grad(again.sum(), [x, *params]), plain, strict=True):
        assert torch.equal(ours, theirs)


# Catches: a packed copy that is kept after its block, or after an error in it; one that is used where a gradient is
# needed; a missing bias.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packed_weights_give_the_same_products(dtype):
    layer, x, small = Linear(512, 512).to(dtype), numbers(2, 32, 512).to(dtype), numbers(8, 8)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    with pytest.raises(KeyboardInterrupt), packed([layer.weight, small], 64):
        with torch.inference_mode():
            torch.testing.assert_close(layer(x), expected)
        layer(x).sum().backward()
        assert not hasattr(small, "packed") and layer.weight.grad.shape == (512, 512)
        raise KeyboardInterrupt
    with torch.no_grad():
        layer.weight.zero_()
        torch.testing.assert_close(fast_linear(x, layer.weight), torch.zeros_like(x))
