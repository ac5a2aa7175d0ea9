"""The bootstrap interval, against numbers known otherwise."""
import numpy as np
import pytest
from scipy import stats

from spinup.view import statistics
from spinup.view.statistics import bootstrap_interval, in_words, interval


def test_zeros_and_ones_give_the_quantiles_of_a_binomial():
    values = [0] * 5 + [1] * 5                                # a resample's sum is Binomial(10, 1/2)
    assert bootstrap_interval(values) == tuple(stats.binom.ppf([0.025, 0.975], 10, 0.5) / 10) == (0.2, 0.8)
    assert bootstrap_interval(values, confidence=0.6) == tuple(stats.binom.ppf([0.2, 0.8], 10, 0.5) / 10)


def test_agrees_with_scipy():
    values = np.random.default_rng(0).exponential(100, 40)
    peer = stats.bootstrap([values], np.mean, method="percentile", n_resamples=50_000, rng=1).confidence_interval
    assert bootstrap_interval(values, resamples=50_000) == pytest.approx(tuple(peer), abs=0.05 * values.std())


def test_curves_are_drawn_as_wholes_and_answered_point_by_point():
    values = np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    low, high = bootstrap_interval(np.stack([values, values * 10, -values], 1))
    assert low.shape == high.shape == (3,)
    np.testing.assert_allclose(low[1], 10 * low[0])
    np.testing.assert_allclose((-high[2], -low[2]), (low[0], high[0]))


# Turned red by: a last block that is not cut to what is left, or a block of no rows.
@pytest.mark.parametrize("block", [1, 7, 64])
def test_drawing_in_blocks_keeps_the_number_of_resamples(monkeypatch, block):
    whole = bootstrap_interval(range(8), resamples=100)
    drawn = []
    quantile = np.quantile
    monkeypatch.setattr(statistics, "BLOCK", block)
    monkeypatch.setattr(np, "quantile", lambda means, *a, **k: drawn.append(len(means)) or quantile(means, *a, **k))
    assert bootstrap_interval(range(8), resamples=100) == whole and drawn == [100]


def test_of_two_values_no_interval_is_told():
    assert interval([1.0, 2.0]) is None and in_words([1.0, 2.0], 1) == "no interval, which needs 3 values"
    assert in_words([1.0, 1.0, 1.0], 2) == "95 % interval 1.00 to 1.00"


@pytest.mark.parametrize(("values", "confidence"), [([], 0.95), ([1, 2], 1.0), ([1, 2], 95)])
def test_refuses_what_has_no_interval(values, confidence):
    with pytest.raises(ValueError, match="confidence between 0 and 1"):
        bootstrap_interval(values, confidence)
