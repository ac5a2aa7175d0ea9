"""Checks of 4.2: answers token by token, and the loss as a softmax over the two answers of a pair."""
import math
from unittest.mock import patch

import torch
from torch.distributions import Categorical
from torch.nn.functional import cross_entropy, logsigmoid

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(20, 30), difficulty=2,
    hints=["The probability of an answer is a product: of each of its tokens, given all that stands before it. Which "
           "position knows the probabilities of a given token?",
           "The last position predicts a token that is not there, the first token is predicted by none. Cut both off "
           "before you compare, and cut the mask as you cut the tokens. Large margins: log and sigmoid are safe as one "
           "function, not as two.",
           "Take the logarithm of the softmax over the vocabulary of all logits but the last; of each position pick "
           "that of the token that follows; put 0 where this token is not of the answer; sum over time. The loss: the "
           "log of the sigmoid of the difference, its mean, with a minus.",
           "log_pi = logits[:, :-1].log_softmax(-1); each = log_pi.gather(-1, tokens[:, 1:, None])[..., 0]; what is "
           "left is a sum over `each` where the answer's mask, cut like the tokens, is True. The loss is made of "
           "torch.nn.functional.logsigmoid."])


def texts():
    make = torch.Generator().manual_seed(0)
    begins, ends = torch.tensor([[1], [3], [2], [4]]), torch.tensor([[4], [6], [7], [5]])
    mask = (begins <= torch.arange(7)) & (torch.arange(7) < ends)
    logits, tokens = 2 * torch.randn(4, 7, 5, generator=make), torch.randint(5, (4, 7), generator=make)
    by_hand = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]]).log()
    told = torch.cat([mask[:, 1:], torch.zeros(4, 1, dtype=torch.bool)], 1)          # whose logits an answer needs
    anything = torch.tensor([math.nan, math.inf, math.nan, -math.inf])[:, None, None]
    broken = torch.where(told[..., None], logits, anything)
    return [case(logits=by_hand, tokens=torch.tensor([[0, 1, 1]]), mask=torch.tensor([[False, True, True]])),
            case(logits=logits.clone().requires_grad_(), tokens=tokens, mask=mask),
            case(logits=50 * logits, tokens=tokens, mask=mask), case(logits=broken, tokens=tokens, mask=mask)]


def pairs():
    make = torch.Generator().manual_seed(1)

    def of(*x):
        return torch.tensor(x, requires_grad=True)

    return [case(chosen=torch.tensor([0.0, math.log(3)]), rejected=torch.zeros(2)),
            case(chosen=torch.randn(6, generator=make).requires_grad_(),
                 rejected=torch.randn(6, generator=make).requires_grad_()),
            case(chosen=of(-200.0, 300.0, 0.5), rejected=of(0.0, 0.0, 1.0)), case(chosen=of(1.0), rejected=of(3.0))]


answer_log_probs = exercise.function("answer_log_probs", texts())
bradley_terry_loss = exercise.function("bradley_terry_loss", pairs())


@answer_log_probs.reference
def _(logits, tokens, mask):
    total = []
    for b in range(len(tokens)):
        of_answer = [t for t in range(1, tokens.shape[1]) if mask[b, t]]
        total.append(sum(Categorical(logits=logits[b, t - 1]).log_prob(tokens[b, t]) for t in of_answer))
    return torch.stack(total)


def predicted(logits, tokens):
    return logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]


@answer_log_probs.mistake("Off by one: you compare the logits at a position with the token at the same position, which "
                          "the model has just read. They are those of the token after it.")
def _(logits, tokens, mask):
    return torch.where(mask, logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0], 0.0).sum(1)


@answer_log_probs.mistake("Off by one, to the other side: the logits at a position are compared with the token before "
                          "it.")
def _(logits, tokens, mask):
    each = logits[:, 1:].log_softmax(-1).gather(-1, tokens[:, :-1, None])[..., 0]
    return torch.where(mask[:, :-1], each, 0.0).sum(1)


@answer_log_probs.mistake("Logits and tokens fit, but the mask lags behind by one: the first token of the answer is "
                          "left out, and the one after its end is counted.")
def _(logits, tokens, mask):
    return torch.where(mask[:, :-1], predicted(logits, tokens), 0.0).sum(1)


@answer_log_probs.mistake("You multiply by the mask. That is the same until the logits of prompt or padding are "
                          "infinite or NaN: times 0 they are NaN. Select what counts, with torch.where.")
def _(logits, tokens, mask):
    return (predicted(logits, tokens) * mask[:, 1:]).sum(1)


@answer_log_probs.mistake("You take the log of a softmax. An unlikely token's probability is rounded to 0 there, and "
                          "the log of 0 is minus infinity; log_softmax goes to the logarithm directly.")
def _(logits, tokens, mask):
    each = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0].log()
    return torch.where(mask[:, 1:], each, 0.0).sum(1)


@answer_log_probs.mistake("The mask is not used: the tokens of the prompt and the padding are counted as if the model "
                          "had answered them.")
def _(logits, tokens, mask):
    return predicted(logits, tokens).sum(1)


@answer_log_probs.mistake("The tokens of the prompt are counted. They are given, and differ from prompt to prompt, not "
                          "from answer to answer.")
def _(logits, tokens, mask):
    before = mask.long().flip(1).cummax(1).values.flip(1)[:, 1:] > 0
    return torch.where(before, predicted(logits, tokens), 0.0).sum(1)


