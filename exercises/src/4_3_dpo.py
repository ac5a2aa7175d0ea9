# %% [markdown]
# # 4.3 Direct preference optimization
#
# With a reward $R$ and a price $\beta$ for each nat of divergence from a reference, the best policy is known:
# $\pi^*(y \mid x) = \pi_{\rm ref}(y \mid x)\, e^{R(x, y) / \beta} / Z(x)$. Rafailov et al. (2023, eq. 5) read this
# backwards. Every policy is the best one for some reward, its implicit reward
#
# $$R_\pi(x, y) = \beta \log \frac{\pi(y \mid x)}{\pi_{\rm ref}(y \mid x)} + \beta \log Z(x).$$
#
# Of two answers to the same prompt $Z$ is the same and cancels. So the loss of Bradley and Terry, which otherwise
# trains a reward model, trains the policy itself (eq. 7), for an answer $y_w$ that was preferred to $y_l$:
#
# $$L = -\mathbb{E}\left[\log \sigma\!\left(\beta \log \frac{\pi(y_w \mid x)}{\pi_{\rm ref}(y_w \mid x)}
# - \beta \log \frac{\pi(y_l \mid x)}{\pi_{\rm ref}(y_l \mid x)}\right)\right].$$
#
# The reference does not learn: no gradient may reach its log-probabilities.
#
# **You are done when** `spinup exercise check 4.3` says PASS.
#
# **Look at** what the gradient knows: the difference of two log-probabilities, and nothing of either alone. Both may
# fall together, and often do.

# %%
import torch
from torch import Tensor


def implicit_reward(logp: Tensor, logp_ref: Tensor, beta: float) -> Tensor:
    """The reward that a policy is the best one for, but for a constant of each prompt.

    Args:
        logp, logp_ref: log-probabilities of whole answers in nats, under policy and reference, `[n]`.
        beta: the price of a nat of divergence.

    Returns:
        `[n]`, without beta log Z.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.3: implicit_reward")
    return beta * (logp - logp_ref.detach())
    # END SOLUTION


def dpo_loss(logp_chosen: Tensor, logp_rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor,
             beta: float) -> Tensor:
    """The loss of a policy on pairs of answers.

    Args:
        logp_chosen, logp_rejected: log-probabilities under the policy, of the preferred and of the other answer, `[n]`.
        ref_chosen, ref_rejected: the same under the reference, `[n]`.
        beta: as above.

    Returns:
        One number, the mean over the n pairs.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.3: dpo_loss")
    margin = implicit_reward(logp_chosen, ref_chosen, beta) - implicit_reward(logp_rejected, ref_rejected, beta)
    return -torch.nn.functional.logsigmoid(margin).mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    half, quarter = torch.tensor([0.5]).log(), torch.tensor([0.25]).log()
    print(implicit_reward(half, quarter, 2.0), "should be 2 log 2 = 1.3863")
    print(dpo_loss(half, quarter, quarter, half, 0.5), "should be -log(2/3) = 0.4055")
