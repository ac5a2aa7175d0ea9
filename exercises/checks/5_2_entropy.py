"""Checks of 5.2: against torch.distributions, in one dimension and in more, at all widths."""
import math

import torch
from torch.distributions import Independent, Normal

from spinup.exercises.checks import Exercise, case

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

exercise = Exercise(
    kind="bug hunt", minutes=(15, 25), difficulty=2,
    hints=["Nothing is wrong where an action is one number and its deviation is 1. Change one of these two at a time, "
           "on paper: what should happen to each term, and what does happen?",
           "Three things: how the distance is measured in units of the deviation; what becomes of d independent "
           "densities under a logarithm; how often a constant counts. Two are in log_prob, one in entropy.",
           "The squared distance is divided by the variance. Logarithms of independent densities add up. Each of the d "
           "numbers brings an entropy of log sigma_i + 1/2 + log(2 pi)/2.",
           "log_prob: inv_std squared like what it multiplies, and sum(-1) in the place of mean(-1). entropy: bring "
           "both constants into the brackets that are summed."])


def cases(act: bool):
    make = torch.Generator().manual_seed(0)
    found = []
    by_hand = (torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), torch.tensor([0.0, -1.0]))
    drawn = [tuple(torch.randn(s, generator=make) for s in shapes) for shapes in (
        ((4, 1), (4, 1), (1,)), ((5, 3), (5, 3), (3,)), ((2, 4, 3), (2, 4, 3), (2, 4, 3)), ((6,), (6,), (6,)))]
    for a, mean, log_std in (by_hand, *drawn):
        log_std = log_std.clamp(-1.9, 1.9).requires_grad_()               # what lies further out is for the extremes
        found.append(case(act=a, mean=mean.requires_grad_(), log_std=log_std) if act else case(log_std=log_std))
    return found


log_prob = exercise.function("log_prob", cases(True))
entropy = exercise.function("entropy", cases(False))


@log_prob.reference
def density(act, mean, log_std):
    return Independent(Normal(mean, log_std.exp()), 1).log_prob(act)


@entropy.reference
def spread(log_std):
    return Independent(Normal(torch.zeros_like(log_std), log_std.exp()), 1).entropy()


OUTSIDE = {"log_std": torch.tensor([-9.0, 5.0])}
log_prob.extreme("log_std is kept between bounds now; the density is that of the log_std given.",
                 act=torch.tensor([[1e-4, 50.0]]), mean=torch.zeros(1, 2), **OUTSIDE)
entropy.extreme("log_std is kept between bounds now; the entropy is that of the log_std given.", **OUTSIDE)


def terms(act, mean, log_std, power=2):
    return -0.5 * (act - mean)**2 * torch.exp(-power * log_std) - log_std - HALF_LOG_2PI


@log_prob.mistake("Right where an action is one number of deviation 1, and nowhere else. Two things go wrong: one in "
                  "the deviation, and one in the number of dimensions.")
def _(act, mean, log_std):
    return terms(act, mean, log_std, 1).mean(-1)


@log_prob.mistake("Right in one dimension; in d of them, every log-likelihood is d times too near to 0. Likelihoods of "
                  "independent numbers are multiplied.")
def _(act, mean, log_std):
    return terms(act, mean, log_std).mean(-1)


@log_prob.mistake("Right where the deviation is 1. Elsewhere the distance is not measured in deviations: at twice the "
                  "deviation, twice the distance should be just as far.")
def _(act, mean, log_std):
    return terms(act, mean, log_std, 1).sum(-1)


@log_prob.mistake("The distance is squared, and its unit is a variance; you divide it by the square of that.")
def _(act, mean, log_std):
    return terms(act, mean, log_std, 4).sum(-1)


@log_prob.mistake("The distances are summed now, but the normalisation is still averaged over the d numbers. All of "
                  "the density belongs to each of them.")
def _(act, mean, log_std):
    distance = -0.5 * ((act - mean) * torch.exp(-log_std))**2
    return distance.sum(-1) - (log_std + HALF_LOG_2PI).mean(-1)


@log_prob.mistake("The constant of the density is counted once for the whole action; it belongs to each of its d "
                  "numbers.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + HALF_LOG_2PI).sum(-1) - HALF_LOG_2PI


@log_prob.mistake("Everything is summed, over the actions of a batch too; each action has a likelihood of its own.")
def _(act, mean, log_std):
    return terms(act, mean, log_std).sum()


@entropy.mistake("Right in one dimension. In d of them the entropy is too small by the same number everywhere, d - 1 "
                 "times that of a Gaussian of deviation 1.")
def _(log_std):
    return 0.5 + HALF_LOG_2PI + log_std.sum(-1)


@entropy.mistake("This is the entropy of one dimension on average. What is not known of independent numbers adds up.")
def _(log_std):
    return (0.5 + HALF_LOG_2PI + log_std).mean(-1)


@entropy.mistake("One of the two constants is now there for each of the d numbers; the other is still there once.")
def _(log_std):
    return 0.5 + (HALF_LOG_2PI + log_std).sum(-1)


@entropy.mistake("The 1/2 is missing: it is what the squared distance is on average, for each of the d numbers.")
def _(log_std):
    return (HALF_LOG_2PI + log_std).sum(-1)


@entropy.mistake("All of it is d times too large: the sum over dimensions counts each of them once already.")
def _(log_std):
    return log_std.shape[-1] * (0.5 + HALF_LOG_2PI + log_std).sum(-1)


@entropy.mistake("The constants are summed over the actions of a batch too; d is the size of the last axis alone.")
def _(log_std):
    return log_std.sum(-1) + log_std.numel() * (0.5 + HALF_LOG_2PI)
