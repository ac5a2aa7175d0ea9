"""Running statistics that scale a network's inputs and rewards to about unit size.

All state is in buffers, so it is saved with the policy. The buffers are float64: in float32 the
count stops at 2^24 steps, and the variance loses its digits if the mean is large. For devices
without float64 (Apple's mps) the buffers stay on the CPU, and the device computes in float32.
"""
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinup.core.returns import linear_recursion


class Statistics(nn.Module):
    """Module with only float64 buffers. If a device does not support float64, torch raises a
    TypeError, and `to` leaves the buffers on the CPU."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Statistics":
        try:
            return super()._apply(fn, recurse)
        except TypeError:
            return self


class Normaliser(Statistics):
    """(x - mean) / std, clipped to +-clip. Mean and variance are those of all data passed to
    `update`; before the first update they are 0 and 1.

    Only `update` and `add` change the statistics. An on-policy algorithm calls `update` once per
    rollout, so that the actor and the learner use the same numbers. Never call `update` during
    evaluation.
    """

    def __init__(self, shape: tuple[int, ...], clip: float = 10.0):
        super().__init__()
        self.shape, self.clip = tuple(shape), clip
        self.register_buffer("mean", torch.zeros(self.shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(self.shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add observations `[..., *shape]` with the rule of Chan et al. 1983. The result does not
        depend on their order or on the batches."""
        x = x.to(self.mean.device).double().reshape(-1, *self.shape)
        var, mean = torch.var_mean(x, 0, correction=0)
        self._merge(mean, var, len(x))

    @torch.no_grad()
    def add(self, total: Tensor, squares: Tensor, count: int) -> None:
        """Add `count` observations, given their sum and the sum of their squares, float64
        `[*shape]` each."""
        mean = total / count
        self._merge(mean, (squares / count - mean.square()).clamp(min=0), count)

    def _merge(self, mean: Tensor, var: Tensor, count: int) -> None:
        total = self.count + count
        share = count / total                                 # share of the new data
        delta = mean - self.mean
        self.var += share * (var - self.var) + share * (1 - share) * delta.square()
        self.mean += share * delta
        self.count.copy_(total)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x `[..., *shape]`; the result is float32 with the same shape."""
        mean, scale = (s.to(x.device) for s in self._mean_scale())
        return ((x.float() - mean) * scale).clamp(-self.clip, self.clip)

    def numpy_view(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return `forward` for arrays `[..., *shape]`, for acting; equal to the last bit. It keeps
        the current statistics, so create a new one after `update`."""
        mean, scale = (s.cpu().numpy().copy() for s in self._mean_scale())
        clip = self.clip

        def normalise(x: np.ndarray) -> np.ndarray:
            return np.clip(np.subtract(x, mean, dtype=np.float32) * scale, -clip, clip)

        return normalise

    def _mean_scale(self) -> tuple[Tensor, Tensor]:
        return self.mean.float(), (self.var + 1e-8).rsqrt().float()


class Normalising(nn.Module):
    """Network that normalises observations with the statistics of all of them so far. It is for
    methods with a replay buffer: the buffer holds raw observations, and `normalise` is applied to
    each batch. With `normaliser` None, nothing is normalised."""

    normaliser: Normaliser | None

    def observe(self, obs: np.ndarray) -> None:
        """Add observations `[N, *shape]` to the statistics; without a normaliser do nothing."""
        if self.normaliser is not None:
            self.normaliser.update(torch.from_numpy(obs))

    def normalise(self, obs: Tensor) -> Tensor:
        """Normalise observations `[..., *shape]` for the networks."""
        return obs if self.normaliser is None else self.normaliser(obs)

    def of_raw(self, function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
        """Return a function of raw observations `[N, *shape]`, given one of normalised ones. It
        always uses the current statistics."""
        if self.normaliser is None:
            return function
        return lambda obs: function(self.normaliser.numpy_view()(obs))


class ReturnScaler(Statistics):
    """Scaler that divides rewards by the running standard deviation of the discounted return. It
    subtracts nothing, because a shift would change the task.

    It keeps the return so far of each environment, sum_l gamma^l r_{t-l} over its episode, from
    rollout to rollout.
    """

    def __init__(self, num_envs: int, gamma: float, clip: float = 10.0):
        super().__init__()
        self.gamma, self.clip = gamma, clip
        self.stats = Normaliser(())
        self.register_buffer("returns", torch.zeros(num_envs, dtype=torch.float64))

    def begin_anew(self) -> None:
        """Start new episodes in all environments, as a resumed run whose environments were not
        saved."""
        self.returns.zero_()

    @torch.no_grad()
    def update_and_scale(self, rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
        """Add a rollout `[N, T]` to the statistics. Return its rewards, scaled and clipped, float32
        `[N, T]`."""
        device, where = rewards.device, self.returns.device
        rewards, over = rewards.to(where), (terminated.bool() | truncated.bool()).to(where)
        goes_on = self.gamma * (~over).double()
        first = rewards[:, :1] + self.returns[:, None]
        inflow = torch.cat([first, rewards[:, 1:].double()], 1)
        before = goes_on.roll(1, 1)                           # decay of the return before step t
        # Flipped, the recursion runs forward in time.
        so_far = linear_recursion(inflow.flip(1), before.flip(1)).flip(1)
        self.returns.copy_(goes_on[:, -1] * so_far[:, -1])    # discounted for the next reward
        self.stats.update(so_far)
        scaled = rewards * (self.stats.var + 1e-8).rsqrt()
        return scaled.clamp(-self.clip, self.clip).float().to(device)
