"""Checks of 4.1: sums over all tokens of small vocabularies, and sums over responses, token by token."""
import math

import torch
from torch.distributions import Categorical, kl_divergence

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["The tokens were sampled from the policy, so a mean over them already weights each token by the policy's "
           "probability. What remains is the mean of a log ratio, with the policy in the numerator.",
           "All three are functions of log r = logp_ref - logp. Watch its sign in k1 and k3. In the sum over a "
           "response, do not multiply the padding by 0: 0 times infinity is NaN.",
           "k1: minus log r. k2: half of log r squared. k3: exp(log r) - 1, computed by the one function expm1, minus "
           "log r. The sum: write 0 where the mask is False, then sum along the last axis.",
           "log_r = logp_ref - logp, and k3 is torch.expm1(log_r) - ...; kl_per_response is torch.where(mask, ..., "
           "0.0).sum(...)."])


def cases():
    make = torch.Generator().manual_seed(0)

    def logs(*shape, derive=False):
        return torch.randn(*shape, 5, generator=make).log_softmax(-1)[..., 0].clone().requires_grad_(derive)

    return [case(logp=torch.tensor([math.log(0.5), math.log(0.25)]),
                 logp_ref=torch.tensor([math.log(0.25), math.log(0.5)])),
            case(logp=logs(6, derive=True), logp_ref=logs(6)),
            case(logp=logs(3, 4, derive=True), logp_ref=logs(3, 4)),
            case(logp=torch.tensor([-1.0, -1.0, -9.0]), logp_ref=torch.tensor([-1.0, -4.0, -1.0]))]


def masked_cases():
    make = torch.Generator().manual_seed(1)
    k, ends = torch.randn(4, 6, generator=make), torch.tensor([[6], [1], [4], [2]])
    mask = torch.arange(6) < ends
    holes = torch.tensor([[False, True, True, False, True, False]]) & mask
    broken = torch.where(mask, k, torch.tensor([math.inf, math.nan, -math.inf, 7.0])[:, None])
    by_hand = torch.tensor([[True, True, False], [True, True, True]])
    return [case(k=torch.tensor([[1.0, 2.0, 5.0], [4.0, 0.5, 0.5]]), mask=by_hand),
            case(k=k.clone().requires_grad_(), mask=mask), case(k=k, mask=holes), case(k=broken, mask=mask),
            case(k=torch.tensor([[1.0, math.nan, 5.0], [4.0, 0.5, 0.5]]), mask=by_hand)]


k1 = exercise.function("k1", cases())
k2 = exercise.function("k2", cases())
k3 = exercise.function("k3", cases())
kl_per_response = exercise.function("kl_per_response", masked_cases())


def ratio(logp, logp_ref):
    """Return r of each token in float64, in which no probability of the cases rounds to 0, `[...]`."""
    return logp_ref.double().exp() / logp.double().exp()


@k1.reference
def _(logp, logp_ref):
    return torch.log(1 / ratio(logp, logp_ref)).float()


@k2.reference
def _(logp, logp_ref):
    return (torch.log(ratio(logp, logp_ref)).pow(2) / 2).float()


@k3.reference
def _(logp, logp_ref):
    r = ratio(logp, logp_ref)
    return (r - 1 - torch.log(r)).float()


for estimator in (k1, k2, k3):
    estimator.extreme("You clip the log ratio or the estimate, so its mean is no longer the KL divergence. A KL "
                      "penalty exists for tokens whose probabilities differ a lot; do not clip.",
                      logp=torch.tensor([-26.0, -1.0]), logp_ref=torch.tensor([-1.0, -26.0]))
    estimator.extreme("exp(logp) rounds to 0 for unlikely tokens, and 0 / 0 is NaN. Subtract the logarithms first.",
                      logp=torch.tensor([-110.0, -120.0]), logp_ref=torch.tensor([-111.0, -118.0]))


kl_per_response.extreme("Estimates or their sum are clipped. A KL penalty exists for large values; do not clip "
                        "them.", k=torch.tensor(
    [[500.0, -40.0, 3.0], [60.0, 1.0, 9.0]]), mask=torch.tensor([[True, True, True], [True, True, False]]))


@kl_per_response.reference
def _(k, mask):
    rows = [[k[b, t] for t in range(k.shape[1]) if mask[b, t]] for b in range(k.shape[0])]
    return torch.stack([torch.stack(row).sum() if row else torch.zeros(()) for row in rows])


@k1.mistake("This is the negative of the log ratio, so its mean over the policy's tokens is minus the KL divergence. "
            "As a penalty it would reward the policy for moving away from the reference policy; swap logp and "
            "logp_ref.")
def _(logp, logp_ref):
    return logp_ref - logp


@k1.mistake("k1 needs its sign. With absolute values, tokens that became less likely no longer cancel tokens that "
            "became more likely, and the mean is too large; remove the absolute value.")
def _(logp, logp_ref):
    return (logp - logp_ref).abs()


@k1.mistake("This is the ratio of the probabilities; k1 is its logarithm, the difference of the log-probabilities.")
def _(logp, logp_ref):
    return (logp - logp_ref).exp()


@k1.mistake("You weight by the probability of the token. The token was already sampled with that probability, so "
            "averaging counts it twice; use the log ratio alone.")
