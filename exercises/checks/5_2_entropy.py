"""Checks of 5.2: a comparison with torch.distributions, in one dimension and in several, for small and large standard
deviations."""
import math

import torch
from torch.distributions import Independent, Normal

from spinup.exercises.checks import Exercise, case

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

exercise = Exercise(
    kind="bug hunt", minutes=(15, 25), difficulty=2,
    hints=["Both functions are correct if an action is one number and its standard deviation is 1. Change one of these "
           "two at a time, on paper. What should happen to each term, and what does happen?",
           "Check three things: how the distance is measured in standard deviations, what the logarithm does to d "
           "independent densities, and how often a constant counts. Two bugs are in log_prob, one is in entropy.",
           "Divide the squared distance by the variance. Sum the logarithms of independent densities. Each of the d "
           "numbers has an entropy of log sigma_i + 1/2 + log(2 pi)/2.",
           "log_prob: square inv_std together with the factor beside it, and use sum(-1) instead of mean(-1). entropy: "
           "move both constants inside the sum."])


def cases(act: bool):
    make = torch.Generator().manual_seed(0)
    found = []
    by_hand = (torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), torch.tensor([0.0, -1.0]))
    drawn = [tuple(torch.randn(s, generator=make) for s in shapes) for shapes in (
        ((4, 1), (4, 1), (1,)), ((5, 3), (5, 3), (3,)), ((2, 4, 3), (2, 4, 3), (2, 4, 3)), ((6,), (6,), (6,)))]
    for a, mean, log_std in (by_hand, *drawn):
        log_std = log_std.clamp(-1.9, 1.9).requires_grad_()               # the extreme cases test larger values
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
log_prob.extreme("You clip log_std now, or you add a constant to the standard deviation; compute the density for the "
                 "log_std that is given.",
                 act=torch.tensor([[1e-4, 50.0]]), mean=torch.zeros(1, 2), **OUTSIDE)
entropy.extreme("You clip log_std now, or you add a constant to the standard deviation; compute the entropy of the "
                "log_std that is given.", **OUTSIDE)


def terms(act, mean, log_std, power=2):
    return -0.5 * (act - mean)**2 * torch.exp(-power * log_std) - log_std - HALF_LOG_2PI


@log_prob.mistake("This is correct only if an action is one number with standard deviation 1.")
def _(act, mean, log_std):
    return terms(act, mean, log_std, 1).mean(-1)


@log_prob.mistake("This is correct in one dimension. In d dimensions the log-likelihood is too small in magnitude by a "
                  "factor of d. Likelihoods of independent numbers are multiplied.")
def _(act, mean, log_std):
    return terms(act, mean, log_std).mean(-1)


@log_prob.mistake("This is correct only where the standard deviation is 1. Elsewhere the distance is not measured in "
                  "standard deviations: if distance and sigma double, the term must not change.")
def _(act, mean, log_std):
    return terms(act, mean, log_std, 1).sum(-1)


@log_prob.mistake("You divide the squared distance by the square of the variance; divide it by the variance.")
def _(act, mean, log_std):
    return terms(act, mean, log_std, 4).sum(-1)


@log_prob.mistake("You sum the distances now, but you still average the normalisation over the d numbers. Each number "
                  "needs its own full normalisation.")
def _(act, mean, log_std):
    distance = -0.5 * ((act - mean) * torch.exp(-log_std))**2
    return distance.sum(-1) - (log_std + HALF_LOG_2PI).mean(-1)


@log_prob.mistake("You count the constant of the density once for the whole action; count it once for each of the d "
                  "numbers.")
def _(act, mean, log_std):
    return (terms(act, mean, log_std) + HALF_LOG_2PI).sum(-1) - HALF_LOG_2PI


@log_prob.mistake("You sum over all axes, including the batch; each action has its own log-likelihood.")
def _(act, mean, log_std):
    return terms(act, mean, log_std).sum()


@entropy.mistake("This is correct in one dimension. In d dimensions the entropy is too small by a constant: d - 1 "
                 "times the entropy of a Gaussian with standard deviation 1.")
def _(log_std):
    return 0.5 + HALF_LOG_2PI + log_std.sum(-1)


@entropy.mistake("This is the mean entropy per dimension. The entropies of independent numbers add up.")
def _(log_std):
    return (0.5 + HALF_LOG_2PI + log_std).mean(-1)


@entropy.mistake("One of the two constants now counts for each of the d numbers, but the other still counts only once.")
def _(log_std):
    return 0.5 + (HALF_LOG_2PI + log_std).sum(-1)


@entropy.mistake("The 1/2 is missing. It is half of the expected value of ((a - mean) / std)**2, which is 1; add it "
                 "for each of the d numbers.")
def _(log_std):
    return (HALF_LOG_2PI + log_std).sum(-1)


@entropy.mistake("The result is too large by a factor of d: the sum over dimensions already counts each of them once.")
def _(log_std):
    return log_std.shape[-1] * (0.5 + HALF_LOG_2PI + log_std).sum(-1)


@entropy.mistake("The constants also count once for each element of the batch; d is the size of the last axis alone.")
def _(log_std):
    return log_std.sum(-1) + log_std.numel() * (0.5 + HALF_LOG_2PI)
