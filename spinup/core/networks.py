"""Networks that several algorithms share, and their initialisation."""
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from spinup.core.distributions import Categorical, Deterministic, DiagGaussian
from spinup.core.fast.acting import outputs_of
from spinup.core.fast.linear import Linear
from spinup.core.normaliser import Normaliser

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
CNN_WIDTH = 512         # width of the layer after the Nature CNN's convolutions
SMALLEST_IMAGE = 36     # the smallest side for which the Nature CNN has an output


def orthogonal(weight: Tensor, gain: float) -> None:
    """Initialise weights `[out, in, ...]` in place as orthogonal (Saxe et al. 2014,
    arXiv:1312.6120). It uses one thread: with more threads the last digits differ, and then the
    whole run differs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    nn.init.orthogonal_(weight, gain)
    torch.set_num_threads(threads)


def linear(n_in: int, n_out: int, gain: float) -> nn.Linear:
    """Create a fully connected layer with orthogonal weights of this gain and zero biases."""
    layer = Linear(n_in, n_out)
    orthogonal(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(sizes: Sequence[int], *, activation: str = "tanh",
        output_gain: float = 1.0) -> nn.Sequential:
    """Create fully connected layers with `activation` ("tanh", "relu") between them. The weights
    have gain sqrt 2, and those of the last layer have `output_gain`."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes[:-1]):
        layers += [linear(n_in, n_out, 2**0.5), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, linear(sizes[-2], sizes[-1], output_gain))


class NatureConvolutions(nn.Module):
    """Three convolutions of Mnih et al. (2015): images `[..., C, H, W]` -> features `[..., width]`.

    Bytes are divided by 255; floats, such as normalised images, are used as they are. ValueError
    for images that are too small.
    """

    def __init__(self, shape: tuple[int, int, int]):
        super().__init__()
        if min(shape[1:]) < SMALLEST_IMAGE:
            raise ValueError(f"an image of {shape[1]} x {shape[2]} is too small for the Nature CNN;"
                             f" each side needs at least {SMALLEST_IMAGE} pixels")
        self.shape = shape
        self.convolutions = nn.Sequential(
            nn.Conv2d(shape[0], 32, 8, stride=4), nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(inplace=True),
            nn.Flatten())
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv2d):
                orthogonal(layer.weight, 2**0.5)
                nn.init.zeros_(layer.bias)
        self.convolutions.to(memory_format=torch.channels_last)           # faster on CPU and GPU
        with torch.no_grad():
            self.width = self.convolutions(torch.zeros(1, *shape)).shape[1]

    def forward(self, image: Tensor) -> Tensor:
        lead = image.shape[:-3]
        # Transpose bytes, then convert: floats need four times the memory and twice the time.
        pixels = image.reshape(-1, *self.shape).contiguous(memory_format=torch.channels_last)
        if pixels.dtype == torch.uint8:
            pixels = pixels.float().div_(255)
        return self.convolutions(pixels).view(*lead, self.width)


class NatureCNN(NatureConvolutions):
    """Nature CNN, the convolutions and one linear layer: images `[..., C, H, W]` of bytes ->
    features `[..., CNN_WIDTH]`."""

    def __init__(self, shape: tuple[int, int, int]):
        super().__init__(shape)
        self.out = linear(self.width, CNN_WIDTH, 2**0.5)

    def forward(self, image: Tensor) -> Tensor:
        return self.out(super().forward(image)).relu()


