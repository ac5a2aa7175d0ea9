"""Target networks, the statistics of the last gradient step, and the learning rate schedule."""
import pytest
import torch
from torch import nn

from spinup.core.fast.adam import FlatAdam
from spinup.core.networks import mlp
from spinup.core.optim import Latest, polyak, step_size


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return mlp([3, 16, 16, 2])


# Catches: `1 - tau` in place of tau; a change of the online network; new tensors in place of a change in place; a
# rounding error at tau 1.
@pytest.mark.parametrize("tau", [0.0, 0.005, 0.5, 0.9, 1.0])
def test_polyak_moves_the_target_by_the_share_tau(tau):
    target, online = network(seed=1), network()
    FlatAdam(online.parameters(), lr=3e-3)                                # its weights are views
    goal = [p.detach().clone() for p in online.parameters()]
    expected = [p.detach().double() * (1 - tau) + g.double() * tau
                for p, g in zip(target.parameters(), goal, strict=True)]
    memory = [p.data_ptr() for p in target.parameters()]
    polyak(list(target.parameters()), list(online.parameters()), tau)
    rounding = 0 if tau in (0, 1) else 1e-7
    for p, wanted in zip(target.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach().double(), wanted, rtol=0, atol=rounding)
    assert all(torch.equal(p, g) for p, g in zip(online.parameters(), goal, strict=True))
    assert [p.data_ptr() for p in target.parameters()] == memory and all(p.is_leaf for p in target.parameters())


# The device "meta", which has no memory, stands for a GPU. A checkpoint is read on the CPU. Catches: a loaded tensor
# that stays on the CPU.
def test_loaded_tensor_moves_to_the_device_of_the_one_it_replaces():
    latest = Latest(hidden=torch.zeros(2, 3, device="meta"), sigma=0.1)
    latest.load_state_dict({"hidden": torch.ones(2, 3), "sigma": 0.2, "loss": torch.tensor(1.0)})
    assert latest["hidden"].device.type == "meta" and latest["hidden"].shape == (2, 3)
    assert latest["sigma"] == 0.2 and latest["loss"] == 1 and latest["loss"].device.type == "cpu"


# Catches: a learning rate that still rises after the warmup; one that falls to 0, or falls too early; a missing warmup.
def test_learning_rate_follows_warmup_and_annealing():
    assert [step_size(1.0, u, 10, 4, True) for u in (0, 3, 9)] == pytest.approx([0.25, 0.73, 0.19])
    assert [step_size(2.0, u, 10, 4, False) for u in (0, 1, 3, 9)] == pytest.approx([0.5, 1.0, 2.0, 2.0])
    assert [step_size(1.0, u, 10, 0, True) for u in (0, 9)] == pytest.approx([1.0, 0.19])
