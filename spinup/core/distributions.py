"""Action distributions, all with the same methods. Each one defines the meaning of a policy's
outputs.

`params` are the network's outputs. `act` is the action that is stored and whose log-probability is
computed. `to_env` converts `act` to the input of the environment's `step`. `sample` and `mode`
accept tensors and numpy arrays. Acting uses numpy, because torch's overhead would take most of the
time. The caller provides the randomness as `noise`, sampled for a whole rollout at once.
`spinup.core.bounded` has distributions over finite boxes, for methods with critics.
"""
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from spinup.core.kl import kl_categorical, kl_gaussian

Array = np.ndarray | Tensor


@dataclass(frozen=True)
class Categorical:
    """One choice among n (Discrete: `sizes=(n,)`) or several independent choices (MultiDiscrete:
    `sizes=(n1, n2, ...)`).

    params: finite logits `[..., sum(sizes)]`. Mask an action with -1e9, because -inf makes the
    entropy NaN.
    act: int64 `[...]` for one size, `[..., k]` for k sizes.
    """

    sizes: tuple[int, ...]

    @property
    def num_outputs(self) -> int:
        """Number of network outputs: one for each action of each choice."""
        return sum(self.sizes)

    def log_prob(self, params: Tensor, act: Tensor) -> Tensor:
        """log pi(act), `[...]`."""
        if len(self.sizes) == 1:
            return params.log_softmax(-1).gather(-1, act.unsqueeze(-1)).squeeze(-1)
        return sum(d.log_prob(p, act[..., i]) for i, (d, p) in enumerate(self._heads(params)))

    def entropy(self, params: Tensor) -> Tensor:
        """Entropy in nats, `[...]`."""
        if len(self.sizes) == 1:
            log_pi = params.log_softmax(-1)
            return -(log_pi.exp() * log_pi).sum(-1)
        return sum(d.entropy(p) for d, p in self._heads(params))

    def log_prob_entropy(self, params: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, `[...]` each, with one softmax."""
        if len(self.sizes) == 1:
            log_pi = params.log_softmax(-1)
            logp = log_pi.gather(-1, act.unsqueeze(-1)).squeeze(-1)
            return logp, -(log_pi.exp() * log_pi).sum(-1)
        heads = [d.log_prob_entropy(p, act[..., i])
                 for i, (d, p) in enumerate(self._heads(params))]
        return sum(logp for logp, _ in heads), sum(entropy for _, entropy in heads)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Exact KL(pi || other), `[...]`, from the parameters of both distributions."""
        return sum(kl_categorical(p, q) for (_, p), (_, q) in
                   zip(self._heads(params), self._heads(other), strict=True))

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard Gumbel noise, float32 `[*shape, num_outputs]`."""
        return rng.gumbel(size=(*shape, self.num_outputs)).astype(np.float32)

    def sample(self, params: Array, noise: Array) -> Array:
        """Sample actions, `[...]` or `[..., k]`: argmax(logits + Gumbel) follows the softmax."""
        return self.mode(params + noise)

    def mode(self, params: Array) -> Array:
        """Most likely action, `[...]` or `[..., k]`."""
        if len(self.sizes) == 1:
            return params.argmax(-1)
        stack = torch.stack if isinstance(params, Tensor) else np.stack
        return stack([p.argmax(-1) for _, p in self._heads(params)], -1)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """Return `act`, `[...]`, unchanged: the environment takes it in this form."""
        return act

    unscale = to_env                    # the inverse

    def _heads(self, params: Array):
        """Yield (distribution, logits) of each choice."""
        start = 0
        for n in self.sizes:
            yield Categorical((n,)), params[..., start:start + n]
            start += n


class DiagGaussian:
    """Independent normal distributions. Actions are clipped to the bounds only in `to_env`.

    params: (mean `[..., k]`, log_std `[k]` or `[..., k]`).
    act: float32 `[..., k]`, unclipped and scaled so that the bounds of a dimension are -1 and 1. A
    dimension with an infinite bound, or with equal ones, keeps the environment's units.
    low, high: `[k]`, may be infinite.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike):
        self.low, self.high = float32_bounds(low, high)
        bounded = np.isfinite(self.low) & np.isfinite(self.high) & (self.low < self.high)
        low, high = np.where(bounded, self.low, -1), np.where(bounded, self.high, 1)
        self._middle, self._half = high / 2 + low / 2, high / 2 - low / 2

    @property
    def num_outputs(self) -> int:
        """Number of network outputs: the mean of each dimension."""
        return len(self.low)

    def log_prob(self, params: tuple[Tensor, Tensor], act: Tensor) -> Tensor:
        """Log-density of `act`, `[...]`, in the units of `act` and before the clip. The policy
        gradient needs this density."""
        return normal_log_prob(params, act)

    def entropy(self, params: tuple[Tensor, Tensor]) -> Tensor:
        """Entropy in nats, `[...]`; it depends only on log_std."""
        mean, log_std = params
        constant = mean.shape[-1] * 0.5 * math.log(2 * math.pi * math.e)
        return (log_std.sum(-1) + constant).expand(mean.shape[:-1])

    def log_prob_entropy(self, params: tuple[Tensor, Tensor],
                         act: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, `[...]` each."""
        return self.log_prob(params, act), self.entropy(params)

    def kl(self, params: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
        """Exact KL(pi || other), `[...]`, from the parameters of both, before the clip."""
        return kl_gaussian(params, other)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal noise, float32 `[*shape, num_outputs]`."""
        return rng.standard_normal((*shape, self.num_outputs), np.float32)

    def sample(self, params: tuple[Array, Array], noise: Array) -> Array:
        """Sample actions, `[..., k]`: mean plus standard deviation times noise."""
        return shift_scale(params, noise)

    def mode(self, params: tuple[Array, Array]) -> Array:
        """Mean, `[..., k]`."""
        return params[0]

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """Convert to the environment's units, float32 `[..., k]`, and clip to the bounds."""
        return np.clip(act * self._half + self._middle, self.low, self.high)

    def unscale(self, act: np.ndarray) -> np.ndarray:
        """Convert from the environment's units, float32 `[..., k]`."""
        return (act - self._middle) / self._half


@dataclass(frozen=True)
class Deterministic:
    """Deterministic policy: always the most likely action of `dist`.

    params: those of `dist`; for a `DiagGaussian` only the mean.
    """

    dist: Categorical | DiagGaussian

    @property
    def num_outputs(self) -> int:
        """Number of network outputs, as for `dist`."""
        return self.dist.num_outputs

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """No noise: `[*shape, 0]`."""
        return np.empty((*shape, 0), np.float32)

    def sample(self, params: Array, noise: Array) -> Array:
        """Most likely actions, `[...]`; the noise has no effect."""
        return self.mode(params)

    def mode(self, params: Array) -> Array:
        """Most likely actions, `[...]`: means, or the largest logits."""
        return params if isinstance(self.dist, DiagGaussian) else self.dist.mode(params)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """Convert actions `[...]` as `dist` does."""
        return self.dist.to_env(act)


@dataclass(frozen=True)
class EpsilonGreedy:
    """Action with the highest value, or with probability epsilon a uniformly random one (DQN; Mnih
    et al. 2015).

    params: (values `[..., n]`, epsilon).
    act: int64 `[...]`.
    """

    n: int

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Uniform noise, float32 `[*shape, 1 + n]`. The first number is compared with epsilon. The
        argmax of the others is the random action."""
        return rng.random((*shape, 1 + self.n), np.float32)

    def sample(self, params: tuple[Array, float], noise: np.ndarray) -> np.ndarray:
        """Sample actions, `[...]`: random with probability epsilon, else with the largest value."""
        values, epsilon = params
        return np.where(noise[..., 0] < epsilon, noise[..., 1:].argmax(-1), values.argmax(-1))

    def mode(self, params: tuple[Array, float]) -> Array:
        """Actions with the largest value, `[...]`."""
        return params[0].argmax(-1)

    def to_env(self, act: np.ndarray) -> np.ndarray:
        """Return `act`, `[...]`, unchanged: the environment takes it in this form."""
        return act


def float32_bounds(low: ArrayLike, high: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Round bounds `[k]` inwards to float32. float32(0.1) is above 0.1, and a strict environment
    rejects it."""
    low, high = np.asarray(low), np.asarray(high)
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    up, down = np.nextafter(low32, np.float32(np.inf)), np.nextafter(high32, np.float32(-np.inf))
    return np.where(low32 < low, up, low32), np.where(high32 > high, down, high32)


def shift_scale(params: tuple[Array, Array], noise: Array) -> Array:
    """mean + exp(log_std) noise, `[..., k]`: a reparametrised sample of a normal distribution."""
    mean, log_std = params
    exp = torch.exp if isinstance(log_std, Tensor) else np.exp
    return mean + exp(log_std) * noise


def normal_log_prob(params: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """Log-density `[...]` of independent normal distributions at x `[..., k]`."""
    mean, log_std = params
    z = (x - mean) * torch.exp(-log_std)
    return -(0.5 * z.square() + log_std).sum(-1) - mean.shape[-1] * 0.5 * math.log(2 * math.pi)
