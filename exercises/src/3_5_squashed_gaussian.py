# %% [markdown]
# # 3.5 A Gaussian squashed by tanh
#
# Actions have bounds, and a Gaussian has none. SAC draws $u$ from a Gaussian and acts with $a = \tanh(u)$, which lies
# between -1 and 1. That changes the density: where tanh is flat, many $u$ are pressed into few $a$, and the density
# there is higher by the inverse of the slope (Haarnoja et al. 2018, arXiv:1801.01290, appendix C):
#
# $$\log \pi(a) = \log \mathcal N(u;\, \mu, \sigma) - \sum_{i=1}^{d} \log\big(1 - \tanh^2(u_i)\big).$$
#
# On paper that is all. In float32 $\tanh(u)$ is 1 for $u$ of 10, and the logarithm is minus infinity. The same number
# without such a loss (with $\text{softplus}(x) = \log(1 + e^x)$) is
#
# $$\log\big(1 - \tanh^2(u)\big) = 2\,\big(\log 2 - u - \text{softplus}(-2u)\big).$$
#
# The draw is made of noise that comes from outside, $u = \mu + \sigma\,\varepsilon$. So the actor can be improved
# through its own draws: a gradient reaches $\mu$ and $\sigma$ from both $u$ and $a$.
#
# **You are done when** `spinup exercise check 3.5` says PASS. It also asks at $|u| = 20$.
#
# **Look at** why the density is given $u$ and not $a$: from an $a$ of 1 no $u$ can be had back.

# %%
import math

import torch
from torch import Tensor
from torch.nn.functional import softplus


def squashed_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A draw before and after tanh, differentiable in `mean` and `log_std`.

    Args:
        mean: `[..., d]`. log_std: `[d]` or `[..., d]`. noise: standard normal, `[..., d]`.

    Returns:
        u and the action a = tanh(u), `[..., d]` each
    """
    # BEGIN SOLUTION
    u = mean + log_std.exp() * noise
    return u, u.tanh()
    # END SOLUTION


def squashed_log_prob(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """The log-density of the action tanh(u), finite and right for |u| = 20 too.

    Args:
        u: actions before tanh, `[..., d]`. mean: `[..., d]`. log_std: `[d]` or `[..., d]`.

    Returns:
        `[...]`
    """
    # BEGIN SOLUTION
    # STUB: # The Gaussian is that of 1.1. math.log(2) and softplus(x) are what the correction needs.
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
    print("yours, less the Gaussian:  ", squashed_log_prob(u, u, torch.zeros(1)) + 0.5 * math.log(2 * math.pi))
