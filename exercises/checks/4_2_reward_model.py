"""Checks of 4.2: responses token by token, and the loss as a softmax over the two responses of a pair."""
import math
from unittest.mock import patch

import torch
from torch.distributions import Categorical
from torch.nn.functional import cross_entropy, logsigmoid

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(20, 30), difficulty=2,
    hints=["The probability of a response is a product of the probabilities of its tokens, each given all tokens "
           "before it. Which position predicts a given token?",
           "The last position predicts a token that does not exist, and no position predicts the first token. Cut both "
           "off before you compare, and cut the mask like the tokens. For large margins, use log and sigmoid as one "
           "function, not as two.",
           "Take the log softmax over the vocabulary of all logits except the last. At each position, pick the value "
           "of the next token. Write 0 where the next token is not in the response, and sum over time. The loss is "
           "minus the mean log sigmoid of the difference.",
           "log_pi = logits[:, :-1].log_softmax(-1); each = log_pi.gather(-1, tokens[:, 1:, None])[..., 0]. Then sum "
           "`each` where the mask, cut like the tokens, is True. The loss uses torch.nn.functional.logsigmoid."])


def texts():
    make = torch.Generator().manual_seed(0)
    begins, ends = torch.tensor([[1], [3], [2], [4]]), torch.tensor([[4], [6], [7], [5]])
    mask = (begins <= torch.arange(7)) & (torch.arange(7) < ends)
    logits, tokens = 2 * torch.randn(4, 7, 5, generator=make), torch.randint(5, (4, 7), generator=make)
    by_hand = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]]).log()
    told = torch.cat([mask[:, 1:], torch.zeros(4, 1, dtype=torch.bool)], 1)    # positions whose logits count
    anything = torch.tensor([math.nan, math.inf, math.nan, -math.inf])[:, None, None]
    broken = torch.where(told[..., None], logits, anything)
    holes = mask & torch.tensor([True, True, True, False, True, True, True])   # a tool wrote the token between
    return [case(logits=by_hand, tokens=torch.tensor([[0, 1, 1]]), mask=torch.tensor([[False, True, True]])),
            case(logits=logits.clone().requires_grad_(), tokens=tokens, mask=mask),
            case(logits=50 * logits, tokens=tokens, mask=mask), case(logits=broken, tokens=tokens, mask=mask),
            case(logits=logits, tokens=tokens, mask=holes)]


def pairs():
    make = torch.Generator().manual_seed(1)

    def of(*x):
        return torch.tensor(x, requires_grad=True)

    return [case(chosen=torch.tensor([0.0, math.log(3)]), rejected=torch.zeros(2)),
            case(chosen=torch.randn(6, generator=make).requires_grad_(),
                 rejected=torch.randn(6, generator=make).requires_grad_()),
            case(chosen=of(-200.0, 300.0, 0.5), rejected=of(0.0, 0.0, 1.0)), case(chosen=of(1.0), rejected=of(3.0))]


response_log_probs = exercise.function("response_log_probs", texts())
bradley_terry_loss = exercise.function("bradley_terry_loss", pairs())


@response_log_probs.reference
def _(logits, tokens, mask):
    total = []
    for b in range(len(tokens)):
        of_response = [t for t in range(1, tokens.shape[1]) if mask[b, t]]
        total.append(sum(Categorical(logits=logits[b, t - 1]).log_prob(tokens[b, t]) for t in of_response))
    return torch.stack(total)


def predicted(logits, tokens):
    return logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]


@response_log_probs.mistake("Off by one: you compare the logits at a position with the token at the same position, "
                            "which the model has just read. They predict the next token.")
def _(logits, tokens, mask):
    return torch.where(mask, logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0], 0.0).sum(1)


@response_log_probs.mistake("Off by one in the other direction: you compare the logits at a position with the token "
                            "before it. They predict the next token.")
def _(logits, tokens, mask):
    each = logits[:, 1:].log_softmax(-1).gather(-1, tokens[:, :-1, None])[..., 0]
    return torch.where(mask[:, :-1], each, 0.0).sum(1)


