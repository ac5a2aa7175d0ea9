"""Target networks that follow, and the statistics of the last gradient step."""
import pytest
import torch
from torch import nn

from spinup.core.fast.adam import FlatAdam
from spinup.core.networks import mlp
from spinup.core.optim import Latest, polyak, step_size


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return mlp([3, 16, 16, 2])


# Catches: `1 - tau`; the other network moved; copies made for the views of FlatAdam's flat tensor; a copy at 1
# that is off by a rounding.
@pytest.mark.parametrize("tau", [0.0, 0.005, 0.5, 0.9, 1.0])
def test_polyak_goes_its_share_of_the_way(tau):
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


# A device without memory stands for a GPU: a checkpoint is read on the CPU. Catches: the loaded tensor as it is.
def test_what_is_loaded_is_put_where_the_last_was():
    latest = Latest(hidden=torch.zeros(2, 3, device="meta"), sigma=0.1)
    latest.load_state_dict({"hidden": torch.ones(2, 3), "sigma": 0.2, "loss": torch.tensor(1.0)})
    assert latest["hidden"].device.type == "meta" and latest["hidden"].shape == (2, 3)
    assert latest["sigma"] == 0.2 and latest["loss"] == 1 and latest["loss"].device.type == "cpu"


# Catches: a rate that goes on rising after the warmup; a fall to 0, or before the last update; no warmup.
def test_the_learning_rate_rises_and_falls():
    assert [step_size(1.0, u, 10, 4, True) for u in (0, 3, 9)] == pytest.approx([0.25, 0.73, 0.19])
    assert [step_size(2.0, u, 10, 4, False) for u in (0, 1, 3, 9)] == pytest.approx([0.5, 1.0, 2.0, 2.0])
    assert [step_size(1.0, u, 10, 0, True) for u in (0, 9)] == pytest.approx([1.0, 0.19])
