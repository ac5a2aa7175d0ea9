# %% [markdown]
# # 3.6 The gradient of evolution strategies
#
# Evolution strategies need no backpropagation and no value function. They perturb all P weights of a policy at once,
# play a whole episode, and move towards the perturbations that scored better. That follows the gradient of the return
# $F$ averaged over perturbations (Salimans et al. 2017, arXiv:1703.03864, sec. 2). Each perturbation $\varepsilon_i$
# is played with both signs, so that what both episodes have in common cancels (sec. 2.1):
#
# $$\nabla_\theta\, \mathbb E\, F(\theta + \sigma \varepsilon) \approx \frac{1}{2 n \sigma} \sum_{i=1}^{n}
# \big( F(\theta + \sigma \varepsilon_i) - F(\theta - \sigma \varepsilon_i) \big)\, \varepsilon_i,
# \qquad \varepsilon_i \sim \mathcal N(0, I).$$
#
# One lucky episode could outweigh all others. So the returns are first replaced by their **centred ranks** among all
# $2n$: $-\tfrac12$ for the worst, $\tfrac12$ for the best, evenly spaced between. Equal returns share the middle of
# the ranks that they take up. Where nobody scored, all are 0, and so is the step.
#
# **You are done when** `spinup exercise check 3.6` says PASS.
#
# **Look at** what becomes of either function's result when 1000 is added to every return.

# %%
import torch
from torch import Tensor


def centred_ranks(returns: Tensor) -> Tensor:
    """From -1/2 for the worst return to 1/2 for the best; equals share their ranks.

    Args:
        returns: of any shape, such as `[n, 2]` for n perturbations with both signs; ranked all together. At least two.

    Returns:
        float32, of the same shape
    """
    # BEGIN SOLUTION
    # STUB: # flat[:, None] > flat compares each with all: [m, m].
    # STUB: raise NotImplementedError("TODO 3.6")
    flat = returns.flatten()
    below = (flat[:, None] > flat).sum(1)
    equal = (flat[:, None] == flat).sum(1)
    ranks = below + (equal - 1) / 2
    return (ranks / (len(flat) - 1) - 0.5).reshape(returns.shape)
    # END SOLUTION


def es_gradient(noise: Tensor, returns_plus: Tensor, returns_minus: Tensor, sigma: float) -> Tensor:
    """The estimate above, of what is given as returns, ranks or not.

    Args:
        noise: the perturbations epsilon, `[n, P]`.
        returns_plus, returns_minus: of theta + sigma epsilon and of theta - sigma epsilon, `[n]`.
        sigma: size of the perturbations.

    Returns:
        `[P]`, the direction in which returns rise
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
