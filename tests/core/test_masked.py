"""Masked reductions: masked steps change nothing, and the division of a batch into micro-batches changes nothing."""
import math

import numpy as np
import pytest
import torch

from spinup.core.masked import aggregate, masked_mean, select, whiten

MODES = ["token", "sequence", "constant"]
NAN = float("nan")


def batch(seed: int = 0, rows: int = 6, steps: int = 5):
    """Random losses `[rows, steps]`, and a mask whose rows have different lengths, none of them 0."""
    generator = torch.Generator().manual_seed(seed)
    loss = torch.randn(rows, steps, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, steps + 1, (rows, 1), generator=generator)
    return loss, torch.arange(steps) < lengths


def value_and_grad(function, x):
    x = x.clone().requires_grad_()
    value = function(x)
    value.backward()
    return value.detach(), x.grad


# Catches: `x * mask` in select.
def test_results_match_values_computed_by_hand():
    loss = torch.tensor([[1.0, 2.0, NAN], [3.0, NAN, NAN]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert aggregate(loss, mask, mode="token") == 2.0          # 6 / 3 steps
    assert aggregate(loss, mask, mode="sequence") == 2.25      # (1.5 + 3) / 2 rows
    assert aggregate(loss, mask, mode="constant", length=4) == 0.75  # 6 / (2 rows * 4)
    assert masked_mean(loss, mask) == 2.0
    torch.testing.assert_close(select(loss, mask, -1.0), torch.tensor([[1.0, 2.0, -1.0], [3.0, -1.0, -1.0]]))


# Catches: `x * mask` in select.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [NAN, float("inf"), -1e30])
def test_padding_changes_no_value_and_no_gradient(mode, padding):
    loss, mask = batch()
    padded = torch.cat([loss.masked_fill(~mask, padding), torch.full((6, 3), padding)], 1)
    padded_mask = torch.cat([mask, torch.zeros(6, 3, dtype=torch.bool)], 1)
    value, grad = value_and_grad(lambda x: aggregate(x, mask, mode=mode, length=5), loss)
    padded_value, padded_grad = value_and_grad(lambda x: aggregate(x, padded_mask, mode=mode, length=5), padded)
    torch.testing.assert_close(padded_value, value)                       # the sum may run in another order
    assert torch.equal(padded_grad, torch.cat([grad, torch.zeros(6, 3)], 1))


# Catches: a mode that ignores the denominator: `masked_mean(loss, mask)` in token mode, `rows = len(loss)` in the
# others.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_mask", [True, False])
def test_micro_batches_add_up_to_the_whole_step(mode, with_mask):
    loss, mask = batch(1)
    mask = mask if with_mask else None
    steps = loss.numel() if mask is None else mask.sum()
    denominator = steps if mode == "token" else len(loss)
    whole, whole_grad = value_and_grad(lambda x: aggregate(x, mask, mode=mode, length=5), loss)
    pieces = []
    for rows in ([0], [1, 2, 3], [4, 5]):
        m = None if mask is None else mask[rows]
        pieces.append(value_and_grad(
            lambda x, m=m: aggregate(x, m, mode=mode, length=5, denominator=denominator), loss[rows]))
    torch.testing.assert_close(sum(v for v, _ in pieces), whole)
    torch.testing.assert_close(torch.cat([g for _, g in pieces]), whole_grad)


# Catches: a `cumsum(0)` over the row means in sequence mode.
@pytest.mark.parametrize("mode", MODES)
def test_row_order_changes_nothing(mode):
    loss, mask = batch(2)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    value, grad = value_and_grad(lambda x: aggregate(x, mask, mode=mode, length=5), loss)
    shuffled, shuffled_grad = value_and_grad(lambda x: aggregate(x, mask[order], mode=mode, length=5), loss[order])
    torch.testing.assert_close(shuffled, value)
    torch.testing.assert_close(shuffled_grad, grad[order])
    torch.testing.assert_close(whiten(loss[order], mask[order]), whiten(loss, mask)[order])


# Catches: correction=1 in the unmasked whiten; `.sum(1)` in place of `.mean(1)` in the unmasked sequence mode.
@pytest.mark.parametrize("ones", [torch.ones(6, 5), torch.ones(6, 5, dtype=torch.bool)], ids=["float", "bool"])
def test_no_mask_equals_a_mask_of_ones(ones):
    loss, _ = batch(3)
    for mode in MODES:
        torch.testing.assert_close(aggregate(loss, ones, mode=mode, length=7), aggregate(loss, mode=mode, length=7))
    torch.testing.assert_close(masked_mean(loss, ones), masked_mean(loss))
    torch.testing.assert_close(whiten(loss, ones), whiten(loss))


# Catches: a missing `select` around `centred`; `x.nanmean()` as its mean.
@pytest.mark.parametrize("padding", [NAN, 100.0])
def test_whiten_ignores_masked_steps(padding):
    x, mask = batch(4)
    counted = x[mask].numpy()
    expected = np.zeros(x.shape)
    expected[mask.numpy()] = (counted - counted.mean()) / counted.std()
    np.testing.assert_allclose(whiten(x.masked_fill(~mask, padding), mask).numpy(), expected, atol=1e-7)


# Catches: a missing eps.
def test_whiten_of_equal_values_is_zero():
    assert torch.equal(whiten(torch.full((8,), 3.0)), torch.zeros(8))


# Catches: `return x` in select. With `select` after `exp`, the gradient would be NaN.
def test_select_before_exp_keeps_the_gradient_finite():
    x = torch.tensor([1.0, 1e4], requires_grad=True)
    select(x, torch.tensor([1.0, 0.0])).exp().sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([math.e, 0.0]))


# Catches: a missing clamp(min=1) in masked_mean or in sequence mode.
@pytest.mark.parametrize("mode", MODES)
def test_loss_and_gradient_are_zero_if_no_step_counts(mode):
    mask, loss = torch.zeros(2, 3), torch.full((2, 3), NAN)
    value, grad = value_and_grad(lambda x: aggregate(x, mask, mode=mode, length=3), loss)
    assert value == 0 and torch.equal(grad, torch.zeros(2, 3))


def test_unknown_mode_and_missing_length_are_refused():
    with pytest.raises(ValueError, match="'token', 'sequence' or 'constant', not 'tokens'"):
        aggregate(torch.ones(2, 2), mode="tokens")
    with pytest.raises(ValueError, match="needs length"):
        aggregate(torch.ones(2, 2), mode="constant")
