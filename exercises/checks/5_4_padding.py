"""Checks of 5.4: the loss of each response alone, cut to its length, so that there is no padding."""
import math
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3, kind="bug hunt",
    hints=["What changes in a batch when the limit is raised and the responses stay the same? Compute the loss of one "
           "response by hand, first alone, then next to a longer one.",
           "Follow each of the three inputs through the function. No value outside the responses may have an effect, "
           "whatever it is. Is that true everywhere?",
           "The shared advantage is the sum of the advantages of the response's own tokens, divided by the number of "
           "these tokens. Select them as the loss does; multiplying by the mask would let NaN through. A row without "
           "tokens must not divide by 0.",
           "own = torch.where(mask, adv, 0.0).sum(1, keepdim=True). Divide it by the number of tokens of each row, "
           "with .clamp(min=1). The next two lines are correct."])


def cases():
    make = torch.Generator().manual_seed(0)
    lengths = torch.tensor([[6], [1], [4], [2]])
    mask = torch.arange(6) < lengths
    logp, adv = -torch.rand(4, 6, generator=make) - 0.1, torch.randn(4, 6, generator=make)
    holes = mask & torch.tensor([[True, False, True, True, False, True]])
    empty = mask & torch.tensor([[True], [True], [False], [True]])
    broken = torch.tensor([[1.0], [math.nan], [math.inf], [-math.inf]])

    def of(logp, adv, mask):
        return case(logp=logp.clone().requires_grad_(), adv=adv, mask=mask)

    by_hand = torch.tensor([[True, True, True, True], [True, True, False, False]])
    return [case(logp=torch.full((2, 4), -1.0), adv=torch.tensor([[1.0, 1.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]]),
                 mask=by_hand),
            of(logp, adv, mask), of(logp, adv, torch.ones_like(mask)), of(logp, adv, holes), of(logp, adv, empty),
            of(torch.where(mask, logp, broken), torch.where(mask, adv, broken), mask),
            case(logp=torch.full((2, 4), -1.0), adv=torch.tensor([[1.0, math.nan, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]]),
                 mask=by_hand)]


sequence_loss = exercise.function("sequence_loss", cases())


@sequence_loss.reference
def one_by_one(logp, adv, mask):
    total = torch.zeros(())
    for row in range(len(mask)):
        own = [t for t in range(mask.shape[1]) if mask[row, t]]
        if own:
            total = total - logp[row, own].sum() * adv[row, own].mean()
    return total / mask.sum()


LARGE = {n: 100 * sequence_loss.cases[1][n].detach() for n in ("logp", "adv")}
sequence_loss.extreme("Large advantages or log-probabilities are clipped now; use them unchanged.",
                      **{**sequence_loss.cases[1], **LARGE})


def with_advantage(logp, of_response, mask):
    return torch.where(mask, -logp * of_response, 0.0).sum() / mask.sum()


def selected(adv, mask):
    return torch.where(mask, adv, 0.0).sum(1, keepdim=True)


@sequence_loss.mistake("The same responses get another loss and another gradient if there is more padding or if it "
                       "holds other numbers. A response alone in its batch gets the correct loss.")
def _(logp, adv, mask):
    return with_advantage(logp, adv.mean(1, keepdim=True), mask)


@sequence_loss.mistake("The values in the padding no longer matter, but its length still does: the shorter a response "
                       "is compared with the longest of its batch, the smaller its advantage.")
def _(logp, adv, mask):
    return with_advantage(logp, selected(adv, mask) / mask.shape[1], mask)


@sequence_loss.mistake("You divide by the number of tokens of the response, but you still sum the padding too; sum the "
                       "tokens only.")
def _(logp, adv, mask):
    return with_advantage(logp, adv.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1), mask)


@sequence_loss.mistake("You multiply the padding by 0. If it holds NaN or infinity, the result is NaN, and one "
                       "response breaks the whole batch; select the tokens instead.")
def _(logp, adv, mask):
    return with_advantage(logp, (adv * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1), mask)


@sequence_loss.mistake("NaN in tokens also counts as 0. This hides an error, and training continues with a wrong "
                       "number; select by the mask alone.")
def _(logp, adv, mask):
    own = (adv.nan_to_num() * mask).sum(1, keepdim=True)
    return with_advantage(logp, own / mask.sum(1, keepdim=True).clamp(min=1), mask)


