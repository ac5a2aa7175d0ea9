# %% [markdown]
# # 4.4 Advantages of a group
#
# A language model answers each prompt several times, and each answer earns a reward. What was to be expected of a
# prompt need not be learned by a value function then: the other answers to it tell. RLOO (Ahmadian et al. 2024, eq. 4)
# takes their mean off,
#
# $$A_i = R_i - \frac{1}{G - 1} \sum_{j \ne i} R_j,$$
#
# which leaves the policy gradient unbiased, because what is taken off does not depend on answer $i$. GRPO (Shao et al.
# 2024, section 4.1.2) compares with the mean of the whole group and divides by its deviation; Dr. GRPO (Liu et al.
# 2025) leaves the division out:
#
# $$A_i = \frac{R_i - \operatorname{mean}(R_1 \dots R_G)}{\operatorname{std}(R_1 \dots R_G) + \epsilon}, \qquad
# A_i = R_i - \operatorname{mean}(R_1 \dots R_G).$$
#
# The deviation here is that of the group itself, $\sqrt{\frac1G \sum_i (R_i - \operatorname{mean})^2}$, not an estimate
# with $G - 1$. A group of equal rewards has no contrast and teaches nothing: its advantages are 0, for $\epsilon = 0$
# too. Rounding makes that harder than it looks: in float32 the mean of seven times 0.1 need not be 0.1.
#
# **You are done when** `spinup exercise check 4.4` says PASS.
#
# **Look at** how RLOO and Dr. GRPO differ: by one factor, the same for all answers.

# %%
import torch
from torch import Tensor


def rloo_advantages(reward: Tensor) -> Tensor:
    """Rewards compared with the mean of the others.

    Args:
        reward: of each answer, `[prompts, group]`, a group being two or more.

    Returns:
        `[prompts, group]`
    """
    others = (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)
    return reward - others


def grpo_advantages(reward: Tensor, std: bool, eps: float) -> Tensor:
    """Rewards compared with the mean of their group, and divided by its deviation where `std` is True.

    Args:
        reward: of each answer, `[prompts, group]`.
        std: True as in GRPO, False as in Dr. GRPO.
        eps: added to the deviation; may be 0.

    Returns:
        `[prompts, group]`, 0 in a group of equal rewards.
    """
    deviation, mean = torch.std_mean(reward, 1, correction=0, keepdim=True)
    adv = (reward - mean) / (deviation + eps) if std else reward - mean
    equal = reward.amax(1, keepdim=True) == reward.amin(1, keepdim=True)
    return torch.where(equal, 0.0, adv)


# %%
if __name__ == "__main__":
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    print(rloo_advantages(rewards), "should be 1, -1/3, -1/3, -1/3, and zeros")
    print(grpo_advantages(rewards, True, 0.0), "should be 1.7321, -0.5774, -0.5774, -0.5774, and zeros")
