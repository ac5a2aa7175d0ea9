"""Checks of 3.5: the slope of tanh as 1 / cosh^2 in float64, also for large |u|; the density must integrate to 1."""
import math
from unittest.mock import patch

import torch
from torch.distributions import Normal
from torch.nn.functional import softplus

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(20, 30), difficulty=3,
    hints=["A small interval of u has a probability. tanh makes the interval shorter by a factor, its slope, and keeps "
           "the probability. What happens to the probability per length?",
           "Each of the d numbers has its own slope. So each needs its own correction, and the sum includes the "
           "corrections and the terms of the Gaussian. Evaluate the correction at u, and subtract it.",
           "u = mean + standard deviation * noise; return u and its tanh. Then compute for each number the log-density "
           "of the Gaussian at u, minus 2 * (log 2 - u - softplus(-2 * u)). Sum over the last axis.",
           "gaussian = -0.5 * (((u - mean) / log_std.exp())**2 + 2 * log_std + math.log(2 * math.pi)), log_slope = 2 * "
           "(math.log(2) - u - softplus(-2 * u)). Then combine the two and sum."])
make = torch.Generator().manual_seed(0)


def normal(*shape, derive=False):
    return torch.randn(shape, generator=make).requires_grad_(derive)


def moderate(*shape, derive=False):
    """Log standard deviations that no clipping of a policy would change; the extreme cases test other values."""
    return normal(*shape).clamp(-1.9, 1.9).requires_grad_(derive)


sample = exercise.function("squashed_sample", [
    case(mean=torch.tensor([[0.0, 1.0]]), log_std=torch.tensor([0.0, -1.0]), noise=torch.tensor([[1.0, 2.0]])),
    case(mean=normal(5, 3, derive=True), log_std=moderate(3, derive=True), noise=normal(5, 3)),
    case(mean=normal(2, 4, 3, derive=True), log_std=moderate(2, 4, 3, derive=True), noise=normal(2, 4, 3))])


@sample.reference
def by_exponentials(mean, log_std, noise):
    u = torch.addcmul(mean, log_std.exp(), noise)
    return u, 1 - 2 / ((2 * u).exp() + 1)


sample.extreme("You clip log_std; use the standard deviation that is given, exp(log_std).",
               mean=torch.tensor([[0.5, 0.0]]), log_std=torch.tensor([-9.0, 5.0]), noise=torch.tensor([[2.0, 0.01]]))
sample.extreme("The actions are kept away from -1 and 1. Then all samples far out become the same action, without a "
               "density and without a gradient. The log-density gets u and can handle large |u|; return tanh(u) "
               "unchanged.",
               mean=torch.tensor([[5.0, -5.0]]), log_std=torch.tensor([-2.0, -2.0]), noise=torch.tensor([[1.0, -1.0]]))
sample.extreme("Means or samples are clipped before tanh; return u as it was sampled.",
               mean=torch.tensor([[40.0, -40.0]]), log_std=torch.zeros(2), noise=torch.tensor([[6.0, 30.0]]))


@sample.mistake("You use log_std as the standard deviation; use exp(log_std).")
def _(mean, log_std, noise):
    u = mean + log_std * noise
    return u, u.tanh()


@sample.mistake("You use log_std as the logarithm of a variance. It is the logarithm of the standard deviation, so do "
                "not halve it.")
def _(mean, log_std, noise):
    u = mean + (0.5 * log_std).exp() * noise
    return u, u.tanh()


@sample.mistake("You add the noise after tanh. Then actions exceed the bounds and have a different density; add the "
                "noise before tanh.")
def _(mean, log_std, noise):
    return mean + log_std.exp() * noise, mean.tanh() + log_std.exp() * noise


@sample.mistake("You clip instead of squashing. All samples beyond a bound become the same action, without a density "
                "and without a gradient; use tanh.")
def _(mean, log_std, noise):
    u = mean + log_std.exp() * noise
    return u, u.clamp(-1, 1)


