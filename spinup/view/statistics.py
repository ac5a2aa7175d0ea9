"""Confidence intervals for the mean of a few runs or episodes."""
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

ENOUGH = 3              # fewest values for an interval; for two values, it is 13 times as wide as their distance
ANYWHERE, SHARE = (-np.inf, np.inf), (0.0, 1.0)                           # range of possible values
SHARES = {"held_out_accuracy", "held_out_greedy", "pair_accuracy", "train_accuracy"}       # columns of `progress.csv`


def mean_interval(values: ArrayLike, within: tuple[float, float] = ANYWHERE
                  ) -> tuple[float, float] | tuple[np.ndarray, np.ndarray]:
    """Student's 95 % t interval (low, high) of the mean (Student, 1908): mean -+ t s / sqrt(n), where s is the standard
    deviation and t the quantile of Student's distribution with n - 1 degrees of freedom.

    Args:
        values: `[n]`, one number per run or episode, or `[n, *shape]`, such as curves; each position gets its own
            interval.
        within: the range of possible values; the interval is clipped to it.

    The interval assumes independent values with an approximately normal mean. With few values, the
    estimate of s is poor, so t is larger: 2.0 for many values, 4.3 for three. ValueError for fewer than two values.
    """
    from scipy.special import stdtrit  # takes 0.2 s; at the top, every command would wait for it
    values = np.asarray(values, np.float64)
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval needs at least two values, not {n}")
    mean, reach = values.mean(0), stdtrit(n - 1, 0.975) * values.std(0, ddof=1) / n ** 0.5
    low, high = np.clip([mean - reach, mean + reach], *within)
    return (float(low), float(high)) if values.ndim == 1 else (low, high)


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float] | None:
    """Welch's 95 % confidence interval of the difference of two means (Welch, 1947), whose groups may have unequal
    variances; None if a group has fewer than ENOUGH values."""
    from scipy.special import stdtrit  # as above
    if min(len(ours), len(theirs)) < ENOUGH:
        return None
    groups = [np.asarray(values, np.float64) for values in (ours, theirs)]
    squares = [values.var(ddof=1) / len(values) for values in groups]     # squared standard errors of the means
    centre, total = groups[0].mean() - groups[1].mean(), sum(squares)
    if not total:
        return float(centre), float(centre)
    freedom = total ** 2 / sum(square ** 2 / (len(values) - 1) for square, values in zip(squares, groups, strict=True))
    reach = stdtrit(freedom, 0.975) * total ** 0.5
    return float(centre - reach), float(centre + reach)


def interval(values: Sequence[float], within: tuple[float, float] = ANYWHERE) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean for display; None for fewer than ENOUGH values."""
    return mean_interval(values, within=within) if len(values) >= ENOUGH else None


def in_words(values: Sequence[float], digits: int, within: tuple[float, float] = ANYWHERE) -> str:
    """Format the 95 % confidence interval."""
    between = interval(values, within)
    return (f"95 % interval {between[0]:.{digits}f} to {between[1]:.{digits}f}" if between
            else f"no interval, because it needs {ENOUGH} values")


def range_of(column: str) -> tuple[float, float]:
    """Range of the possible values of a column of `progress.csv`."""
    from spinup.envs.vector import all_measures  # takes seconds; at the top, every command would wait for it
    return SHARE if column in SHARES or all_measures().get(column, "").startswith("share of ") else ANYWHERE
