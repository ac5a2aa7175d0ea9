"""Checks of 3.8: cross-entropy, each number computed in Python, the scale of rewards, and a tiny dataset."""
import math
from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["No reward corrects the values of actions that the dataset does not contain. CQL makes these values lower. "
           "TD3+BC makes the actor avoid such actions.",
           "The first term of the penalty is over all n actions of a row, and the second selects one of them. In the "
           "loss of TD3+BC, look at the signs (optimisers minimise), at what each mean is over, and at what must be "
           "constant.",
           "penalty: the logsumexp of each row, minus the value of the action of the dataset. loss: alpha divided by "
           "the mean of the absolute values, detached, is the weight; then the mean over the batch of the squared "
           "distance, averaged over dimensions, minus the weight times the value.",
           "q.gather(1, act[:, None]) is `[B, 1]`, and .squeeze(1) makes it `[B]`; q.logsumexp(1) is the other term. "
           "weight = alpha / q.detach().abs().mean(). (act - data_act).square().mean(1) is the distance; combine it "
           "with weight * q and take the mean."])
make = torch.Generator().manual_seed(0)


def normal(*shape, scale=1.0, derive=False):
    return (scale * torch.randn(shape, generator=make)).requires_grad_(derive)


def actions(n, size):
    return torch.randint(0, n, (size,), generator=make)


penalty = exercise.function("conservative_penalty", [
    case(q=torch.tensor([[0.0, 0.0, 0.0], [0.0, math.log(2.0), 0.0]]), act=torch.tensor([0, 1])),
    case(q=normal(6, 4, scale=2, derive=True), act=actions(4, 6)),
    case(q=normal(3, 3, scale=2), act=torch.tensor([2, 0, 1])),
    case(q=normal(5, 1), act=torch.zeros(5, dtype=torch.long))])


@penalty.reference
def imitation(q, act):
    return cross_entropy(q, act, reduction="none")


penalty.extreme("Far from 0 the result is wrong: there exp overflows or rounds to 0, and a clip or a small constant "
                "changes the result. Use logsumexp, which first subtracts the largest value of each row, on the values "
                "as they are.", q=torch.tensor([[900.0, 500.0], [-900.0, -901.0]]), act=torch.tensor([1, 0]))


def chosen(q, act):
    return q.gather(1, act[:, None]).squeeze(1)


@penalty.mistake("You subtract the value of the dataset's action from the largest value. Then only one value falls; "
                 "the logarithm of the sum lowers all values.")
def _(q, act):
    return q.amax(1) - chosen(q, act)


@penalty.mistake("The logarithm is missing: the sum of exponentials grows much faster than the values.")
def _(q, act):
    return q.exp().sum(1) - chosen(q, act)


@penalty.mistake("You take the mean of the exponentials, not their sum. This subtracts log n, which has no gradient, "
                 "but the equation has the sum.")
def _(q, act):
    return q.logsumexp(1) - math.log(q.shape[1]) - chosen(q, act)


@penalty.mistake("The second term is missing. Then all values fall without limit, those of the dataset's actions too.")
def _(q, act):
    return q.logsumexp(1)


@penalty.mistake("The sign is wrong: this raises the values of actions that the dataset does not contain.")
def _(q, act):
    return chosen(q, act) - q.logsumexp(1)


@penalty.mistake("This is the mean over the batch. Return one penalty for each transition, `[B]`.")
def _(q, act):
    return cross_entropy(q, act)


@penalty.mistake("You add the dataset's value. The penalty must raise this value when it is minimised, so subtract it.")
def _(q, act):
    return q.logsumexp(1) + chosen(q, act)


@penalty.mistake("You subtract the mean of the values. This is an average over actions; the second term is the value "
                 "of the dataset's action.")
def _(q, act):
    return q.logsumexp(1) - q.mean(1)


@penalty.mistake("The value of the dataset's action gets no gradient. The penalty must raise it; do not detach it.")
def _(q, act):
    return q.logsumexp(1) - chosen(q, act).detach()


@penalty.mistake("q[act] uses the actions as row numbers, so it takes whole rows. Take from each "
                 "row the value of its action.")
def _(q, act):
    return q.logsumexp(1) - q[act]


@penalty.mistake("The sum runs over the batch, axis 0. It must run over the actions, axis 1.")
def _(q, act):
    return q.logsumexp(0) - chosen(q, act)


