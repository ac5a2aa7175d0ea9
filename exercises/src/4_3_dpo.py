# %% [markdown]
# # 4.3 Direct preference optimization
#
# Write the implicit reward and the loss of DPO. For a reward $R$ and a KL penalty with the coefficient $\beta$, the
# optimal policy is known: $\pi^*(y \mid x) = \pi_{\rm ref}(y \mid x)\, e^{R(x, y) / \beta} / Z(x)$. Here $x$ is the
# prompt, $y$ is the response, $\pi_{\rm ref}$ is the reference policy, and $Z(x)$ normalises the probabilities.
# Rafailov et al. (2023, eq. 5) solve this equation for the reward. Every policy $\pi$ is the optimal one for some
# reward, its implicit reward
#
# $$R_\pi(x, y) = \beta \log \frac{\pi(y \mid x)}{\pi_{\rm ref}(y \mid x)} + \beta \log Z(x).$$
#
# For two responses to the same prompt, $Z$ is the same and cancels. So the loss of Bradley and Terry, which usually
# trains a reward model, trains the policy itself (eq. 7). For a chosen response $y_w$ and a rejected response $y_l$,
# the loss is
#
# $$L = -\mathbb{E}\left[\log \sigma\!\left(\beta \log \frac{\pi(y_w \mid x)}{\pi_{\rm ref}(y_w \mid x)}
# - \beta \log \frac{\pi(y_l \mid x)}{\pi_{\rm ref}(y_l \mid x)}\right)\right],$$
#
# where $\sigma$ is the sigmoid and the mean runs over all pairs.
#
# The reference policy does not learn: no gradient may reach its log-probabilities.
#
# As in 4.2, the loss must be finite for a pair that is ranked wrongly by a margin of hundreds, and
# its gradient must not vanish there.
#
# **You are done when** `spinup exercise check 4.3` says PASS.
#
# **Look at** the loss. For a fixed reference policy, it depends only on the difference between the log-probabilities of
# the two responses. So both can fall together, and often they do.

# %%
import torch
from torch import Tensor


def implicit_reward(logp: Tensor, logp_ref: Tensor, beta: float) -> Tensor:
    """Return the reward for which the policy is optimal, up to a constant for each prompt.

    Args:
        logp, logp_ref: log-probabilities of whole responses in nats, under the policy and the reference policy, `[n]`.
        beta: the KL coefficient.

    Returns:
        rewards, without beta log Z, `[n]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.3: implicit_reward")
    return beta * (logp - logp_ref.detach())
    # END SOLUTION


def dpo_loss(logp_chosen: Tensor, logp_rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor,
             beta: float) -> Tensor:
    """Return the loss of a policy on preference pairs.

    Args:
        logp_chosen, logp_rejected: log-probabilities of the chosen and the rejected responses under the policy, `[n]`.
        ref_chosen, ref_rejected: their log-probabilities under the reference policy, `[n]`.
        beta: the KL coefficient.

    Returns:
        one number, the mean over the n pairs
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