def _(logp, logp_ref):
    return logp.exp() * (logp - logp_ref)


@k2.mistake("The 1/2 is missing: near the reference policy your estimate is twice the KL divergence.")
def _(logp, logp_ref):
    return (logp - logp_ref).square()


@k2.mistake("You square each log-probability and subtract; take the difference first, then square it.")
def _(logp, logp_ref):
    return 0.5 * (logp.square() - logp_ref.square())


@k2.mistake("The square is missing: this is half of a log ratio, which can be negative.")
def _(logp, logp_ref):
    return 0.5 * (logp - logp_ref)


@k2.mistake("You square the difference between the ratio and 1; k2 squares the logarithm of the ratio. The two agree "
            "only near the reference policy.")
def _(logp, logp_ref):
    return 0.5 * ((logp_ref - logp).exp() - 1).square()


@k3.mistake("The ratio is inverted in both places: r is the reference policy's probability divided by the policy's. "
            "Your estimate is never negative either, but its mean over the policy's tokens is not the KL divergence.")
def _(logp, logp_ref):
    return torch.expm1(logp - logp_ref) - (logp - logp_ref)


@k3.mistake("The ratio is inverted in r - 1 only; the mean of that term over the policy's tokens is then not 0.")
def _(logp, logp_ref):
    return torch.expm1(logp - logp_ref) + (logp - logp_ref)


@k3.mistake("The sign of log r is wrong: where the two policies are nearly equal, r - 1 and log r must cancel.")
def _(logp, logp_ref):
    return torch.expm1(logp_ref - logp) + (logp_ref - logp)


@k3.mistake("The 1 is missing: where the two policies are equal, the estimate must be 0.")
def _(logp, logp_ref):
    return (logp_ref - logp).exp() - (logp_ref - logp)


@k3.mistake("This is r - 1 alone. Its mean over the policy's tokens is 0, so it does not measure the KL divergence; "
            "subtract log r.")
def _(logp, logp_ref):
    return torch.expm1(logp_ref - logp)


@kl_per_response.mistake("The mask is not used, so you add the values in the padding; select the tokens of the "
                         "response.")
def _(k, mask):
    return k.sum(1)


@kl_per_response.mistake("You multiply by the mask. This fails if the padding holds infinity or NaN, because 0 times "
                         "either is NaN; select the tokens instead.")
def _(k, mask):
    return (k * mask).sum(1)


@kl_per_response.mistake("NaN in tokens of the response also counts as 0. This hides an error, and training continues "
                         "with a wrong number; select by the mask alone.")
def _(k, mask):
    return (k.nan_to_num() * mask).sum(1)


@kl_per_response.mistake("This is a mean over the tokens of a response. The KL estimate of a response is a sum over "
                         "its tokens, like its log-probability; sum.")
def _(k, mask):
    return torch.where(mask, k, 0.0).sum(1) / mask.sum(1)


@kl_per_response.mistake("This is a mean over the padded length, so it depends on the longest response in the batch; "
                         "sum.")
def _(k, mask):
    return torch.where(mask, k, 0.0).mean(1)


@kl_per_response.mistake("You sum over all responses; sum over time only, the last axis.")
def _(k, mask):
    return torch.where(mask, k, 0.0).sum()


@kl_per_response.mistake("You sum over the responses, the first axis; sum over the tokens of each response, the last "
                         "axis.")
def _(k, mask):
    return torch.where(mask, k, 0.0).sum(0)


@exercise.property
def the_mean_is_the_divergence(student):
    make = torch.Generator().manual_seed(2)
    for size in (2, 5, 50):
        logits, logits_ref = 2 * torch.randn(2, size, generator=make, dtype=torch.float64)
        policy, reference = Categorical(logits=logits), Categorical(logits=logits_ref)
        exact, tokens = float(kl_divergence(policy, reference)), torch.arange(size)
        for name in ("k1", "k3"):
            each = getattr(student, name)(policy.log_prob(tokens), reference.log_prob(tokens))
            if abs(float((policy.probs * each).sum()) - exact) > 1e-6 * (1 + exact):
                raise Wrong(f"the mean of {name} over the tokens of the policy is "
                            f"{float((policy.probs * each).sum()):.5g}; the KL divergence is {exact:.5g}", name)
            if name == "k3" and (each < -1e-9).any():
                raise Wrong(f"k3 is negative, {float(each.min()):.3g}, for one of {size} tokens; k3 is never "
                            "negative", name)


@exercise.property
def policies_that_hardly_differ(student):
    logp = torch.full((1000,), -2.0)
    log_r = torch.linspace(-1e-3, 1e-3, 1000)
    each = student.k3(logp, logp + log_r)
    exact = torch.expm1((logp + log_r - logp).double()) - (logp + log_r - logp).double()
    if ((each - exact).abs() > 1e-9 + 1e-2 * exact).any():
        raise Wrong(f"for nearly equal policies your k3 is wrong by up to {float((each - exact).abs().max()):.3g}, "
                    f"while k3 itself is at most {float(exact.max()):.3g}. In exp(x) - 1 - x rounding loses the digits "
                    "that matter; torch.expm1(x) computes exp(x) - 1 without this loss.",
                    "k3")
