# %% [markdown]
# # 4.1 How far is one policy from another?
#
# Write three estimators of the KL divergence for one token, and a function that sums an estimate over a response. When
# a language model learns from rewards, a KL penalty keeps it near its initial model, the reference policy. The KL
# divergence between the policy $\pi$ and the reference policy $\pi_{\rm ref}$ is
#
# $$\mathrm{KL}(\pi \,\|\, \pi_{\rm ref}) = \mathbb{E}_{x \sim \pi}\left[\log \frac{\pi(x)}{\pi_{\rm ref}(x)}\right],$$
#
# where $x$ is a token or a text.
#
# We cannot sum over all texts. We know only the log-probabilities of the sampled tokens under both models. With the
# ratio $r = \pi_{\rm ref}(x) / \pi(x)$, where the reference policy is the numerator, Schulman
# ([2020](http://joschu.net/blog/kl-approx.html)) compares three estimators:
#
# $$k_1 = -\log r, \qquad k_2 = \tfrac12 (\log r)^2, \qquad k_3 = (r - 1) - \log r.$$
#
# - The mean of $k_1$ over tokens sampled from $\pi$ is the KL divergence, but single values can be negative.
# - $k_2$ is never negative, but it is biased.
# - $k_3$ adds $r - 1$ to $k_1$. The mean of $r - 1$ is 0, so the mean of $k_3$ is the KL divergence too. $k_3$ is never
#   negative, and near the reference policy its variance is lower than that of $k_1$.
#
# The KL divergence of responses is the expected sum over their tokens. Responses are padded to equal length. The
# padding may hold any value, even infinity or NaN. If the estimate for a token of the response is NaN, the sum must be
# NaN.
#
# Near the reference policy $r - 1$ is tiny. If you first round $r$ and then subtract 1, most of its digits are lost.
#
# **You are done when** `spinup exercise check 4.1` says PASS.
#
# **Look at** which of the two policies is the numerator of $r$. Also look at the gradients that this file prints when
# you run it. As a loss of one token, $k_1$ has an expected gradient of 0, $k_2$ has the gradient of
# $\mathrm{KL}(\pi \,\|\, \pi_{\rm ref})$, and $k_3$ has the gradient of $\mathrm{KL}(\pi_{\rm ref} \,\|\, \pi)$. Summed
# over a response, these losses miss one effect: a token also changes the KL divergence of the tokens after it.

# %%
import torch
from torch import Tensor


def k1(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Return the log ratio of each token: unbiased, positive or negative.

    Args:
        logp, logp_ref: log-probabilities in nats under the policy and the reference policy, for tokens sampled from the
            policy, `[...]`.

    Returns:
        the estimate for each token in nats, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.1: k1")
    return logp - logp_ref
    # END SOLUTION


def k2(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Return half the squared log ratio of each token: biased, never negative. Arguments as in `k1`."""
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.1: k2")
    return 0.5 * (logp - logp_ref).square()
    # END SOLUTION


def k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Return r - 1 - log r of each token: unbiased, never negative. Arguments as in `k1`."""
    # BEGIN SOLUTION
    # STUB: # torch.expm1(x) is exp(x) - 1, and it is accurate for small x.
    # STUB: raise NotImplementedError("TODO 4.1: k3")
    log_r = logp_ref - logp
    return torch.expm1(log_r) - log_r
    # END SOLUTION


def kl_per_response(k: Tensor, mask: Tensor) -> Tensor:
    """Return the estimated KL divergence of each response.

    Args:
        k: an estimate for each token, `[B, T]`; the padding may hold any value.
        mask: whether a token belongs to the response, `[B, T]` bool.

    Returns:
        one estimate for each response in nats, `[B]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.1: kl_per_response")
    return torch.where(mask, k, 0.0).sum(1)
    # END SOLUTION


# %%
if __name__ == "__main__":
    logits, log_ref = torch.tensor([1.0, 0.0, -1.0], requires_grad=True), torch.tensor([0.2, 0.5, 0.3]).log()
    log_p = logits.log_softmax(0)
    means = {"KL": (log_p.exp() * (log_p - log_ref)).sum()}
    for k in (k1, k2, k3):                                    # weight each token by its probability
        means[k.__name__] = (log_p.detach().exp() * k(log_p, log_ref)).sum()
    for name, mean in means.items():
        gradient = torch.autograd.grad(mean, logits, retain_graph=True)[0]
        print(f"{name}: value {mean.detach():.4f}, gradient", [round(g, 4) + 0.0 for g in gradient.tolist()])
