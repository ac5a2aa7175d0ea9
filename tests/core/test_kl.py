"""KL estimators for a policy with few actions, so that expectations are exact sums."""
import pytest
import torch
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from spinup.core.kl import k1, k2, k3, kl_categorical, kl_gaussian


def policy_and_reference(seed: int, n: int = 6):
    generator = torch.Generator().manual_seed(seed)
    logits, logits_ref = torch.randn(2, n, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), logits_ref


def expectation(estimator, logits, logits_ref):
    """Expectation over the policy's actions. The actions are sampled, so the probabilities are constants for the
    gradient."""
    logp = logits.log_softmax(-1)
    return (logp.detach().exp() * estimator(logp, logits_ref.log_softmax(-1))).sum()


def grad(value, logits):
    return torch.autograd.grad(value, logits)[0]


# Catches: `logp_ref - logp` in k1; the inverse ratio in k3, `expm1(log_ratio) - log_ratio`.
@pytest.mark.parametrize("seed", range(5))
def test_expectations_of_k1_and_k3_equal_kl_and_that_of_k2_does_not(seed):
    logits, logits_ref = policy_and_reference(seed)
    exact = kl_categorical(logits, logits_ref)
    torch.testing.assert_close(expectation(k1, logits, logits_ref), exact)
    torch.testing.assert_close(expectation(k3, logits, logits_ref), exact)
    assert abs(expectation(k2, logits, logits_ref) - exact) > 0.01


# Catches: a k2 without its factor of one half; k1 times the probability; the inverse ratio in k3.
@pytest.mark.parametrize("seed", range(5))
def test_k2_has_the_gradient_of_kl_and_k1_and_k3_do_not(seed):
    logits, logits_ref = policy_and_reference(seed)
    exact = grad(kl_categorical(logits, logits_ref), logits)
    forward = grad(kl_categorical(logits_ref, logits), logits)
    torch.testing.assert_close(grad(expectation(k2, logits, logits_ref), logits), exact)
    torch.testing.assert_close(grad(expectation(k1, logits, logits_ref), logits), torch.zeros_like(exact))
    torch.testing.assert_close(grad(expectation(k3, logits, logits_ref), logits), forward)
    assert (forward - exact).abs().max() > 0.01


# Catches: `logp_ref - logp` in k1.
def test_k1_as_a_constant_in_the_reward_has_the_gradient_of_kl():
    logits, logits_ref = policy_and_reference(5)
    in_reward = expectation(lambda logp, ref: k1(logp, ref).detach() * logp, logits, logits_ref)
    torch.testing.assert_close(grad(in_reward, logits), grad(kl_categorical(logits, logits_ref), logits))


# Catches: `- log_ratio` in place of `+ log_ratio` in k3.
def test_k1_is_the_log_ratio_and_k2_and_k3_are_never_negative():
    logp, logp_ref = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    assert (k2(logp, logp_ref) >= 0).all() and (k3(logp, logp_ref) >= 0).all()
    assert torch.equal(k1(logp, logp_ref), logp - logp_ref)


# Catches: `torch.exp(-log_ratio) - 1 + log_ratio`, which is inaccurate near zero.
def test_k3_is_accurate_near_zero():
    d = torch.tensor([1e-3, -1e-3])
    torch.testing.assert_close(k3(d, torch.zeros(2)), 0.5 * d**2, rtol=1e-2, atol=0)


# Catches: a k1 without `select`; a k2 with `select` outside of the square.
@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_padding_changes_no_value_and_no_gradient(estimator):
    logp, ref = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    padded = torch.tensor([-1.0, -2.0, float("nan"), -500.0]).requires_grad_()
    out = estimator(padded, torch.tensor([-1.5, -1.0, 0.0, float("nan")]), torch.tensor([1, 1, 0, 0]))
    assert torch.equal(out[:2], estimator(logp, ref)) and torch.equal(out[2:], torch.zeros(2))
    logp.requires_grad_()
    assert torch.equal(grad(out.sum(), padded), torch.cat([grad(estimator(logp, ref).sum(), logp), torch.zeros(2)]))


# Catches: `log_q - log_p`; `.sum()` in place of `.sum(-1)`.
def test_kl_categorical_matches_torch():
    p, q = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(kl_categorical(p, q), kl_divergence(Categorical(logits=p), Categorical(logits=q)))


# Catches: a kl_categorical without `select`.
def test_kl_categorical_supports_masked_actions():
    inf = float("inf")
    p = torch.tensor([0.3, -0.2, -inf, -inf], requires_grad=True)
    q = torch.tensor([0.1, 0.5, 2.0, -inf])
    value = kl_categorical(p, q)
    expected = sum(a * (a.log() - b.log()) for a, b in zip(p.softmax(-1)[:2], q.softmax(-1)[:2], strict=True))
    torch.testing.assert_close(value, expected)
    assert grad(value, p).isfinite().all()


# Catches: `log_std_p` in place of `log_std_q` as the scale of the difference; `+ d` in place of `- d`.
@pytest.mark.parametrize("log_std_shape", [(3,), (7, 3)])
def test_kl_gaussian_matches_torch(log_std_shape):
    generator = torch.Generator().manual_seed(2)
    mean_p, mean_q = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    log_std_p, log_std_q = torch.randn(2, *log_std_shape, generator=generator, dtype=torch.float64)
    p, q = (Independent(Normal(m, s.exp()), 1) for m, s in ((mean_p, log_std_p), (mean_q, log_std_q)))
    kl = kl_gaussian((mean_p, log_std_p), (mean_q, log_std_q))
    assert kl.shape == (7,)
    torch.testing.assert_close(kl, kl_divergence(p, q))
    assert torch.equal(kl_gaussian((mean_p, log_std_p), (mean_p, log_std_p)), torch.zeros(7, dtype=torch.float64))
