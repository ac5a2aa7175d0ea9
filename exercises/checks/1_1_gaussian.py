"""Checks of 1.1: a comparison with torch.distributions, for log_std of all shapes and both signs."""
import math

import torch
from torch.distributions import Normal

from spinup.exercises.checks import Exercise, case

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

exercise = Exercise(
    minutes=(10, 20), difficulty=1,
    hints=["The d numbers are independent, so their densities are multiplied. What does the logarithm make of a "
           "product?",
           "Sum over the last axis only: an input `[N, d]` gives `[N]`. Each of the three terms in the brackets "
           "appears once for every i. This includes log 2 pi.",
           "Divide (act - mean) by exp(log_std) and square the result. Add 2 log_std and log 2 pi. Sum over the last "
           "axis, and multiply by -1/2.",
           "Start with distance = (act - mean) / log_std.exp(). Then return -0.5 * (distance**2 + ... + ...).sum(-1)."])


def cases():
    make = torch.Generator().manual_seed(0)

    def normal(*shape, derive=False):
        return torch.randn(shape, generator=make).requires_grad_(derive)

    def moderate(*shape, derive=False):
        """Log standard deviations that no clipping of a policy would change; the extreme cases test other values."""
        return normal(*shape).clamp(-1.9, 1.9).requires_grad_(derive)

    return [case(act=torch.tensor([[1.0, 0.0]]), mean=torch.zeros(1, 2), log_std=torch.tensor([0.0, -1.0])),
            case(act=normal(5, 3), mean=normal(5, 3, derive=True), log_std=moderate(3, derive=True)),
            case(act=normal(4, 2, 3), mean=normal(4, 2, 3), log_std=moderate(4, 2, 3)),
            case(act=normal(3, 3), mean=normal(3, 3), log_std=moderate(3)),
            case(act=normal(6), mean=normal(6), log_std=moderate(6))]


log_prob = exercise.function("gaussian_log_prob", cases())


@log_prob.reference
def by_torch(act, mean, log_std):
    return Normal(mean, log_std.exp()).log_prob(act).sum(-1)


def terms(act, mean, log_std):
    return -0.5 * ((act - mean) / log_std.exp())**2 - log_std - HALF_LOG_2PI


log_prob.extreme("You clip log_std, or you add a constant to the standard deviation or the variance. Any bounds belong "
                 "to the policy that computes log_std; use the log_std that you are "
                 "given.", act=torch.tensor([[1e-10, 1e5]]), mean=torch.zeros(1, 2),
                 log_std=torch.tensor([-25.0, 12.0]))
log_prob.extreme("The result is not finite, or clipped. Far from the mean, the density itself rounds to 0. So "
                 "compute its logarithm term by term, and clip neither actions nor distances.",
                 act=torch.tensor([[30.0, -400.0]]), mean=torch.tensor([[-30.0, 300.0]]),
                 log_std=torch.tensor([0.5, 1.0]))


@log_prob.mistake("log_std counts once where it should count twice: the brackets contain 2 log_std, the logarithm of "
                  "the variance.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + 0.5 * log_std).sum(-1)


@log_prob.mistake("log_std counts twice where it should count once: multiplied by the 1/2 in front of the brackets, 2 "
                  "log_std is log_std.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) - log_std).sum(-1)


@log_prob.mistake("You return one number for each of the d numbers of an action. An action has one log-likelihood, so "
                  "sum over the last axis.")
def _(act, mean, log_std):
    return terms(act, mean, log_std)


@log_prob.mistake("You sum over all axes, including the batch; sum over the last axis only, with .sum(-1).")
def _(act, mean, log_std):
    return terms(act, mean, log_std).sum()


@log_prob.mistake("You average over the d numbers of an action. Probabilities of independent numbers are multiplied, "
                  "so sum their logarithms.")
def _(act, mean, log_std):
    return terms(act, mean, log_std).mean(-1)


@log_prob.mistake("You count log 2 pi once for the whole action; count it once for each of the d numbers, inside the "
                  "sum.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + HALF_LOG_2PI).sum(-1) - HALF_LOG_2PI


@log_prob.mistake("log 2 pi is missing, so the density is not normalised; add it inside the sum.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + HALF_LOG_2PI).sum(-1)


@log_prob.mistake("log_std is missing. A wide Gaussian must be lower, because its area is also 1; add the term 2 "
                  "log_std in the brackets.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + log_std).sum(-1)


@log_prob.mistake("You divide the squared distance by the standard deviation; divide it by the variance, the square of "
                  "the standard deviation.")
def _(act, mean, log_std):
    return (-0.5 * (act - mean)**2 / log_std.exp() - log_std - HALF_LOG_2PI).sum(-1)


@log_prob.mistake("You use log_std as the standard deviation; use exp(log_std).")
def _(act, mean, log_std):
    return (-0.5 * ((act - mean) / log_std)**2 - log_std.log() - HALF_LOG_2PI).sum(-1)


@log_prob.mistake("You divide by log_std; divide by the standard deviation, exp(log_std).")
def _(act, mean, log_std):
    return (-0.5 * ((act - mean) / log_std)**2 - log_std - HALF_LOG_2PI).sum(-1)


@log_prob.mistake("You square only the standard deviation; square the whole quotient.")
def _(act, mean, log_std):
    return (-0.5 * (act - mean) / log_std.exp()**2 - log_std - HALF_LOG_2PI).sum(-1)


@log_prob.mistake("The factor -1/2 multiplies only the squared distance; multiply all terms in the brackets by it.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + 3 * (log_std + HALF_LOG_2PI)).sum(-1)


@log_prob.mistake("The sign is wrong: likely actions get low numbers; multiply the sum by -1/2, not 1/2.")
def _(act, mean, log_std):
    return -terms(act, mean, log_std).sum(-1)