@sample.mistake("The sample was detached, so no gradient reaches mean and log_std. An actor that learns through its "
                "samples then learns nothing; do not detach.")
def _(mean, log_std, noise):
    u = (mean + log_std.exp() * noise).detach()
    return u, u.tanh()


@sample.mistake("The two results are exchanged; return first u, then the action tanh(u).")
def _(mean, log_std, noise):
    u = mean + log_std.exp() * noise
    return u.tanh(), u


def log_prob_cases():
    far = torch.tensor([[20.0, -20.0], [9.0, -9.0], [5.0, -7.0], [12.0, 0.5]])
    return [case(u=torch.tensor([[0.0, 1.0]]), mean=torch.zeros(1, 2), log_std=torch.zeros(2)),
            case(u=normal(5, 3, derive=True), mean=normal(5, 3, derive=True), log_std=moderate(3, derive=True)),
            case(u=far.requires_grad_(), mean=far.detach() - 0.5, log_std=torch.tensor([0.3, -0.3])),
            case(u=normal(4, 2, 3), mean=normal(4, 2, 3), log_std=moderate(4, 2, 3)),
            case(u=normal(3, 3), mean=normal(3, 3), log_std=moderate(3))]


log_prob = exercise.function("squashed_log_prob", log_prob_cases())


@log_prob.reference
def by_cosh(u, mean, log_std):
    each = Normal(mean.double(), log_std.double().exp()).log_prob(u.double()) + 2 * u.double().cosh().log()
    return each.sum(-1).float()


log_prob.extreme("You clip log_std, or you add a constant to the standard deviation or the variance. Any bounds belong "
                 "to the policy that computes log_std; use the log_std that you are "
                 "given.", u=torch.tensor([[1e-4, 20.0]]), mean=torch.zeros(1, 2),
                 log_std=torch.tensor([-9.0, 5.0]))
log_prob.extreme("The result is not finite, or clipped. Far from the mean, the density itself rounds to 0. So compute "
                 "its logarithm term by term, and clip neither samples nor distances.",
                 u=torch.tensor([[60.0, -40.0]]), mean=torch.tensor([[-10.0, 30.0]]), log_std=torch.tensor([0.5, 1.0]))


log_prob.extreme("Softplus written out as log(1 + exp(x)) overflows: for u = -60, exp(-2u) is infinite in float32. Use "
                 "the softplus of PyTorch.", u=torch.tensor([[-60.0]], requires_grad=True),
                 mean=torch.tensor([[-59.0]]), log_std=torch.zeros(1))


