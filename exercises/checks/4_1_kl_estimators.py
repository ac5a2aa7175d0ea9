"""Checks of 4.1: against sums over all tokens of small vocabularies, and sums over responses, token by token."""
import math

import torch
from torch.distributions import Categorical, kl_divergence

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["The tokens were drawn from the policy, so a mean over them weighs each by the policy's probability "
           "already. What is left to average is a log ratio, and in it the policy stands above.",
           "All three are functions of log r = logp_ref - logp. Mind its sign in k1 and k3. In the sum over a response "
           "the padding must not even be multiplied by 0: 0 times infinity is NaN.",
           "k1: minus log r. k2: half of log r squared. k3: exp(log r), minus 1, minus log r. The sum: put 0 where the "
           "mask is False, then add up along the last axis.",
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


@k1.reference
def _(logp, logp_ref):
    return torch.log(logp.exp() / logp_ref.exp())


@k2.reference
def _(logp, logp_ref):
    return torch.log(logp_ref.exp() / logp.exp()).pow(2) / 2


@k3.reference
def _(logp, logp_ref):
    r = logp_ref.exp() / logp.exp()
    return r - 1 - torch.log(r)


for estimator in (k1, k2, k3):
    estimator.extreme("The log ratio, or the estimate, is kept between bounds. Then its mean is not the divergence any "
                      "more; a token that the two policies judge very differently is what a penalty is for.",
                      logp=torch.tensor([-26.0, -1.0]), logp_ref=torch.tensor([-1.0, -26.0]))


kl_per_response.extreme("Estimates or their sum are clipped; what is large is what a penalty is for.", k=torch.tensor(
    [[500.0, -40.0, 3.0], [60.0, 1.0, 9.0]]), mask=torch.tensor([[True, True, True], [True, True, False]]))


@kl_per_response.reference
def _(k, mask):
    rows = [[k[b, t] for t in range(k.shape[1]) if mask[b, t]] for b in range(k.shape[0])]
    return torch.stack([torch.stack(row).sum() if row else torch.zeros(()) for row in rows])


@k1.mistake("This is the negative of the log ratio: its mean over the policy's tokens is minus the divergence. As a "
            "penalty it would reward the policy for going away.")
def _(logp, logp_ref):
    return logp_ref - logp


@k1.mistake("k1 has a sign, and needs it: without, tokens that became unlikelier no longer cancel against those that "
            "became likelier, and the mean is too large.")
def _(logp, logp_ref):
    return (logp - logp_ref).abs()


@k1.mistake("This is the ratio of the probabilities; k1 is its logarithm, the difference of the log-probabilities.")
def _(logp, logp_ref):
    return (logp - logp_ref).exp()


@k1.mistake("You weigh by the probability of the token. It was drawn with that probability already: averaging counts "
            "it a second time.")
def _(logp, logp_ref):
    return logp.exp() * (logp - logp_ref)


@k2.mistake("The 1/2 is missing: near the reference this is twice the divergence.")
def _(logp, logp_ref):
    return (logp - logp_ref).square()


@k2.mistake("You square each log-probability and subtract; take the difference first, then the square.")
def _(logp, logp_ref):
    return 0.5 * (logp.square() - logp_ref.square())


@k2.mistake("The square is missing: this is half of a log ratio, and may be negative.")
def _(logp, logp_ref):
    return 0.5 * (logp - logp_ref)


@k2.mistake("You square how far the ratio is from 1; k2 squares its logarithm. Both agree only near the reference.")
def _(logp, logp_ref):
    return 0.5 * ((logp_ref - logp).exp() - 1).square()


@k3.mistake("The ratio is upside down, in both places: r is the reference's probability over the policy's. What you "
            "have is never negative either, but its mean over the policy's tokens is not the divergence.")
def _(logp, logp_ref):
    return torch.expm1(logp - logp_ref) - (logp - logp_ref)


@k3.mistake("The ratio is upside down in r - 1 alone: the mean of that term over the policy's tokens is then not 0.")
def _(logp, logp_ref):
    return torch.expm1(logp - logp_ref) + (logp - logp_ref)


@k3.mistake("The sign of log r is wrong: where the two policies agree to first order, r - 1 and log r must cancel.")
def _(logp, logp_ref):
    return torch.expm1(logp_ref - logp) + (logp_ref - logp)


@k3.mistake("The 1 is missing: where the two policies are equal, the estimate must be 0.")
def _(logp, logp_ref):
    return (logp_ref - logp).exp() - (logp_ref - logp)


@k3.mistake("This is r - 1 alone, whose mean over the policy's tokens is 0: it tells nothing of the distance.")
def _(logp, logp_ref):
    return torch.expm1(logp_ref - logp)


@kl_per_response.mistake("The mask is not used: what stands in the padding is added.")
def _(k, mask):
    return k.sum(1)


@kl_per_response.mistake("You multiply by the mask. That is the same until the padding holds infinity or NaN: times 0 "
                         "they are NaN. Select what counts instead.")
def _(k, mask):
    return (k * mask).sum(1)


@kl_per_response.mistake("NaN counts as 0 in tokens of the response too: what went wrong there is hidden, and training "
                         "goes on with a wrong number. Select by the mask alone.")
def _(k, mask):
    return (k.nan_to_num() * mask).sum(1)


@kl_per_response.mistake("This is a mean over the tokens of a response. The log-probabilities of its tokens add up to "
                         "that of the response, and so do their divergences.")
def _(k, mask):
    return torch.where(mask, k, 0.0).sum(1) / mask.sum(1)


@kl_per_response.mistake("This is a mean over the padded length: how far a response is would depend on the longest one "
                         "beside it. Sum.")
def _(k, mask):
    return torch.where(mask, k, 0.0).mean(1)


@kl_per_response.mistake("All responses are added up to one number; sum over time alone, the last axis.")
def _(k, mask):
    return torch.where(mask, k, 0.0).sum()


@kl_per_response.mistake("You sum over the responses, the first axis; sum over the tokens of each, the last one.")
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
                            f"{float((policy.probs * each).sum()):.5g}, where the divergence is {exact:.5g}", name)
            if name == "k3" and (each < -1e-9).any():
                raise Wrong(f"k3 is negative, {float(each.min()):.3g}, for one of {size} tokens; it never is", name)


@exercise.property
def policies_that_hardly_differ(student):
    logp = torch.full((1000,), -2.0)
    log_r = torch.linspace(-1e-3, 1e-3, 1000)
    each = student.k3(logp, logp + log_r)
    exact = torch.expm1((logp + log_r - logp).double()) - (logp + log_r - logp).double()
    if ((each - exact).abs() > 1e-9 + 1e-2 * exact).any():
        raise Wrong(f"for nearly equal policies k3 is as low as {float(each.min()):.3g}. It is never negative: "
                    "the 1 in exp(x) - 1 - x takes the digits that tell. torch.expm1(x) is exp(x) - 1 without this",
                    "k3")
