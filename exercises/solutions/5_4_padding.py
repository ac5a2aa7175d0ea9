# %% [markdown]
# # 5.4 Bug hunt: a higher limit
#
# REINFORCE++ trains a small model on the task `taste`, with a loss of its own: all tokens of a response share one
# advantage, the mean of theirs, as in methods that treat a response as one action (GSPO, Zheng et al. 2025).
#
# $$L = -\frac{1}{\sum_i |y_i|} \sum_i \hat A_i \sum_{t=1}^{|y_i|} \log \pi(y_{i,t}), \qquad
# \hat A_i = \frac{1}{|y_i|} \sum_{t=1}^{|y_i|} \hat A_{i,t}$$
#
# The reward grows slowly, and is 1.9 after 100 updates. Good responses have about 5 tokens. Then the limit of their
# length is raised from 12 to 24 tokens, which should change nothing. The training collapses: responses grow to 12
# tokens and more on the way, and the reward is -0.3 after 100 updates. Without the bug it is 3.0 with either limit.
#
# ![The reward on held-out prompts over 100 updates. Left, at most 12 tokens: without the bug it rises to 3, with it to
# 2. Right, at most 24 tokens: without the bug it rises to 3 as well; with it, it falls to -4, rises again and ends
# near 0.](symptoms/5_4_padding.png)
#
# Shown are three seeds and their mean. The advantages were whitened before, to mean 0 and deviation 1 over the tokens
# that count; that is right. The loss passed a test with responses of equal length. The same bug was in AReaL until 2026
# ([pull request 1346](https://github.com/areal-project/AReaL/pull/1346)): numbers that belong to no response changed
# the loss and the gradient of those that do.
#
# **You are done when** `spinup exercise check 5.4` says PASS.
#
# **Look at** what the function does with a batch that is padded by ten columns more.

# %%
import torch
from torch import Tensor


def sequence_loss(logp: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
    """The policy gradient's loss, where all tokens of a response share one advantage: the mean of theirs.

    Args:
        logp: log-probabilities of tokens under the policy, `[B, T]`.
        adv: advantages of tokens, `[B, T]`.
        mask: whether a token belongs to the response, `[B, T]` bool. Where it does not, `logp` and `adv` hold anything
            at all, NaN too. A row may have no token of its own.

    Returns:
        One number, the mean over all tokens of the batch that count.
    """
    own = torch.where(mask, adv, 0.0).sum(1, keepdim=True)
    adv_of_response = own / mask.sum(1, keepdim=True).clamp(min=1)
    each = torch.where(mask, -logp * adv_of_response, 0.0)
    return each.sum() / mask.sum()


# %%
if __name__ == "__main__":
    logp, mask = torch.full((2, 4), -1.0), torch.tensor([[True, True, True, True], [True, True, False, False]])
    adv = torch.tensor([[1.0, 1.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]])
    print(sequence_loss(logp, adv, mask), "should be 0")
