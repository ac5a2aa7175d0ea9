# %% [markdown]
# # 3.5 A Gaussian squashed by tanh
#
# Write the sampling and the log-density of SAC's policy, a Gaussian squashed by tanh. Actions have bounds, and a
# Gaussian has none. SAC samples $u$ from a Gaussian and takes the action $a = \tanh(u)$, which is between -1 and 1.
# This changes the density. Where tanh is flat, many $u$ map to a small range of $a$. The density is multiplied by the
# inverse of the slope (Haarnoja et al. 2018, arXiv:1801.01290, appendix C):
#
# $$\log \pi(a) = \log \mathcal N(u;\, \mu, \sigma) - \sum_{i=1}^{d} \log\big(1 - \tanh^2(u_i)\big),$$
#
# where $\mathcal N(u;\, \mu, \sigma)$ is the density of the Gaussian with mean $\mu$ and standard deviation $\sigma$,
# and $d$ is the number of components of an action.
#
# This formula is correct on paper. But in float32 $\tanh(u)$ is 1 for $u = 10$, and the logarithm is minus infinity.
# The following formula gives the same number without this loss of digits, with $\text{softplus}(x) = \log(1 + e^x)$:
#
# $$\log\big(1 - \tanh^2(u)\big) = 2\,\big(\log 2 - u - \text{softplus}(-2u)\big).$$
#
# The function gets the noise $\varepsilon$ as an argument and computes $u = \mu + \sigma\,\varepsilon$. So the actor
# can learn through its own samples: a gradient reaches $\mu$ and $\sigma$ from both $u$ and $a$.
#
# **You are done when** `spinup exercise check 3.5` says PASS. It also tests $|u| = 60$.
#
# **Look at** the argument of the density, which is $u$ and not $a$. Why? If $a$ is rounded to 1, $u$ cannot be
# recovered.

# %%
import math

import torch
from torch import Tensor
from torch.nn.functional import softplus


def squashed_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return a sample before and after tanh, differentiable in `mean` and `log_std`.

    Args:
        mean: means, `[..., d]`. log_std: log standard deviations, `[d]` or `[..., d]`. noise: standard normal,
            `[..., d]`.

    Returns:
        u and the action a = tanh(u), `[..., d]` each
    """
    # BEGIN SOLUTION
    u = mean + log_std.exp() * noise
    return u, u.tanh()
    # END SOLUTION


def squashed_log_prob(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-density of the action tanh(u). It must be finite and correct for |u| = 60 too.

    Args:
        u: actions before tanh, `[..., d]`. mean: means, `[..., d]`. log_std: log standard deviations, `[d]` or
            `[..., d]`.

    Returns:
        one log-density for each action, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: # The Gaussian is the one of 1.1. The correction needs math.log(2) and softplus(x).
    # STUB: raise NotImplementedError("TODO 3.5")
    distance = (u - mean) / log_std.exp()
    gaussian = -0.5 * (distance**2 + 2 * log_std + math.log(2 * math.pi))
    log_slope = 2 * (math.log(2) - u - softplus(-2 * u))
    return (gaussian - log_slope).sum(-1)
    # END SOLUTION


# %%
if __name__ == "__main__":
    u = torch.tensor([[0.0], [5.0], [10.0], [20.0]])
    print("with 1e-6 in the logarithm:", -(1 - u.tanh()**2 + 1e-6).log()[:, 0])
    print("yours, minus the Gaussian: ", squashed_log_prob(u, u, torch.zeros(1)) + 0.5 * math.log(2 * math.pi))
