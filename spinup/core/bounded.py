"""Distributions of actions with finite bounds. The actions are scaled to the range -1 to 1.

They are for methods with critics that take actions as inputs. These methods store and evaluate
actions in -1 to 1, and `rescale` converts them to the environment's units. The interface is that of
`spinup.core.distributions`.
"""
import math

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import softplus

from spinup.core.distributions import Array, float32_bounds, normal_log_prob, shift_scale


class _Bounded:
    """Box with finite bounds."""

    def __init__(self, low: ArrayLike, high: ArrayLike):
        self.low, self.high = float32_bounds(low, high)
        self._middle = self.high / 2 + self.low / 2
        self._half = self.high / 2 - self.low / 2
        if not (np.isfinite(self._half) & (self._half > 0)).all():
            raise ValueError(f"bounds must be finite with low < high, not low={low}, high={high}")
        self.log_volume = float(np.log(self._half.astype(np.float64)).sum())

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal noise, float32 `[*shape, k]`."""
        return rng.standard_normal((*shape, len(self.low)), np.float32)

    def uniform(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Uniform samples from -1 to 1, float32 `[*shape, k]`."""
        return rng.random((*shape, len(self.low)), np.float32) * 2 - 1

    def rescale(self, act: np.ndarray) -> np.ndarray:
        """Convert from -1 to 1 to the environment's units, float32 `[..., k]`, within bounds."""
        return np.clip(act * self._half + self._middle, self.low, self.high)

    def unscale(self, act: np.ndarray) -> np.ndarray:
        """Convert from the environment's units to -1 to 1, float32 `[..., k]`."""
        return np.clip((act - self._middle) / self._half, -1, 1)


class NoisyAction(_Bounded):
    """Deterministic action with Gaussian noise for exploration (Fujimoto et al. 2018,
    arXiv:1802.09477, sec. 6.1).

    params: (action `[..., k]` in -1 to 1, standard deviation of the noise).
    act: float32 `[..., k]`, in -1 to 1.
    low, high: `[k]`; ValueError unless finite and low < high.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, deviation: float):
        super().__init__(low, high)
        self.deviation, self.num_outputs = deviation, len(self.low)

    def params(self, outputs: Array) -> tuple[Array, float]:
        """Parameters from a network's outputs `[..., k]`; the action is their tanh."""
        action = outputs.tanh() if isinstance(outputs, Tensor) else np.tanh(outputs)
        return action, self.deviation

    def sample(self, params: tuple[np.ndarray, float], noise: np.ndarray) -> np.ndarray:
        """Sample actions `[..., k]`: action plus standard deviation times noise, in -1 to 1."""
        action, deviation = params
        return np.clip(action + np.float32(deviation) * noise, -1, 1)

    def mode(self, params: tuple[Array, float]) -> Array:
        """Action without noise, `[..., k]`."""
        return params[0]

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """Convert to the environment's units, float32 `[..., k]`, within the bounds."""
        return self.rescale(act)


class SquashedGaussian(_Bounded):
    """Independent normal distributions passed through tanh and scaled to the bounds (Haarnoja et
    al. 2018, arXiv:1801.01290, appendix C).

    params: (mean `[..., k]`, log_std `[..., k]` or `[k]`).
    act: float32 `[..., k]`, the value u *before* tanh. `sample` returns it and `log_prob` takes it,
    because near the bounds u cannot be recovered from tanh(u).
    low, high: `[k]`; ValueError unless finite and low < high.

    Critics and replay buffers take `squash(act)` = tanh(u), in -1 to 1. `rescale` converts this to
    the environment's action. `to_env` is `squash` followed by `rescale`. The entropy has no closed
    form: average -log_prob over samples.
    """

    # With log_std above 2, tanh gives almost only the bounds; below -20, float32 samples are equal.
    LOG_STD = (-20, 2)

    @property
    def num_outputs(self) -> int:
        """Number of network outputs: mean and log standard deviation of each dimension."""
        return 2 * len(self.low)

    def params(self, outputs: Array) -> tuple[Array, Array]:
        """Mean and log_std, `[..., k]` each, from a network's outputs `[..., 2 k]`."""
        k = len(self.low)
        return outputs[..., :k], outputs[..., k:].clip(*self.LOG_STD)

    def log_prob(self, params: tuple[Tensor, Tensor], act: Tensor) -> Tensor:
        """Exact log-density of the environment's action `to_env(act)`, in its units, `[...]`.

        The code computes log(1 - tanh(u)^2) as 2 (log 2 - u - softplus(-2u)), because the first
        form is -inf for abs(u) above 9.
        """
        return normal_log_prob(params, act) - _log_tanh_slope(act) - self.log_volume

    def sample_log_prob(self, params: tuple[Tensor, Tensor],
                        noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample with standard normal `noise`: tanh(u) in -1 to 1 `[..., k]`, and its log-density
        in these units `[...]`.

        Both are differentiable in `params`. `log_prob` uses the environment's units and differs by
        `log_volume`; learning must not depend on these units. The noise is already the standardised
        sample, so this does not divide by a standard deviation near 0.
        """
        u, log_std = shift_scale(params, noise), params[1]
        normal = 0.5 * noise.square() + log_std
        logp = -normal.sum(-1) - noise.shape[-1] * 0.5 * math.log(2 * math.pi)
        return u.tanh(), logp - _log_tanh_slope(u)

    def sample(self, params: tuple[Array, Array], noise: Array) -> Array:
        """Sample actions before tanh, `[..., k]`: mean plus standard deviation times noise."""
        return shift_scale(params, noise)

    def mode(self, params: tuple[Array, Array]) -> Array:
        """Mean before tanh, `[..., k]`; its tanh is the median of the action."""
        return params[0]

    def squash(self, act: np.ndarray) -> np.ndarray:
        """tanh of actions `[..., k]`, in -1 to 1, for critics and replay buffers."""
        return np.tanh(act)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """Convert to the environment's units, float32 `[..., k]`, within the bounds."""
        return self.rescale(self.squash(act))


def _log_tanh_slope(u: Tensor) -> Tensor:
    """Log of the slope of tanh at u, summed over the last axis."""
    return 2 * (math.log(2) - u - softplus(-2 * u)).sum(-1)
