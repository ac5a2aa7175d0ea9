"""Student's interval of a mean, compared with scipy and with its nominal coverage."""
import numpy as np
import pytest
from scipy import stats

from spinup.view.statistics import difference_interval, in_words, interval, mean_interval, range_of


@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_interval_of_a_mean_agrees_with_scipy(n):
    values = np.random.default_rng(n).exponential(100, n)
    peer = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx(tuple(peer))


@pytest.mark.parametrize("sizes", [(10, 3), (3, 4)])
def test_interval_of_a_difference_agrees_with_scipy(sizes):
    ours, theirs = (np.random.default_rng(n).exponential(scale, n) for n, scale in zip(sizes, (100, 7), strict=True))
    peer = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert difference_interval(ours, theirs) == pytest.approx(tuple(peer))
    assert difference_interval(ours[:2], theirs) is difference_interval(ours, theirs[:2]) is None
    assert difference_interval([5, 5, 5], [2, 2, 2]) == (3, 3)


# Catches: a percentile bootstrap, whose coverage is .75 for three values and .84 for five; the normal quantile 1.96 in
# place of t.
@pytest.mark.parametrize("n", [3, 5, 10])
def test_interval_has_its_nominal_coverage(n):
    low, high = mean_interval(np.random.default_rng(0).normal(7, 3, (n, 20_000)))
    assert 0.93 < np.mean((low <= 7) & (high >= 7)) < 0.97


def test_interval_of_curves_is_computed_point_by_point():
    values = np.random.default_rng(0).normal(size=(4, 2, 3))
    low, high = mean_interval(values)
    assert low.shape == high.shape == (2, 3)
    for place in np.ndindex(2, 3):
        assert (low[place], high[place]) == pytest.approx(mean_interval(values[:, *place]))


# Catches: an accuracy of 1.07.
def test_interval_of_an_accuracy_stays_within_0_and_1():
    values = [0.2, 0.9, 1.0]
    assert interval(values)[0] < 0 and interval(values)[1] > 1
    assert interval(values, range_of("held_out_accuracy")) == (0, 1)
    assert interval(values, range_of("return_mean_100")) == interval(values)
    assert in_words(values, 2, range_of("pair_accuracy")) == "95 % interval 0.00 to 1.00"


def test_two_values_give_no_interval():
    assert interval([1.0, 2.0]) is None and in_words([1.0, 2.0], 1) == "no interval, because it needs 3 values"
    assert in_words([1.0, 1.0, 1.0], 2) == "95 % interval 1.00 to 1.00"


@pytest.mark.parametrize("values", [[], [1]])
def test_too_few_values_are_refused(values):
    with pytest.raises(ValueError, match="needs at least two values"):
        mean_interval(values)
