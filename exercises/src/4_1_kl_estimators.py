# %% [markdown]
# # 4.1 How far is one policy from another?
#
# A language model that learns from rewards is kept near the model it began with, the reference. The distance is the
# divergence
#
# $$\mathrm{KL}(\pi \,\|\, \pi_{\rm ref}) = \mathbb{E}_{x \sim \pi}\left[\log \frac{\pi(x)}{\pi_{\rm ref}(x)}\right].$$
#
# The sum over all texts is out of reach. What is known are the log-probabilities of the tokens that were drawn, under
# both models. With $r = \pi_{\rm ref}(x) / \pi(x)$, the reference above, Schulman
# ([2020](http://joschu.net/blog/kl-approx.html)) compares three estimators:
#
# $$k_1 = -\log r, \qquad k_2 = \tfrac12 (\log r)^2, \qquad k_3 = (r - 1) - \log r.$$
#
# The mean of $k_1$ over tokens drawn from $\pi$ is the divergence, but single values may be negative. $k_3$ adds
# $r - 1$, whose mean is 0: the mean stays, no value is negative, and near the reference the noise falls. $k_2$ is never
# negative either, and has a bias. The divergence of a whole response is the sum over its tokens. Responses are padded
# to equal length, and what stands in the padding may be anything, infinity and NaN too. A NaN of a token of the
# response must be seen in the sum.
#
# **You are done when** `spinup exercise check 4.1` says PASS.
#
# **Look at** which of the two policies stands above in $r$; and at the gradients that the file prints when it is run.
# As a loss, $k_1$ does nothing in expectation, $k_2$ has the gradient of the divergence, and $k_3$ that of
# $\mathrm{KL}(\pi_{\rm ref} \,\|\, \pi)$.

# %%
import torch
from torch import Tensor


def k1(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """The log ratio of each token: unbiased, of either sign.

    Args:
        logp, logp_ref: log-probabilities in nats of tokens drawn from the policy, under policy and reference, `[...]`.

    Returns:
        `[...]`, in nats.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.1: k1")
    return logp - logp_ref
    # END SOLUTION


def k2(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """Half the squared log ratio of each token: biased, never negative. As `k1`."""
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.1: k2")
    return 0.5 * (logp - logp_ref).square()
    # END SOLUTION


def k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """r - 1 - log r of each token: unbiased, never negative. As `k1`."""
    # BEGIN SOLUTION
    # STUB: # torch.expm1(x) is exp(x) - 1, and exact where x is small.
    # STUB: raise NotImplementedError("TODO 4.1: k3")
    log_r = logp_ref - logp
    return torch.expm1(log_r) - log_r
    # END SOLUTION


def kl_per_response(k: Tensor, mask: Tensor) -> Tensor:
    """The divergence of each response, estimated.

    Args:
        k: an estimate for each token, `[B, T]`; anything at all in the padding.
        mask: whether a token belongs to the response, `[B, T]` bool.

    Returns:
        `[B]`, in nats a response.
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
    for k in (k1, k2, k3):                                    # the probability of each token in place of samples
        means[k.__name__] = (log_p.detach().exp() * k(log_p, log_ref)).sum()
    for name, mean in means.items():
        gradient = torch.autograd.grad(mean, logits, retain_graph=True)[0]
        print(f"{name}: value {mean.detach():.4f}, gradient", [round(g, 4) + 0.0 for g in gradient.tolist()])
