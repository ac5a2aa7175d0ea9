"""Acting in numpy: the same outputs as those of the networks in torch."""
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from spinup.algos import sac_discrete
from spinup.core.critics import QNetwork
from spinup.core.distributions import Categorical
from spinup.core.fast.acting import NumpyMLP, NumpyMLPs, in_torch
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import relu_mlp
from spinup.core.networks import Actor, ActorCritic, mlp


# Catches: a copy of the weights in NumpyMLP. An actor that was created before an update must not use the old weights.
@pytest.mark.parametrize("make", [mlp, lambda sizes: mlp(sizes, activation="relu"),
                                  lambda sizes: relu_mlp(*sizes, layer_norm=True)])
@pytest.mark.parametrize("sizes", [[3, 2], [3, 8, 2], [3, 8, 16, 2]])
def test_numpy_mlp_matches_torch_and_uses_the_current_weights(sizes, make):
    torch.manual_seed(0)
    net = make(sizes)
    minimize = FlatAdam(net.parameters(), lr=0.1).minimizer(lambda x: (net(x).square().mean(), {}))
    fast, x = NumpyMLP(net), np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    before = fast(x)
    for _ in range(3):
        np.testing.assert_allclose(fast(x), net(torch.from_numpy(x)).detach().numpy(), rtol=0, atol=1e-6)
        assert fast(x).dtype == np.float32
        minimize(torch.from_numpy(x))
    assert np.abs(fast(x) - before).max() > 0.1


# Catches: recorded gradients; a view with negative strides, which torch refuses; different outputs.
def test_in_torch_returns_the_outputs_of_the_network():
    net = mlp([3, 8, 2])
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)[::-1]
    np.testing.assert_array_equal(in_torch(net, torch.device("cpu"))(x), net(torch.from_numpy(x.copy())).detach())


# Catches: numpy on the weights of a network on another device.
@pytest.mark.parametrize("policy", [
    lambda: Actor(3, Categorical([2]), (8,)), lambda: ActorCritic((3,), Categorical([2]), (8,)),
    lambda: sac_discrete.ActorCritics(3, 2, (8,)), lambda: QNetwork((3,), 2, (8,))])
def test_actor_on_another_device_does_not_use_numpy(policy):
    assert callable(policy().to("meta").actor())


# Catches: a missing check; a check of the set of layers that ignores their order.
@pytest.mark.parametrize("layers", [
    [nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2)], [nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)],
    [nn.Linear(3, 3), nn.Linear(3, 2)], [nn.Linear(3, 3), nn.Tanh()], [nn.Tanh(), nn.Linear(3, 2)],
    [nn.Linear(3, 3), nn.Tanh(), nn.Dropout(), nn.Linear(3, 2)], [nn.LayerNorm(3), nn.Tanh(), nn.Linear(3, 2)]])
def test_numpy_mlp_refuses_unsupported_layers(layers):
    with pytest.raises(TypeError, match="the NumPy version supports Linear"):
        NumpyMLP(nn.Sequential(*layers))


# Catches: weights that are not transposed; the bias of the previous layer; the weights of one network for all.
@pytest.mark.parametrize("make", [lambda: mlp((3, 5, 4, 2)), lambda: relu_mlp(3, 5, 4, 2, layer_norm=True),
                                  lambda: mlp((3, 2))])
def test_population_matches_its_networks_on_separate_observations(make):
    torch.manual_seed(0)
    nets = [make() for _ in range(4)]
    x = torch.randn(4, 3)
    for n in 4, 2:
        together = NumpyMLPs(nets[0], n)
        for i, net in enumerate(nets[:n]):
            for p in net.parameters():
                p.data += torch.randn_like(p)
            together.put(i, parameters_to_vector(net.parameters()).detach().numpy())
        found = together(x[:n].numpy())
        expected = torch.stack([net(row) for net, row in zip(nets[:n], x, strict=False)])
        torch.testing.assert_close(torch.from_numpy(found), expected)


# Catches: a state without biases; a state that shares its memory with the population.
def test_population_is_restored_from_its_state():
    one, other = (NumpyMLPs(mlp((3, 4, 2)), 2) for _ in range(2))
    x = np.ones((2, 3), np.float32)
    one.put(1, np.arange(26, dtype=np.float32) / 26)
    expected, state = one(x), one.state_dict()
    one.put(1, np.zeros(26, np.float32))
    other.load_state_dict(state)
    np.testing.assert_array_equal(other(x), expected)
    assert expected[1].all()
