"""Checks of 3.2: corner by corner, with gradients by both log-probabilities."""
import math
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["Think of what a step still has to gain. Where the ratio is already far on the good side, nothing; on the "
           "bad side, everything.",
           "The ratio comes from the difference of the logarithms. The clip is of the ratio alone; the minimum is of "
           "two products with the advantage, for each step by itself, before the mean.",
           "ratio: the exponential of logp minus logp_old, the latter detached. clipped: the same, kept within 1 plus "
           "or minus clip_ratio. Minimum of ratio * adv and clipped * adv, mean, minus sign.",
           "ratio = (logp - logp_old.detach()).exp(); clipped = ratio.clamp(..., ...); and then "
           "-torch.minimum(..., ...).mean()."])


def corners():
    ratio = torch.tensor([2.0, 0.5, 2.0, 0.5])
    return {"logp": ratio.log().requires_grad_(), "logp_old": torch.zeros(4),
            "adv": torch.tensor([1.0, 1.0, -1.0, -1.0]), "clip_ratio": 0.2}


def cases():
    make = torch.Generator().manual_seed(0)
    found = [case(logp=torch.tensor([math.log(2.0)], requires_grad=True), logp_old=torch.zeros(1),
                  adv=torch.tensor([1.0]), clip_ratio=0.2), case(**corners())]
    for spread, clip_ratio in ((0.05, 0.2), (0.5, 0.2), (1.0, 0.1), (1.0, 0.3)):
        old = -2 + torch.randn(12, generator=make)
        found.append(case(logp=(old + spread * torch.randn(12, generator=make)).requires_grad_(),
                          logp_old=old.requires_grad_(), adv=torch.randn(12, generator=make), clip_ratio=clip_ratio))
    return found


clipped = exercise.function("clipped_loss", cases())


@clipped.reference
def step_by_step(logp, logp_old, adv, clip_ratio):
    gains = []
    for new, old, a in zip(logp, logp_old.tolist(), adv.tolist(), strict=True):
        ratio = torch.exp(new) / math.exp(old)
        gone_far = ratio > 1 + clip_ratio if a > 0 else ratio < 1 - clip_ratio
        gains.append(torch.tensor(a * (1 + math.copysign(clip_ratio, a))) if gone_far else a * ratio)
    return -torch.stack(gains).mean()


def parts(logp, logp_old, clip_ratio):
    ratio = (logp - logp_old.detach()).exp()
    return ratio, ratio.clamp(1 - clip_ratio, 1 + clip_ratio)


clipped.extreme("The ratio, its logarithm or the advantage has a bound that eq. 7 does not have. On the bad side "
                "nothing is clipped.", logp=torch.tensor([-1.0, -13.0, -1.5, -0.5], requires_grad=True),
                logp_old=torch.tensor([-13.0, -1.0, -1.0, -1.0]), adv=torch.tensor([-0.002, 300.0, -50.0, 400.0]),
                clip_ratio=0.2)


@clipped.mistake("`[B, 1]` has met `[B]`: each ratio is multiplied by the advantages of all steps, and the mean is of "
                 "B times B products.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = (x[:, None] for x in parts(logp, logp_old, clip_ratio))
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("`[B, 1]` has met `[B]`: each new log-probability is compared with the old ones of all steps, and the "
                 "mean is taken of B times B products.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp[:, None], logp_old, clip_ratio)
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("The quotient of the logarithms is taken, and a gradient flows into logp_old. The ratio is one of "
                 "probabilities: subtract logp_old, detached, from logp, and take the exponential.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = logp / logp_old
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("The clip lets the gradient through: a step that has gone far enough is still pushed further. Where "
                 "the ratio is clipped, its gradient is 0.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    near = ratio + (near - ratio).detach()
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("You take the larger of the two: a step that went too far keeps its gradient, and one that went the "
                 "wrong way loses it.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.maximum(ratio * adv, near * adv).mean()


@clipped.mistake("Only the clipped term is there: an action whose probability went the wrong way gets no gradient to "
                 "come back either. That is what the minimum is for.")
def _(logp, logp_old, adv, clip_ratio):
    return -(parts(logp, logp_old, clip_ratio)[1] * adv).mean()


@clipped.mistake("Nothing is clipped: several steps on one batch may take the policy anywhere.")
def _(logp, logp_old, adv, clip_ratio):
    return -(parts(logp, logp_old, clip_ratio)[0] * adv).mean()


@clipped.mistake("The ratio is inverted: the new probability is divided by the old one. As it is, good actions become "
                 "less likely.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = (logp_old.detach() - logp).exp()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("The difference of the logarithms is used as if it were the ratio: that is its logarithm, 0 where the "
                 "policies agree, not 1.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = logp - logp_old.detach()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("The quotient of the logarithms is taken; the ratio is one of probabilities, so the logarithms are "
                 "subtracted and the result exponentiated.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = logp / logp_old.detach()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("The logarithm of the ratio is clipped to plus or minus clip_ratio; eq. 7 clips the ratio itself, to "
                 "1 plus or minus clip_ratio, which is not the same interval.")
def _(logp, logp_old, adv, clip_ratio):
    difference = logp - logp_old.detach()
    return -torch.minimum(difference.exp() * adv, difference.clamp(-clip_ratio, clip_ratio).exp() * adv).mean()


@clipped.mistake("The sign is the other way round: this is what should grow, and the optimiser makes it smaller.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("It is the advantage that is clipped, to plus or minus clip_ratio; the ratio may still be anything.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = parts(logp, logp_old, clip_ratio)[0]
    return -torch.minimum(ratio * adv, ratio * adv.clamp(-clip_ratio, clip_ratio)).mean()


@clipped.mistake("The minimum is taken of two means; each step has its own, because some are clipped and others are "
                 "not.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.minimum((ratio * adv).mean(), (near * adv).mean())


@clipped.mistake("You sum over the batch: the step would grow with the batch's size. Take the mean.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.minimum(ratio * adv, near * adv).sum()


@clipped.mistake("One number comes out for each step; the mean over the batch is missing.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.minimum(ratio * adv, near * adv)


@clipped.mistake("A gradient flows into logp_old: if it comes from the same weights, as before the first step, it "
                 "cancels the other one exactly, and nothing is learned. Detach it.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = (logp - logp_old).exp()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@exercise.learning
def cartpole(student):
    """PPO with your loss, CartPole, 60,000 steps: a return of 400"""
    import tempfile

    from spinup import ppo

    def mine(logp, logp_old, adv, clip, mask=None):
        with torch.no_grad():
            log_ratio = logp - logp_old
            stats = {"kl": (log_ratio.expm1() - log_ratio).mean(),
                     "clip_fraction": (log_ratio.expm1().abs() > clip[0]).float().mean()}
        return student.clipped_loss(logp, logp_old, adv, clip[0]), stats

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.ppo.clipped_surrogate", mine):
        result = ppo("CartPole-v1", total_steps=60_000, log_dir=folder, quiet=True, tensorboard=False)
    found = result.progress["return_mean_100"][-1]
    if found < 400:
        raise Wrong(f"PPO with your loss has a return of {found:.0f} after 60,000 steps; 400 was expected")
