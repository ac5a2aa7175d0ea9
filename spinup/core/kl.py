"""Estimators of KL(policy || reference) per step, and the exact KL divergence of categorical and
Gaussian distributions.

Choose the estimator by its use. For actions sampled from the current policy, in expectation::

         value                        gradient, when the estimator is a loss
    k1   KL; single steps negative    0: it changes nothing
    k2   not KL; never negative       that of KL
    k3   KL; never negative           not that of KL: it is that of KL(reference || policy)

So report k3. Use k2 as a loss, or subtract k1 as a constant from the reward. For a single action,
these two have the same gradient. For a sequence, k1 in the return also counts the later steps to
which an action leads, and k2 of each step does not. The GRPO paper uses k3 as a loss.
http://joschu.net/blog/kl-approx.html derives the values, and arXiv:2510.01555 derives the
gradients.

logp, logp_ref: `[...]`, log-probabilities of the actions under the policy and the reference policy.
The result, `[...]`, is 0 where `mask` is 0.
"""
import torch
from torch import Tensor

from spinup.core.masked import select


def k1(logp: Tensor, logp_ref: Tensor, mask: Tensor | None = None) -> Tensor:
    """log ratio, `[...]`. Value: unbiased, can be negative, high variance. Gradient: 0 in
    expectation, so use it in the reward, never as a loss."""
    return select(logp - logp_ref, mask)


def k2(logp: Tensor, logp_ref: Tensor, mask: Tensor | None = None) -> Tensor:
    """Half the squared log ratio, `[...]`. Value: biased, never negative. Gradient: unbiased, so
    use it as a loss."""
    return 0.5 * select(logp - logp_ref, mask).square()


def k3(logp: Tensor, logp_ref: Tensor, mask: Tensor | None = None) -> Tensor:
    """1/ratio - 1 + log ratio, `[...]`. Value: unbiased, never negative, so use it for logging.
    Gradient: biased."""
    log_ratio = select(logp - logp_ref, mask)
    return torch.expm1(-log_ratio) + log_ratio


def kl_categorical(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """Exact KL(p || q), `[...]`, from logits `[..., n]`; logits of p may be -inf."""
    log_p, log_q = logits_p.log_softmax(-1), logits_q.log_softmax(-1)
    p = log_p.exp()
    return (p * select(log_p - log_q, p)).sum(-1)             # 0 * (-inf + inf) would be NaN


def kl_gaussian(p: tuple[Tensor, Tensor], q: tuple[Tensor, Tensor]) -> Tensor:
    """Exact KL(p || q), `[...]`, of diagonal Gaussians (mean `[..., k]`, log_std `[k]` or
    `[..., k]`)."""
    (mean_p, log_std_p), (mean_q, log_std_q) = p, q
    d = log_std_p - log_std_q
    distance = 0.5 * ((mean_p - mean_q) * torch.exp(-log_std_q)).square()
    return (distance + 0.5 * torch.expm1(2 * d) - d).sum(-1)
