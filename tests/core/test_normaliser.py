"""Running statistics, compared with numpy on all the data at once."""
import numpy as np
import pytest
import torch

from spinup.core.normaliser import Normaliser, ReturnScaler


def data(n, shape, seed=0):
    noise = np.random.default_rng(seed).standard_normal((n, *shape))
    return torch.from_numpy((noise * np.arange(1, 1 + np.prod(shape)).reshape(shape) + 3).astype(np.float32))


# Catches: the mean of the squares in place of the variance; a count of 1 for each call.
def test_adding_sums_equals_adding_the_observations():
    torch.manual_seed(0)
    whole, parts = Normaliser((3,)), Normaliser((3,))
    for n in 5, 12:
        x = torch.randn(n, 3, dtype=torch.float64) * 4 + 2
        whole.update(x)
        parts.add(x.sum(0), x.square().sum(0), n)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], value)


# Catches: a missing `share * (1 - share) * delta**2`; correction=1; `share = 0.01`, which gives a moving average.
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
@pytest.mark.parametrize("cuts", [[1], [1, 2, 3], [100, 900], [250, 500, 750]])
def test_statistics_match_numpy_on_all_the_data(shape, cuts):
    x, normaliser = data(1000, shape), Normaliser(shape, clip=2.0)
    for piece in x.tensor_split(cuts):
        normaliser.update(piece.reshape(1, len(piece), *shape))          # all leading axes are the batch
    exact = x.numpy().astype(np.float64)
    np.testing.assert_allclose(normaliser.mean.numpy(), exact.mean(0), rtol=1e-12)
    np.testing.assert_allclose(normaliser.var.numpy(), exact.var(0), rtol=1e-12)
    assert normaliser.count == 1000
    out = normaliser(x)
    assert out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), np.clip((exact - exact.mean(0)) / exact.std(0), -2, 2), atol=1e-5)
    assert (out.abs() == 2).any()


# Catches: `x.float()` in update.
def test_variance_is_accurate_for_a_large_mean():
    x, normaliser = 1000 + 0.1 * data(4000, (1,)), Normaliser((1,))
    for piece in x.chunk(400):
        normaliser.update(piece)
    np.testing.assert_allclose(normaliser.var.numpy(), x.numpy().astype(np.float64).var(0), rtol=1e-9)


# Catches: an initial `var` of 0; a default limit other than 10.
def test_normaliser_only_clips_before_its_first_update():
    x = torch.tensor([[0.1, -0.2], [50.0, -50.0]])
    assert torch.equal(Normaliser((2,))(x), x.clamp(-10, 10))


# Catches: a division by the standard deviation in the view; a subtraction without dtype=np.float32.
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_view_equals_forward_to_the_last_bit(dtype):
    normaliser = Normaliser((3,), clip=2.0)
    normaliser.update(data(100, (3,)))
    x = data(500, (3,), 1).numpy().astype(dtype) * dtype(1.1)
    out = normaliser.numpy_view()(x)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, normaliser(torch.from_numpy(x)).numpy())


# Catches: a view that reads `self.mean` at each call.
def test_numpy_view_keeps_the_statistics_of_its_creation():
    normaliser, x = Normaliser((3,)), data(10, (3,))
    normaliser.update(x)
    view = normaliser.numpy_view()
    before = view(x.numpy())
    normaliser.update(x + 5)
    np.testing.assert_array_equal(view(x.numpy()), before)
    assert not np.array_equal(normaliser.numpy_view()(x.numpy()), before)


# Catches: `self.update(x)` in forward.
@pytest.mark.parametrize("training", [True, False])
def test_normalising_does_not_change_the_statistics(training):
    normaliser = Normaliser((3,)).train(training)
    normaliser.update(data(10, (3,)))
    before = {k: v.clone() for k, v in normaliser.state_dict().items()}
    normaliser(data(10, (3,), 1) + 100)
    normaliser.numpy_view()(data(10, (3,), 1).numpy())
    assert all(torch.equal(v, before[k]) for k, v in normaliser.state_dict().items())


# Catches: `count` as a plain attribute.
def test_normaliser_round_trips_through_its_state():
    saved, loaded = Normaliser((3,)), Normaliser((3,))
    saved.update(data(10, (3,)))
    loaded.load_state_dict(saved.state_dict())
    for normaliser in saved, loaded:
        normaliser.update(data(20, (3,), 1))
    assert torch.equal(saved(data(5, (3,), 2)), loaded(data(5, (3,), 2)))


def rewards_and_ends(N=3, T=40, seed=0):
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, N, T)) < 0.08
    return [torch.from_numpy(x) for x in ((5 + rng.standard_normal((N, T))).astype(np.float32), terminated, truncated)]


# Catches: a missing roll; a truncation that does not reset the return; `returns` that are not kept from rollout to
# rollout, or not discounted; a subtraction of the mean.
@pytest.mark.parametrize("cuts", [[], [1], [13, 14, 30]])
def test_rewards_are_divided_by_the_standard_deviation_of_the_return(cuts):
    gamma, (rewards, terminated, truncated) = 0.9, rewards_and_ends()
    scaler, returns, seen = ReturnScaler(3, gamma, clip=1.2), np.zeros(3), []
    start = 0
    for end in [*cuts, 40]:
        piece = [x[:, start:end] for x in (rewards, terminated, truncated)]
        scaled = scaler.update_and_scale(*piece)
        for r, term, trunc in zip(*(x.numpy().T for x in piece), strict=True):
            returns = gamma * returns + r
            seen.append(returns)
            returns = np.where(term | trunc, 0.0, returns)
        expected = piece[0].numpy() / np.std(seen)
        np.testing.assert_allclose(scaled.numpy(), np.clip(expected, -1.2, 1.2), rtol=1e-4)
        assert scaled.dtype == torch.float32
        start = end
    assert (scaled.abs() < 1.2).any()


# Catches: `self.returns` as a plain attribute.
def test_return_scaler_round_trips_through_its_state():
    saved, loaded = ReturnScaler(3, 0.9), ReturnScaler(3, 0.9)
    saved.update_and_scale(*rewards_and_ends(seed=1))
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(*(s.update_and_scale(*rewards_and_ends(seed=2)) for s in (saved, loaded)))


# Catches: a missing clamp; another default.
def test_scaled_rewards_are_clipped_to_10():
    rewards = torch.zeros(1, 1000)
    rewards[0, 500] = 1e6
    scaled = ReturnScaler(1, 0.0).update_and_scale(rewards, torch.zeros(1, 1000), torch.zeros(1, 1000))
    assert scaled.max() == 10.0


# Catches: the old return so far of an episode that a resumed run has lost.
def test_begin_anew_resets_the_returns_so_far():
    lost, new = ReturnScaler(3, 0.9), ReturnScaler(3, 0.9)
    lost.update_and_scale(*rewards_and_ends(seed=1))
    new.load_state_dict({**lost.state_dict(), "returns": torch.zeros(3, dtype=torch.float64)})
    lost.begin_anew()
    assert torch.equal(*(s.update_and_scale(*rewards_and_ends(seed=2)) for s in (lost, new)))
