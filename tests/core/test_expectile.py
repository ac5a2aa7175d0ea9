"""The loss of expectile regression: its minimum, compared with a search, with the mean and with the maximum."""
import pytest
import torch

from spinup.core.expectile import expectile_loss


def best(values: torch.Tensor, tau: float) -> float:
    """The estimate with the smallest mean loss, by a search over a fine grid."""
    grid = torch.linspace(-3, 3, 60_001, dtype=torch.float64)
    losses = torch.stack([(abs(tau - (values < m).double()) * (values - m) ** 2).mean() for m in grid[::100]])
    near = grid[max(0, 100 * int(losses.argmin()) - 200):][:400]
    losses = torch.stack([expectile_loss(values - m, tau).mean() for m in near])
    return float(near[losses.argmin()])


# Catches: tau as the weight of the negative errors; a missing square; the wrong sign of the error.
@pytest.mark.parametrize("tau", [0.1, 0.5, 0.7, 0.95])
def test_gradient_is_zero_at_the_expectile(tau):
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    m = torch.tensor(best(values, tau), dtype=torch.float64, requires_grad=True)
    above, below = (values - m.item()).clamp(min=0).mean(), (m.item() - values).clamp(min=0).mean()
    assert float(tau * above - (1 - tau) * below) == pytest.approx(0, abs=1e-3)      # the definition of an expectile
    (gradient,) = torch.autograd.grad(expectile_loss(values - m, tau).mean(), m)
    assert float(gradient) == pytest.approx(0, abs=1e-3)


# Catches: 1 - tau in place of tau; a factor of one half.
def test_tau_one_half_gives_the_mean_and_tau_near_one_the_maximum():
    error = torch.tensor([-2.0, 0.0, 3.0])
    assert expectile_loss(error, 0.5).tolist() == [2.0, 0.0, 4.5]
    assert expectile_loss(error, 0.9).tolist() == pytest.approx([0.4, 0.0, 8.1])
    values = torch.tensor([0.0, 0.2, 1.0], dtype=torch.float64)
    assert best(values, 0.5) == pytest.approx(0.4, abs=1e-3) and best(values, 0.999) > 0.99
