"""The losses of GSPO, CISPO and SAPO, compared with numbers computed by hand and with finite differences."""
import math

import pytest
import torch

from llm.algos import grpo
from llm.losses import gated_surrogate, sequence_surrogate, weighted_policy_gradient
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.vpg import policy_gradient
from spinup.core.masked import aggregate

LIMITS = {"clip": (0.2, 0.28), "sequence": (0.1, 0.1), "weight": (1.0, 1.0), "gate": (1.0, 1.05)}
# Two responses of three and two tokens: log ratios, advantages, and the mask. Values outside the mask are NaN.
LOG_RATIO = torch.tensor([[0.5, -0.1, 0.2], [-0.4, 0.1, math.nan]], dtype=torch.float64)
ADV, MASK = torch.tensor([[2.0], [-3.0]]).double(), torch.tensor([[1.0, 1, 1], [1, 1, 0]]).double()
OLD = torch.full((2, 3), -1.5).double()


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=1e-9, rtol=1e-9)


def slopes(loss, limits, log_ratio=LOG_RATIO):
    """d loss / d log pi of the sum over the tokens in the mask, `[2, 3]`; the loss of each token; the diagnostics."""
    logp = (OLD + log_ratio).requires_grad_()
    each, stats = loss(logp, OLD, ADV, limits, MASK)
    return torch.autograd.grad(torch.where(MASK > 0, each, 0.0).sum(), logp)[0], each.detach(), stats


# The means of the log ratios are .2 and -.15, the ratios 1.22 and .86. A clip range of .3 clips neither, a range of .1
# both.
# Catches: a sum in place of the mean; a mean over the padding; a clip per token in place of per response.
def test_gspo_has_one_ratio_per_response():
    s = math.exp(0.2), math.exp(-0.15)
    found, each, stats = slopes(sequence_surrogate, (0.3, 0.3))
    close(each[0], [-2 * s[0]] * 3)
    close(found, [[-2 * s[0]] * 3, [3 * s[1], 3 * s[1], 0.0]])            # three tokens with a third of the slope each
    assert stats["clip_fraction"] == 0
    found, each, stats = slopes(sequence_surrogate, (0.1, 0.1))
    close(each[:, 0], [-2 * 1.1, 3 * 0.9])
    assert not found.any() and stats["clip_fraction"] == 1
    wrong_way = slopes(sequence_surrogate, (0.1, 0.1), -LOG_RATIO)        # the ratio moved against its advantage
    close(wrong_way[0], [[-2 / s[0]] * 3, [3 / s[1], 3 / s[1], 0.0]])


# Catches: a gradient through the ratio; an unclipped weight above the upper limit; a lower limit although the first eps
# is 1; a missing lower limit if it is below 1.
def test_cispo_weights_the_policy_gradient_by_the_clipped_ratio():
    found, each, stats = slopes(weighted_policy_gradient, (1.0, 0.15))
    weights = [[1.15, math.exp(-0.1), 1.15], [math.exp(-0.4), math.exp(0.1), 0.0]]
    close(found, -torch.tensor(weights, dtype=torch.float64) * ADV * MASK)
    close(each[0, 0], 1.15 * 2 * 1.0)                                     # log pi is -1
    close(stats["clip_fraction"], 2 / 5)
    low = slopes(weighted_policy_gradient, (0.2, 0.15))[0]
    close(low[1, 0], 0.8 * 3)


# Catches: one tau for both signs of the advantage; a slope of tau in place of 1 at a ratio of 1; d ratio / d log pi
# without the factor ratio.
def test_sapo_has_a_smooth_gate_with_a_tau_per_sign_of_the_advantage():
    found, each, stats = slopes(gated_surrogate, (2.0, 3.0))
    expected, taken = torch.zeros(2, 3).double(), []
    for b, tau in ((0, 2.0), (1, 3.0)):
        for t in range(3 - b):
            ratio = math.exp(LOG_RATIO[b, t])
            p = 1 / (1 + math.exp(-tau * (ratio - 1)))
            close(each[b, t], -4 / tau * p * ADV[b, 0])
            expected[b, t] = -4 * p * (1 - p) * ratio * ADV[b, 0]
            taken.append(1 - 4 * p * (1 - p))
    close(found, expected)
    close(stats["clip_fraction"], sum(taken) / 5)


# Catches: a wrong sign; a gradient that differs from finite differences of the loss. CISPO is not tested, because its
# gradient treats the weight as a constant.
@pytest.mark.parametrize("name", ["clip", "sequence", "gate"])
def test_gradients_equal_finite_differences_of_the_loss(name):
    limits, h = {**LIMITS, "sequence": (0.3, 0.3)}[name], 1e-6
    found = slopes(grpo.LOSSES[name], limits)[0]
    for b, t in MASK.nonzero().tolist():
        values = []
        for step in (h, -h):
            moved = LOG_RATIO.clone()
            moved[b, t] += step
            each = slopes(grpo.LOSSES[name], limits, moved)[1]
            values.append(torch.where(MASK > 0, each, 0.0).sum())
        assert float(found[b, t]) == pytest.approx(float(values[0] - values[1]) / (2 * h), abs=1e-6)


# Catches: a loss whose gradient at a ratio of 1 differs from the policy gradient; a gradient from a group with zero
# variance; NaN from padding in a gradient or a diagnostic.
@pytest.mark.parametrize("name", grpo.LOSSES)
def test_at_ratio_1_every_loss_has_the_policy_gradient(name):
    logp = torch.where(MASK > 0, OLD, math.nan).requires_grad_()
    old = torch.where(MASK > 0, OLD, math.nan)

    def gradient(adv, loss):
        value = aggregate(loss(adv)[0], MASK, mode="sequence")
        return torch.autograd.grad(value, logp)[0]

    def ours(adv):
        return grpo.LOSSES[name](logp, old, adv, LIMITS[name], MASK)
    close(gradient(ADV, ours), gradient(ADV, lambda adv: policy_gradient(logp, adv, MASK)))
    assert not gradient(torch.zeros(2, 1).double(), ours).any()
    assert {key: float(x) for key, x in ours(ADV)[1].items()} == pytest.approx({"kl": 0, "clip_fraction": 0}, abs=1e-9)


# Catches: a KL divergence of the mean of the log ratios; a KL divergence in the opposite direction.
@pytest.mark.parametrize("name", grpo.LOSSES)
def test_all_losses_report_the_same_kl_divergence(name):
    close(slopes(grpo.LOSSES[name], LIMITS[name])[2]["kl"], slopes(clipped_surrogate, (0.2, 0.2))[2]["kl"])
