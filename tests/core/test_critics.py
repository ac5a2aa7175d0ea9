"""Networks of action values: the actor agrees with the learner for every shape, and frozen critics get no gradient."""
import numpy as np
import pytest
import torch
from torch import nn

from spinup.core.bounded import NoisyAction, SquashedGaussian
from spinup.core.critics import ActorCritics, QNetwork, duel, frozen
from spinup.core.fast.adam import FlatAdam

LOW, HIGH = [-1.0, 0.0], [1.0, 5.0]
NETWORKS = {                                                              # shape of observations, hidden, dueling
    "vector": ((3,), (16, 8), False), "dueling": ((3,), (16, 8), True), "one layer, dueling": ((3,), (16,), True),
    "three, dueling": ((3,), (16, 8, 7), True), "no hidden layer": ((3,), (), False),
    "image": ((2, 36, 40), (16,), False), "image, dueling": ((2, 36, 40), (16,), True)}
each_network = pytest.mark.parametrize(("shape", "hidden", "dueling"), NETWORKS.values(), ids=NETWORKS)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def observations(shape: tuple[int, ...], *lead: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if len(shape) == 3:
        return rng.integers(0, 256, (*lead, *shape), np.uint8)
    return rng.standard_normal((*lead, *shape)).astype(np.float32)


# Catches: an actor without one of the two streams, or without the subtraction of the mean advantage; a copy of the
# weights or of epsilon; `self.value` with the observation in place of the features as its input.
@each_network
def test_actor_returns_the_current_values_of_the_q_network(shape, hidden, dueling):
    net, obs = QNetwork(shape, 4, hidden, dueling), observations(shape, 5)
    minimize = FlatAdam(net.parameters(), lr=0.01).minimizer(lambda x: (net(x).square().mean(), {}))
    actor, seen = net.actor(), []
    for epsilon in (1.0, 0.25, 0.0):
        net.epsilon.fill_(epsilon)
        values, said = actor(obs)
        learned = net(torch.from_numpy(obs)).detach()
        assert isinstance(values, np.ndarray) and values.shape == (5, 4) and values.dtype == np.float32
        torch.testing.assert_close(torch.from_numpy(values), learned, rtol=1e-4, atol=1e-5)
        assert said == epsilon and isinstance(said, float)
        seen.append(learned)
        minimize(torch.from_numpy(obs))
    assert (seen[0] - seen[-1]).abs().max() > 1e-3                        # the updates changed the values


# Catches: leading axes that are flattened and not restored.
@each_network
def test_values_have_the_leading_axes_of_the_observations(shape, hidden, dueling):
    net, obs = QNetwork(shape, 4, hidden, dueling), torch.from_numpy(observations(shape, 2, 3))
    values = net(obs)
    assert values.shape == (2, 3, 4)
    torch.testing.assert_close(values[1, 2], net(obs[1, 2][None])[0], rtol=1e-4, atol=1e-5)


# Catches: a missing subtraction of the mean; a mean over the batch; the maximum in place of the mean; a missing value.
@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray], ids=["torch", "numpy"])
def test_dueling_values_do_not_depend_on_the_mean_advantage(kind):
    rng = np.random.default_rng(0)
    value, advantage = kind(rng.standard_normal((3, 2, 1))), kind(rng.standard_normal((3, 2, 5)))
    q = duel(value, advantage)
    assert type(q) is type(value) and q.shape == (3, 2, 5)
    np.testing.assert_allclose(q.mean(-1), value[..., 0], atol=1e-12)     # V is the mean of Q
    np.testing.assert_allclose(q - q[..., :1], advantage - advantage[..., :1], atol=1e-12)
    np.testing.assert_allclose(duel(value, advantage + 7), q, atol=1e-12)