@log_prob.mistake("log_std counts once where it should count twice: the term beside the squared distance is 2 log_std, "
                  "the logarithm of the variance.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) + 0.5 * log_std - log_slope(u)).sum(-1)


def gaussian(u, mean, log_std):
    return -0.5 * ((u - mean) / log_std.exp())**2 - log_std - 0.5 * math.log(2 * math.pi)


def log_slope(u):
    return 2 * (math.log(2) - u - softplus(-2 * u))


@log_prob.mistake("This is the density of u, not of tanh(u); subtract the correction for the slope.")
def _(u, mean, log_std):
    return gaussian(u, mean, log_std).sum(-1)


@log_prob.mistake("The correction has the wrong sign. Where tanh is flat, its slope is small: actions lie closer "
                  "together, and their density is higher. Subtract the correction.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) + log_slope(u)).sum(-1)


@log_prob.mistake("1e-6 inside the logarithm does no harm for small |u|, but it is wrong for large |u|. At |u| = 20 "
                  "the correction is -38.6, but yours stops at -13.8 and loses its gradient. Use the form with "
                  "softplus.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - (1 - u.tanh()**2 + 1e-6).log()).sum(-1)


@log_prob.mistake("A lower bound inside the logarithm gives all larger |u| the same correction and no gradient. At |u| "
                  "= 20 the error is large. Use the form with softplus.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - (1 - u.tanh()**2).clamp(min=1e-6).log()).sum(-1)


@log_prob.mistake("The result is correct for small |u| and infinite for large |u|: float32 rounds tanh(u) to 1 for |u| "
                  "above 9, and you take the logarithm of 0. Use the form with softplus.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - (1 - u.tanh()**2).log()).sum(-1)


@log_prob.mistake("You evaluate the correction at the mean; evaluate it at the sample u.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - log_slope(mean)).sum(-1)


@log_prob.mistake("You evaluate the Gaussian at tanh(u); evaluate it at u, which was sampled from it.")
def _(u, mean, log_std):
    return (gaussian(u.tanh(), mean, log_std) - log_slope(u)).sum(-1)


@log_prob.mistake("The 2 in front of the brackets is missing, so the correction is half as large as it should be.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - log_slope(u) / 2).sum(-1)


@log_prob.mistake("You use softplus(2u); the formula needs softplus(-2u). With your sign the correction differs "
                  "between u and -u.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - 2 * (math.log(2) - u - softplus(2 * u))).sum(-1)


@log_prob.mistake("The derivative of tanh is 1 - tanh(u)^2; you use 1 - tanh(u), or its logarithm in another form.")
def _(u, mean, log_std):
    return (gaussian(u, mean, log_std) - (math.log(2) - 2 * u - softplus(-2 * u))).sum(-1)


@log_prob.mistake("You return one number for each of the d numbers of an action. An action has one density, so sum "
                  "over the last axis.")
def _(u, mean, log_std):
    return gaussian(u, mean, log_std) - log_slope(u)


@log_prob.mistake("You sum only the Gaussian. The correction also belongs to each of the d numbers, so include it in "
                  "the same sum.")
def _(u, mean, log_std):
    return gaussian(u, mean, log_std).sum(-1, keepdim=True) - log_slope(u)


@exercise.property
def unchanged(student):
    """Raise Wrong unless actions far out are tanh(u), up to rounding."""
    u, act = student.squashed_sample(torch.tensor([[40.0, -40.0, 6.0]]), torch.zeros(3), torch.zeros(1, 3))
    if not torch.allclose(act, u.tanh(), rtol=0, atol=5e-7):
        raise Wrong("actions far out are kept away from -1 and 1; return tanh(u) unchanged, because the log-density "
                    "gets u and can handle a large |u|", "squashed_sample")


@exercise.property
def one_in_all(student):
    """Raise Wrong unless the density of an action sums to 1 over all actions, at the midpoints of small intervals of
    (-1, 1)."""
    edges = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    act = ((edges[1:] + edges[:-1]) / 2)[:, None]
    for mean, log_std in ((0.3, -0.5), (-1.0, -1.0)):
        mean, log_std = (torch.full((1,), x, dtype=torch.float64) for x in (mean, log_std))
        total = float(student.squashed_log_prob(act.atanh(), mean.expand_as(act), log_std).exp().sum()) / 10_000
        if abs(total - 1) > 0.01:
            raise Wrong(f"over all actions from -1 to 1 the density sums to {total:.3f}; it should be 1",
                        "squashed_log_prob")


@exercise.learning
def pendulum(student):
    """SAC with your samples and densities, Pendulum, 6,000 steps: a return of -300"""
    import tempfile

    from spinup import sac

    def mine(self, params, noise):
        u, act = student.squashed_sample(*params, noise)
        return act, student.squashed_log_prob(u, *params)

    with tempfile.TemporaryDirectory() as folder, patch(
            "spinup.core.bounded.SquashedGaussian.sample_log_prob", mine):
        result = sac("Pendulum-v1", total_steps=6000, hidden=(64, 64), log_dir=folder, quiet=True, tensorboard=False)
    found = sum(result.returns[-5:]) / 5
    if found < -300:
        raise Wrong(f"SAC with your functions has a return of {found:.0f} after 6,000 steps; -300 was expected")
