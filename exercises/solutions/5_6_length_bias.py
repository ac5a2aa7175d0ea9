# %% [markdown]
# # 5.6 Bug hunt: wrong, and ever longer
#
# A language model draws responses, a verifier says which are right, and each token of a response gets the response's
# advantage $A_i$: the policy gradient for text. The batch is a table, padded where a response is shorter than the
# longest, with a mask that tells tokens from padding. What is left is to make one number of the tokens' losses
# $-A_i \log \pi(y_{i,t})$.
#
# The way below is that of the first GRPO (Shao et al. 2024, eq. 3), and TRL's trainer had it before its version 0.16.
# Liu et al. (2025, «Understanding R1-Zero-like training», section 3.1) showed what it does. In TRL
# ([pull request 3138](https://github.com/huggingface/trl/pull/3138)) a user tells of models that ended in very long
# gibberish, to which it may have contributed.
#
# ![Left: the length of wrong answers over 300 updates, which with the bug grows to three times what it was and without
# it stays. Middle: the length of right answers, which with the bug falls to 2 tokens and without it stays. Right: the
# share of right answers, nearly the same.](symptoms/5_6_length_bias.png)
#
# The policy of the picture has 79 numbers. It answers, right or wrong, with its first token, and may then go on until
# it stops, 40 tokens at most. Only the answer is rewarded: nothing is to be had by going on, and nothing to be lost.
# Without the bug no length changes much. With it, wrong answers grow from 11 tokens to 34 in 300 updates, and right
# ones shrink from 10 to 2. Both are right nearly as often: 93% with the bug and 96% without it, at the end.
#
# Every token of the batch that is no padding should count the same, whatever response it stands in: the loss is the
# mean over these tokens, as in DAPO (Yu et al. 2025, section 3.3), and in TRL since that version. Dr. GRPO divides by a
# constant instead, which gives tokens of different batches the same weight too.
#
# **You are done when** `spinup exercise check 5.6` says PASS.
#
# **Look at** the gradient by `logp`: by how much is a token pushed whose response was wrong, and long?

# %%
import torch
from torch import Tensor


def policy_loss(logp: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
    """The loss of a batch of responses, to be minimised.

    Args:
        logp: log-probabilities of their tokens, `[B, T]`; anything in places of padding.
        adv: advantages of the responses, `[B]`.
        mask: True for tokens and False for padding, `[B, T]`. Each response has a token or more.

    Returns:
        one number, `[]`
    """
    each = torch.where(mask, -adv[:, None] * logp, 0.0)
    return each.sum() / mask.sum()


# %%
if __name__ == "__main__":
    logp = torch.full((2, 10), -1.0, requires_grad=True)
    mask = torch.arange(10) < torch.tensor([[2], [10]])
    policy_loss(logp, torch.tensor([-1.0, -1.0]), mask).backward()
    print("gradient by the first token of a wrong response of 2 tokens, and of one of 10:", logp.grad[:, 0])
