# %% [markdown]
# # 5.4 Bug hunt: a higher limit
#
# The loss below depends on padding, and it must not. Find and fix the bug. REINFORCE++ trains a small model with a
# modified loss. REINFORCE++ is REINFORCE with a KL penalty for each token and advantages that are normalised over the
# batch. In the task `taste`, a hidden reader scores a line of letters. In the modified loss, all tokens of a response
# share one advantage, the mean of the advantages of its tokens, as in the code of AReaL. In GSPO (Zheng et al. 2025),
# too, all tokens of a response share one advantage:
#
# $$L = -\frac{1}{\sum_i |y_i|} \sum_i \hat A_i \sum_{t=1}^{|y_i|} \log \pi(y_{i,t}), \qquad
# \hat A_i = \frac{1}{|y_i|} \sum_{t=1}^{|y_i|} \hat A_{i,t},$$
#
# where $y_i$ is response $i$, $|y_i|$ is its number of tokens, $y_{i,t}$ is its token $t$, $\pi$ is the policy and
# $\hat A_{i,t}$ is the advantage of that token.
#
# The reward rises slowly and reaches 1.9 after 100 updates. Good responses have about 5 tokens. Then the limit of the
# response length is raised from 12 to 24 tokens, which should change nothing. But training collapses: for a while,
# responses grow to 12 tokens and more, and the reward is -0.3 after 100 updates. Without the bug it is 3.0 with either
# limit.
#
# ![The reward on held-out prompts over 100 updates. Left, at most 12 tokens: without the bug it rises to 3, with it to
# 2. Right, at most 24 tokens: without the bug it rises to 3 as well. With the bug it falls to -4,
# rises again and ends near 0.](symptoms/5_4_padding.png)
#
# The figure shows three seeds and their mean. The advantages were normalised before, to mean 0 and standard deviation 1
# over the tokens of the responses; that part is correct. The loss passed a test with responses of equal length. The
# same bug was in AReaL until 2026 ([pull request 1346](https://github.com/areal-project/AReaL/pull/1346)): values at
# padded positions changed the loss and its gradient.
#
# **You are done when** `spinup exercise check 5.4` says PASS.
#
# **Look at** the result of the function if you pad a batch by ten more columns.

# %%
import torch
from torch import Tensor


def sequence_loss(logp: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
    """Return the policy-gradient loss in which all tokens of a response share the mean of their advantages.

    Args:
        logp: log-probabilities of tokens under the policy, `[B, T]`.
        adv: advantages of tokens, `[B, T]`.
        mask: whether a token belongs to the response, `[B, T]` bool. Elsewhere `logp` and `adv` may hold any value,
            even NaN. A row may have no tokens. If the advantage of a token of a response is NaN,
            the loss must be NaN, so that the error stays visible.

    Returns:
        one number, the mean over all tokens of the batch that belong to a response
    """
    # BEGIN SOLUTION
    # STUB: adv_of_response = adv.mean(1, keepdim=True)
    # STUB: each = torch.where(mask, -logp * adv_of_response, 0.0)
    # STUB: return each.sum() / mask.sum()
    own = torch.where(mask, adv, 0.0).sum(1, keepdim=True)
    adv_of_response = own / mask.sum(1, keepdim=True).clamp(min=1)
    each = torch.where(mask, -logp * adv_of_response, 0.0)
    return each.sum() / mask.sum()
    # END SOLUTION


# %%
if __name__ == "__main__":
    logp, mask = torch.full((2, 4), -1.0), torch.tensor([[True, True, True, True], [True, True, False, False]])
    adv = torch.tensor([[1.0, 1.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]])
    print(sequence_loss(logp, adv, mask), "should be 0")