# Catches: two streams with the full width each; a shared part that is missing, has a layer too many or has no ReLU at
# its end.
def test_two_dueling_streams_have_the_width_of_one_plain_stream():
    def weights(net: nn.Module) -> int:
        return sum(p.numel() for p in net.parameters())

    for shape, hidden in (((8,), (256, 256)), ((8,), (64,)), ((8,), (64, 32, 16)), ((4, 84, 84), ())):
        plain, dueling = (weights(QNetwork(shape, 4, hidden, d)) for d in (False, True))
        width = hidden[-1] if hidden else 512
        # The head of V adds width / 2 weights and a bias. Each of the 4 outputs of A loses width / 2 weights.
        assert dueling - plain == (width // 2 + 1) - 4 * (width // 2)
    assert QNetwork((8,), 4, (5, 5), True)(torch.zeros(1, 8)).shape == (1, 4)                  # odd widths
    net = QNetwork((8,), 4, (256, 256), True)
    assert (net.body(torch.randn(100, 8)) >= 0).all()


# Catches: a missing check of the observation shape.
@pytest.mark.parametrize("shape", [(), (2, 3), (1, 2, 3, 4)])
def test_observations_that_are_neither_vectors_nor_images_are_refused(shape):
    with pytest.raises(ValueError, match="neither vectors nor images"):
        QNetwork(shape, 2, (8,))


# Catches: epsilon as a plain attribute, not a buffer: a loaded policy would act randomly.
def test_epsilon_is_saved_with_the_weights():
    net, other = QNetwork((3,), 2, (4,)), QNetwork((3,), 2, (4,))
    assert net.epsilon == 1                                               # the first actions are all random
    net.epsilon.fill_(0.25)
    other.load_state_dict(net.state_dict())
    assert other.epsilon == 0.25 and not any(p is net.epsilon for p in net.parameters())


def actor_critics(kind: str, critics: int = 2) -> ActorCritics:
    dist = NoisyAction(LOW, HIGH, 0.1) if kind == "noisy" else SquashedGaussian(LOW, HIGH)
    return ActorCritics((3,), dist, (16, 8), critics)


each_kind = pytest.mark.parametrize("kind", ["noisy", "squashed"])


# Catches: a tanh or a clip of log_std that is missing in the actor or in the learner; a copy of the weights.
@each_kind
def test_actor_and_learner_agree_on_the_action_through_updates(kind):
    net, obs = actor_critics(kind), observations((3,), 5)
    minimize = FlatAdam(net.pi.parameters(), lr=0.01).minimizer(lambda x: (net.pi(x).square().mean(), {}))
    actor, seen = net.actor(), []
    for _ in range(3):
        mean, spread = actor(obs)
        learned_mean, learned_spread = net.params(torch.from_numpy(obs))
        assert mean.shape == (5, 2) and mean.dtype == np.float32
        np.testing.assert_allclose(mean, learned_mean.detach(), rtol=1e-4, atol=1e-5)
        if kind == "noisy":
            assert spread == learned_spread == 0.1 and np.abs(mean).max() < 1
        else:
            assert spread.shape == (5, 2)
            np.testing.assert_allclose(spread, learned_spread.detach(), rtol=1e-4, atol=1e-5)
        seen.append(mean.copy())
        minimize(torch.from_numpy(obs))
    assert np.abs(seen[0] - seen[-1]).max() > 1e-3


# Catches: an ignored argument `critics`; the last critics in place of the first; the action before the observation; a
# missing squeeze; one network for all critics.
@each_kind
def test_each_critic_is_its_own_network_of_observation_and_action(kind):
    net, obs = actor_critics(kind, critics=3), torch.from_numpy(observations((3,), 5))
    act = torch.rand(5, 2) * 2 - 1
    values = net.values(obs, act)
    assert values.shape == (3, 5)
    for value, q in zip(values, net.q, strict=True):
        torch.testing.assert_close(value, nn.Sequential.forward(q, torch.cat([obs, act], -1))[:, 0])
    assert min((values[i] - values[j]).abs().max() for i, j in [(0, 1), (0, 2), (1, 2)]) > 1e-2
    for first in (1, 2):
        torch.testing.assert_close(net.values(obs, act, first), values[:first], rtol=0, atol=0)
    assert (net.values(obs, -act) - values).abs().max() > 1e-3


# Catches: a missing `requires_grad_(False)`; a missing gradient for the action; weights that stay frozen after the
# block, or after an exception in it; a weight that was frozen before the block and is trainable after it.
def test_frozen_critics_pass_the_gradient_to_the_action_and_keep_none():
    net, obs = actor_critics("squashed"), torch.from_numpy(observations((3,), 5))
    act = (torch.rand(5, 2) * 2 - 1).requires_grad_()
    net.values(obs, act).sum().backward()
    expected, act.grad = act.grad, None
    for p in net.q.parameters():
        p.grad = None
    fixed = net.q[1][0].bias.requires_grad_(False)
    with frozen(list(net.q.parameters())):
        loss = net.values(obs, act).sum()
    loss.backward()
    torch.testing.assert_close(act.grad, expected)
    assert all(p.grad is None for p in net.q.parameters())
    assert not fixed.requires_grad and all(p.requires_grad for p in net.parameters() if p is not fixed)
    with pytest.raises(ZeroDivisionError), frozen(list(net.q.parameters())):
        assert all(p.requires_grad for p in net.pi.parameters())
        raise ZeroDivisionError
    assert not fixed.requires_grad and all(p.requires_grad for p in net.parameters() if p is not fixed)
