# %% [markdown]
# # 4.4 Advantages of a group
#
# Write the advantages of RLOO, GRPO and Dr. GRPO. A language model generates several responses to each prompt, and each
# response gets a reward. Then no value function has to learn the expected reward of a prompt: the other responses to
# the prompt estimate this reward. RLOO (Ahmadian et al. 2024) subtracts the mean of the other rewards:
#
# $$A_i = R_i - \frac{1}{G - 1} \sum_{j \ne i} R_j,$$
#
# where $A_i$ is the advantage of response $i$, $R_i$ is its reward and $G$ is the group size. The policy gradient
# remains unbiased, because the subtracted baseline does not depend on response $i$. GRPO (Shao et al. 2024, section
# 4.1.2) subtracts the mean of the whole group and divides by its standard deviation. Dr. GRPO (Liu et al. 2025) omits
# the division:
#
# $$A_i = \frac{R_i - \operatorname{mean}(R_1 \dots R_G)}{\operatorname{std}(R_1 \dots R_G) + \epsilon}, \qquad
# A_i = R_i - \operatorname{mean}(R_1 \dots R_G),$$
#
# where $\epsilon$ is a small constant.
#
# The standard deviation here is that of the group itself, $\sqrt{\frac1G \sum_i (R_i - \operatorname{mean})^2}$. The
# paper does not say whether it divides by $G$ or by $G - 1$, and some libraries use $G - 1$. Their advantages differ
# from ours by one factor. A group of equal rewards has zero variance and gives no learning signal.
# In `grpo_advantages` its advantages must be 0, even for $\epsilon = 0$. Rounding makes this harder
# than it looks: in float32, the mean of seven rewards of 0.1 need not be exactly 0.1. RLOO needs no
# special case: nothing divides its advantages by a small number, so the rounding error stays tiny.
#
# **You are done when** `spinup exercise check 4.4` says PASS.
#
# **Look at** the difference between RLOO and Dr. GRPO: one factor, equal for all responses.

# %%
import torch
from torch import Tensor


def rloo_advantages(reward: Tensor) -> Tensor:
    """Return each reward minus the mean of the other rewards of its group.

    Args:
        reward: rewards of the responses, `[prompts, group]`, with groups of at least two.

    Returns:
        advantages, `[prompts, group]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.4: rloo_advantages")
    others = (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)
    return reward - others
    # END SOLUTION


def grpo_advantages(reward: Tensor, std: bool, eps: float) -> Tensor:
    """Return each reward minus the mean of its group, divided by the standard deviation of the group if `std` is True.

    Args:
        reward: rewards of the responses, `[prompts, group]`.
        std: True as in GRPO, False as in Dr. GRPO.
        eps: added to the standard deviation; may be 0.

    Returns:
        advantages, `[prompts, group]`; 0 in a group of equal rewards
    """
    # BEGIN SOLUTION
    # STUB: # torch.std and torch.std_mean divide by G - 1 unless you give correction=0.
    # STUB: raise NotImplementedError("TODO 4.4: grpo_advantages")
    deviation, mean = torch.std_mean(reward, 1, correction=0, keepdim=True)
    adv = (reward - mean) / (deviation + eps) if std else reward - mean
    equal = reward.amax(1, keepdim=True) == reward.amin(1, keepdim=True)
    return torch.where(equal, 0.0, adv)
    # END SOLUTION


# %%
if __name__ == "__main__":
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    print(rloo_advantages(rewards), "should be 1, -1/3, -1/3, -1/3, and zeros")
    print(grpo_advantages(rewards, True, 0.0), "should be 1.7321, -0.5774, -0.5774, -0.5774, and zeros")