@sequence_loss.mistake("You skip every NaN, also in tokens of the response. A NaN there is an error that must stay "
                       "visible in the loss; select by the mask alone.")
def _(logp, adv, mask):
    return with_advantage(logp, torch.where(mask, adv, torch.nan).nanmean(1, keepdim=True), mask)


@sequence_loss.mistake("You multiply the padding by 0, and a row without tokens divides 0 by 0. Both can give NaN; "
                       "select the tokens, and handle the row without tokens.")
def _(logp, adv, mask):
    return with_advantage(logp, (adv * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True), mask)


@sequence_loss.mistake("A row without tokens divides 0 by 0. The loss hides this, but the gradient is NaN, because the "
                       "selection comes after the division; avoid the division by 0.")
def _(logp, adv, mask):
    return with_advantage(logp, selected(adv, mask) / mask.sum(1, keepdim=True), mask)


@sequence_loss.mistake("All responses of the batch now share one advantage; give each response its own.")
def _(logp, adv, mask):
    return with_advantage(logp, torch.where(mask, adv, 0.0).sum() / mask.sum(), mask)


@sequence_loss.mistake("Each token has its own advantage now. This is another algorithm: here all tokens of a response "
                       "share the mean of their advantages.")
def _(logp, adv, mask):
    return with_advantage(logp, torch.where(mask, adv, 0.0), mask)


@sequence_loss.mistake("The tokens of a response share the sum of their advantages, so longer responses get larger "
                       "weights; take the mean.")
def _(logp, adv, mask):
    return with_advantage(logp, selected(adv, mask), mask)


@sequence_loss.mistake("The advantages are correct now, but the weights have changed: each response counts the same "
                       "instead of each token.")
def _(logp, adv, mask):
    length = mask.sum(1, keepdim=True).clamp(min=1)
    each = torch.where(mask, -logp * selected(adv, mask) / length, 0.0)
    return (each.sum(1, keepdim=True) / length).mean()


@sequence_loss.mistake("The advantages are correct now, but you divide the loss by the size of the padded batch. Then "
                       "the gradient depends on the longest response; divide by the number of tokens.")
def _(logp, adv, mask):
    of_response = selected(adv, mask) / mask.sum(1, keepdim=True).clamp(min=1)
    return torch.where(mask, -logp * of_response, 0.0).mean()


@exercise.property
def more_padding(student):
    make = torch.Generator().manual_seed(1)
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    logp, adv = torch.randn(2, 3, 5, generator=make)
    before = float(student.sequence_loss(logp, adv, mask))
    for columns, content in ((1, 0.0), (40, 7.0)):
        wider = torch.full((3, columns), content)
        after = float(student.sequence_loss(torch.cat([logp, wider], 1), torch.cat([adv, wider], 1),
                                            torch.cat([mask, wider != wider], 1)))
        if abs(after - before) > 1e-5:
            raise Wrong(f"the loss of three responses is {before:.4g}, but {after:.4g} with {columns} more columns of "
                        "padding", "sequence_loss")


@exercise.learning
def taste(student):
    """REINFORCE++ with your loss, the task taste with a limit of 24 tokens, 100 updates: a reward of 2.5"""
    import tempfile

    from llm import reinforce_pp
    from spinup.core.masked import masked_mean

    def mine(logp, adv, mask):
        loss = student.sequence_loss(logp, adv, mask > 0)
        return loss.expand_as(logp), {"logp": masked_mean(logp.detach(), mask)}

    def whitened(x, mask):
        mean = masked_mean(x, mask)
        return (x - mean) / (masked_mean((x - mean).square(), mask).sqrt() + 1e-8)

    with (tempfile.TemporaryDirectory() as folder, patch("llm.algos.reinforce.policy_gradient", mine),
          patch("llm.algos.reinforce.whiten", whitened)):
        result = reinforce_pp("taste", max_tokens=24, sft_accuracy=0.15, log_dir=folder, quiet=True,
                              tensorboard=False)
    if result.quality < 2.5:
        raise Wrong(f"with your loss and a limit of 24 tokens the reward on held-out prompts is {result.quality:.2f} "
                    "after 100 updates; 2.5 was expected")