class BoardConvolution(nn.Module):
    """Convolution with ReLU over a small board, with flat input and output: `[..., d]` ->
    `[..., n * channels]`.

    All n windows of `kernel` x `kernel` squares (fewer if the board is smaller) use the same
    weights. The planes come first in the weights, as in nn.Conv2d. The layer ignores the part of an
    observation after the board. It gathers the windows and computes one product. On a CPU this is
    faster than nn.Conv2d, and it also works in numpy.

    Args:
        shape: rows, columns and planes of the board, the first part of an observation.
    """

    def __init__(self, shape: tuple[int, int, int], kernel: int, channels: int):
        super().__init__()
        board = torch.arange(np.prod(shape)).view(shape)
        rows = board.unfold(0, min(kernel, shape[0]), 1)
        windows = rows.unfold(1, min(kernel, shape[1]), 1).flatten(0, 1)
        self.register_buffer("index", windows.flatten(1), persistent=False)       # [n, k]
        self.linear = linear(self.index.shape[1], channels, 2**0.5)
        self.width = len(windows) * channels

    def forward(self, x: Tensor) -> Tensor:
        windows = x.index_select(-1, self.index.flatten())
        windows = windows.view(*x.shape[:-1], *self.index.shape)
        return self.linear(windows).relu().flatten(-2)

    def in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return the same function in numpy; it shares the memory of the parameters."""
        tensors = self.index, self.linear.weight.T, self.linear.bias
        index, weight, bias = (x.detach().numpy() for x in tensors)

        def forward(x: np.ndarray) -> np.ndarray:
            features = np.maximum(x[..., index].dot(weight) + bias, 0)
            return features.reshape(*x.shape[:-1], self.width)
        return forward


class ActorCritic(nn.Module):
    """Stochastic policy and value function: two MLPs for vectors `[..., d]`, one shared CNN for
    images `[..., C, H, W]`.

    Args:
        obs_shape: the shape of one observation: one axis (vector) or three axes (image).
        dist: the action distribution, from `spinup.core.distributions`.
        hidden: widths of the hidden layers of the MLPs. For images, the CNN's features go directly
            to the output layers.
        activation: "tanh" or "relu".
        normalise: keep running statistics of vector observations in `normaliser`. The losses take
            normalised observations (`policy.normalise(obs)`, once per rollout), so that acting and
            learning use the same statistics.
        output_gain: gain of the policy's last layer; a small one makes the first policy
            near-uniform.
        log_std: initial log standard deviation of a Gaussian. It is a parameter, the same in all
            states.
    """

    def __init__(self, obs_shape: tuple[int, ...], dist: Categorical | DiagGaussian,
                 hidden: Sequence[int] = (64, 64), *, activation: str = "tanh",
                 normalise: bool = False, output_gain: float = 0.01, log_std: float = 0.0):
        super().__init__()
        if len(obs_shape) not in (1, 3):
            raise ValueError(f"observations of shape {obs_shape} are neither vectors nor images")
        self.dist, is_image = dist, len(obs_shape) == 3
        self.body = NatureCNN(obs_shape) if is_image else nn.Identity()
        sizes = [CNN_WIDTH] if is_image else [obs_shape[0], *hidden]
        # MLPs of pi and V share no layers, so that neither disturbs the other.
        self.pi = mlp([*sizes, dist.num_outputs], activation=activation, output_gain=output_gain)
        self.v = mlp([*sizes, 1], activation=activation)
        self.log_std = None
        if isinstance(dist, DiagGaussian):
            self.log_std = nn.Parameter(torch.full((dist.num_outputs,), float(log_std)))
        self.normaliser = Normaliser(obs_shape) if normalise and not is_image else None

    def normalise(self, obs: Tensor) -> Tensor:
        """Normalise observations `[..., *shape]` for the networks."""
        return obs if self.normaliser is None else self.normaliser(obs)

    def params(self, features: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Parameters of the action distribution for features `[..., width]`."""
        return self.pi(features) if self.log_std is None else (self.pi(features), self.log_std)

    def evaluate(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log pi(act|obs), entropy and value, each `[...]`, for normalised obs `[..., *shape]`."""
        features = self.body(obs)
        logp, entropy = self.dist.log_prob_entropy(self.params(features), act)
        return logp, entropy, self.v(features).squeeze(-1)

    def value(self, obs: Tensor) -> Tensor:
        """V(obs), `[...]`, for normalised obs `[..., *shape]`."""
        return self.v(self.body(obs)).squeeze(-1)

    def actor(self) -> Callable[[np.ndarray], np.ndarray | tuple[np.ndarray, np.ndarray]]:
        """Return a numpy function from raw observations `[N, *shape]` to distribution parameters.

        Create a new one for each rollout. It always uses the current weights, but keeps the old
        statistics of the normaliser and the old `log_std`.
        """
        pi = outputs_of(self.pi, self.body)
        normalise = self.normaliser.numpy_view() if self.normaliser is not None else None
        outputs = pi if normalise is None else lambda obs: pi(normalise(obs))
        if self.log_std is None:
            return outputs
        log_std = self.log_std.detach().cpu().numpy().copy()
        return lambda obs: (outputs(obs), log_std)


class Actor(nn.Module):
    """Deterministic policy without a value function: one MLP for vectors `[..., d]`, with tanh
    between its layers.

    Args:
        obs_size: d.
        dist: the distribution of the action space; the policy takes its mode.
        hidden: widths of the hidden layers.
        normalise: keep statistics of the observations in `normaliser`.
    """

    def __init__(self, obs_size: int, dist: Categorical | DiagGaussian, hidden: Sequence[int],
                 *, normalise: bool = False):
        super().__init__()
        self.dist = Deterministic(dist)
        self.pi = mlp([obs_size, *hidden, dist.num_outputs], output_gain=0.01)
        self.normaliser = Normaliser((obs_size,)) if normalise else None

    def view(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function that normalises observations `[N, d]` with the current statistics."""
        return (lambda obs: obs) if self.normaliser is None else self.normaliser.numpy_view()

    def actor(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return a numpy function from observations `[N, d]` to the distribution's parameters."""
        pi, view = outputs_of(self.pi), self.view()
        return lambda obs: pi(view(obs))
