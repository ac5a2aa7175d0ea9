"""Checks of 5.6: a loss summed token by token, for responses of different lengths, and its gradient."""
import math

import torch
from torch.nn.functional import logsigmoid

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    kind="bug hunt", minutes=(10, 20), difficulty=2,
    hints=["Take two wrong responses with the same advantage, one of 10 tokens and one of 1,000. How strongly does the "
           "loss push down a token of the first response, and a token of the second?",
           "The loss of each token is correct. Look at the line that combines them into one number. How many divisions "
           "does it contain, and which one differs between tokens?",
           "You need the mean over all tokens of the batch: the sum of their losses, divided by their number. A mean "
           "of means is a different number if lengths differ.",
           "Sum everything in `each`, and divide by the number of places where `mask` is True. Use no axis and no "
           "mean."])


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
    unseen = torch.tensor([[-1.0, math.nan], [-3.0, -1.0]])               # a token of a response that is NaN
    return [*found, *(case(logp=logp, adv=torch.tensor([1.0, -1.0]), mask=real) for logp in (anything, unseen))]


policy_loss = exercise.function("policy_loss", cases())


@policy_loss.reference
def token_by_token(logp, adv, mask):
    found = [-adv[b] * logp[b, t] for b in range(len(logp)) for t in range(logp.shape[1]) if mask[b, t]]
    return torch.stack(found).mean()


LARGE = {n: 100 * policy_loss.cases[1][n].detach() for n in ("logp", "adv")}
policy_loss.extreme("Large advantages, log-probabilities or losses are clipped now; the loss is the mean without "
                    "clipping.",
                    **{**policy_loss.cases[1], **LARGE})


def losses(logp, adv, mask):
    return torch.where(mask, -adv[:, None] * logp, 0.0)


@policy_loss.mistake("The loss is correct only if all responses have the same length. Run this file: should the two "
                     "numbers that it prints differ?")
def _(logp, adv, mask):
    return (losses(logp, adv, mask).sum(1) / mask.sum(1)).mean()


@policy_loss.mistake("You count padding in the divisor, so the same responses in a wider batch have a smaller loss; "
                     "divide by the number of tokens.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).mean()


@policy_loss.mistake("You multiply the padding by 0, and 0 times NaN is NaN. Padding may hold any value; select with "
                     "torch.where, or use logp[mask].")
def _(logp, adv, mask):
    return (-adv[:, None] * logp * mask).sum() / mask.sum()


@policy_loss.mistake("NaN in tokens also counts as 0. This hides an error, and training continues with a wrong number; "
                     "select by the mask alone.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).nansum() / mask.sum()


@policy_loss.mistake("You divide by the length of the longest response. All tokens of a batch then have the same "
                     "weight, but this weight depends on one long response; divide by the number of tokens.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum() / (len(logp) * mask.sum(1).max())


@policy_loss.mistake("You divide by the number of responses. Each token has the same weight, but the loss is not their "
                     "mean: the gradient grows with the length of the responses.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum(1).mean()


@policy_loss.mistake("You do not divide, so the gradient grows with the number of tokens, which differs between "
                     "batches; take the mean.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum()


@policy_loss.mistake("Tokens of long responses now have larger weights than tokens of short ones. The sum already "
                     "counts their length, and you multiply by it again.")
def _(logp, adv, mask):
    lengths = mask.sum(1)
    return (losses(logp, adv, mask).sum(1) * lengths).sum() / lengths.sum()


@policy_loss.mistake("Wrong responses have equal weights now, but a correct response still increases its reward per "
                     "token by being short. The weight of a token must not depend on its advantage.")
def _(logp, adv, mask):
    each, lengths = losses(logp, adv, mask), mask.sum(1, keepdim=True)
    weight = torch.where(adv[:, None] > 0, 1 / (lengths * len(logp)), 1 / mask.sum())
    return (each * weight).sum()


@policy_loss.mistake("You sum the padding too. The policy did not generate the values after the end of a response; sum "
                     "the tokens only.")
def _(logp, adv, mask):
    return (-adv[:, None] * logp).sum() / mask.sum()


@policy_loss.mistake("You take the mean over tokens, but then you also divide by the number of responses; remove this "
                     "division.")
def _(logp, adv, mask):
    return losses(logp, adv, mask).sum() / mask.sum() / len(logp)


def chatter(policy_loss, updates, seed=0, batch=1024, places=40):
    """Train a policy of 79 parameters and return the mean share of correct answers, the length of correct responses and
    of wrong ones, before each update, `[updates, 3]`.

    The policy samples first whether its answer is correct. Then it continues until it stops or `places` are full. Only
    the answer is rewarded. Whether to stop is one parameter for each place, after a correct answer and after a wrong
    one.
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
    """A policy of 79 parameters that may continue after its answer, 100 updates: wrong responses must not grow"""
    found = chatter(student.policy_loss, 100)
    before, after = found[:5, 2].mean(), found[-5:, 2].mean()
    if after > 1.3 * before:
        raise Wrong(f"wrong responses had {before:.1f} tokens on average; after 100 updates with your loss they have "
                    f"{after:.1f}", "policy_loss")
    if found[-1, 0] < 0.5:
        raise Wrong(f"only {found[-1, 0]:.0%} of the answers are correct after 100 updates; more than 50% were "
                    "expected",
                    "policy_loss")