@response_log_probs.mistake("The mask is cut correctly, but logits and tokens are shifted the wrong way: you compare "
                            "the logits at a position with the token before it. The logits predict the next token.")
def _(logits, tokens, mask):
    each = logits[:, 1:].log_softmax(-1).gather(-1, tokens[:, :-1, None])[..., 0]
    return torch.where(mask[:, 1:], each, 0.0).sum(1)


@response_log_probs.mistake("Logits and tokens match, but the mask is shifted by one. It omits the first token of the "
                            "response and counts the token after its end; cut the mask like the tokens.")
def _(logits, tokens, mask):
    return torch.where(mask[:, :-1], predicted(logits, tokens), 0.0).sum(1)


@response_log_probs.mistake("You multiply by the mask. This fails if the logits of prompt or padding are infinite or "
                            "NaN, because 0 times either is NaN; select with torch.where.")
def _(logits, tokens, mask):
    return (predicted(logits, tokens) * mask[:, 1:]).sum(1)


@response_log_probs.mistake("You take the log of a softmax. The probability of an unlikely token is rounded to 0, and "
                            "the log of 0 is minus infinity; use log_softmax.")
def _(logits, tokens, mask):
    each = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0].log()
    return torch.where(mask[:, 1:], each, 0.0).sum(1)


@response_log_probs.mistake("The mask is not used, so the tokens of the prompt and the padding count as part of the "
                            "response; select the tokens of the response.")
def _(logits, tokens, mask):
    return predicted(logits, tokens).sum(1)


@response_log_probs.mistake("The tokens of the prompt are counted. The prompt is given, and it does not differ between "
                            "its responses; count only tokens of the response.")
def _(logits, tokens, mask):
    before = mask.long().flip(1).cummax(1).values.flip(1)[:, 1:] > 0
    return torch.where(before, predicted(logits, tokens), 0.0).sum(1)


@response_log_probs.mistake("The padding after the response is counted, so the result depends on the longest text of "
                            "the batch; count only tokens of the response.")
def _(logits, tokens, mask):
    behind = mask.long().cummax(1).values[:, 1:] > 0
    return torch.where(behind, predicted(logits, tokens), 0.0).sum(1)


@response_log_probs.mistake("You count every token between the first and the last token of the response. A tool may "
                            "have written a token between them; count the tokens where the mask is True.")
def _(logits, tokens, mask):
    begun, left = mask.long().cummax(1).values, mask.long().flip(1).cummax(1).values.flip(1)
    return torch.where((begun * left)[:, 1:] > 0, predicted(logits, tokens), 0.0).sum(1)


@response_log_probs.mistake("This is the mean over the tokens of a response. Their probabilities are multiplied, so "
                            "sum the logarithms.")
def _(logits, tokens, mask):
    return torch.where(mask[:, 1:], predicted(logits, tokens), 0.0).sum(1) / mask.sum(1)


@response_log_probs.mistake("These are logits, not log-probabilities: normalise them over the vocabulary.")
def _(logits, tokens, mask):
    return torch.where(mask[:, 1:], logits[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0], 0.0).sum(1)


@response_log_probs.mistake("You normalise over time; normalise over the vocabulary, because the probabilities of all "
                            "V tokens at one position sum to 1.")
def _(logits, tokens, mask):
    each = logits[:, :-1].log_softmax(1).gather(-1, tokens[:, 1:, None])[..., 0]
    return torch.where(mask[:, 1:], each, 0.0).sum(1)


@response_log_probs.mistake("The sign is wrong: log-probabilities are never positive. You have the sign of a loss such "
                            "as cross-entropy.")
def _(logits, tokens, mask):
    return -torch.where(mask[:, 1:], predicted(logits, tokens), 0.0).sum(1)


@response_log_probs.mistake("You sum over all responses of the batch; return one log-probability for each response.")
def _(logits, tokens, mask):
    return torch.where(mask[:, 1:], predicted(logits, tokens), 0.0).sum()


