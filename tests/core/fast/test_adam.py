"""FlatAdam, compared with torch's Adam and with its own compiled version; its checkpoints."""
import copy
import functools

import pytest
import torch
from torch import Tensor, nn

from spinup.core.fast import adam
from spinup.core.fast.adam import FlatAdam
from spinup.core.networks import mlp

LR, CLIP = 3e-3, 0.7        # CLIP is between the gradient norms of `batch`: some steps are clipped, some are not


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return mlp([3, 16, 16, 2])


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, generator=generator), 10 ** (step % 3 - 1.0) * torch.randn(8, 2, generator=generator)


def loss_of(net: nn.Module):
    def loss(x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        error = (net(x) - y).square().mean()
        return error, {"error": error.detach()}
    return loss


def flat_adam(net: nn.Module, **settings):
    optimizer = FlatAdam(net.parameters(), lr=LR, max_grad_norm=CLIP, **settings)
    return optimizer, optimizer.minimizer(loss_of(net))


def numbers(stats: dict[str, Tensor]) -> dict[str, float]:
    return {k: v.item() for k, v in stats.items()}


def distance(a: nn.Module, b: nn.Module) -> float:
    return max(float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))


# Catches: a missing clip; a separate clip of each parameter; eps 1e-8; a gradient that is not set to 0; an unused `lr`.
def test_flat_adam_matches_adam_with_a_clipped_gradient():
    ours, theirs = network(), network()
    _, minimize = flat_adam(ours)
    adam = torch.optim.Adam(theirs.parameters(), lr=LR, eps=1e-5)
    clipped = []
    for step in range(20):
        lr = None if step % 2 else LR * (1 - step / 20)
        stats = minimize(*batch(step), lr=lr)
        adam.zero_grad()
        adam.param_groups[0]["lr"] = lr or LR
        error, _ = loss_of(theirs)(*batch(step))
        error.backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), CLIP)
        adam.step()
        assert numbers(stats) == pytest.approx(
            {"error": error.item(), "loss": error.item(), "grad_norm": norm.item()}, rel=1e-4)
        assert distance(ours, theirs) < 1e-6
        clipped.append(norm > CLIP)
    assert {False, True} == {bool(c) for c in clipped}


# The limit is that of the tracer, so the test needs no C++ compiler. Catches: one code object for all networks: torch
# limits the number of compilations of each code object.
@pytest.mark.long
def test_number_of_compiled_networks_is_not_limited(monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    with torch._dynamo.config.patch(recompile_limit=1):    # not a decorator: its import takes two seconds
        for width in (2, 3):
            net = torch.nn.Linear(width, 1)
            adam = FlatAdam(net.parameters(), lr=LR, compile=True)
            step = adam.minimizer(lambda x, net=net: (net(x).square().mean(), {}))
            assert torch.isfinite(step(torch.ones(4, width))["loss"])


# Takes about ten seconds. Catches: a second moment without bias correction, or with eps inside its root; a missing
# clip; a `state_dict` without the steps of the compiled version; a load that does not set `self.steps`.
@pytest.mark.long
def test_compiled_and_eager_agree_and_load_each_others_state():
    eager, compiled = network(), network()
    (eager_adam, eager_step), (compiled_adam, compiled_step) = flat_adam(eager), flat_adam(compiled, compile=True)
    for step in range(6):
        lr = LR / (1 + step)
        ours, theirs = compiled_step(*batch(step), lr=lr), eager_step(*batch(step), lr=lr)
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-3)
        assert distance(eager, compiled) < 1e-5

    resumed = copy.deepcopy(compiled)                                     # compiled -> eager
    resumed_adam, resumed_step = flat_adam(resumed)
    resumed_adam.load_state_dict(compiled_adam.state_dict())
    for step in range(6, 9):
        compiled_step(*batch(step)), resumed_step(*batch(step))
        assert distance(resumed, compiled) < 1e-5

    for step in range(9, 12):                                             # eager -> compiled, which has its own state
        eager_step(*batch(step))
    compiled.load_state_dict(eager.state_dict())
    compiled_adam.load_state_dict(eager_adam.state_dict())
    for step in range(12, 15):
        compiled_step(*batch(step)), eager_step(*batch(step))
        assert distance(eager, compiled) < 1e-5


# Catches: a load without the step or without one of the moments.
def test_optimiser_with_loaded_state_continues_bit_for_bit():
    kept = network()
    kept_adam, kept_step = flat_adam(kept)
    for step in range(5):
        kept_step(*batch(step))
    saved_net, saved_adam = copy.deepcopy(kept.state_dict()), copy.deepcopy(kept_adam.state_dict())
    for step in range(5, 10):
        kept_step(*batch(step))

    resumed = network(seed=1)
    resumed_adam, resumed_step = flat_adam(resumed)
    resumed_step(*batch(0))                                               # its own state must be replaced
    resumed.load_state_dict(saved_net)
    resumed_adam.load_state_dict(saved_adam)
    for step in range(5, 10):
        resumed_step(*batch(step))
    assert distance(kept, resumed) == 0


