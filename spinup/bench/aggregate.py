"""Aggregates of the scores of an algorithm over environments and seeds, with bootstrap intervals.

The definitions are those of Agarwal et al. (2021), arXiv:2108.13264. Scores are a list. For each environment, it has
an array `[..., runs]` of normalised scores. The leading axes, if any, are those of bootstrap samples.
"""
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import trim_mean

from spinup.view.statistics import ENOUGH

SAMPLES = 2000          # bootstrap samples of an interval
RUNS = 10               # fewest runs for an interval; in simulations, intervals from five covered less than 90 %
Scores = Sequence[np.ndarray]


def iqm(scores: Scores) -> np.ndarray:
    """Interquartile mean `[...]` of scores `[..., runs]` per environment: the mean of all runs of all environments
    without the lowest and the highest quarter (Agarwal et al., 2021, sec. 4.3). The number of runs in a quarter is
    rounded down."""
    return trim_mean(np.concatenate(scores, -1), 0.25, axis=-1)


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Performance profile `[..., thresholds]` of scores `[..., runs]` per environment: the share of runs with a score
    above each threshold `[thresholds]`, averaged over the environments (Agarwal et al., 2021, sec. 4.2)."""
    return np.mean([(runs[..., None] > thresholds).mean(-2) for runs in scores], 0)


def improvement(ours: Scores, theirs: Scores) -> np.ndarray:
    """Probability `[...]` that a run of `ours`, `[..., runs]` per environment, scores higher than one of `theirs`, in a
    random environment. Equal scores count half (Agarwal et al., 2021, sec. 4.3; Mann and Whitney, 1947)."""
    def better(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = x[..., :, None], y[..., None, :]
        return ((x > y) + 0.5 * (x == y)).mean((-2, -1))
    return np.mean([better(x, y) for x, y in zip(ours, theirs, strict=True)], 0)


def between(measure: Callable[..., np.ndarray], *groups: Scores,
            samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the interval of `bootstrap`; None if a group has fewer than RUNS runs `[runs, ...]` in all, or fewer than
    ENOUGH in an environment. Such an interval would be too narrow: that of a single run has no width."""
    if any(sum(map(len, scores)) < RUNS or min(map(len, scores)) < ENOUGH for scores in groups):
        return None
    return bootstrap(measure, *groups, samples=samples)


def bootstrap(measure: Callable[..., np.ndarray], *groups: Scores, samples: int = SAMPLES,
              seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Stratified bootstrap: the 95 % percentile interval (low, high), `[...]` each, of a measure of one or more groups
    of scores, `[runs, ...]` or `[runs]` per environment (Agarwal et al., 2021, sec. 4.1).

    Each bootstrap sample draws n - 1 of n runs, with replacement, separately for each group and environment. With n
    draws, the variance would be too small by a factor of (n - 1) / n (Rao and Wu, 1988, JASA 83:231). A single run is
    always drawn.
    """
    rng = np.random.default_rng(seed)
    drawn = [[runs[rng.integers(len(runs), size=(samples, max(1, len(runs) - 1)))] for runs in scores]
             for scores in groups]
    low, high = np.percentile(measure(*drawn), [2.5, 97.5], axis=0)
    return low, high