@answer_log_probs.mistake("The padding behind the answer is counted: how likely an answer is would depend on the "
                          "longest text of its batch.")
def _(logits, tokens, mask):
    behind = mask.long().cummax(1).values[:, 1:] > 0
    return torch.where(behind, predicted(logits, tokens), 0.0).sum(1)


@answer_log_probs.mistake("This is the mean over the tokens of an answer. Their probabilities are multiplied, so the "
                          "logarithms are summed.")
def _(logits, tokens, mask):
    return torch.where(mask[:, 1:], predicted(logits, tokens), 0.0).sum(1) / mask.sum(1)


@answer_log_probs.mistake("These are logits, not log-probabilities: they are not normalised over the vocabulary.")
def _(logits, tokens, mask):
    return torch.where(mask[:, 1:], logits[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0], 0.0).sum(1)


@answer_log_probs.mistake("You normalise over time; the probabilities of all V tokens at one position are what adds up "
                          "to 1.")
def _(logits, tokens, mask):
    each = logits[:, :-1].log_softmax(1).gather(-1, tokens[:, 1:, None])[..., 0]
    return torch.where(mask[:, 1:], each, 0.0).sum(1)


@answer_log_probs.mistake("The sign is that of a loss, such as cross-entropy; log-probabilities are never positive.")
def _(logits, tokens, mask):
    return -torch.where(mask[:, 1:], predicted(logits, tokens), 0.0).sum(1)


@answer_log_probs.mistake("All answers of the batch are added up; each has a log-probability of its own.")
def _(logits, tokens, mask):
    return torch.where(mask[:, 1:], predicted(logits, tokens), 0.0).sum()


bradley_terry_loss.extreme("Rewards are clipped: only their difference counts, however large both are.",
                           chosen=torch.tensor([300.0, -200.0]), rejected=torch.tensor([301.0, -199.0]))


@bradley_terry_loss.reference
def _(chosen, rejected):
    return cross_entropy(torch.stack([rejected, chosen], 1), torch.ones(len(chosen), dtype=torch.long))


@bradley_terry_loss.mistake("The difference is the other way round: minimising this makes the rejected answer the "
                            "better one.")
def _(chosen, rejected):
    return -logsigmoid(rejected - chosen).mean()


@bradley_terry_loss.mistake("The minus is missing: this is a log-likelihood, and who minimises it makes what people "
                            "said unlikely.")
def _(chosen, rejected):
    return logsigmoid(chosen - rejected).mean()


@bradley_terry_loss.mistake("For a large margin the wrong way the sigmoid is rounded to 0, or an exponential "
                            "overflows, and the loss is infinite, its gradient NaN. Take log and sigmoid in one step.")
def _(chosen, rejected):
    return -torch.log(torch.sigmoid(chosen - rejected)).mean()


@bradley_terry_loss.mistake("A small number inside the logarithm keeps the loss finite, but lets no gradient through "
                            "where the margin is large: nothing is learned from the worst mistakes.")
def _(chosen, rejected):
    return -torch.log(torch.sigmoid(chosen - rejected) + 1e-8).mean()


@bradley_terry_loss.mistake("This is a sum over pairs: the step would grow with the batch. Take the mean.")
def _(chosen, rejected):
    return -logsigmoid(chosen - rejected).sum()


@bradley_terry_loss.mistake("The logarithm is missing: the sigmoid alone is flat where a pair is ranked wrongly by "
                            "much, and it is not the likelihood of many preferences together.")
def _(chosen, rejected):
    return -torch.sigmoid(chosen - rejected).mean()


@bradley_terry_loss.mistake("The mean over pairs is taken before the logarithm of the sigmoid; each pair has a "
                            "probability of its own.")
def _(chosen, rejected):
    return -logsigmoid((chosen - rejected).mean())


@exercise.property
def all_answers_together(student):
    make = torch.Generator().manual_seed(2)
    after = torch.randn(4, 4, generator=make)                             # logits of the next token, given the last one
    answers = torch.cartesian_prod(*[torch.arange(4)] * 3)
    prompt, behind = torch.tensor([[2, 1]]).expand(64, -1), torch.randint(4, (64, 2), generator=make)
    tokens = torch.cat([prompt, answers, behind], 1)
    mask = torch.tensor([[False] * 2 + [True] * 3 + [False] * 2]).expand(64, -1)
    total = float(student.answer_log_probs(after[tokens], tokens, mask).exp().sum())
    if abs(total - 1) > 1e-4:
        raise Wrong(f"the probabilities of all 64 answers of three tokens add up to {total:.5g}, not to 1",
                    "answer_log_probs")


@exercise.learning
def taste(student):
    """A reward model with your loss, the task taste, 100 updates: it ranks 75% of the held-out pairs rightly"""
    import tempfile

    from llm import reward_model

    def mine(preferred, other, margin):
        return student.bradley_terry_loss(preferred, other).expand(len(preferred))

    with tempfile.TemporaryDirectory() as folder, patch("llm.algos.reward_model.bradley_terry", mine):
        result = reward_model("taste", total_steps=100, start_accuracy=0.15, log_dir=folder, quiet=True,
                              tensorboard=False)
    if result.quality < 0.75:
        raise Wrong(f"a reward model with your loss ranks {result.quality:.0%} of the held-out pairs rightly; 75% were "
                    "expected")
