"""The networks: the actor's distribution and the learner's log-probabilities are the same function."""
import numpy as np
import pytest
import torch
from torch import nn

from spinup.core.bounded import NoisyAction
from spinup.core.critics import ActorCritics, QNetwork
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.fast.acting import NumpyMLP
from spinup.core.fast.adam import FlatAdam
from spinup.core.networks import SMALLEST_IMAGE, ActorCritic, BoardConvolution, NatureCNN, mlp

DISTRIBUTIONS = {"discrete": Categorical((4,)), "multidiscrete": Categorical((3, 2)),
                 "box": DiagGaussian([-1.0, 0.0], [2.0, np.inf])}
each_distribution = pytest.mark.parametrize("dist", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)


def observations(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """64 observations as from an environment: bytes for images, numbers of different scales for vectors."""
    rng = np.random.default_rng(seed)
    if len(shape) == 3:
        return rng.integers(0, 256, (64, *shape), np.uint8)
    return (rng.standard_normal((64, *shape)) * 10.0 ** np.arange(shape[0]) + 5).astype(np.float32)


def learn(policy: ActorCritic, minimize, obs: np.ndarray, act: torch.Tensor) -> None:
    """Make one update as an algorithm does, of weights and statistics. It changes the log-probabilities."""
    minimize(policy.normalise(torch.from_numpy(obs)), act)
    if policy.normaliser is not None:
        policy.normaliser.update(torch.from_numpy(obs))


def sample(policy: ActorCritic, obs: np.ndarray, seed: int) -> torch.Tensor:
    noise = policy.dist.noise(np.random.default_rng(seed), (len(obs),))
    return torch.from_numpy(policy.dist.sample(policy.actor()(obs), noise))


def compare(policy: ActorCritic, obs: np.ndarray, act: torch.Tensor) -> torch.Tensor:
    """log pi(act|obs). Asserts that the actor's distribution and the learner give the same values."""
    params = policy.actor()(obs)
    as_tensors = tuple(map(torch.from_numpy, params)) if isinstance(params, tuple) else torch.from_numpy(params)
    acted = policy.dist.log_prob(as_tensors, act)
    with torch.no_grad():
        scored, _, _ = policy.evaluate(policy.normalise(torch.from_numpy(obs)), act)
    torch.testing.assert_close(acted, scored, rtol=0, atol=1e-5)
    return scored


# Catches: an `actor` without the normaliser, or with the initial log_std; ReLU in place of tanh in NumpyMLP.
@pytest.mark.parametrize("normalise", [False, True])
@each_distribution
def test_actor_and_learner_agree_through_updates(dist, normalise):
    torch.manual_seed(0)
    policy = ActorCritic((3,), dist, normalise=normalise)
    obs = observations((3,))
    minimize = FlatAdam(policy.parameters(), lr=1e-2).minimizer(
        lambda x, act: ((policy.evaluate(x, act)[0] + policy.value(x)).mean(), {}))
    act, seen = sample(policy, obs, seed=0), []
    for update in range(4):
        seen.append(compare(policy, obs, act))
        learn(policy, minimize, obs, sample(policy, obs, seed=update))
    assert (seen[0] - seen[-1]).abs().max() > 0.1                         # the updates changed the policy


def gain(layer: nn.Linear | nn.Conv2d) -> float:
    """The gain of an orthogonal layer with zero biases. Asserts that the layer has both properties."""
    weight = layer.weight.detach().flatten(1)
    gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(gram, gram[0, 0] * torch.eye(len(gram)), rtol=0, atol=1e-5)
    assert layer.bias is not None and not layer.bias.any()
    return float(gram[0, 0].sqrt())


def layers(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


# Catches: torch's own initialisation; the gains of policy and value exchanged; a convolution that is not initialised.
def test_layers_are_orthogonal_with_the_intended_gains():
    vector, image = (ActorCritic(shape, Categorical((4,))) for shape in [(3,), (1, 36, 36)])
    assert [gain(m) for m in layers(vector.pi)] == pytest.approx([2**0.5, 2**0.5, 0.01], abs=1e-6)
    assert [gain(m) for m in layers(vector.v)] == pytest.approx([2**0.5, 2**0.5, 1], abs=1e-5)
    assert [gain(m) for m in layers(image.body)] == pytest.approx([2**0.5] * 4, abs=1e-5)
    assert [gain(m) for m in [*layers(image.pi), *layers(image.v)]] == pytest.approx([0.01, 1], abs=1e-5)


# Catches: a missing division by 255; a `view` that mixes leading axes; a width that is right for one image size only.
@pytest.mark.parametrize("shape", [(1, SMALLEST_IMAGE, SMALLEST_IMAGE), (3, 36, 50), (4, 84, 84)])
def test_cnn_accepts_any_leading_axes_and_image_size(shape):
    torch.manual_seed(0)
    net = NatureCNN(shape)
    images = torch.from_numpy(observations(shape)[:6])
    features = net(images)
    assert features.shape == (6, 512) and features.abs().max() < 50       # about unit size: bytes are scaled to 0 to 1
    torch.testing.assert_close(net(images.view(2, 3, *shape)), features.view(2, 3, 512))
    torch.testing.assert_close(net(images[4]), features[4], rtol=1e-4, atol=1e-5)


# Catches: a missing check, so that torch reports a kernel larger than its input; a check of one side only.
@pytest.mark.parametrize("shape", [(3, 35, 84), (3, 84, 35)])
def test_too_small_images_are_refused_with_their_size(shape):
    with pytest.raises(ValueError, match=f"{shape[1]} x {shape[2]} is too small.*{SMALLEST_IMAGE}"):
        NatureCNN(shape)


def test_observations_with_two_axes_are_refused():
    with pytest.raises(ValueError, match="neither vectors nor images"):
        ActorCritic((3, 3), Categorical((2,)))


# Catches: other pixels for the actor than for `evaluate`; a FlatAdam that reads a channels-last weight in the order of
# its memory.
@each_distribution
def test_image_actor_and_learner_agree_through_updates(dist):
    torch.manual_seed(0)
    policy = ActorCritic((2, 36, 40), dist, normalise=True)
    assert policy.normaliser is None                                      # bytes all have the same scale
    obs = observations((2, 36, 40))
    act = sample(policy, obs, seed=0)
    before = compare(policy, obs, act)
    minimize = FlatAdam(policy.parameters(), lr=1e-3).minimizer(lambda x, act: (policy.evaluate(x, act)[0].mean(), {}))
    torch.testing.assert_close(compare(policy, obs, act), before)         # FlatAdam's flat tensor changes no output
    for update in range(2):
        learn(policy, minimize, obs, sample(policy, obs, seed=update))
    assert (compare(policy, obs, act) - before).abs().max() > 1e-3


# Catches: different features for value and policy; a `squeeze` of the wrong axis at [N, T] with N = 1.
@pytest.mark.parametrize("shape", [(3,), (1, 36, 36)])
def test_evaluate_and_value_agree_for_any_leading_axes(shape):
    policy = ActorCritic(shape, Categorical((4,)))
    obs = torch.from_numpy(observations(shape)[:6]).view(1, 6, *shape)
    logp, entropy, value = policy.evaluate(obs, torch.zeros(1, 6, dtype=torch.int64))
    assert logp.shape == entropy.shape == value.shape == (1, 6)
    torch.testing.assert_close(policy.value(obs), value)
    torch.testing.assert_close(policy.value(obs[0, 0]), value[0, 0], rtol=1e-4, atol=1e-5)


# Catches: torch's own orthogonal_. Its last digits depend on the number of threads, so a seed would not fix the
# weights.
def test_initial_weights_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in 1, 2:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        found.append([*mlp([17, 64, 64, 6]).parameters(), *NatureCNN((4, 84, 84)).parameters()])
        assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


# Catches: windows of the wrong squares; planes before columns; a kernel that is not limited to the board's size; a
# result that depends on the numbers after the board.
@pytest.mark.parametrize("shape, kernel", [((6, 7, 2), 4), ((3, 3, 2), 4), ((5, 2, 3), 2)])
def test_board_convolution_matches_torch_and_its_numpy_version(shape, kernel):
    torch.manual_seed(0)
    rows, columns, planes = shape
    sides, k = (min(kernel, rows), min(kernel, columns)), 5
    board = torch.randn(4, 2, *shape)
    theirs, ours = nn.Conv2d(planes, k, sides), BoardConvolution(shape, kernel, k)
    with torch.no_grad():
        ours.linear.weight.copy_(theirs.weight.flatten(1))
        ours.linear.bias.copy_(theirs.bias)
    x = torch.cat([board.flatten(2), torch.full((4, 2, 7), torch.nan)], 2)
    expected = theirs(board.flatten(0, 1).permute(0, 3, 1, 2)).relu().permute(0, 2, 3, 1).reshape(4, 2, -1)
    torch.testing.assert_close(ours(x), expected)
    net = nn.Sequential(ours, *mlp([ours.width, 8, 3], activation="relu"))
    np.testing.assert_allclose(NumpyMLP(net)(x.numpy()), net(x).detach().numpy(), rtol=0, atol=1e-5)


# Catches: convolutions other than those of Mnih et al. (2015).
def test_convolutions_are_those_of_the_nature_cnn():
    layers = [x for x in NatureCNN((4, 84, 84)).modules() if isinstance(x, nn.Conv2d)]
    assert [(*x.weight.shape, *x.stride) for x in layers] == [
        (32, 4, 8, 8, 4, 4), (64, 32, 4, 4, 2, 2), (64, 64, 3, 3, 1, 1)]


# Catches: an activation that only one of the two networks gets.
@pytest.mark.parametrize(("activation", "scales"), [("relu", True), ("tanh", False)])
def test_pi_and_v_have_the_requested_activation(activation, scales):
    torch.manual_seed(0)
    net, x = ActorCritic((3,), Categorical((2,)), activation=activation), torch.randn(5, 3)
    for part in (net.pi, net.v):                                   # with zero biases, only ReLU is homogeneous
        assert torch.allclose(part(3 * x), 3 * part(x), rtol=1e-4, atol=1e-6) == scales


# Catches: layer norm in the actor only.
def test_layer_norm_is_in_every_network():
    nets = ActorCritics((3,), NoisyAction([-1.0], [1.0], 0.1), (8,), critics=2, layer_norm=True)
    for net in (nets.pi, *nets.q, QNetwork((3,), 2, (8,), layer_norm=True).advantage):
        assert sum(isinstance(x, nn.LayerNorm) for x in net.modules()) == 1
