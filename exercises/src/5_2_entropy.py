# %% [markdown]
# # 5.2 Bug hunt: right in one dimension
#
# Find and fix the bugs in the log-likelihood and the entropy of a Gaussian policy. The policy samples each of the $d$
# numbers of an action independently, with mean $\mu_i$ and standard deviation $\sigma_i$. An algorithm needs two
# functions of the policy. PPO needs the log-likelihood of an action for its probability ratios, and every policy
# gradient needs its derivative. The entropy is
#
# $$H = -\,\mathbb{E}_{a \sim \pi} \log \pi(a),$$
#
# where $\pi(a)$ is the density of the action $a$ under the policy. Algorithms log the entropy, and some add it to the
# objective to keep the policy random.
#
# Both functions below run without an error. Both passed a test with an action of one number and standard deviation 1.
# Each function contains at least one bug. Bugs of these kinds were in the dynamics model of d3rlpy ([issue
# 192](https://github.com/takuseno/d3rlpy/issues/192)) and in code that exercise 1.2 of the first Spinning Up gave to
# its readers.
#
# ![Left: standard deviations fitted to noise. With the bug they are far too small below 2, without it they are correct.
# Middle: the entropy that PPO logs on Hopper, 1 nat with the bug and 4 without it. Right: the returns, which are higher
# with the bug.](symptoms/5_2_entropy.png)
#
# We observed, with three seeds each:
#
# - We fitted a Gaussian to noise with standard deviation 0.1, by maximising the log-likelihood below. The fit gave
#   0.005. For 0.5 it gave 0.13, and for 2 it gave 2.02.
# - On Hopper, whose actions have three numbers, PPO logged an entropy of 0.93 to 1.13 nats after
#   20,480 steps. Computed from the policies' standard deviations, the entropy was 3.77 to 3.97.
# - The return gave no warning: it was 206, 246 and 285 with the bugs, and 169, 171 and 173 without them.
#
# **You are done when** `spinup exercise check 5.2` says PASS. There is more than one bug.
#
# **Look at** the equation above: the mean of -log_prob over many samples must be the entropy, for every $d$ and every
# $\sigma$. The lines at the end of this file compare the two.

# %%
import math

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def log_prob(act: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-densities of actions under a Gaussian policy.

    Args:
        act: actions, `[..., d]`.
        mean: means, `[..., d]`. log_std: log standard deviations, `[d]` or `[..., d]`.

    Returns:
        one log-density for each action, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: inv_std = torch.exp(-log_std)
    # STUB: return -(0.5 * (act - mean)**2 * inv_std + log_std + HALF_LOG_2PI).mean(-1)
    inv_std = torch.exp(-log_std)
    return -(0.5 * ((act - mean) * inv_std)**2 + log_std + HALF_LOG_2PI).sum(-1)
    # END SOLUTION


def entropy(log_std: Tensor) -> Tensor:
    """Return the entropy of the policy in nats; it does not depend on the mean.

    Args:
        log_std: log standard deviations, `[d]` or `[..., d]`.

    Returns:
        `[]` or `[...]`
    """
    # BEGIN SOLUTION
    # STUB: return 0.5 + HALF_LOG_2PI + log_std.sum(-1)
    return (0.5 + HALF_LOG_2PI + log_std).sum(-1)
    # END SOLUTION


# %%
if __name__ == "__main__":
    for d in (1, 3):
        for std in (1.0, 0.5):
            log_std = torch.full((d,), math.log(std))
            draws = torch.randn(100_000, d) * std
            drawn = -log_prob(draws, torch.zeros(d), log_std).mean()
            print(f"d = {d}, standard deviation {std}: mean of -log_prob {drawn:.3f}, entropy {entropy(log_std):.3f}")
