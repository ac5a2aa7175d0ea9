"""Losses of the tokens of a response, from the probability ratio of the policy to the policy that sampled it.

GSPO (Zheng et al. 2025, arXiv:2507.18071), CISPO (MiniMax 2025, arXiv:2506.13585) and SAPO (Gao et al. 2025,
arXiv:2511.20347) replace PPO's clip, `spinup.algos.ppo.clipped_surrogate`. All four functions have the same arguments
and results. At a ratio of 1 the gradient of each is the policy gradient.

logp, logp_old: `[B, T]`, log-probabilities of the tokens under the policy and under the policy that sampled them.
adv: `[B, 1]` or `[B, T]`, advantages. mask: `[B, T]`, 1 for the policy's own tokens; None counts all tokens.
The results are the loss of each token, `[B, T]`, and two diagnostics, means over the tokens that count. `kl` estimates
the KL divergence from the policy before the update. This is the policy that sampled, unless `--lag` or `--engine` is
given. `clip_fraction` is the share of tokens whose ratio is beyond a limit.
"""
import torch
from torch import Tensor

from spinup.algos import ppo
from spinup.algos.vpg import policy_gradient
from spinup.core.kl import k3
from spinup.core.masked import masked_mean, select

TokenLoss = tuple[Tensor, dict[str, Tensor]]              # of each token, and diagnostics


def sequence_surrogate(logp: Tensor, logp_old: Tensor, adv: Tensor, clip: tuple[float, float],
                       mask: Tensor | None = None) -> TokenLoss:
    """GSPO: PPO's clipped loss with one ratio per response, exp of the mean of its tokens' log ratios.

    Every token of a response has the same loss, so the mean over its tokens is the loss of the response. `clip` is (eps
    below 1, eps above 1). A mean varies less than its terms: the paper uses 3e-4 and 4e-4. clip_fraction is the share
    of tokens in clipped responses.
    """
    ones = torch.ones_like(logp) if mask is None else mask
    mean = select(logp - logp_old, mask).sum(1, keepdim=True) / ones.sum(1, keepdim=True).clamp(min=1)        # [B, 1]
    loss, stats = ppo.clipped_surrogate(mean.expand_as(logp), torch.zeros_like(logp), adv, clip, mask)
    return loss, stats | {"kl": kl_from_old(logp, logp_old, mask)}


def weighted_policy_gradient(logp: Tensor, logp_old: Tensor, adv: Tensor, clip: tuple[float, float],
                             mask: Tensor | None = None) -> TokenLoss:
    """CISPO: the policy gradient, each token with its clipped ratio as a constant weight.

    The loss is -clip(ratio) adv log pi, and no gradient flows through the ratio. So a token beyond a limit keeps a
    gradient; with PPO's loss it has none. `clip` is (eps below 1, eps above 1). If the first eps is 1, there is no
    lower limit.
    """
    ratio = select(logp - logp_old, mask).detach().exp()
    weight = ratio.clamp(max(0.0, 1 - clip[0]), 1 + clip[1])
    return policy_gradient(logp, weight * adv, mask)[0], {
        "kl": kl_from_old(logp, logp_old, mask), "clip_fraction": masked_mean((weight != ratio).float(), mask)}


def gated_surrogate(logp: Tensor, logp_old: Tensor, adv: Tensor, tau: tuple[float, float],
                    mask: Tensor | None = None) -> TokenLoss:
    """SAPO: -4 / tau * sigmoid(tau (ratio - 1)) adv, a smooth gate in place of the clip.

    The gate's slope is 1 at a ratio of 1 and falls on both sides. `tau` is (tau of tokens with a positive advantage,
    tau of all others). With a larger tau, the slope falls faster. Nothing is clipped: `clip_fraction` is the mean of
    1 - slope.
    """
    ratio = select(logp - logp_old, mask).exp()
    rate = torch.where(adv > 0, tau[0], tau[1]).to(adv)
    gate = torch.sigmoid(rate * (ratio - 1))
    taken = 1 - 4 * (gate * (1 - gate)).detach()
    return -4 / rate * gate * adv, {"kl": kl_from_old(logp, logp_old, mask), "clip_fraction": masked_mean(taken, mask)}


@torch.no_grad()
def kl_from_old(logp: Tensor, logp_old: Tensor, mask: Tensor | None = None) -> Tensor:
    """Estimate of KL(policy before the update || policy), `[]`, by k3, in nats per token."""
    return masked_mean(k3(logp_old, logp, mask), mask)
