"""Networks for the methods that learn action values from a replay buffer."""
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from spinup.core.bounded import NoisyAction, SquashedGaussian
from spinup.core.distributions import EpsilonGreedy
from spinup.core.fast.acting import NumpyMLP, in_torch, outputs_of
from spinup.core.fast.linear import relu_mlp
from spinup.core.networks import CNN_WIDTH, NatureCNN, NatureConvolutions
from spinup.core.normaliser import Normaliser, Normalising


class QNetwork(Normalising):
    """Q(s, a) of every action, `[..., n]`, for vectors `[..., d]` (MLP) or images `[..., C, H, W]`
    (Nature CNN).

    Attributes:
        epsilon: share of random actions, except when the best action is requested.
    """

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, hidden: Sequence[int],
                 dueling: bool = False, layer_norm: bool = False, *, normalise: bool = False):
        super().__init__()
        if len(obs_shape) not in (1, 3):
            raise ValueError(f"observations of shape {obs_shape} are neither vectors nor images")
        self.dist, self.is_image = EpsilonGreedy(num_actions), len(obs_shape) == 3
        self.body = NatureConvolutions(obs_shape) if self.is_image else nn.Identity()
        sizes = (self.body.width, CNN_WIDTH) if self.is_image else (obs_shape[0], *hidden)
        if dueling:                                           # two streams, same width in total
            if len(sizes) > 2:                                # split at the last hidden layer
                self.body = nn.Sequential(*relu_mlp(*sizes[:-1]), nn.ReLU())
            half = max(1, sizes[-1] // 2)
            self.value = relu_mlp(sizes[-2], half, 1)
            sizes = sizes[-2], max(1, sizes[-1] - half)
        self.advantage = relu_mlp(*sizes, num_actions, layer_norm=layer_norm)
        self.dueling = dueling
        self.register_buffer("epsilon", torch.ones(()))
        self.normaliser = Normaliser(obs_shape) if normalise and not self.is_image else None

    def forward(self, obs: Tensor) -> Tensor:
        features = self.body(obs)
        advantage = self.advantage(features)
        return duel(self.value(features), advantage) if self.dueling else advantage

    def actor(self) -> Callable[[np.ndarray], tuple[np.ndarray, float]]:
        """Return a numpy function from observations `[N, *shape]` to (values `[N, n]`, epsilon). It
        always uses the current weights and epsilon."""
        if self.is_image or self.epsilon.device.type != "cpu":
            values = in_torch(self, self.epsilon.device)
        else:
            shared = list(self.body) if isinstance(self.body, nn.Sequential) else []
            streams = [NumpyMLP(nn.Sequential(*shared, *stream))
                       for stream in ([self.value] if self.dueling else []) + [self.advantage]]
            values = streams[0]
            if self.dueling:
                def values(obs: np.ndarray) -> np.ndarray:
                    return duel(*(stream(obs) for stream in streams))
        return self.of_raw(lambda obs: (values(obs), float(self.epsilon)))


@contextmanager
def frozen(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """Treat these parameters as constants inside the block: gradients of a critic's weights take
    time, and the actor's step does not use them."""
    if torch.compiler.is_compiling():                         # the compiler drops unused gradients
        yield
        return
    params = [p for p in weights if p.requires_grad]
    for p in params:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in params:
            p.requires_grad_(True)


def duel(value: Tensor | np.ndarray, advantage: Tensor | np.ndarray) -> Tensor | np.ndarray:
    """Q(s, a) = V(s) + A(s, a) - mean A(s, .), `[..., n]`, from `[..., 1]` and `[..., n]` (Wang et
    al. 2016, arXiv:1511.06581, eq. 9). The data of every action trains the shared value V."""
    return value + advantage - advantage.mean(-1, keepdims=True)


class ActorCritics(Normalising):
    """Actor for bounded actions, and critics of state and action: MLPs with ReLU. For images, they
    share a Nature CNN, `body`. Only the critics' loss trains it: the actor treats its features as
    constants.

    Args:
        obs_shape: the shape of one observation: one axis (vector) or three axes (image).
        dist: the action distribution of the actor's outputs.
        critics: number of critics, with different initial weights. Each one is computed separately:
            one batched product for two of them took 1.1 times as long for forward and backward
            passes on one core, and 1.5 times on two.
        normalise: scale the actor's observations with `normaliser`. `params` and `values` take
            observations that are already normalised.
    """

    def __init__(self, obs_shape: tuple[int, ...], dist: NoisyAction | SquashedGaussian,
                 hidden: Sequence[int], critics: int, layer_norm: bool = False, *,
                 normalise: bool = False):
        super().__init__()
        self.dist, self.is_image = dist, len(obs_shape) == 3
        self.body = NatureCNN(obs_shape) if self.is_image else nn.Identity()
        size = CNN_WIDTH if self.is_image else obs_shape[0]
        self.pi = relu_mlp(size, *hidden, dist.num_outputs, layer_norm=layer_norm)
        inputs = size + len(dist.low)
        self.q = nn.ModuleList(relu_mlp(inputs, *hidden, 1, layer_norm=layer_norm)
                               for _ in range(critics))
        self.normaliser = Normaliser(obs_shape) if normalise and not self.is_image else None

    def params(self, obs: Tensor) -> tuple[Tensor, Tensor | float]:
        """Parameters of the action distribution for observations `[..., *shape]`."""
        return self.dist.params(self.pi(self.body(obs).detach()))

    def values(self, obs: Tensor, act: Tensor, critics: int | None = None) -> Tensor:
        """Q of each critic, or of the first `critics` of them, `[critics, B]`, for actions `[B, k]`
        in -1 to 1."""
        both = torch.cat([self.body(obs), act], -1)
        return torch.cat([q(both) for q in list(self.q)[:critics]], 1).t()

    def actor(self) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | float]]:
        """Return a numpy function from observations `[N, *shape]` to the parameters of the action
        distribution. It always uses the current weights and statistics."""
        outputs = outputs_of(self.pi, self.body)
        return self.of_raw(lambda obs: self.dist.params(outputs(obs)))