@penalty.mistake("The first term gets no gradient, so no value is lowered; do not detach it.")
def _(q, act):
    return q.logsumexp(1).detach() - chosen(q, act)


@penalty.mistake("The first term is the mean of the values under the softmax. The equation has the logarithm of the "
                 "sum of their exponentials.")
def _(q, act):
    return (q.softmax(1) * q).sum(1) - chosen(q, act)


@penalty.mistake("q[:, act] takes the actions of all rows in each row, `[B, B]`. Take one value per row.")
def _(q, act):
    return q.logsumexp(1) - q[:, act]


def loss_cases():
    found = [case(q=torch.tensor([2.0, -1.0]), act=torch.tensor([[3.0, 1.0], [0.0, 0.0]]), data_act=torch.zeros(2, 2),
                  alpha=3.0)]
    for b, k, alpha, scale in ((8, 3, 2.5, 10.0), (6, 2, 0.4, 0.1), (5, 4, 1.0, 3.0), (6, 2, 0.4, 0.001)):
        found.append(case(q=normal(b, scale=scale, derive=True), act=normal(b, k, derive=True), data_act=normal(b, k),
                          alpha=alpha))
    return found


loss = exercise.function("td3_bc_loss", loss_cases())


@loss.reference
def one_by_one(q, act, data_act, alpha):
    size = sum(abs(x) for x in q.tolist()) / len(q)
    total = torch.zeros(())
    for value, mine, theirs in zip(q, act, data_act, strict=True):
        distance = sum((a - b)**2 for a, b in zip(mine, theirs, strict=True)) / len(mine)
        total = total + distance - alpha / size * value
    return total / len(q)


loss.extreme("Large values or distances are clipped. Do not clip them: the loss is that of the equation, however large "
             "they are.", q=torch.tensor([4000.0, -9000.0]), act=torch.tensor([[50.0], [-1.0]]),
             data_act=torch.tensor([[-70.0], [1.0]]), alpha=2.5)


def combined(q, distance, alpha, size):
    return (distance - alpha / size * q).mean()


def squared(act, data_act):
    return (act - data_act).square().mean(1)


@loss.mistake("lambda is not constant: its gradient cancels the gradient of the values nearly completely. Detach the "
              "values in it.")
def _(q, act, data_act, alpha):
    return combined(q, squared(act, data_act), alpha, q.abs().mean())


@loss.mistake("The values have no weight lambda; then alpha has another meaning for each scale of the rewards.")
def _(q, act, data_act, alpha):
    return combined(q, squared(act, data_act), alpha, 1.0)


@loss.mistake("The values get no gradient. Then the actor only imitates; detach the values in lambda, and nowhere "
              "else.")
def _(q, act, data_act, alpha):
    return combined(q.detach(), squared(act, data_act), alpha, q.detach().abs().mean())


def wrong(message):
    """Register a mistake twice: with lambda as a constant, and with its gradient, which is often wrong as well."""
    def register(function):
        @loss.mistake(message)
        def _(q, act, data_act, alpha):
            return function(q, act, data_act, alpha, q.detach())

        @loss.mistake(message + " And lambda must be a constant: detach the values in it.")
        def _(q, act, data_act, alpha):
            return function(q, act, data_act, alpha, q)
    return register


# `c`: the values in lambda.

@wrong("You divide by the absolute value of the mean. Positive and negative values cancel in it; take the mean of the "
       "absolute values.")
def _(q, act, data_act, alpha, c):
    return combined(q, squared(act, data_act), alpha, c.mean().abs())


@wrong("You divide by the mean of the values, which can be negative or near 0. Take absolute values first.")
def _(q, act, data_act, alpha, c):
    return combined(q, squared(act, data_act), alpha, c.mean())


@wrong("Each value has its own lambda. Then all values have the same size, and only their signs count; divide by the "
       "mean over the batch.")
def _(q, act, data_act, alpha, c):
    return combined(q, squared(act, data_act), alpha, c.abs())


@wrong("You divide by the sum of the absolute values. Then lambda depends on the size of the batch; divide by their "
       "mean.")
def _(q, act, data_act, alpha, c):
    return combined(q, squared(act, data_act), alpha, c.abs().sum())


