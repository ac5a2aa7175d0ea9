"""Checks of 4.3: the loss as a softmax over the two answers of a pair, and the policy that it must lead to."""
import math
from unittest.mock import patch

import torch
from torch.nn.functional import logsigmoid

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3,
    hints=["The loss is that of a reward model, exercise 4.2. What takes the place of the two rewards?",
           "Each answer is compared with what the reference thinks of the same answer, before the two answers are "
           "compared with each other. beta belongs to the reward, inside the sigmoid. The reference is a constant.",
           "Reward of an answer: beta times (log-probability under the policy minus that under the reference, "
           "detached). Loss: minus the mean of the log of the sigmoid of (reward of the chosen minus reward of the "
           "rejected).",
           "margin = implicit_reward(logp_chosen, ref_chosen, beta) - implicit_reward(...); then "
           "torch.nn.functional.logsigmoid(margin), its mean, with a minus. In implicit_reward, logp_ref.detach()."])


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
    return ((logp.exp() / logp_ref.detach().exp()) ** beta).log()


implicit_reward.extreme("The log ratio or the reward is kept between bounds, which the equation does not have.",
                        logp=torch.tensor([-40.0, -1.0]), logp_ref=torch.tensor([-2.0, -39.0]), beta=0.5)


dpo_loss.extreme("Log-probabilities are clipped: those of long answers are large, and only their differences count.",
                 logp_chosen=torch.tensor([-400.0, -90.0]), logp_rejected=torch.tensor([-500.0, -30.0]),
                 ref_chosen=torch.tensor([-401.0, -88.0]), ref_rejected=torch.tensor([-499.0, -31.0]), beta=0.3)


@implicit_reward.mistake("The reference is missing: an answer that was likely before is not a good one for that.")
def _(logp, logp_ref, beta):
    return beta * logp


@implicit_reward.mistake("The ratio is upside down: an answer earns more the likelier the policy has made it, compared "
                         "with the reference.")
def _(logp, logp_ref, beta):
    return beta * (logp_ref.detach() - logp)


@implicit_reward.mistake("beta is there twice; the log ratio is multiplied by it once.")
def _(logp, logp_ref, beta):
    return beta**2 * (logp - logp_ref.detach())


@implicit_reward.mistake("You divide by beta. In the best policy R is divided by it; read backwards, the log ratio is "
                         "multiplied.")
def _(logp, logp_ref, beta):
    return (logp - logp_ref.detach()) / beta


@implicit_reward.mistake("This is beta times the ratio of the probabilities; the reward is made of its logarithm.")
def _(logp, logp_ref, beta):
    return beta * (logp - logp_ref.detach()).exp()


@implicit_reward.mistake("beta multiplies the policy's part only; it belongs to the whole log ratio.")
def _(logp, logp_ref, beta):
    return beta * logp - logp_ref.detach()


@implicit_reward.mistake("A gradient reaches the reference: it would move to where the loss is low, away from the "
                         "policy. Detach it.")
def _(logp, logp_ref, beta):
    return beta * (logp - logp_ref)


@dpo_loss.reference
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    both = torch.stack([logp_chosen - ref_chosen.detach(), logp_rejected - ref_rejected.detach()])
    return (torch.logsumexp(beta * both, 0) - beta * both[0]).mean()


def margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected):
    return (logp_chosen - ref_chosen.detach()) - (logp_rejected - ref_rejected.detach())


@dpo_loss.mistake("The reference is missing: the policy is asked to find the chosen answer the likelier of the two, "
                  "which a short one is anyway, and nothing holds it back.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * (logp_chosen - logp_rejected)).mean()


@dpo_loss.mistake("Only the chosen answer is compared with the reference; the rejected one has an implicit reward too.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * (logp_chosen - ref_chosen.detach() - logp_rejected)).mean()


@dpo_loss.mistake("The reference counts with the wrong sign: it is added, or each answer is compared with what it says "
                  "of the other one.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * margin(logp_chosen, logp_rejected, ref_rejected, ref_chosen)).mean()


@dpo_loss.mistake("Chosen and rejected are exchanged: the policy learns what people did not want.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(-beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("The minus is missing: minimising a log-likelihood makes what people said unlikely.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return logsigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("beta stands outside of the sigmoid. There it only scales the gradient; inside it says how far from "
                  "the reference a preference may lead.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -beta * logsigmoid(margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("beta is there twice: the implicit reward has it already, so the difference of two of them does too.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta**2 * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("beta is missing: the price of divergence is then 1, whatever was asked for.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("The logarithm is missing: this is minus a mean probability, not minus a log-likelihood, and it is "
                  "flat where a pair is ranked wrongly by much.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -torch.sigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).mean()


@dpo_loss.mistake("This is the loss of IPO, a squared distance from a margin of 1 / (2 beta); DPO has a "
                  "log-likelihood.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return (margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected) - 1 / (2 * beta)).square().mean()


@dpo_loss.mistake("A gradient reaches the reference: it would learn to make the loss small in place of the policy.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * ((logp_chosen - ref_chosen) - (logp_rejected - ref_rejected))).mean()


@dpo_loss.mistake("For a large margin the wrong way the sigmoid is rounded to 0: the loss is infinite, its gradient "
                  "NaN. Take log and sigmoid in one step.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -torch.log(torch.sigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected))).mean()


@dpo_loss.mistake("This is a sum over pairs: the step would grow with the batch. Take the mean.")
def _(logp_chosen, logp_rejected, ref_chosen, ref_rejected, beta):
    return -logsigmoid(beta * margin(logp_chosen, logp_rejected, ref_chosen, ref_rejected)).sum()


@exercise.property
def where_it_leads(student):
    """With preferences of Bradley and Terry for a known reward, the best policy for it is where the gradient is 0."""
    make, beta = torch.Generator().manual_seed(2), 0.3
    log_ref, reward = torch.randn(2, 4, generator=make, dtype=torch.float64)
    log_ref = log_ref.log_softmax(0)
    best = log_ref + reward / beta
    constant = student.implicit_reward(best.log_softmax(0), log_ref, beta) - reward
    if constant.max() - constant.min() > 1e-6:
        raise Wrong("the implicit reward of the best policy for a known reward differs from that reward by more than a "
                    "constant", "implicit_reward")

    def expected(logits):
        logp = logits.log_softmax(0)
        return sum(float(torch.sigmoid(reward[i] - reward[j]) * student.dpo_loss(
            logp[i:i + 1], logp[j:j + 1], log_ref[i:i + 1], log_ref[j:j + 1], beta))
            for i in range(4) for j in range(4) if i != j)

    steps = 1e-5 * torch.eye(4, dtype=torch.float64)
    steepest = max(abs(expected(best + step) - expected(best - step)) / 2e-5 for step in steps)
    if steepest > 1e-6:
        raise Wrong(f"at the best policy for a known reward the expected gradient of the loss is {steepest:.3g}; it "
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
        result = dpo("taste", start_accuracy=0.15, log_dir=folder, quiet=True, tensorboard=False)
    if result.quality < 0.8:
        raise Wrong(f"the policy that learned from your loss has a reward of {result.quality:.2f} on held-out prompts; "
                    "0.8 was expected")