bradley_terry_loss.extreme("Rewards are clipped. Only their difference matters, however large both are; do not clip "
                           "them.",
                           chosen=torch.tensor([300.0, -200.0]), rejected=torch.tensor([301.0, -199.0]))


@bradley_terry_loss.reference
def _(chosen, rejected):
    return cross_entropy(torch.stack([rejected, chosen], 1), torch.ones(len(chosen), dtype=torch.long))


@bradley_terry_loss.mistake("The difference has the wrong sign: minimising this loss makes the rejected response "
                            "better.")
def _(chosen, rejected):
    return -logsigmoid(rejected - chosen).mean()


@bradley_terry_loss.mistake("The minus is missing. This is a log-likelihood, so minimising it makes the observed "
                            "preferences unlikely; negate it.")
def _(chosen, rejected):
    return logsigmoid(chosen - rejected).mean()


@bradley_terry_loss.mistake("For a pair ranked wrongly by a large margin, the sigmoid is rounded to 0 or an "
                            "exponential overflows. Then the loss is infinite and its gradient is NaN; compute log and "
                            "sigmoid in one function.")
def _(chosen, rejected):
    return -torch.log(torch.sigmoid(chosen - rejected)).mean()


@bradley_terry_loss.mistake("A small constant inside the logarithm keeps the loss finite, but the gradient vanishes "
                            "where the margin is large, so the worst mistakes teach nothing; compute log and sigmoid "
                            "in one function.")
def _(chosen, rejected):
    return -torch.log(torch.sigmoid(chosen - rejected) + 1e-8).mean()


@bradley_terry_loss.mistake("This is a sum over pairs, so the gradient grows with the batch size; take the mean.")
def _(chosen, rejected):
    return -logsigmoid(chosen - rejected).sum()


@bradley_terry_loss.mistake("The logarithm is missing. The sigmoid alone is flat where a pair is ranked wrongly by a "
                            "large margin, and its mean is not the log-likelihood of the preferences; take the "
                            "logarithm.")
def _(chosen, rejected):
    return -torch.sigmoid(chosen - rejected).mean()


@bradley_terry_loss.mistake("You average over pairs before the log sigmoid. Each pair has its own probability; apply "
                            "the log sigmoid first, then average.")
def _(chosen, rejected):
    return -logsigmoid((chosen - rejected).mean())


@exercise.property
def all_responses_together(student):
    make = torch.Generator().manual_seed(2)
    after = torch.randn(4, 4, generator=make)                             # logits of the next token, given the last one
    responses = torch.cartesian_prod(*[torch.arange(4)] * 3)
    prompt, behind = torch.tensor([[2, 1]]).expand(64, -1), torch.randint(4, (64, 2), generator=make)
    tokens = torch.cat([prompt, responses, behind], 1)
    mask = torch.tensor([[False] * 2 + [True] * 3 + [False] * 2]).expand(64, -1)
    total = float(student.response_log_probs(after[tokens], tokens, mask).exp().sum())
    if abs(total - 1) > 1e-4:
        raise Wrong(f"the probabilities of all 64 responses of three tokens sum to {total:.5g}, not to 1",
                    "response_log_probs")


@exercise.learning
def taste(student):
    """A reward model with your loss, the task taste, 100 updates: it ranks 75% of the held-out pairs correctly"""
    import tempfile

    from llm import reward_model

    def mine(preferred, other, margin):
        return student.bradley_terry_loss(preferred, other).expand(len(preferred))

    with tempfile.TemporaryDirectory() as folder, patch("llm.algos.reward_model.bradley_terry", mine):
        result = reward_model("taste", total_steps=100, sft_accuracy=0.15, log_dir=folder, quiet=True,
                              tensorboard=False)
    if result.quality < 0.75:
        raise Wrong(f"a reward model with your loss ranks {result.quality:.0%} of the held-out pairs correctly; 75% "
                    "were expected")
