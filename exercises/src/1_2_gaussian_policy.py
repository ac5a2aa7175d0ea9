# %% [markdown]
# # 1.2 A Gaussian policy
#
# PPO for continuous actions needs little of its policy: a network that turns an observation into the mean $\mu(s)$ of
# a Gaussian, a parameter $\log \sigma$ that is the same in every state, and three things that one can do with the
# two: draw an action, tell its log-probability (given here, see 1.1), and tell the entropy, which measures how random
# the policy still is:
#
# $$a = \mu + \sigma \odot z, \quad z \sim \mathcal N(0, 1), \qquad H = -\mathbb E\left[\log \pi(a)\right]
# = \sum_{i=1}^{d} \left( \tfrac12 + \tfrac12 \log 2\pi + \log \sigma_i \right).$$
#
# The entropy is the sum of those of the $d$ dimensions, because they are independent (Cover & Thomas 2006, theorem
# 8.4.1). The exercise follows number 1.2 of *Spinning Up in Deep RL*.
#
# **You are done when** `spinup exercise check 1.2` says PASS. With `--full`, PPO then learns with your functions.
#
# **Look at** what stands after the last layer of the network: a mean may be any number.

# %%
import math

import torch
from torch import Tensor, nn


def mlp(sizes: list[int]) -> nn.Sequential:
    """A network of fully connected layers, with tanh between two of them and nothing after the last.

    Args:
        sizes: widths, from the input's to the output's: [3, 64, 2] is two `nn.Linear`, with one `nn.Tanh` between.

    Returns:
        from `[..., sizes[0]]` to `[..., sizes[-1]]`
    """
    # BEGIN SOLUTION
    # STUB: layers = []
    # STUB: # sizes[:-1] and sizes[1:] are what goes into each layer and what comes out of it.
    # STUB: raise NotImplementedError("TODO 1.2: the network")
    layers = []
    for n_in, n_out in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1])
    # END SOLUTION


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """The actions that this noise draws.

    Args:
        mean: `[..., d]`. log_std: `[d]` or `[..., d]`.
        noise: of a standard normal distribution, `[..., d]`; all randomness comes from it.

    Returns:
        `[..., d]`, not clipped: the environment may do that
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.2: the action")
    return mean + log_std.exp() * noise
    # END SOLUTION


def log_prob(act: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Logarithms of the densities of actions `[..., d]`: `[...]`. Given."""
    distance = (act - mean) / log_std.exp()
    return -0.5 * (distance**2 + 2 * log_std + math.log(2 * math.pi)).sum(-1)


def entropy(log_std: Tensor) -> Tensor:
    """How random the policy is, in nats.

    Args:
        log_std: `[..., d]`

    Returns:
        `[...]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.2: the entropy")
    return (0.5 + 0.5 * math.log(2 * math.pi) + log_std).sum(-1)
    # END SOLUTION


# %%
if __name__ == "__main__":
    mean, log_std = mlp([3, 64, 2])(torch.randn(5, 3)), torch.full((2,), -0.5)
    act = sample(mean, log_std, torch.randn(5, 2))
    print("actions", tuple(act.shape), "log-probabilities", log_prob(act, mean, log_std))
    print("entropy", entropy(log_std), "should be 1.8379")
