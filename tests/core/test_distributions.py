"""Action distributions, compared with torch.distributions, with their own samples and with numerical integration."""
import numpy as np
import pytest
import torch
from torch import distributions as td

from spinup.core.bounded import NoisyAction, SquashedGaussian
from spinup.core.distributions import Categorical, Deterministic, DiagGaussian, EpsilonGreedy

LOW, HIGH = np.array([-1.0, 0.0, -3.0], np.float32), np.array([1.0, 2.5, 0.5], np.float32)


def noisy_action(low, high):
    return NoisyAction(low, high, 0.1)


each_bounded = pytest.mark.parametrize("kind", [SquashedGaussian, noisy_action])


def normal(shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Catches: a missing log_softmax; `act[..., 0]` for every head; an entropy without its minus sign; heads that overlap.
@pytest.mark.parametrize("sizes", [(4,), (2, 3, 5)])
def test_categorical_log_prob_and_entropy_match_torch(sizes):
    dist, logits = Categorical(sizes), normal((7, 2, sum(sizes)))
    heads = [td.Categorical(logits=x) for x in logits.split(sizes, -1)]
    acts = [torch.randint(n, (7, 2), generator=torch.Generator().manual_seed(n)) for n in sizes]
    act = acts[0] if len(sizes) == 1 else torch.stack(acts, -1)
    logp, entropy = sum(h.log_prob(a) for h, a in zip(heads, acts, strict=True)), sum(h.entropy() for h in heads)
    assert dist.num_outputs == sum(sizes)
    torch.testing.assert_close(dist.log_prob(logits, act), logp)
    torch.testing.assert_close(dist.entropy(logits), entropy)
    torch.testing.assert_close(dist.log_prob_entropy(logits, act), (logp, entropy))


# Catches: `rng.standard_normal` in place of the Gumbel noise; one random number for all outputs.
@pytest.mark.parametrize("sizes", [(4,), (2, 3)])
def test_categorical_samples_follow_the_probabilities(sizes):
    dist, draws = Categorical(sizes), 200_000
    logits = normal(sum(sizes), 1, torch.float32).numpy()
    act = dist.sample(logits, dist.noise(np.random.default_rng(0), (draws,)))
    joint = np.ravel_multi_index(tuple(act.reshape(draws, -1).T), sizes)
    every = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), -1)
    every = torch.from_numpy(every if len(sizes) > 1 else every[:, 0])
    p = dist.log_prob(torch.from_numpy(logits).expand(len(every), -1), every).exp().numpy()
    frequency = np.bincount(joint, minlength=len(p)) / draws
    np.testing.assert_array_less(np.abs(frequency - p), 4 * np.sqrt(p * (1 - p) / draws))


# Catches: `np.stack` on axis 0; `argmin` in place of `argmax`.
@pytest.mark.parametrize(("sizes", "shape"), [((4,), (7, 2)), ((2, 3, 5), (7, 2, 3))])
def test_categorical_numpy_and_torch_agree(sizes, shape):
    dist, logits = Categorical(sizes), normal((7, 2, sum(sizes)), 2, torch.float32)
    noise = dist.noise(np.random.default_rng(1), (7, 2))
    assert noise.dtype == np.float32 and noise.shape == logits.shape
    for numpy_act, torch_act in [(dist.sample(logits.numpy(), noise), dist.sample(logits, torch.from_numpy(noise))),
                                 (dist.mode(logits.numpy()), dist.mode(logits))]:
        assert numpy_act.shape == shape and numpy_act.dtype == np.int64
        np.testing.assert_array_equal(numpy_act, torch_act.numpy())
        assert dist.to_env(numpy_act) is numpy_act
    likelihoods = torch.stack([dist.log_prob(logits, dist.sample(logits, normal(logits.shape, s))) for s in range(20)])
    assert (dist.log_prob(logits, dist.mode(logits)) >= likelihoods - 1e-6).all()


# Catches: an entropy or a gradient that is not finite. With -inf in place of -1e9 here, the entropy would be NaN.
def test_masked_action_is_never_sampled_and_gradients_are_finite():
    dist, logits = Categorical((3,)), torch.tensor([[0.5, -1e9, 0.1]], requires_grad=True)
    logp, entropy = dist.log_prob_entropy(logits, torch.tensor([0]))
    (logp + entropy).sum().backward()
    assert logits.grad.isfinite().all() and entropy.isfinite().all()
    assert not (dist.sample(logits.detach().numpy(), dist.noise(np.random.default_rng(0), (1000,))) == 1).any()


