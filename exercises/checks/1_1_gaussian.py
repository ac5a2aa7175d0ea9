"""Checks of 1.1: against torch.distributions, with deviations of all shapes and both signs."""
import math

import torch
from torch.distributions import Normal

from spinup.exercises.checks import Exercise, case

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

exercise = Exercise(
    minutes=(10, 20), difficulty=1,
    hints=["The d numbers are independent, so their densities are multiplied. What becomes of a product under a "
           "logarithm?",
           "Only the last axis is summed over: an input `[N, d]` gives `[N]`. Each of the three terms in the brackets "
           "is there once for every i, log 2 pi too.",
           "Divide (act - mean) by exp(log_std), square it, add 2 log_std and log 2 pi, sum over the last axis, times "
           "-1/2.",
           "distance = (act - mean) / log_std.exp(), and then -0.5 * (distance**2 + ... + ...).sum(-1)."])


def cases():
    make = torch.Generator().manual_seed(0)

    def normal(*shape, derive=False):
        return torch.randn(shape, generator=make).requires_grad_(derive)

    def moderate(*shape, derive=False):
        """Logarithms of deviations that no bound of a policy would change; others are for the extremes."""
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


log_prob.extreme("log_std is kept between bounds. Those belong to the policy that gives it; the density is that of the "
                 "log_std given.", act=torch.tensor([[1e-10, 1e5]]), mean=torch.zeros(1, 2),
                 log_std=torch.tensor([-25.0, 12.0]))
log_prob.extreme("Actions, means or distances are clipped. An action far from the mean is unlikely, its density says "
                 "how unlikely.", act=torch.tensor([[30.0, -400.0]]), mean=torch.tensor([[-30.0, 300.0]]),
                 log_std=torch.tensor([0.5, 1.0]))


@log_prob.mistake("log_std counts once where it should count twice: the brackets hold 2 log_std, the logarithm of the "
                  "variance.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + 0.5 * log_std).sum(-1)


@log_prob.mistake("log_std counts twice too much: outside of the brackets with the 1/2 it stands once.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) - log_std).sum(-1)


@log_prob.mistake("One number comes out for each of the d numbers of an action; an action has one likelihood, so sum "
                  "over the last axis.")
def _(act, mean, log_std):
    return terms(act, mean, log_std)


@log_prob.mistake("Everything is summed, over the actions of a batch too; sum over the last axis alone, with .sum(-1).")
def _(act, mean, log_std):
    return terms(act, mean, log_std).sum()


@log_prob.mistake("You average over the d numbers of an action. Probabilities of independent things are multiplied, so "
                  "their logarithms are summed.")
def _(act, mean, log_std):
    return terms(act, mean, log_std).mean(-1)


@log_prob.mistake("log 2 pi is counted once for the whole action; it belongs to each of its d numbers, inside the sum.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + HALF_LOG_2PI).sum(-1) - HALF_LOG_2PI


@log_prob.mistake("log 2 pi is missing: the density is not normalised.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + HALF_LOG_2PI).sum(-1)


@log_prob.mistake("log_std is missing: a wide Gaussian is lower everywhere, because its area is 1 too.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + log_std).sum(-1)


@log_prob.mistake("The squared distance is divided by the deviation; divide it by its square, the variance.")
def _(act, mean, log_std):
    return (-0.5 * (act - mean)**2 / log_std.exp() - log_std - HALF_LOG_2PI).sum(-1)


@log_prob.mistake("You use log_std as if it were the deviation itself; take exp(log_std).")
def _(act, mean, log_std):
    return (-0.5 * ((act - mean) / log_std)**2 - log_std.log() - HALF_LOG_2PI).sum(-1)


@log_prob.mistake("The sign is the other way round: likely actions get low numbers.")
def _(act, mean, log_std):
    return -terms(act, mean, log_std).sum(-1)
