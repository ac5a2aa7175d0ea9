# %% [markdown]
# # 1.1 The log-likelihood of a Gaussian
#
# Write a function that computes the log-density of actions under a Gaussian policy. A policy for continuous actions
# gives a mean and a standard deviation for each of the $d$ numbers of an action. It samples these numbers
# independently. Every policy gradient needs the log-density of the sampled action:
#
# $$\log \pi(a) = -\tfrac12 \sum_{i=1}^{d} \left( \frac{(a_i - \mu_i)^2}{\sigma_i^2} + 2 \log \sigma_i
# + \log 2\pi \right),$$
#
# where $a_i$ is component $i$ of the action, $\mu_i$ is its mean and $\sigma_i$ is its standard deviation. In
# $\log 2\pi$, $\pi$ is the number 3.14.
#
# The function gets the logarithm of the standard deviation, `log_std`, which may have any sign. Its shape is `[d]` if
# all states share it, and `[..., d]` if each state has its own.
#
# **You are done when** `spinup exercise check 1.1` says PASS.
#
# **Look at** the axis over which you sum. You return one number for each action, not one number for all actions.

# %%
import math

import torch
from torch import Tensor


def gaussian_log_prob(act: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-densities of actions under a Gaussian policy.

    Args:
        act: actions, `[..., d]`.
        mean: means, `[..., d]`. log_std: log standard deviations, `[d]` or `[..., d]`.

    Returns:
        one log-density for each action, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: # Besides sums and squares you need math.log(2 * math.pi) and log_std.exp().
    # STUB: raise NotImplementedError("TODO 1.1")
    distance = (act - mean) / log_std.exp()
    return -0.5 * (distance**2 + 2 * log_std + math.log(2 * math.pi)).sum(-1)
    # END SOLUTION


# %%
if __name__ == "__main__":
    print(gaussian_log_prob(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(2)), "should be -1.8379, three times")
