# %% [markdown]
# # 5.6 Bug hunt: wrong, and ever longer
#
# Find and fix the bias in a policy-gradient loss for text. A language model samples responses, and a verifier marks
# which are correct. Each token of a response gets the response's advantage $A_i$. The batch is a table. Responses
# shorter than the longest are padded, and a mask marks the tokens. The loss must combine the losses of the tokens,
# $-A_i \log \pi(y_{i,t})$, into one number. Here $\pi$ is the policy, and $y_{i,t}$ is token $t$ of response $i$.
#
# The code below does this like the first GRPO (Shao et al. 2024, eq. 3) and like TRL's trainer before version 0.16. Liu
# et al. (2025, "Understanding R1-Zero-like training", section 3.1) showed the effect. In TRL ([pull request
# 3138](https://github.com/huggingface/trl/pull/3138)) a user reports models that ended in very long gibberish. This
# bias may have contributed to it.
#
# ![Left: the length of wrong responses over 300 updates. With the bug it triples, without the bug it is constant.
# Middle: the length of correct responses. With the bug it falls to 2 tokens, without the bug it is constant. Right: the
# share of correct responses, nearly equal.](symptoms/5_6_length_bias.png)
#
# The policy in the figure has 79 parameters. Its first token is the answer, correct or wrong. Then it may continue
# until it stops, for at most 40 tokens. Only the answer is rewarded: more tokens neither add nor lose reward. Without
# the bug no length changes much. With the bug, wrong responses grow from 11 tokens to 34 in 300 updates, and correct
# ones shrink from 10 to 2. The share of correct answers at the end is similar: 93% with the bug and 96% without it.
#
# Every token of the batch that is not padding should have the same weight, whatever its response. So the loss is the
# mean over these tokens, as in DAPO (Yu et al. 2025, section 3.3) and in TRL since version 0.16. Dr. GRPO divides by a
# constant instead, which also gives tokens of different batches the same weight.
#
# **You are done when** `spinup exercise check 5.6` says PASS.
#
# **Look at** the gradient with respect to `logp`: how large is it for a token of a long wrong response?

# %%
import torch
from torch import Tensor


def policy_loss(logp: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
    """Return the loss of a batch of responses, to be minimised.

    Args:
        logp: log-probabilities of the tokens, `[B, T]`; padding may hold any value.
        adv: advantages of the responses, `[B]`.
        mask: True for tokens and False for padding, `[B, T]`. Each response has at least one token.

    Returns:
        one number, `[]`
    """
    each = torch.where(mask, -adv[:, None] * logp, 0.0)
    # BEGIN SOLUTION
    # STUB: return (each.sum(1) / mask.sum(1)).mean()
    return each.sum() / mask.sum()
    # END SOLUTION


# %%
if __name__ == "__main__":
    logp = torch.full((2, 10), -1.0, requires_grad=True)
    mask = torch.arange(10) < torch.tensor([[2], [10]])
    policy_loss(logp, torch.tensor([-1.0, -1.0]), mask).backward()
    print("gradient for the first token of a wrong response of 2 tokens, and of one of 10 tokens:", logp.grad[:, 0])
