# %% [markdown]
# # 6.2 Noise on the weights
#
# Write the distance between a policy and its perturbed copy, and the rule that adapts the size of the perturbation.
# Parameter noise (Plappert et al. 2018, arXiv:1706.01905) explores with perturbed weights
# $\tilde\theta = \theta + \sigma \epsilon$, $\epsilon \sim \mathcal N(0, I)$. A perturbed policy can take the same
# unlikely action in every step. A policy with noise on single actions or tokens almost never does so.
# But the effect of a given $\sigma$ on the policy is unknown, and it changes during training. So we measure this
# effect. For a policy over $n$ actions or tokens it is a KL divergence (appendix C):
#
# $$d = \frac1B \sum_{b=1}^B \sum_{a=1}^n \pi(a \mid s_b) \log \frac{\pi(a \mid s_b)}{\tilde\pi(a \mid s_b)},
# \qquad \pi = \operatorname{softmax}(\text{logits}),$$
#
# where $s_1 \dots s_B$ are states, and $\pi$ and $\tilde\pi$ are the policies with weights $\theta$ and
# $\tilde\theta$. Then $\sigma$ changes a little (eq. 8):
#
# $$\sigma \leftarrow \begin{cases} k\, \sigma & d < \delta \\ \sigma / k & \text{otherwise,} \end{cases}$$
#
# where $\delta$ is the target distance and $k > 1$ is a factor such as 1.1.
#
# One pair of functions serves both kinds of problem. In `spinup/algos/param_noise.py` the logits are the action values
# of a Q-network. In `llm/algos/param_noise.py` they are the logits of the next token.
#
# **You are done when** `spinup exercise check 6.2` says PASS. With `--full`, your functions also train a transformer on
# a chain of 20 tokens.
#
# **Look at** the distance when you add 100 to all logits of one policy, and when one policy is certain of an action
# that the other one almost never takes.

# %%
import torch
from torch import Tensor


def policy_distance(logits: Tensor, noisy: Tensor) -> Tensor:
    """Return the mean over states of KL(pi || pi~).

    Args:
        logits: logits of the policy pi, `[B, n]`; a softmax over the last axis gives probabilities.
        noisy: logits of the perturbed policy pi~, `[B, n]`.

    Returns:
        the distance d, `[]`; finite for logits such as -1000
    """
    # BEGIN SOLUTION
    log_pi = logits.log_softmax(-1)
    return (log_pi.exp() * (log_pi - noisy.log_softmax(-1))).sum(-1).mean()
    # END SOLUTION


def adapted_sigma(sigma: float, distance: float, target: float, factor: float) -> float:
    """Return the next sigma of eq. 8.

    Args:
        sigma: current standard deviation of the noise on the weights.
        distance: measured distance d.
        target: target distance delta.
        factor: factor k of a change, above 1.
    """
    # BEGIN SOLUTION
    return sigma * factor if distance < target else sigma / factor
    # END SOLUTION


# %%
if __name__ == "__main__":
    uniform, certain = torch.zeros(1, 2), torch.tensor([[0.0, 5.0]])
    print(policy_distance(uniform, certain), "should be 1.8136")
    print(policy_distance(certain, uniform), "should be 0.6530: the two directions differ")
    print(adapted_sigma(0.1, 0.2, 0.5, 1.1), "should be 0.11")
