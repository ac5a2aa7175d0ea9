# %% [markdown]
# # 3.6 The gradient of evolution strategies
#
# Write the centred ranks and the gradient estimate of evolution strategies. Evolution strategies need no
# backpropagation and no value function. They perturb all P weights of a policy at once, run a whole episode, and move
# towards the perturbations with higher returns. This follows the gradient of the return $F$ averaged over perturbations
# (Salimans et al. 2017, arXiv:1703.03864, sec. 2). Each perturbation $\varepsilon_i$ is evaluated with both signs, so
# that the part shared by both returns cancels (sec. 2.1):
#
# $$\nabla_\theta\, \mathbb E\, F(\theta + \sigma \varepsilon) \approx \frac{1}{2 n \sigma} \sum_{i=1}^{n}
# \big( F(\theta + \sigma \varepsilon_i) - F(\theta - \sigma \varepsilon_i) \big)\, \varepsilon_i,
# \qquad \varepsilon_i \sim \mathcal N(0, I),$$
#
# where $\theta$ are the weights, $\sigma$ is the size of the perturbations and $n$ is their number.
#
# One lucky episode could outweigh all others. So first the returns are replaced by their **centred ranks** among all
# $2n$ returns: $-\tfrac12$ for the worst, $\tfrac12$ for the best, and evenly spaced ranks between. Equal returns share
# the mean of their ranks. If all returns are equal, all ranks are 0, and the step is 0 too.
#
# **You are done when** `spinup exercise check 3.6` says PASS.
#
# **Look at** the results of both functions when you add 1000 to every return.

# %%
import torch
from torch import Tensor


def centred_ranks(returns: Tensor) -> Tensor:
    """Return ranks from -1/2 for the worst return to 1/2 for the best; equal returns share the mean of their ranks.

    Args:
        returns: at least two returns of any shape `[...]`, such as `[n, 2]` for n perturbations with both signs. All
            are ranked together.

    Returns:
        float32, of the same shape
    """
    # BEGIN SOLUTION
    # STUB: # flat[:, None] > flat compares each return with all others: [m, m].
    # STUB: raise NotImplementedError("TODO 3.6")
    flat = returns.flatten()
    below = (flat[:, None] > flat).sum(1)
    equal = (flat[:, None] == flat).sum(1)
    ranks = below + (equal - 1) / 2
    return (ranks / (len(flat) - 1) - 0.5).reshape(returns.shape)
    # END SOLUTION


def es_gradient(noise: Tensor, returns_plus: Tensor, returns_minus: Tensor, sigma: float) -> Tensor:
    """Return the gradient estimate above. The returns may be raw returns or ranks.

    Args:
        noise: the perturbations epsilon, `[n, P]`.
        returns_plus, returns_minus: returns of theta + sigma epsilon and of theta - sigma epsilon, `[n]`.
        sigma: size of the perturbations.

    Returns:
        the direction in which returns rise, `[P]`
    """
    # BEGIN SOLUTION
    return (returns_plus - returns_minus) @ noise / (2 * len(noise) * sigma)
    # END SOLUTION


# %%
if __name__ == "__main__":
    print(centred_ranks(torch.tensor([[3.0, 1.0], [2.0, 1e9]])), "should be 1/6, -1/2; -1/6, 1/2")
    eps, theta, sigma = torch.randn(1000, 3), torch.tensor([1.0, 0.0, -2.0]), 0.1
    plus, minus = (-((theta + s * sigma * eps)**2).sum(1) for s in (1, -1))
    print(es_gradient(eps, plus, minus, sigma), "should be near the gradient of -|theta|^2, which is -2, 0, 4")