# Catches: a missing check that the gradients are in the flat tensor: nothing would be learned, without an error.
@pytest.mark.parametrize("set_to_none", [True, False])
def test_detached_gradients_are_noticed(set_to_none):
    net = network()
    _, minimize = flat_adam(net)
    minimize(*batch(0))
    net.zero_grad(set_to_none=set_to_none)
    if set_to_none:
        with pytest.raises(RuntimeError, match="zero_grad"):
            minimize(*batch(1))
    else:
        minimize(*batch(1))                                               # set to 0 in place: allowed


# Catches: a missing check of the dtype, so that one weight is cast; a frozen parameter that is updated.
def test_mixed_dtypes_and_frozen_networks_are_refused():
    mixed = network()
    mixed[0].double()
    with pytest.raises(ValueError, match="one device and one dtype"):
        FlatAdam(mixed.parameters(), lr=LR)
    some = network()
    some[0].weight.requires_grad_(False)
    assert all(p.requires_grad for p in FlatAdam(some.parameters(), lr=LR).params)
    with pytest.raises(ValueError, match="needs trainable parameters"):
        FlatAdam(some.requires_grad_(False).parameters(), lr=LR)


# Catches: an fp32 copy that keeps the weights from before a load, so that the next step restores them (for both ways to
# load); an fp32 copy that is rounded to bf16 at every step, which loses steps below its precision.
@pytest.mark.parametrize("piece", [adam.PIECE, 4])                       # one call of the kernel, or several
def test_weights_loaded_into_a_bf16_network_are_kept(piece, monkeypatch):
    monkeypatch.setattr(adam, "PIECE", piece)

    def trained(seed: int, dtype: torch.dtype) -> tuple[nn.Linear, FlatAdam]:
        torch.manual_seed(seed)
        net = nn.Linear(4, 3).to(dtype)
        optimizer = FlatAdam(net.parameters(), lr=1e-6)
        net(torch.ones(2, 4, dtype=dtype)).sum().backward()
        optimizer.step()
        return net, optimizer

    (net, optimizer), (other, state) = trained(1, torch.bfloat16), trained(2, torch.float32)
    net.load_state_dict(other.state_dict())
    wanted = optimizer.flat.clone()
    optimizer.step()
    torch.testing.assert_close(optimizer.flat, wanted)
    net, optimizer = trained(3, torch.bfloat16)
    net.load_state_dict(other.state_dict())
    optimizer.load_state_dict(state.state_dict())                         # an fp32 state has no copy of the weights
    optimizer.step()
    torch.testing.assert_close(optimizer.flat, wanted)

    before = optimizer.master.clone()
    for _ in range(5):
        optimizer.step()                                                  # far below the precision of bf16
    assert ((optimizer.master - before).abs() > 2e-6).all()


# Catches: a share of the moments that starts at the wrong parameter; the norm of the share's gradient in place of the
# whole; an fp32 copy of all parameters; a checkpoint with the moments of this process only.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sharded_optimisers_make_the_same_step_as_one(dtype):
    nets = [network().to(dtype) for _ in range(3)]
    one, *parts = (FlatAdam(net.parameters(), lr=LR, max_grad_norm=CLIP) for net in nets)
    n = one.flat.numel()
    cut = n // 3
    for part, own in zip(parts, (slice(0, cut), slice(cut, n)), strict=True):
        part.shard(own, lambda flat: flat, lambda own: own)
    for step in range(3):
        for net, optimizer in zip(nets, (one, *parts), strict=True):
            optimizer.zero_grad()
            loss_of(net)(*(x.to(dtype) for x in batch(step)))[0].backward()
            optimizer.step()
        joined = torch.cat([part.flat[part.own] for part in parts])       # `share` does this between processes
        torch.testing.assert_close(joined, one.flat, rtol=1e-6, atol=0)   # kernels round differently at a share's ends
        for part in parts:
            part.flat.copy_(joined)
    kept = [[part.first, part.second] + [part.master] * (part.master is not part.flat) for part in parts]
    assert [x.numel() for x in kept[0]] == [cut] * (2 + (dtype == torch.bfloat16))
    for part in parts:                                                    # a checkpoint holds all moments
        part.collect = lambda own: next(torch.cat(pair) for pair in zip(*kept, strict=True)
                                                   if any(own is x for x in pair))
    expected = one.state_dict()
    for name, value in parts[0].state_dict().items():
        torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(expected[name]), rtol=1e-6, atol=0)
    again = FlatAdam(network(1).to(dtype).parameters(), lr=LR)
    again.shard(slice(cut, n), lambda flat: flat, lambda own: own)
    again.load_state_dict(expected)
    assert torch.equal(again.first, one.first[cut:]) and torch.equal(again.second, one.second[cut:])
