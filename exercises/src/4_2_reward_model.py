# %% [markdown]
# # 4.2 Learning from preferences
#
# People find it hard to say what an answer is worth, and easy to say which of two is better. Two functions are the
# ground of everything that learns from such pairs.
#
# The first says how likely a language model finds an answer $y$ to a prompt $x$. A text is a row of tokens: the prompt,
# the answer, and padding. The model reads the row once, and its logits at position $t$ are those of token $t + 1$:
#
# $$\log \pi(y \mid x) = \sum_{t\,:\; \text{token } t+1 \text{ belongs to the answer}}
# \log \mathrm{softmax}(\ell_t)_{x_{t+1}}.$$
#
# The second is the loss of a reward model. If preferences follow the model of Bradley and Terry (1952), an answer of
# reward $r_w$ is preferred to one of reward $r_l$ with probability $\sigma(r_w - r_l)$. What is minimised is the mean
# over all pairs (Rafailov et al. 2023, eq. 2):
#
# $$L = -\mathbb{E}\left[\log \sigma(r_w - r_l)\right].$$
#
# Some pairs are ranked wrongly by a margin of hundreds. The loss must be finite there too, and its gradient must not
# vanish: these are the pairs that there is most to learn from.
#
# **You are done when** `spinup exercise check 4.2` says PASS.
#
# **Look at** the shapes: of $T$ positions, $T - 1$ predict a token that is there. Logits, tokens and mask lose one
# column each, and not the same one.

# %%
import torch
from torch import Tensor


def answer_log_probs(logits: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """How likely the model finds each answer, given its prompt.

    Args:
        logits: of the token after each position, `[B, T, V]`.
        tokens: prompt, answer and padding, `[B, T]` int64.
        mask: whether a token belongs to the answer, `[B, T]` bool; never the first of a row. Logits that predict no
            token of the answer may be anything, infinity and NaN too.

    Returns:
        Log-probabilities of whole answers in nats, `[B]`.
    """
    # BEGIN SOLUTION
    # STUB: # x.gather(-1, index[..., None])[..., 0] takes one of the last axis of x for each number in index.
    # STUB: raise NotImplementedError("TODO 4.2: answer_log_probs")
    log_pi = logits[:, :-1].log_softmax(-1)
    each = log_pi.gather(-1, tokens[:, 1:, None])[..., 0]
    return torch.where(mask[:, 1:], each, 0.0).sum(1)
    # END SOLUTION


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """The loss of a reward model.

    Args:
        chosen, rejected: rewards of the answer that was preferred, and of the other one, `[n]`.

    Returns:
        One number, the mean over the n pairs.
    """
    # BEGIN SOLUTION
    # STUB: # torch.nn.functional knows a logarithm of the sigmoid that does not underflow.
    # STUB: raise NotImplementedError("TODO 4.2: bradley_terry_loss")
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    probabilities = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]])
    answer = torch.tensor([[False, True, True]])
    print(answer_log_probs(probabilities.log(), torch.tensor([[0, 1, 1]]), answer), "should be log 0.375 = -0.9808")
    print(bradley_terry_loss(torch.tensor([0.0, -200.0]), torch.zeros(2)), "should be 100.3466")
