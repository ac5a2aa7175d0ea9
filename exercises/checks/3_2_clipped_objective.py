"""Checks of 3.2: the four corners one by one, with the gradients with respect to both log-probabilities."""
import math
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["Ask how much each step can still gain. If the ratio has already moved far in the good direction, the step "
           "can gain nothing more. If the ratio has moved in the bad direction, the step can still gain everything.",
           "Compute the ratio from the difference of the logarithms. Clip only the ratio. Take the minimum of two "
           "products with the advantage, separately for each step, before the mean.",
           "ratio: the exponential of logp minus logp_old, with logp_old detached. clipped: the ratio, limited to 1 "
           "plus or minus clip_ratio. Take the minimum of ratio * adv and clipped * adv, then the mean, and negate it.",
           "ratio = (logp - logp_old.detach()).exp(); clipped = ratio.clamp(..., ...); then return -torch.minimum(..., "
           "...).mean()."])


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
    for new, old, a in zip(logp.double(), logp_old.tolist(), adv.tolist(), strict=True):
        ratio = torch.exp(new) / math.exp(old)
        gone_far = ratio > 1 + clip_ratio if a > 0 else ratio < 1 - clip_ratio
        gains.append(ratio.new_tensor(a * (1 + math.copysign(clip_ratio, a))) if gone_far else a * ratio)
    return -torch.stack(gains).mean().float()


def parts(logp, logp_old, clip_ratio):
    ratio = (logp - logp_old.detach()).exp()
    return ratio, ratio.clamp(1 - clip_ratio, 1 + clip_ratio)


clipped.extreme("The ratio, its logarithm or the advantage has a bound that eq. 7 does not have. In the bad direction "
                "nothing is clipped.", logp=torch.tensor([-1.0, -13.0, -1.5, -0.5], requires_grad=True),
                logp_old=torch.tensor([-13.0, -1.0, -1.0, -1.0]), adv=torch.tensor([-0.002, 300.0, -50.0, 400.0]),
                clip_ratio=0.2)
clipped.extreme("exp(logp) rounds to 0 for unlikely actions, and 0 / 0 is NaN. Subtract the logarithms first.",
                logp=torch.tensor([-120.0, -119.5]), logp_old=torch.tensor([-120.1, -119.0]),
                adv=torch.tensor([1.0, -1.0]), clip_ratio=0.2)


@clipped.mistake("Broadcasting combined `[B, 1]` with `[B]`: each ratio is multiplied by the advantages of all steps, "
                 "and you average B times B products.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = (x[:, None] for x in parts(logp, logp_old, clip_ratio))
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("Broadcasting combined `[B, 1]` with `[B]`: each new log-probability is compared with the old ones of "
                 "all steps, and you average B times B products.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp[:, None], logp_old, clip_ratio)
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("The clip lets the gradient through, so a step that moved far enough is still pushed further. The "
                 "gradient must be 0 where the ratio is clipped.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    near = ratio + (near - ratio).detach()
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("You take the larger of the two terms. Then a step that moved too far keeps its gradient, and a step "
                 "that moved in the wrong direction loses it; take the smaller one.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.maximum(ratio * adv, near * adv).mean()


@clipped.mistake("Only the clipped term is used. An action whose probability moved in the wrong direction then gets no "
                 "gradient to return; take the minimum with the unclipped term.")
def _(logp, logp_old, adv, clip_ratio):
    return -(parts(logp, logp_old, clip_ratio)[1] * adv).mean()


@clipped.mistake("Nothing is clipped, so several steps on one batch can move the policy arbitrarily far; clip the "
                 "ratio.")
def _(logp, logp_old, adv, clip_ratio):
    return -(parts(logp, logp_old, clip_ratio)[0] * adv).mean()


@clipped.mistake("You clip the ratio only from above. A bad action that has become much less likely must get no more "
                 "gradient either; clip from below too, at 1 - clip_ratio.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = parts(logp, logp_old, clip_ratio)[0]
    return -torch.minimum(ratio * adv, ratio.clamp(max=1 + clip_ratio) * adv).mean()


@clipped.mistake("You clip the ratio only from below. A good action that has become much more likely must get no more "
                 "gradient either; clip from above too, at 1 + clip_ratio.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = parts(logp, logp_old, clip_ratio)[0]
    return -torch.minimum(ratio * adv, ratio.clamp(min=1 - clip_ratio) * adv).mean()


@clipped.mistake("The ratio is inverted, so good actions become less likely; divide the new probability by the old "
                 "one.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = (logp_old.detach() - logp).exp()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("You use the difference of the logarithms as the ratio. It is the logarithm of the ratio: it is 0, "
                 "not 1, where the policies agree; take its exponential.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = logp - logp_old.detach()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("The quotient of the logarithms is taken. The ratio is a ratio of probabilities, so subtract the "
                 "logarithms and take the exponential.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = logp / logp_old.detach()
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("The quotient of the logarithms is taken, and a gradient flows into logp_old. The ratio is a ratio of "
                 "probabilities: subtract logp_old, detached, from logp, and take the exponential.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = logp / logp_old
    return -torch.minimum(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv).mean()


@clipped.mistake("You clip the logarithm of the ratio to plus or minus clip_ratio. Eq. 7 clips the ratio itself, to 1 "
                 "plus or minus clip_ratio, which is a different interval.")
def _(logp, logp_old, adv, clip_ratio):
    difference = logp - logp_old.detach()
    return -torch.minimum(difference.exp() * adv, difference.clamp(-clip_ratio, clip_ratio).exp() * adv).mean()


@clipped.mistake("You take the minimum of the two ratios, and then multiply by the advantage. A negative advantage "
                 "reverses the order; multiply both ratios by the advantage first.")
def _(logp, logp_old, adv, clip_ratio):
    return -(torch.minimum(*parts(logp, logp_old, clip_ratio)) * adv).mean()


@clipped.mistake("You normalise the advantages inside the loss. The caller decides whether to normalise them; use "
                 "the advantages as they are.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    distance = adv - adv.mean()
    adv = distance / ((distance**2).sum() / (len(adv) - 1)).sqrt()                      # NaN for a batch of 1, like std
    return -torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("The sign is wrong: the optimiser minimises the loss, and this objective must increase; negate it.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return torch.minimum(ratio * adv, near * adv).mean()


@clipped.mistake("You clip the advantage to plus or minus clip_ratio, and the ratio remains unbounded; clip the ratio.")
def _(logp, logp_old, adv, clip_ratio):
    ratio = parts(logp, logp_old, clip_ratio)[0]
    return -torch.minimum(ratio * adv, ratio * adv.clamp(-clip_ratio, clip_ratio)).mean()


@clipped.mistake("You take the minimum of two means. Take the minimum separately for each step, because some steps are "
                 "clipped and others are not.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.minimum((ratio * adv).mean(), (near * adv).mean())


@clipped.mistake("You sum over the batch, so the gradient grows with the batch size; take the mean.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.minimum(ratio * adv, near * adv).sum()


@clipped.mistake("You return one number for each step; take the mean over the batch.")
def _(logp, logp_old, adv, clip_ratio):
    ratio, near = parts(logp, logp_old, clip_ratio)
    return -torch.minimum(ratio * adv, near * adv)


@clipped.mistake("A gradient flows into logp_old. If logp_old comes from the same weights, as before the first step, "
                 "its gradient exactly cancels that of logp, and nothing is learned; detach logp_old.")
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