# Catches: a sum without `log_std`; `exp(log_std)` in place of `exp(-log_std)`; an entropy whose constant is not
# multiplied by k; an entropy without `expand`.
@pytest.mark.parametrize("log_std_shape", [(3,), (7, 2, 3)])
def test_gaussian_log_prob_and_entropy_match_torch(log_std_shape):
    mean, act, log_std = normal((7, 2, 3)), normal((7, 2, 3), 1), normal(log_std_shape, 2)
    dist, expected = DiagGaussian(LOW, HIGH), td.Independent(td.Normal(mean, log_std.exp()), 1)
    assert dist.num_outputs == 3
    logp, entropy = dist.log_prob_entropy((mean, log_std), act)
    torch.testing.assert_close(logp, expected.log_prob(act))
    torch.testing.assert_close(entropy, expected.entropy())
    torch.testing.assert_close(dist.log_prob((mean, log_std), act), logp)
    torch.testing.assert_close(dist.entropy((mean, log_std)), entropy)


# Catches: `log_std * noise` in place of `exp(log_std) * noise`; `mean.detach()`.
@pytest.mark.parametrize("kind", [DiagGaussian, SquashedGaussian])
def test_gaussian_samples_are_mean_plus_std_times_noise(kind):
    dist, log_std = kind(LOW, HIGH), torch.tensor([-1.0, 0.0, 0.5], requires_grad=True)
    mean = normal((5, 3), 0, torch.float32).requires_grad_()
    noise = dist.noise(np.random.default_rng(3), (5,))
    assert noise.dtype == np.float32 and noise.shape == (5, 3)
    sample = dist.sample((mean, log_std), torch.from_numpy(noise))
    numpy_params = mean.detach().numpy(), log_std.detach().numpy()
    numpy_sample = dist.sample(numpy_params, noise)
    assert numpy_sample.dtype == np.float32
    np.testing.assert_allclose(numpy_sample, sample.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(numpy_sample, numpy_params[0] + np.array([1 / np.e, 1, np.e**0.5]) * noise, rtol=1e-5)
    assert dist.mode((mean, log_std)) is mean and dist.mode(numpy_params) is numpy_params[0]
    sample.sum().backward()
    torch.testing.assert_close(mean.grad, torch.ones(5, 3))
    torch.testing.assert_close(log_std.grad, (log_std.exp() * torch.from_numpy(noise).sum(0)).detach())


# Catches: `np.random.gumbel`, which ignores the given random number generator.
@pytest.mark.parametrize("dist", [Categorical((3,)), DiagGaussian(LOW, HIGH), SquashedGaussian(LOW, HIGH),
                                  EpsilonGreedy(3), NoisyAction(LOW, HIGH, 0.1)])
def test_noise_depends_only_on_the_given_generator(dist):
    first, second = (dist.noise(np.random.default_rng(5), (4, 2)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


# Catches: `_half[0]` in place of `_half`; a missing clip; a dimension that is rescaled although only `low` is finite.
def test_gaussian_to_env_rescales_each_dimension_by_its_own_bounds():
    inf = np.inf
    dist = DiagGaussian([-2.0, 0.0, -inf, -inf, 1.0], [2.0, 10.0, inf, 3.0, inf])
    act = np.array([[-1, -1, -50, -50, -50], [0, 0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5, 0.5], [9, 9, 9, 9, 9]], np.float32)
    env = dist.to_env(act)
    assert env.dtype == np.float32
    np.testing.assert_array_equal(env, [[-2, 0, -50, -50, 1], [0, 5, 0, 0, 1], [1, 7.5, 0.5, 0.5, 1], [2, 10, 9, 3, 9]])


# Catches: bounds that are rounded to the nearest float32; a missing clip after tanh.
@pytest.mark.parametrize("kind", [DiagGaussian, SquashedGaussian, noisy_action])
def test_to_env_never_leaves_the_bounds(kind):
    rng = np.random.default_rng(0)
    low = np.concatenate([[-0.1, 0.1, -0.3], rng.standard_normal(50)])    # float64, most of them not exact in float32
    high = np.concatenate([[0.1, 0.3, -0.1], low[3:] + rng.exponential(size=50)])
    env = kind(low, high).to_env(rng.standard_normal((2000, 53)).astype(np.float32) * 20)
    assert env.dtype == np.float32
    assert (env.astype(np.float64) >= low).all() and (env.astype(np.float64) <= high).all()
    np.testing.assert_allclose(env.min(0), low, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(env.max(0), high, rtol=1e-5, atol=1e-6)


# Catches: a density without `log_volume`; a slope of tanh without its factor 2; `softplus(2 * act)`.
def test_squashed_log_prob_matches_the_change_of_variables():
    dist = SquashedGaussian(LOW, HIGH)
    mean, log_std, u = normal((7, 3)), normal((7, 3), 1) - 1, normal((7, 3), 2)
    half, middle = (torch.from_numpy(x).double() for x in ((HIGH - LOW) / 2, (HIGH + LOW) / 2))
    transforms = [td.TanhTransform(), td.AffineTransform(middle, half)]
    expected = td.Independent(td.TransformedDistribution(td.Normal(mean, log_std.exp()), transforms), 1)
    torch.testing.assert_close(dist.log_prob((mean, log_std), u), expected.log_prob(middle + half * u.tanh()))


# Catches: the slope as `torch.log(1 - act.tanh() ** 2)`, which is -inf for large actions.
def test_squashed_log_prob_and_gradient_are_exact_for_large_actions():
    dist, u = SquashedGaussian([-1.0], [1.0]), torch.tensor([[-40.0], [15.0]], requires_grad=True)
    zero = torch.zeros(2, 1)
    logp = dist.log_prob((zero, zero), u)
    x = u.detach().double()
    slope = 2 * torch.log(torch.tensor(2.0)) - 2 * x.abs()                # log(1 - tanh^2 u) for large |u|
    torch.testing.assert_close(logp, (td.Normal(0.0, 1.0).log_prob(x) - slope)[:, 0].float())
    logp.sum().backward()
    torch.testing.assert_close(u.grad, torch.tensor([[40.0 - 2], [-15.0 + 2]]))


# Catches: a density without `log_volume` (total probability 1.75); `sample` without its mean; `-np.tanh(act)` in
# to_env.
def test_squashed_samples_follow_the_density_in_environment_units():
    low, high = -3.0, 0.5
    dist, params = SquashedGaussian([low], [high]), (torch.tensor([0.4]), torch.tensor([-0.3]))
    edges = np.linspace(low, high, 20_001)
    a = torch.from_numpy((edges[1:] + edges[:-1]) / 2)[:, None]
    density = dist.log_prob(params, torch.atanh((a - (high + low) / 2) / ((high - low) / 2))).exp().numpy()
    bins = (density * (edges[1] - edges[0])).reshape(20, -1).sum(1)
    np.testing.assert_allclose(bins.sum(), 1, atol=1e-6)
    draws = 200_000
    env = dist.to_env(dist.sample([x.numpy() for x in params], dist.noise(np.random.default_rng(0), (draws,))))
    frequency = np.histogram(env, edges[::1000])[0] / draws
    np.testing.assert_array_less(np.abs(frequency - bins), 4 * np.sqrt(bins * (1 - bins) / draws) + 1e-9)


# Catches: a missing `> 0`; a missing `isfinite`.
@each_bounded
@pytest.mark.parametrize(("low", "high"), [([-1, -np.inf], [1, 1]), ([-1, -1], [1, np.inf]), ([1.0], [1.0])])
def test_infinite_or_equal_bounds_are_refused(kind, low, high):
    with pytest.raises(ValueError, match="bounds must be finite with low < high"):
        kind(low, high)


# Catches: one standard deviation for all dimensions; a log_std that is not clipped; its half of the outputs as the
# mean.
def test_network_outputs_become_mean_and_clipped_log_std():
    dist, k = SquashedGaussian(LOW, HIGH), 3
    outputs = normal((7, 2, 6), 0, torch.float32) * 20
    assert dist.num_outputs == 2 * k and dist.LOG_STD == (-20, 2)
    mean, log_std = dist.params(outputs)
    torch.testing.assert_close(mean, outputs[..., :k], rtol=0, atol=0)
    torch.testing.assert_close(log_std, outputs[..., k:].clamp(-20, 2), rtol=0, atol=0)
    assert {log_std.min().item(), log_std.max().item()} == {-20, 2}
    for ours, theirs in zip(dist.params(outputs.numpy()), (mean, log_std), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# Catches: an added `log_volume`; the density at `noise` in place of `u`; a density without the slope of tanh.
@pytest.mark.parametrize("log_std_shape", [(3,), (7, 3)])
def test_sample_log_prob_matches_sample_followed_by_log_prob(log_std_shape):
    dist = SquashedGaussian(LOW, HIGH)
    params, noise = (normal((7, 3)), normal(log_std_shape, 1) - 1), normal((7, 3), 2)
    act, logp = dist.sample_log_prob(params, noise)
    u = dist.sample(params, noise)
    assert dist.log_volume == pytest.approx(np.log((HIGH - LOW) / 2).sum())
    torch.testing.assert_close(act, u.tanh())
    torch.testing.assert_close(logp, dist.log_prob(params, u) + dist.log_volume)
    np.testing.assert_allclose(dist.rescale(act.numpy()), dist.to_env(u.numpy()), rtol=1e-5)


# Catches: the wrong sign of the slope; a mean over the dimensions in place of the sum. The test takes the slope from
# finite differences of the noise, without a formula for it.
def test_density_of_a_sample_matches_finite_differences_of_the_noise():
    dist = SquashedGaussian(LOW, HIGH)
    params, noise, step = (normal((7, 3)), normal((3,), 1) - 1), normal((7, 3), 2), 1e-5
    half, middle = (torch.from_numpy(x).double() for x in ((HIGH - LOW) / 2, (HIGH + LOW) / 2))
    above, below = (middle + half * dist.sample_log_prob(params, noise + s * step)[0] for s in (1, -1))
    stretching = ((above - below) / (2 * step)).log().sum(-1)             # each dimension depends on its own noise only
    expected = td.Normal(0.0, 1.0).log_prob(noise).sum(-1) - stretching
    torch.testing.assert_close(dist.sample_log_prob(params, noise)[1] - dist.log_volume, expected, rtol=1e-6, atol=1e-6)


# Catches: `log_std.detach()`; a slope at a detached u; the wrong sign of log_std.
def test_gradients_of_sample_and_density_match_finite_differences():
    dist, noise = SquashedGaussian(LOW, HIGH), normal((4, 3), 2)
    params = [normal((4, 3)).requires_grad_(), (normal((4, 3), 1) - 1).requires_grad_()]
    assert torch.autograd.gradcheck(lambda *p: dist.sample_log_prob(p, noise), params)


# Catches: log(1 - tanh^2) as the slope; `(u - mean) / std` in place of the noise, which is NaN for a tiny standard
# deviation.
@pytest.mark.parametrize("log_std", [-20.0, 2.0])
def test_density_and_gradient_are_finite_for_extreme_parameters(log_std):
    dist = SquashedGaussian(LOW, HIGH)
    mean = torch.tensor([[20.0] * 3, [-20.0] * 3, [0.0] * 3], requires_grad=True)
    spread, noise = torch.full((3, 3), log_std, requires_grad=True), normal((3, 3), 0, torch.float32)
    act, logp = dist.sample_log_prob((mean, spread), noise)
    (act.sum() + logp.sum()).backward()
    for found in (act, logp, mean.grad, spread.grad):
        assert found.isfinite().all()
    assert act.abs().max() <= 1
    u = dist.sample((mean, spread), noise).detach().double()
    exact = (td.Normal(0.0, 1.0).log_prob(noise.double()) - log_std
             - (2 * (np.log(2) - u.abs()) - 2 * torch.log1p(torch.exp(-2 * u.abs())))).sum(-1)
    torch.testing.assert_close(logp.double(), exact, rtol=1e-5, atol=1e-4)


# Catches: `<=` in place of `<` at epsilon 0; one random number for both choices, which makes the first actions more
# likely than the others; random actions that exclude the best action.
@pytest.mark.parametrize("epsilon", [0, 0.3, 1])
def test_epsilon_greedy_acts_randomly_with_probability_epsilon(epsilon):
    dist, draws = EpsilonGreedy(4), 100_000
    values = np.array([0.1, -1, 3, 2], np.float32)
    noise = dist.noise(np.random.default_rng(0), (draws, 1))
    assert noise.shape == (draws, 1, 5) and noise.dtype == np.float32
    act = dist.sample((np.broadcast_to(values, (draws, 1, 4)), epsilon), noise)
    assert act.shape == (draws, 1) and act.dtype == np.int64 and dist.to_env(act) is act
    p = np.full(4, epsilon / 4)
    p[2] += 1 - epsilon
    frequency = np.bincount(act[:, 0], minlength=4) / draws
    np.testing.assert_array_less(np.abs(frequency - p), 4 * np.sqrt(p * (1 - p) / draws) + 1e-12)


# Catches: the best action of the whole batch in place of each row's; a `mode` with random actions.
def test_epsilon_greedy_takes_the_best_action_of_each_row():
    dist, values = EpsilonGreedy(4), normal((7, 2, 4), 0, torch.float32)
    best = values.argmax(-1)
    np.testing.assert_array_equal(dist.mode((values.numpy(), 1.0)), best)
    torch.testing.assert_close(dist.mode((values, 1.0)), best)
    noise = dist.noise(np.random.default_rng(0), (7, 2))
    np.testing.assert_array_equal(dist.sample((values.numpy(), 0.0), noise), best)
    noise[..., 0] = 0                                                     # the smallest possible noise
    np.testing.assert_array_equal(dist.sample((values.numpy(), 0.0), noise), best)
    noise[..., 0], noise[..., 3] = 0.999, 1.5
    assert (dist.sample((values.numpy(), 1.0), noise) == 2).all()


# Catches: a missing tanh; noise without its standard deviation; a missing clip; a result in float64.
def test_noisy_action_is_the_action_plus_noise_clipped_to_the_bounds():
    dist, outputs = NoisyAction(LOW, HIGH, 0.3), normal((5000, 3), 0, torch.float32)
    assert dist.num_outputs == 3
    action, deviation = dist.params(outputs)
    torch.testing.assert_close(action, outputs.tanh())
    numpy_params = dist.params(outputs.numpy())
    np.testing.assert_allclose(numpy_params[0], action, rtol=1e-5, atol=1e-6)
    assert deviation == numpy_params[1] == 0.3
    noise = dist.noise(np.random.default_rng(0), (5000,))
    assert noise.shape == (5000, 3) and noise.dtype == np.float32 and np.std(noise) == pytest.approx(1, abs=0.03)
    act = dist.sample(numpy_params, noise)
    assert act.dtype == np.float32
    np.testing.assert_allclose(act, np.clip(np.tanh(outputs.numpy()) + 0.3 * noise, -1, 1), rtol=1e-5, atol=1e-6)
    assert act.min() == -1 and act.max() == 1
    np.testing.assert_array_equal(dist.mode(numpy_params), numpy_params[0])


# Catches: `_half[0]` in place of `_half`; a range of 0 to 1 in place of -1 to 1; one sample for all dimensions; tanh in
# NoisyAction.to_env.
@each_bounded
def test_rescale_maps_minus_1_and_1_to_the_bounds_of_each_dimension(kind):
    dist = kind([-2.0, 0.0], [2.0, 10.0])
    env = dist.rescale(np.array([[-1, -1], [0, 0], [0.5, 0.5], [9, -9]], np.float32))
    assert env.dtype == np.float32
    np.testing.assert_array_equal(env, [[-2, 0], [0, 5], [1, 7.5], [2, 0]])
    act = dist.uniform(np.random.default_rng(0), (40, 500))
    assert act.shape == (40, 500, 2) and act.dtype == np.float32
    counts = [np.histogram(act[..., i], 10, (-1, 1))[0] for i in range(2)]
    np.testing.assert_array_less(np.abs(np.array(counts) - 2000), 4.5 * 2000**0.5)
    assert abs(np.corrcoef(act.reshape(-1, 2).T)[0, 1]) < 0.03
    inside = np.array([[-0.5, 0.5]], np.float32)
    np.testing.assert_allclose(dist.to_env(inside), dist.rescale(inside if dist.num_outputs == 2 else np.tanh(inside)))


# Catches: random actions of a deterministic policy; a mean that is not clipped, or not rescaled, to the bounds.
def test_deterministic_policy_takes_the_most_likely_action():
    values = np.array([[0.1, 0.9, 0.3], [0.7, 0.2, 0.1]], np.float32)
    greedy = Deterministic(Categorical((3,)))
    assert greedy.sample(values, greedy.noise(np.random.default_rng(0), (2,))).tolist() == [1, 0]
    level = Deterministic(DiagGaussian([-1, 0], [1, 10]))
    act = level.mode(np.array([[0.5, 0.5], [3, -3]], np.float32))
    np.testing.assert_allclose(level.to_env(act), [[0.5, 7.5], [1, 0]])
    assert level.num_outputs == 2 and greedy.num_outputs == 3


# Catches: `squash` without tanh; a `to_env` without `squash`: a replay buffer would hold other actions than the
# environment got.
def test_rescaled_squashed_action_equals_to_env():
    dist = SquashedGaussian([-1, 0], [1, 10])
    u = np.float32([[-30, 0.3], [0, 2]])
    assert np.abs(dist.squash(u)).max() <= 1 and dist.squash(u)[1, 0] == 0
    np.testing.assert_allclose(dist.squash(u), np.tanh(u))
    np.testing.assert_array_equal(dist.rescale(dist.squash(u)), dist.to_env(u))