@wrong("alpha multiplies the distance. It is the weight of the values, through lambda.")
def _(q, act, data_act, alpha, c):
    return (alpha * squared(act, data_act) - q / c.abs().mean()).mean()


@wrong("alpha is missing from lambda.")
def _(q, act, data_act, alpha, c):
    return combined(q, squared(act, data_act), 1.0, c.abs().mean())


@wrong("The sign of the values is wrong: this actor would prefer the actions with the lowest values.")
def _(q, act, data_act, alpha, c):
    return combined(-q, squared(act, data_act), alpha, c.abs().mean())


@wrong("The sign of the distance is wrong: this actor would move away from the actions of the dataset. "
       "The loss must rise with the distance.")
def _(q, act, data_act, alpha, c):
    return combined(q, -squared(act, data_act), alpha, c.abs().mean())


@wrong("The sign of the whole loss is wrong. Optimisers minimise: values have a minus, the distance a plus.")
def _(q, act, data_act, alpha, c):
    return -combined(q, squared(act, data_act), alpha, c.abs().mean())


@wrong("You sum the squared distance over dimensions. Then its weight grows with the number of dimensions; take the "
       "mean.")
def _(q, act, data_act, alpha, c):
    return combined(q, (act - data_act).square().sum(1), alpha, c.abs().mean())


@wrong("You use the absolute distance; the equation has its square.")
def _(q, act, data_act, alpha, c):
    return combined(q, (act - data_act).abs().mean(1), alpha, c.abs().mean())


@wrong("The distance from the actions of the dataset is missing. This is the actor of TD3, which selects actions with "
       "values that are too high.")
def _(q, act, data_act, alpha, c):
    return combined(q, 0.0, alpha, c.abs().mean())


@wrong("You sum over the batch; take the mean.")
def _(q, act, data_act, alpha, c):
    return (squared(act, data_act) - alpha / c.abs().mean() * q).sum()


@wrong("You return one loss for each row; take the mean over the batch.")
def _(q, act, data_act, alpha, c):
    return squared(act, data_act) - alpha / c.abs().mean() * q


@exercise.property
def scale_of_the_rewards(student):
    """Raise Wrong if the loss changes with the scale of the values."""
    q, act, data = normal(6), normal(6, 2), normal(6, 2)
    one, hundred = (float(student.td3_bc_loss(q * scale, act, data, 2.5)) for scale in (1, 100))
    if abs(one - hundred) > 1e-3:
        raise Wrong(f"with values 100 times as large the loss is {hundred:.4g} in place of {one:.4g}; it must not "
                    "depend on their scale", "td3_bc_loss")


@exercise.probe
def unseen_action(student):
    """A dataset with two of three actions: CQL must not choose the third, whose value is too high at first"""
    torch.manual_seed(0)
    act, rew = torch.tensor([0, 1] * 32), torch.tensor([1.0, 0.0] * 32)
    q = torch.tensor([[0.0, 0.0, 20.0]], requires_grad=True)              # of the only state
    optimizer = torch.optim.SGD([q], lr=0.1)
    for _ in range(500):
        target = rew + 0.9 * q.detach().max()
        td = (q[0, act] - target).square() / 2
        optimizer.zero_grad()
        (td + student.conservative_penalty(q.expand(64, 3), act)).mean().backward()
        optimizer.step()
    if int(q.argmax()) == 2:
        raise Wrong(f"after 500 gradient steps the values are {[round(x, 2) for x in q[0].tolist()]}: the policy still "
                    "chooses the action that the dataset does not contain", "conservative_penalty")


@exercise.learning
def cartpole(student):
    """CQL with your penalty, 10,000 recorded steps of CartPole, at least half random: a return of 450"""
    import tempfile
    from pathlib import Path

    from spinup import cql
    from spinup.view.record import record

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.cql.conservative_penalty",
                                                        student.conservative_penalty):
        file = Path(folder, "cartpole.npz")
        record(["shelf/ppo-CartPole-v1"], file, steps=5000, noise=[0.5, 1.0], stochastic=False, seed=1)
        result = cql(data=str(file), total_steps=3000, hidden=(64, 64), lr=1e-3, batch_size=128, seed=1,
                     log_dir=folder, quiet=True, tensorboard=False)
    found = result.progress["test_return"][-1]
    if found < 450:
        raise Wrong(f"CQL with your penalty has a return of {found:.0f} after 3,000 gradient steps; 450 was expected")
