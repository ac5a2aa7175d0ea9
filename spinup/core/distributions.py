"""What a policy's outputs mean: action distributions with the same methods.

`params` are the network's outputs and `act` is what is stored and scored; `to_env` turns `act` into what the
environment's `step` takes. `sample` and `mode` accept tensors and numpy arrays (for acting, where torch's overhead is
most of the time). The randomness comes from outside, as `noise`, drawn for a whole rollout at once.
"""
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import softplus

Array = np.ndarray | Tensor


@dataclass(frozen=True)
class Categorical:
    """One choice among n (Discrete: `sizes=(n,)`) or several independent ones (MultiDiscrete: `sizes=(n1, n2, ...)`).

    params: logits `[..., sum(sizes)]`, finite: forbid an action by -1e9, not -inf, which makes the entropy NaN.
    act: int64 `[...]` for one size, `[..., k]` for k of them.
    """

    sizes: tuple[int, ...]

    @property
    def num_outputs(self) -> int:
        """How many numbers a network must give: one for each action of each part."""
        return sum(self.sizes)

    def log_prob(self, params: Tensor, act: Tensor) -> Tensor:
        """log pi(act), `[...]`."""
        if len(self.sizes) == 1:
            return params.log_softmax(-1).gather(-1, act.unsqueeze(-1)).squeeze(-1)
        return sum(d.log_prob(p, act[..., i]) for i, (d, p) in enumerate(self._heads(params)))

    def entropy(self, params: Tensor) -> Tensor:
        """In nats, `[...]`."""
        if len(self.sizes) == 1:
            log_pi = params.log_softmax(-1)
            return -(log_pi.exp() * log_pi).sum(-1)
        return sum(d.entropy(p) for d, p in self._heads(params))

    def log_prob_entropy(self, params: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once, with one softmax."""
        if len(self.sizes) == 1:
            log_pi = params.log_softmax(-1)
            return log_pi.gather(-1, act.unsqueeze(-1)).squeeze(-1), -(log_pi.exp() * log_pi).sum(-1)
        heads = [d.log_prob_entropy(p, act[..., i]) for i, (d, p) in enumerate(self._heads(params))]
        return sum(logp for logp, _ in heads), sum(entropy for _, entropy in heads)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard Gumbel, float32 `[*shape, num_outputs]`: argmax(logits + Gumbel) is a draw from their softmax."""
        return rng.gumbel(size=(*shape, self.num_outputs)).astype(np.float32)

    def sample(self, params: Array, noise: Array) -> Array:
        """Actions, `[...]` or `[..., parts]`: the largest logit after Gumbel noise is a draw from the softmax."""
        return self.mode(params + noise)

    def mode(self, params: Array) -> Array:
        """The likeliest action."""
        if len(self.sizes) == 1:
            return params.argmax(-1)
        stack = torch.stack if isinstance(params, Tensor) else np.stack
        return stack([p.argmax(-1) for _, p in self._heads(params)], -1)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """The same; an environment takes them as they are."""
        return act

    def _heads(self, params: Array):
        """(distribution, logits) of each of the choices."""
        start = 0
        for n in self.sizes:
            yield Categorical((n,)), params[..., start:start + n]
            start += n


class DiagGaussian:
    """Independent normals, clipped to the bounds only on their way to the environment.

    params: (mean `[..., k]`, log_std `[k]` or `[..., k]`).
    act: float32 `[..., k]`, unclipped, in units in which a dimension's bounds are -1 and 1; in the environment's own
    units where a bound is infinite.
    low, high: `[k]`, may be infinite.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike):
        self.low, self.high = _float32_bounds(low, high)
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        low, high = np.where(bounded, self.low, -1), np.where(bounded, self.high, 1)
        self._middle, self._half = high / 2 + low / 2, high / 2 - low / 2

    @property
    def num_outputs(self) -> int:
        """How many numbers a network must give: the mean of each dimension."""
        return len(self.low)

    def log_prob(self, params: tuple[Tensor, Tensor], act: Tensor) -> Tensor:
        """Log-density of `act`, `[...]`: in its units, before the clip, as the policy gradient wants it."""
        return _normal_log_prob(params, act)

    def entropy(self, params: tuple[Tensor, Tensor]) -> Tensor:
        """In nats, `[...]`; it depends on log_std alone."""
        mean, log_std = params
        return (log_std.sum(-1) + mean.shape[-1] * 0.5 * math.log(2 * math.pi * math.e)).expand(mean.shape[:-1])

    def log_prob_entropy(self, params: tuple[Tensor, Tensor], act: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once."""
        return self.log_prob(params, act), self.entropy(params)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal, float32 `[*shape, num_outputs]`."""
        return rng.standard_normal((*shape, self.num_outputs), np.float32)

    def sample(self, params: tuple[Array, Array], noise: Array) -> Array:
        """Actions, `[..., d]`: mean plus deviation times noise."""
        return _shift_scale(params, noise)

    def mode(self, params: tuple[Array, Array]) -> Array:
        """The mean."""
        return params[0]

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """float32, each dimension in its own units and never outside its bounds."""
        return np.clip(act * self._half + self._middle, self.low, self.high)


@dataclass(frozen=True)
class Certain:
    """What another distribution finds likeliest, and nothing else: a policy without any randomness.

    params: those of `dist`; of a `DiagGaussian` the mean alone.
    """

    dist: Categorical | DiagGaussian

    @property
    def num_outputs(self) -> int:
        """As of the distribution that it makes certain."""
        return self.dist.num_outputs

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """None is needed: `[*shape, 0]`."""
        return np.empty((*shape, 0), np.float32)

    def sample(self, params: Array, noise: Array) -> Array:
        """The likeliest actions; the noise does nothing."""
        return self.mode(params)

    def mode(self, params: Array) -> Array:
        """The likeliest actions: means, or the largest logits."""
        return params if isinstance(self.dist, DiagGaussian) else self.dist.mode(params)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """As of the distribution that it makes certain, `[...]`."""
        return self.dist.to_env(act)


@dataclass(frozen=True)
class EpsilonGreedy:
    """The action of the highest value, or with probability epsilon any (DQN).

    params: (values `[..., n]`, epsilon).
    act: int64 `[...]`.
    """

    n: int

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Uniform, float32 `[*shape, 1 + n]`: the first is compared with epsilon, the place of the others' maximum is
        the random action."""
        return rng.random((*shape, 1 + self.n), np.float32)

    def sample(self, params: tuple[Array, float], noise: np.ndarray) -> np.ndarray:
        """Actions, `[...]`: with probability epsilon any, else the one of the largest value."""
        values, epsilon = params
        return np.where(noise[..., 0] < epsilon, noise[..., 1:].argmax(-1), values.argmax(-1))

    def mode(self, params: tuple[Array, float]) -> Array:
        """The actions of the largest value, `[...]`."""
        return params[0].argmax(-1)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """The same; an environment takes them as they are."""
        return act


class _Bounded:
    """A box of finite bounds, whose every dimension an algorithm sees as -1 to 1."""

    def __init__(self, low: ArrayLike, high: ArrayLike):
        self.low, self.high = _float32_bounds(low, high)
        self._middle, self._half = self.high / 2 + self.low / 2, self.high / 2 - self.low / 2
        if not (np.isfinite(self._half) & (self._half > 0)).all():
            raise ValueError(f"finite bounds are needed, low < high, not low={low}, high={high}")
        self.log_volume = float(np.log(self._half.astype(np.float64)).sum())

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal, float32 `[*shape, k]`."""
        return rng.standard_normal((*shape, len(self.low)), np.float32)

    def uniform(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Anything between the bounds, as -1 to 1, float32 `[*shape, k]`."""
        return rng.random((*shape, len(self.low)), np.float32) * 2 - 1

    def rescale(self, act: np.ndarray) -> np.ndarray:
        """From -1 to 1 to the environment's own units, float32, never outside the bounds."""
        return np.clip(act * self._half + self._middle, self.low, self.high)


class NoisyAction(_Bounded):
    """An action, and for exploration Gaussian noise around it (DDPG, TD3).

    params: (action `[..., k]` in units in which each dimension's bounds are -1 and 1, deviation of the noise).
    act: float32 `[..., k]`, in the same units.
    low, high: `[k]`; ValueError unless finite and low < high.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, deviation: float):
        super().__init__(low, high)
        self.deviation, self.num_outputs = deviation, len(self.low)

    def params(self, outputs: Array) -> tuple[Array, float]:
        """From a network's outputs `[..., k]`: their tanh is the action."""
        return (outputs.tanh() if isinstance(outputs, Tensor) else np.tanh(outputs)), self.deviation

    def sample(self, params: tuple[np.ndarray, float], noise: np.ndarray) -> np.ndarray:
        """Actions, `[..., d]`, in [-1, 1]: the network's plus deviation times noise."""
        action, deviation = params
        return np.clip(action + np.float32(deviation) * noise, -1, 1)

    def mode(self, params: tuple[Array, float]) -> Array:
        """The action without noise."""
        return params[0]

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """float32, each dimension in its own units and never outside its bounds."""
        return self.rescale(act)


class SquashedGaussian(_Bounded):
    """Independent normals passed through tanh, which fills the bounds exactly (Haarnoja et al. 2018, arXiv:1801.01290,
    appendix C).

    params: (mean `[..., k]`, log_std `[..., k]` or `[k]`).
    act: float32 `[..., k]`, the value *before* tanh: from the action itself it could not be had back near the bounds.
    low, high: `[k]`; ValueError unless finite and low < high.

    The entropy has no closed form: average -log_prob over samples.
    """

    LOG_STD = (-20, 2)      # wider and tanh leaves nothing but the bounds; narrower and float32 cannot tell draws apart

    @property
    def num_outputs(self) -> int:
        """How many numbers a network must give: mean and log-deviation of each dimension."""
        return 2 * len(self.low)

    def params(self, outputs: Array) -> tuple[Array, Array]:
        """From a network's outputs `[..., 2 k]`: mean and log_std, both of the state."""
        k = len(self.low)
        return outputs[..., :k], outputs[..., k:].clip(*self.LOG_STD)

    def log_prob(self, params: tuple[Tensor, Tensor], act: Tensor) -> Tensor:
        """Exact log-density of the environment's action `to_env(act)`, in its units, `[...]`.

        log(1 - tanh(u)^2) is written 2 (log 2 - u - softplus(-2u)): the first form is -inf from abs(u) = 9 on.
        """
        return _normal_log_prob(params, act) - _log_tanh_slope(act) - self.log_volume

    def sample_log_prob(self, params: tuple[Tensor, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """What standard normal `noise` draws, tanh(u) in -1 to 1 `[..., k]`, and the log-density *there* `[...]`.

        Both are differentiable in `params`. The environment's units, in which `log_prob` is, must not matter to what is
        learned: the two differ by `log_volume`. The noise is the standardised draw itself, so that nothing is divided
        by a deviation near 0.
        """
        u, log_std = _shift_scale(params, noise), params[1]
        logp = -(0.5 * noise.square() + log_std).sum(-1) - noise.shape[-1] * 0.5 * math.log(2 * math.pi)
        return u.tanh(), logp - _log_tanh_slope(u)

    def sample(self, params: tuple[Array, Array], noise: Array) -> Array:
        """Actions before the tanh, `[..., d]`: mean plus deviation times noise."""
        return _shift_scale(params, noise)

    def mode(self, params: tuple[Array, Array]) -> Array:
        """The mean before tanh, the median of the action: what a deterministic policy does."""
        return params[0]

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """float32, each dimension in its own units and never outside its bounds."""
        return self.rescale(np.tanh(act))


def _float32_bounds(low: ArrayLike, high: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The bounds in float32, rounded inwards: float32(0.1) is more than 0.1, and a strict environment refuses it."""
    low, high = np.asarray(low), np.asarray(high)
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    up, down = np.nextafter(low32, np.float32(np.inf)), np.nextafter(high32, np.float32(-np.inf))
    return np.where(low32 < low, up, low32), np.where(high32 > high, down, high32)


def _shift_scale(params: tuple[Array, Array], noise: Array) -> Array:
    mean, log_std = params
    exp = torch.exp if isinstance(log_std, Tensor) else np.exp
    return mean + exp(log_std) * noise


def _log_tanh_slope(u: Tensor) -> Tensor:
    """log of the slope of tanh at u, summed over the last axis."""
    return 2 * (math.log(2) - u - softplus(-2 * u)).sum(-1)


def _normal_log_prob(params: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    mean, log_std = params
    z = (x - mean) * torch.exp(-log_std)
    return -(0.5 * z.square() + log_std).sum(-1) - mean.shape[-1] * 0.5 * math.log(2 * math.pi)
