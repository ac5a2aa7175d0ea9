# %% [markdown]
# # 1.2 A Gaussian policy
#
# Write the network, the sampling and the entropy of a Gaussian policy for PPO. The network maps an observation $s$ to
# the mean $\mu(s)$ of a Gaussian. A parameter $\log \sigma$, which is the same in every state, gives the standard
# deviation. PPO needs three things from this policy: a sampled action, its log-probability (given here, see 1.1), and
# the entropy. The entropy measures how random the policy still is. The action $a$ and the entropy $H$ are
#
# $$a = \mu + \sigma \odot z, \quad z \sim \mathcal N(0, 1), \qquad H = -\mathbb E\left[\log \pi(a)\right]
# = \sum_{i=1}^{d} \left( \tfrac12 + \tfrac12 \log 2\pi + \log \sigma_i \right),$$
#
# where $z$ is standard normal noise, $\odot$ multiplies element by element, and $d$ is the number of components of an
# action. The entropy is the sum of the entropies of the $d$ dimensions, because the dimensions are independent (Cover &
# Thomas 2006, theorem 8.4.1). The exercise follows number 1.2 of *Spinning Up in Deep RL*.
#
# **You are done when** `spinup exercise check 1.2` says PASS. With `--full`, PPO then trains with your functions.
#
# **Look at** the last layer of the network. A mean can be any number, so nothing may follow this layer.

# %%
import math

import torch
from torch import Tensor, nn
from torch.distributions import Normal


def mlp(sizes: list[int]) -> nn.Sequential:
    """Return a network of fully connected layers, with tanh between the layers and nothing after the last.

    Args:
        sizes: widths, from the input to the output. [3, 64, 2] gives two `nn.Linear` with one `nn.Tanh` between them.

    Returns:
        a network from `[..., sizes[0]]` to `[..., sizes[-1]]`
    """
    # BEGIN SOLUTION
    # STUB: layers = []
    # STUB: # sizes[:-1] are the input widths of the layers, sizes[1:] their output widths.
    # STUB: raise NotImplementedError("TODO 1.2: the network")
    layers = []
    for n_in, n_out in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1])
    # END SOLUTION


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
    """Compute the actions that belong to the given noise.

    Args:
        mean: means, `[..., d]`. log_std: log standard deviations, `[d]` or `[..., d]`.
        noise: standard normal noise, `[..., d]`. It is the only source of randomness.

    Returns:
        actions, `[..., d]`. Do not clip them; the environment may do that.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.2: the action")
    return mean + log_std.exp() * noise
    # END SOLUTION


def log_prob(act: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-densities `[...]` of actions `[..., d]`. This function is given."""
    return Normal(mean, log_std.exp()).log_prob(act).sum(-1)


def entropy(log_std: Tensor) -> Tensor:
    """Return the entropy of the policy in nats.

    Args:
        log_std: log standard deviations, `[..., d]`.

    Returns:
        one entropy for each policy, `[...]`
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
