# %% [markdown]
# # 4.2 Learning from preferences
#
# Write the log-probability of a response and the loss of a reward model. People find it hard to give a response a
# score, but easy to say which of two responses is better. Most methods that learn from such pairs use one or both of
# these functions.
#
# The first function returns the log-probability of a response $y$ to a prompt $x$. A text is a row of tokens: the
# prompt, the response and the padding. The model reads the row once. Its logits at position $t$ predict token $t + 1$:
#
# $$\log \pi(y \mid x) = \sum_{t\,:\; \text{token } t+1 \text{ belongs to the response}}
# \log \mathrm{softmax}(\ell_t)_{x_{t+1}},$$
#
# where $\pi$ is the language model, $\ell_t$ are the logits at position $t$ and $x_{t+1}$ is token $t + 1$ of the row.
#
# The second function is the loss of a reward model. It uses the model of Bradley and Terry (1952). In this model, a
# response with reward $r_w$ is preferred to a response with reward $r_l$ with probability $\sigma(r_w - r_l)$, where
# $\sigma$ is the sigmoid. We minimise the mean over all pairs (Rafailov et al. 2023, eq. 2):
#
# $$L = -\mathbb{E}\left[\log \sigma(r_w - r_l)\right].$$
#
# Some pairs are ranked wrongly by a margin of hundreds. The loss must be finite there too, and its gradient must not
# vanish. The model learns most from these pairs.
#
# **You are done when** `spinup exercise check 4.2` says PASS.
#
# **Look at** the shapes: of $T$ positions, $T - 1$ predict a token of the row. Logits, tokens and mask each lose one
# column, but not all lose the same one.

# %%
import torch
from torch import Tensor


def response_log_probs(logits: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """Return the log-probability of each response, given its prompt.

    Args:
        logits: logits of the token after each position, `[B, T, V]`.
        tokens: prompt, response and padding, `[B, T]` int64.
        mask: whether a token belongs to the response, `[B, T]` bool; never the first token of a row. Logits that
            predict no token of the response may hold any value, even infinity or NaN.

    Returns:
        log-probabilities of whole responses in nats, `[B]`
    """
    # BEGIN SOLUTION
    # STUB: # x.gather(-1, index[..., None])[..., 0] picks one entry of the last axis of x for each number in index.
    # STUB: raise NotImplementedError("TODO 4.2: response_log_probs")
    log_pi = logits[:, :-1].log_softmax(-1)
    each = log_pi.gather(-1, tokens[:, 1:, None])[..., 0]
    return torch.where(mask[:, 1:], each, 0.0).sum(1)
    # END SOLUTION


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Return the loss of a reward model.

    Args:
        chosen, rejected: rewards of the chosen and the rejected responses, `[n]`.

    Returns:
        one number, the mean over the n pairs
    """
    # BEGIN SOLUTION
    # STUB: # torch.nn.functional has a logarithm of the sigmoid that does not underflow.
    # STUB: raise NotImplementedError("TODO 4.2: bradley_terry_loss")
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    probabilities = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]])
    response = torch.tensor([[False, True, True]])
    print(response_log_probs(probabilities.log(), torch.tensor([[0, 1, 1]]), response), "should be log 0.375 = -0.9808")
    print(bradley_terry_loss(torch.tensor([0.0, -200.0]), torch.zeros(2)), "should be 100.3466")
