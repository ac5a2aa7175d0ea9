# %% [markdown]
# # 1.1 The log-likelihood of a Gaussian
#
# A policy for continuous actions gives a mean and a deviation for each of the $d$ numbers of an action, and draws them
# independently. Every policy gradient needs to know how likely an action was:
#
# $$\log \pi(a) = -\tfrac12 \sum_{i=1}^{d} \left( \frac{(a_i - \mu_i)^2}{\sigma_i^2} + 2 \log \sigma_i
# + \log 2\pi \right).$$
#
# The deviation comes as its logarithm, which may have any sign, and is either one for all states, `[d]`, or one for
# each, `[..., d]`.
#
# **You are done when** `spinup exercise check 1.1` says PASS.
#
# **Look at** which axis is summed over, and which is not: one number for each action comes out, not one for all.

# %%
import math

import torch
from torch import Tensor


def gaussian_log_prob(act: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """How likely actions are, as logarithms of densities.

    Args:
        act: actions, `[..., d]`.
        mean: `[..., d]`. log_std: `[d]` or `[..., d]`.

    Returns:
        `[...]`
    """
    # BEGIN SOLUTION
    # STUB: # math.log(2 * math.pi) and log_std.exp() are what you need besides sums and squares.
    # STUB: raise NotImplementedError("TODO 1.1")
    distance = (act - mean) / log_std.exp()
    return -0.5 * (distance**2 + 2 * log_std + math.log(2 * math.pi)).sum(-1)
    # END SOLUTION


# %%
if __name__ == "__main__":
    print(gaussian_log_prob(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(2)), "should be -1.8379, three times")
