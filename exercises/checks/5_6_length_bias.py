"""Checks of 5.6: a loss summed token by token, of responses of different lengths, and its gradient."""
import math

import torch
from torch.nn.functional import logsigmoid

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    kind="bug hunt", minutes=(10, 20), difficulty=2,
    hints=["Take two wrong responses of the same advantage, one of 10 tokens and one of 1,000. By how much does the "
           "loss push down a token of the first, by how much one of the second?",
           "Each token's own loss is right. Look at the line that makes one number of them: how many divisions are in "
           "it, and which of them is not the same for all tokens?",
           "The mean over all tokens of the batch that count: the sum of their losses, over their number. A mean of "
           "means is another number wherever lengths differ.",
           "One sum over everything in `each`, divided by how many places of `mask` are True; no axis, and no mean."])


def cases():
    by_hand = case(logp=torch.tensor([[-1.0, -9.0, -9.0], [-1.0, -2.0, -3.0]], requires_grad=True),
                   adv=torch.tensor([1.0, -1.0]), mask=torch.tensor([[True, False, False], [True, True, True]]))
    make = torch.Generator().manual_seed(0)
    found = [by_hand]
    for lengths, places in (([2, 5, 3, 1], 8), ([4, 4, 4], 4), ([7, 1], 7), ([3], 5)):
        mask = torch.arange(places) < torch.tensor(lengths)[:, None]
        logp = -torch.rand(len(lengths), places, generator=make) * 3
        found.append(case(logp=logp.requires_grad_(), adv=torch.randn(len(lengths), generator=make), mask=mask))
    anything = torch.tensor([[-1.0, -2.0], [-3.0, math.nan]], requires_grad=True)
    real = torch.tensor([[True, True], [True, False]])
    unseen = torch.tensor([[-1.0, math.nan], [-3.0, -1.0]])               # a token that counts and is NaN
    return [*found, *(case(logp=logp, adv=torch.tensor([1.0, -1.0]), mask=real) for logp in (anything, unseen))]


policy_loss = exercise.function("policy_loss", cases())


@policy_loss.reference
def token_by_token(logp, adv, mask):
    found = [-adv[b] * logp[b, t] for b in range(len(logp)) for t in range(logp.shape[1]) if mask[b, t]]
    return torch.stack(found).mean()


LARGE = {n: 100 * policy_loss.cases[1][n].detach() for n in ("logp", "adv")}
policy_loss.extreme("Large advantages, log-probabilities or losses are clipped now; the loss is the mean as it is.",
                    **{**policy_loss.cases[1], **LARGE})


def losses(logp, adv, mask):
    return torch.where(mask, -adv[:, None] * logp, 0.0)


@policy_loss.mistake("A token weighs less, the longer the response that it stands in. A wrong answer gets cheaper by "
                     "going on, and a right one earns more for each token by being short.")
def _(logp, adv, mask):
    return (losses(logp, adv, mask).sum(1) / mask.sum(1)).mean()


@policy_loss.mistake("Padding is counted in what you divide by: the same responses in a wider batch would have a "
                     "smaller loss.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).mean()


@policy_loss.mistake("What stands in padding is multiplied by 0, and 0 times NaN is NaN. Anything may stand there: "
                     "choose with torch.where, or take logp[mask].")
def _(logp, adv, mask):
    return (-adv[:, None] * logp * mask).sum() / mask.sum()


@policy_loss.mistake("NaN counts as 0 in tokens too: what went wrong there is hidden, and training goes on with a "
                     "wrong number. What counts is for the mask alone to say.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).nansum() / mask.sum()


@policy_loss.mistake("You divide by the longest response of the batch. The tokens of a batch weigh the same then, but "
                     "how much depends on one response that happened to be long.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum() / (len(logp) * mask.sum(1).max())


@policy_loss.mistake("You divide by the number of responses. Each token weighs the same, but the loss is not their "
                     "mean: the step grows with the length of the responses.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum(1).mean()


@policy_loss.mistake("Nothing is divided: the step grows with the number of tokens, which is another in each batch.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum()


@policy_loss.mistake("Now the tokens of long responses weigh more than those of short ones: their length is counted in "
                     "the sum already, and you multiply by it once more.")
def _(logp, adv, mask):
    lengths = mask.sum(1)
    return (losses(logp, adv, mask).sum(1) * lengths).sum() / lengths.sum()


@policy_loss.mistake("Wrong answers are treated alike now, but right ones still earn more for each token by being "
                     "short. The weight of a token must not depend on its advantage.")
def _(logp, adv, mask):
    each, lengths = losses(logp, adv, mask), mask.sum(1, keepdim=True)
    weight = torch.where(adv[:, None] > 0, 1 / (lengths * len(logp)), 1 / mask.sum())
    return (each * weight).sum()


@policy_loss.mistake("Padding is in the sum: what stands behind the end of a response was never written by the policy.")
def _(logp, adv, mask):
    return (-adv[:, None] * logp).sum() / mask.sum()


@policy_loss.mistake("The mean over tokens is there, and then it is divided by the number of responses once more.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum() / mask.sum() / len(logp)


def chatter(policy_loss, updates, seed=0, batch=1024, places=40):
    """Mean share of right answers, length of right and of wrong ones, before each of so many updates, `[updates, 3]`.

    A policy of 79 numbers says first whether its answer is right, and then goes on until it stops, or `places` are
    full. Only the answer is rewarded; whether to stop is a number for each place, after a right answer and a wrong one.
    """
    make, found = torch.Generator().manual_seed(seed), []
    answer = torch.tensor([-1.0], requires_grad=True)
    stop = torch.full((2, places - 1), -2.2, requires_grad=True)
    optimizer = torch.optim.Adam([answer, stop], lr=0.02)
    for _ in range(updates):
        with torch.no_grad():
            right = torch.rand(batch, generator=make) < answer.sigmoid()
            stops = torch.rand(batch, places - 1, generator=make) < stop.sigmoid()[right.long()]
            last = torch.where(stops.any(1), stops.int().argmax(1) + 1, places - 1)
            length = last + 1.0
            found.append((right.float().mean(), length[right].mean(), length[~right].mean()))
        mask = torch.arange(places) <= last[:, None]
        said = torch.where(right, answer, -answer)[:, None]
        logp = logsigmoid(torch.cat([said, torch.where(stops, stop[right.long()], -stop[right.long()])], 1))
        optimizer.zero_grad()
        policy_loss(logp, right.float() - right.float().mean(), mask).backward()
        optimizer.step()
    return torch.tensor(found)


@exercise.probe
def wrong_answers(student):
    """A policy of 79 numbers that may go on after its answer, 100 updates: wrong answers must not grow"""
    found = chatter(student.policy_loss, 100)
    before, after = found[:5, 2].mean(), found[-5:, 2].mean()
    if after > 1.3 * before:
        raise Wrong(f"wrong answers had {before:.1f} tokens on average, and after 100 updates with your loss they have "
                    f"{after:.1f}", "policy_loss")
    if found[-1, 0] < 0.5:
        raise Wrong(f"only {found[-1, 0]:.0%} of the answers are right after 100 updates; more than 50% were expected",
                    "policy_loss")
