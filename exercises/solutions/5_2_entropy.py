# %% [markdown]
# # 5.2 Bug hunt: right in one dimension
#
# A Gaussian policy draws each of the $d$ numbers of an action by itself, with the mean $\mu_i$ and the deviation
# $\sigma_i$. Two functions say all that an algorithm asks of it: the log-likelihood of an action, from which the ratios
# of PPO and the gradient of every policy are made, and the entropy
#
# $$H = -\,\mathbb{E}_{a \sim \pi} \log \pi(a),$$
#
# which is logged, and rewarded where a policy should stay random. Both functions below run without an error, and both
# passed their test, an action of one number with the deviation 1. Both bugs are real: the first stood in the dynamics
# model of d3rlpy ([issue 192](https://github.com/takuseno/d3rlpy/issues/192)), the second in code that exercise 1.2 of
# the first Spinning Up gave to its readers.
#
# ![Left: deviations that were fitted to noise, with the bug far too small below 2 and right without it. Middle: the
# entropy that PPO logs on Hopper, 1 nat with the bug and 4 without it. Right: the returns, which are higher with the
# bug.](symptoms/5_2_entropy.png)
#
# What was seen, in three seeds each:
#
# - A Gaussian was fitted to noise of the deviation 0.1, by the log-likelihood below. It found 0.005. For 0.5 it found
#   0.13, and for 2 it found 2.02.
# - PPO logged an entropy of 0.93 to 1.13 nats on Hopper, whose actions have three numbers, after 20,480 steps. By the
#   deviations that its policies had then, it was 3.77 to 3.97.
# - The return gave no warning: it was 206, 246 and 285 with the bugs, and 169, 171 and 173 without them.
#
# **You are done when** `spinup exercise check 5.2` says PASS. There is more than one thing to find.
#
# **Look at** the equation above: the mean of -log_prob over many draws must be the entropy, for every $d$ and every
# $\sigma$. The lines at the end of this file compare the two.

# %%
import math

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def log_prob(act: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """How likely actions are, as logarithms of densities.

    Args:
        act: actions, `[..., d]`.
        mean: `[..., d]`. log_std: `[d]` or `[..., d]`.

    Returns:
        `[...]`
    """
    inv_std = torch.exp(-log_std)
    return -(0.5 * ((act - mean) * inv_std)**2 + log_std + HALF_LOG_2PI).sum(-1)


def entropy(log_std: Tensor) -> Tensor:
    """The entropy of such a policy in nats; it does not depend on the mean.

    Args:
        log_std: `[d]` or `[..., d]`.

    Returns:
        `[]` or `[...]`
    """
    return (0.5 + HALF_LOG_2PI + log_std).sum(-1)


# %%
if __name__ == "__main__":
    for d in (1, 3):
        for std in (1.0, 0.5):
            log_std = torch.full((d,), math.log(std))
            draws = torch.randn(100_000, d) * std
            drawn = -log_prob(draws, torch.zeros(d), log_std).mean()
            print(f"d = {d}, deviation {std}: mean of -log_prob {drawn:.3f}, entropy {entropy(log_std):.3f}")
