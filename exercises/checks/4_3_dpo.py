"""Checks of 4.3: the loss as a softmax over the two responses of a pair, and the optimal policy as its minimum."""
import math
from unittest.mock import patch

import torch
from torch.nn.functional import logsigmoid

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3,
    hints=["The loss is the loss of a reward model, exercise 4.2. What replaces the two rewards?",
           "First compare each response with the reference policy's probability of the same response. Then compare the "
           "two responses with each other. beta belongs to the reward, inside the sigmoid. The reference policy is a "
           "constant.",
           "Reward of a response: beta times (its log-probability under the policy minus that under the reference "
           "policy, detached). Loss: minus the mean log sigmoid of (reward of the chosen minus reward of the "
           "rejected).",
           "margin = implicit_reward(logp_chosen, ref_chosen, beta) - implicit_reward(...). Then take "
           "torch.nn.functional.logsigmoid(margin), its mean, and negate it. In implicit_reward, use "
           "logp_ref.detach()."])


def rewards():
    make = torch.Generator().manual_seed(0)

    def logs(*shape):
        return (-4 * torch.rand(shape, generator=make) - 0.1).requires_grad_()

    return [case(logp=torch.tensor([math.log(0.5)]), logp_ref=torch.tensor([math.log(0.25)]), beta=2.0),
            case(logp=logs(5), logp_ref=logs(5), beta=0.1), case(logp=logs(3), logp_ref=logs(3), beta=1.0)]


def pairs():
    make = torch.Generator().manual_seed(1)
    names = ("logp_chosen", "logp_rejected", "ref_chosen", "ref_rejected")

    def logs(n, scale):
        return {name: (-scale * torch.rand(n, generator=make)).requires_grad_() for name in names}

    half, quarter = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    far = [torch.tensor(x, requires_grad=True) for x in ([-500.0, -3.0], [-20.0, -4.0], [-20.0, -5.0], [-30.0, -2.0])]
    return [case(**dict(zip(names, (half, quarter, quarter, half), strict=True)), beta=0.5),
            case(**logs(6, 20.0), beta=0.1), case(**logs(4, 5.0), beta=2.0), case(**logs(1, 10.0), beta=0.3),
            case(**dict(zip(names, far, strict=True)), beta=1.0)]


implicit_reward = exercise.function("implicit_reward", rewards())
dpo_loss = exercise.function("dpo_loss", pairs())


@implicit_reward.reference
def _(logp, logp_ref, beta):
    return ((logp.double().exp() / logp_ref.detach().double().exp()) ** beta).log().float()


implicit_reward.extreme("You clip the log ratio or the reward; the equation has no bounds.",
                        logp=torch.tensor([-40.0, -1.0]), logp_ref=torch.tensor([-2.0, -39.0]), beta=0.5)
implicit_reward.extreme("exp of a whole response's log-probability rounds to 0, and the quotient is NaN. Subtract the "
                        "log-probabilities.",
                        logp=torch.tensor([-400.0, -90.0]), logp_ref=torch.tensor([-401.0, -88.0]), beta=0.5)


dpo_loss.extreme("Log-probabilities are clipped. They are large for long responses, and only their differences matter; "
                 "do not clip them.",
                 logp_chosen=torch.tensor([-400.0, -90.0]), logp_rejected=torch.tensor([-500.0, -30.0]),
                 ref_chosen=torch.tensor([-401.0, -88.0]), ref_rejected=torch.tensor([-499.0, -31.0]), beta=0.3)


@implicit_reward.mistake("The reference policy is missing. A response is not good just because it was likely from the "
                         "start; subtract logp_ref.")
def _(logp, logp_ref, beta):
    return beta * logp


@implicit_reward.mistake("The ratio is inverted: the reward must rise when the policy makes a response more likely "
                         "than the reference policy does.")
def _(logp, logp_ref, beta):
    return beta * (logp_ref.detach() - logp)


@implicit_reward.mistake("beta is missing: this is the log ratio, and the reward is beta times this ratio; use the "
                         "given beta.")
def _(logp, logp_ref, beta):
    return logp - logp_ref.detach()


@implicit_reward.mistake("You multiply by beta twice; multiply the log ratio by beta once.")
def _(logp, logp_ref, beta):
    return beta**2 * (logp - logp_ref.detach())


@implicit_reward.mistake("You divide by beta. The best policy divides R by beta, so solving for R multiplies the log "
                         "ratio by beta.")
def _(logp, logp_ref, beta):
    return (logp - logp_ref.detach()) / beta


@implicit_reward.mistake("This is beta times the ratio of the probabilities; use the logarithm of the ratio.")
def _(logp, logp_ref, beta):
    return beta * (logp - logp_ref.detach()).exp()


@implicit_reward.mistake("beta multiplies only the policy's term; multiply the whole log ratio by beta.")
def _(logp, logp_ref, beta):
    return beta * logp - logp_ref.detach()


@implicit_reward.mistake("A gradient reaches the reference policy, which would then change to reduce the loss; detach "
                         "logp_ref.")
def _(logp, logp_ref, beta):
    return beta * (logp - logp_ref)


@dpo_loss.reference
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    both = torch.stack([logp_chosen - ref_chosen.detach(), logp_rejected - ref_rejected.detach()])
    return (torch.logsumexp(beta * both, 0) - beta * both[0]).mean()


def margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected):
    return (logp_chosen - ref_chosen.detach()) - (logp_rejected - ref_rejected.detach())


@dpo_loss.mistake("The reference policy is missing. Then the loss only makes the chosen response more likely than the "
                  "rejected one. A short response is more likely anyway, and nothing limits how far the policy moves.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * (logp_chosen - logp_rejected)).mean()


@dpo_loss.mistake("Only the chosen response is compared with the reference policy; the rejected response also has an "
                  "implicit reward.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * (logp_chosen - ref_chosen.detach() - logp_rejected)).mean()


@dpo_loss.mistake("The reference policy has the wrong sign: you add it, or you compare each response with its "
                  "probability of the other response. Subtract it for the same response.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * margin(logp_chosen, logp_rejected, ref_rejected, ref_chosen)).mean()


@dpo_loss.mistake("Chosen and rejected are exchanged: the policy learns the rejected responses.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(-beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("The minus is missing: minimising a log-likelihood makes the observed preferences unlikely; negate "
                  "it.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return logsigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("beta is outside the sigmoid, where it only scales the gradient. Inside, it determines how far a "
                  "preference may move the policy from the reference policy.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -beta * logsigmoid(margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("You multiply by beta twice: the implicit reward already contains it, so the difference of two "
                  "implicit rewards does too.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta**2 * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("beta is missing: the KL coefficient is then always 1; use the given one.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("The logarithm is missing: this is minus a mean probability, not minus a log-likelihood. It is flat "
                  "where a pair is ranked wrongly by a large margin; take the logarithm.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -torch.sigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("This is the loss of IPO, a squared distance from a margin of 1 / (2 beta); DPO uses a "
                  "log-likelihood.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return (margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected) - 1 / (2 * beta)).square().mean()


@dpo_loss.mistake("A gradient reaches the reference policy. It would then reduce the loss in place of the policy; "
                  "detach its log-probabilities.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * ((logp_chosen - ref_chosen) - (logp_rejected - ref_rejected))).mean()


@dpo_loss.mistake("For a pair ranked wrongly by a large margin, the sigmoid is rounded to 0. Then the loss is infinite "
                  "and its gradient is NaN; compute log and sigmoid in one function.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -torch.log(torch.sigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected))).mean()


@dpo_loss.mistake("There are two mistakes. beta is missing. And for a pair ranked wrongly by a large margin, the "
                  "sigmoid is rounded to 0; compute log and sigmoid in one function.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -torch.log(torch.sigmoid(margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected))).mean()


@dpo_loss.mistake("A small constant inside the logarithm keeps the loss finite, but the gradient vanishes for a pair "
                  "ranked wrongly by a large margin. So the policy learns nothing from the worst errors; compute log "
                  "and sigmoid in one function.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    each = torch.sigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected))
    return -torch.log(each + 1e-8).mean()


@dpo_loss.mistake("This is a sum over pairs, so the gradient grows with the batch size; take the mean.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).sum()


@exercise.property
def where_it_leads(student):
    """Raise Wrong unless the gradient is 0 at the optimal policy for a known reward, where preferences follow Bradley
    and Terry for this reward."""
    make, beta = torch.Generator().manual_seed(2), 0.3
    log_ref, reward = torch.randn(2, 4, generator=make, dtype=torch.float64)
    log_ref = log_ref.log_softmax(0)
    best = log_ref + reward / beta
    constant = student.implicit_reward(best.log_softmax(0), log_ref, beta) - reward
    if constant.max() - constant.min() > 1e-6:
        raise Wrong("the implicit reward of the optimal policy for a known reward differs from that reward by more "
                    "than a constant", "implicit_reward")

    def expected(logits):
        logp = logits.log_softmax(0)
        return sum(float(torch.sigmoid(reward[i] - reward[j]) * student.dpo_loss(
            logp[i:i + 1], logp[j:j + 1], log_ref[i:i + 1], log_ref[j:j + 1], beta))
            for i in range(4) for j in range(4) if i != j)

    steps = 1e-5 * torch.eye(4, dtype=torch.float64)
    steepest = max(abs(expected(best + step) - expected(best - step)) / 2e-5 for step in steps)
    if steepest > 1e-6:
        raise Wrong(f"at the optimal policy for a known reward the expected gradient of the loss is {steepest:.3g}; it "
                    "should be 0", "dpo_loss")


@exercise.learning
def taste(student):
    """DPO with your loss, the task taste, 100 updates: a reward of 0.8 on held-out prompts, from -0.2"""
    import tempfile

    from llm import dpo

    def mine(kind, log_ratio, logp, lengths, divergence, baseline, cfg):
        reference = (logp - log_ratio).detach()
        return student.dpo_loss(*logp.unbind(1), *reference.unbind(1), cfg.beta).expand(len(logp))

    with tempfile.TemporaryDirectory() as folder, patch("llm.algos.dpo.preference_loss", mine):
        result = dpo("taste", sft_accuracy=0.15, log_dir=folder, quiet=True, tensorboard=False)
    if result.quality < 0.8:
        raise Wrong(f"the policy trained with your loss has a reward of {result.quality:.2f} on held-out prompts; 0.8 "
                    "was expected")
