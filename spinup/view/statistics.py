"""What may be said of a mean over a few runs or episodes."""
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

ENOUGH = 3              # values from which on an interval says something; that of two is these two
BLOCK = 2_000_000       # numbers drawn at a time: 10,000 resamples of 10,000 episodes at once would take a gigabyte


def bootstrap_interval(values: ArrayLike, confidence: float = 0.95, resamples: int = 10_000,
                       seed: int = 0) -> tuple[float, float] | tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap interval (low, high) of the mean (Efron, 1979).

    Args:
        values: `[n]`, one number per run or episode, or `[n, *shape]`, such as curves; whole rows are drawn, and the
            interval holds at each place by itself.
        seed: the same values and seed give the same interval.

    Below some five values it is too narrow: it knows no value that it has not seen. ValueError for no values, or a
    confidence outside (0, 1).
    """
    values = np.asarray(values, np.float64)
    if not values.size or not 0 < confidence < 1:
        raise ValueError(f"needs values and a confidence between 0 and 1, not {len(values)} values and {confidence}")
    rng, n, rows = np.random.default_rng(seed), len(values), max(1, BLOCK // values.size)
    means = np.concatenate([values[rng.integers(n, size=(min(rows, resamples - done), n))].mean(1)
                            for done in range(0, resamples, rows)])
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return (float(low), float(high)) if values.ndim == 1 else (low, high)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of their mean that users are told: none where they are fewer than ENOUGH."""
    return bootstrap_interval(values) if len(values) >= ENOUGH else None


def in_words(values: Sequence[float], digits: int) -> str:
    """The same as it is printed."""
    between = interval(values)
    return (f"95 % interval {between[0]:.{digits}f} to {between[1]:.{digits}f}" if between
            else f"no interval, which needs {ENOUGH} values")
