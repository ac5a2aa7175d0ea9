"""Checks of 1.3: each number computed in Python, and the gradients of critics, actor and target."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(20, 30), difficulty=2,
    hints=["Networks make errors, and TD3 always prefers the more cautious estimate. It uses the lower of two critics. "
           "It adds noise to the action, so a narrow peak of the critic counts little.",
           "The action needs two clips: one for the noise alone, one for the sum. In the target, (1 - terminated) "
           "multiplies the bootstrapped value and not the reward. Optimisers minimise.",
           "action: clip the noise to noise_clip, add it to the action, clip the sum to limit. target: without "
           "gradients, the reward plus gamma times (1 - terminated) times the smaller of the two values, element by "
           "element. critics: the mean squared error of each critic, added. actor: the negative mean.",
           "(next_act + noise.clamp(..., ...)).clamp(..., ...). with torch.no_grad(): rew + gamma * (1 - terminated) * "
           "torch.minimum(..., ...). ((q1 - target)**2).mean() + ... . And -q1.mean()."])

make = torch.Generator().manual_seed(0)


def normal(*shape, scale=1.0, derive=False):
    return (scale * torch.randn(shape, generator=make)).requires_grad_(derive)


def one_by_one(rule, *columns):
    """Apply a Python function of numbers to each element of tensors of one shape `[...]`."""
    numbers = [c.detach().flatten().tolist() for c in columns]
    return torch.tensor([rule(*row) for row in zip(*numbers, strict=True)]).view(columns[0].shape)


smoothed = exercise.function("smoothed_action", [
    case(next_act=torch.tensor([[0.9], [0.9], [0.0]]), noise=torch.tensor([[-2.0], [0.3], [0.2]]), noise_clip=0.5,
         limit=1.0),
    case(next_act=normal(40, 2).clamp(-1, 1), noise=normal(40, 2), noise_clip=0.5, limit=1.0),
    case(next_act=normal(40, 1, scale=2).clamp(-2, 2), noise=normal(40, 1, scale=3), noise_clip=1.5, limit=2.0),
    case(next_act=normal(40, 3, scale=0.4).clamp(-0.4, 0.4), noise=normal(40, 3), noise_clip=0.5, limit=0.4)])


@smoothed.reference
def by_numbers(next_act, noise, noise_clip, limit):
    def rule(a, n):
        return sorted((-limit, a + sorted((-noise_clip, n, noise_clip))[1], limit))[1]
    return one_by_one(rule, next_act, noise)


smoothed.extreme("Actions or noise are clipped to other bounds too; noise_clip and limit are the only "
                 "bounds.", noise_clip=30.0, limit=60.0,
                 next_act=torch.tensor([[50.0], [-45.0]]), noise=torch.tensor([[-25.0], [-40.0]]))


@smoothed.mistake("The noise is not clipped. Sometimes it is large, and then the target uses an action far from the "
                  "action of the target actor; clip the noise to noise_clip.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise).clamp(-limit, limit)


@smoothed.mistake("The action may exceed its limits. The critic never saw such actions, so its values there are "
                  "arbitrary; clip the sum to limit.")
def _(next_act, noise, noise_clip, limit):
    return next_act + noise.clamp(-noise_clip, noise_clip)


@smoothed.mistake("You clip the noise to the limit of the actions; the noise has its own limit, noise_clip.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise.clamp(-limit, limit)).clamp(-limit, limit)


@smoothed.mistake("You clip the sum to noise_clip; noise_clip is for the noise alone, and limit is for the sum.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise).clamp(-noise_clip, noise_clip).clamp(-limit, limit)


@smoothed.mistake("You clip actions to -1 to 1; clip them to -limit to limit, because limits differ between "
                  "environments.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise.clamp(-noise_clip, noise_clip)).clamp(-1, 1)


@smoothed.mistake("You clip only the upper ends. Noise and action can also be too small; clip at both ends.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise.clamp(max=noise_clip)).clamp(max=limit)


@smoothed.mistake("The noise is missing. This is the target of DDPG, where a narrow peak of the critic counts in full.")
def _(next_act, noise, noise_clip, limit):
    return next_act.clamp(-limit, limit)


target = exercise.function("td3_target", [
    case(rew=torch.tensor([1.0, 1.0]), terminated=torch.tensor([0.0, 1.0]), next_q1=torch.tensor([4.0, 4.0]),
         next_q2=torch.tensor([2.0, 2.0]), gamma=0.5),
    case(rew=normal(8), terminated=(torch.rand(8, generator=make) < 0.4).float(), next_q1=normal(8, derive=True),
         next_q2=normal(8, derive=True), gamma=0.99),
    case(rew=normal(5), terminated=torch.zeros(5), next_q1=normal(5), next_q2=normal(5), gamma=0.9)])


@target.reference
def each_step(rew, terminated, next_q1, next_q2, gamma):
    def rule(r, over, one, other):
        return r if over else r + gamma * min(one, other)
    return one_by_one(rule, rew, terminated, next_q1, next_q2)


def bootstrapped(rew, terminated, value, gamma):
    return (rew + gamma * (1 - terminated) * value).detach()


LARGE = {"rew": torch.tensor([-2000.0, 30.0, 0.5]), "terminated": torch.tensor([0.0, 1.0, 0.0]),
         "next_q1": torch.tensor([900.0, 5.0, -4000.0]), "next_q2": torch.tensor([950.0, 5.0, -3000.0]), "gamma": 0.9}
target.extreme("Large rewards or values are clipped. Do not clip them: the target is the value of the equation, "
               "however large it is.", **LARGE)


@target.mistake("You apply gamma twice. The next state comes one step later, so discount its value once.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.minimum(next_q1, next_q2), gamma**2)


@target.mistake("You take the larger of the two values. This overestimates more than a single critic does; take the "
                "smaller one.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.maximum(next_q1, next_q2), gamma)


@target.mistake("You take the mean of the two values. The actor maximises a critic, so the mean still overestimates; "
                "take the smaller one.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, (next_q1 + next_q2) / 2, gamma)


@target.mistake("You use only the first critic. This is the target of DDPG, and the second critic has no effect; take "
                "the smaller of both values.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, next_q1, gamma)


@target.mistake("You take the smallest value of the whole batch; take the smaller of the two values separately for "
                "each step.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.cat([next_q1, next_q2]).min(), gamma)


@target.mistake("You bootstrap through terminal states. Nothing follows a termination, so the next value must not "
                "count there.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, 0 * terminated, torch.minimum(next_q1, next_q2), gamma)


@target.mistake("The mask is inverted: the next value must count where the episode continues.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, 1 - terminated, torch.minimum(next_q1, next_q2), gamma)


@target.mistake("You lose the reward of a terminal step. The mask belongs to the next value only; the reward was "
                "received.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return ((1 - terminated) * (rew + gamma * torch.minimum(next_q1, next_q2))).detach()


@target.mistake("The next value is not discounted; multiply it by gamma.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.minimum(next_q1, next_q2), 1.0)


@target.mistake("A gradient flows into the target. Then the critics can reduce their errors by moving the target; "
                "compute it without gradients.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return rew + gamma * (1 - terminated) * torch.minimum(next_q1, next_q2)


critics = exercise.function("critic_loss", [
    case(q1=torch.tensor([3.0]), q2=torch.tensor([0.0]), target=torch.tensor([2.0])),
    case(q1=normal(6, derive=True), q2=normal(6, derive=True), target=normal(6)),
    case(q1=normal(3, derive=True), q2=normal(3, derive=True), target=normal(3, scale=5))])


@critics.reference
def added_up(q1, q2, target):
    total = torch.zeros(())
    for i in range(len(target)):
        for q in (q1, q2):
            total = total + (q[i] * q[i] - 2 * q[i] * target[i] + target[i] * target[i]) / len(target)
    return total


critics.extreme("Large errors are clipped, or they count less than their square; square them without a "
                "limit.", q1=torch.tensor([0.0, 400.0]),
                q2=torch.tensor([300.0, -900.0]), target=torch.tensor([-500.0, 1.0]))


@critics.mistake("Broadcasting combined `[B, 1]` with `[B]`: each value is compared with the targets of all steps, and "
                 "you average B times B errors.")
def _(q1, q2, target):
    return ((q1[:, None] - target)**2).mean() + ((q2[:, None] - target)**2).mean()


@critics.mistake("Only the first critic learns. The second keeps its initial weights, so the minimum of the two is "
                 "useless; add the error of the second.")
def _(q1, q2, target):
    return ((q1 - target)**2).mean()


@critics.mistake("Only the smaller of the two values learns, so in each step the other critic gets no gradient. The "
                 "minimum is for the target only; add both errors.")
def _(q1, q2, target):
    return ((torch.minimum(q1, q2) - target)**2).mean()


@critics.mistake("You train the mean of the two critics. One may be too high by as much as the other is too low, and "
                 "the loss is still 0. Compute an error for each critic.")
def _(q1, q2, target):
    return (((q1 + q2) / 2 - target)**2).mean()


@critics.mistake("You average the two errors, so each critic gets half of its gradient; add them.")
def _(q1, q2, target):
    return 0.5 * (((q1 - target)**2).mean() + ((q2 - target)**2).mean())


@critics.mistake("You sum over the batch, so the gradient grows with the batch size; take the mean.")
def _(q1, q2, target):
    return ((q1 - target)**2).sum() + ((q2 - target)**2).sum()


@critics.mistake("The errors are not squared. Positive and negative errors cancel, and the gradient does not depend on "
                 "their size; square them.")
def _(q1, q2, target):
    return (q1 - target).mean() + (q2 - target).mean()


@critics.mistake("You return one number for each step; take the mean over the batch.")
def _(q1, q2, target):
    return (q1 - target)**2 + (q2 - target)**2


actor = exercise.function("actor_loss", [case(q1=torch.tensor([3.0])), case(q1=normal(6, derive=True)),
                                         case(q1=normal(4, scale=3, derive=True))])


@actor.reference
def less_is_better(q1):
    return sum((x / len(q1) for x in q1), torch.zeros(())) * -1


actor.extreme("Large values are clipped. Where a value is clipped, the actor gets no gradient; do not "
              "clip.", q1=torch.tensor([500.0, -30.0]))


@actor.mistake("The sign is wrong. An optimiser minimises the loss, so the actor would learn the worst actions; negate "
               "it.")
def _(q1):
    return q1.mean()


@actor.mistake("You sum the values of the batch; take their mean, which does not grow with the batch size.")
def _(q1):
    return -q1.sum()


@actor.mistake("No gradient reaches the actor, because the value was detached. The actor learns through the gradient "
               "of the value with respect to the action; do not detach it.")
def _(q1):
    return -q1.detach().mean()


@exercise.learning
def pendulum(student):
    """TD3 with your functions and networks of 64 x 64, Pendulum-v1, 12,000 steps: a return of -400 at the end"""
    import tempfile

    from spinup import td3

    def target(ret, discount, terminated, next_value):
        return student.td3_target(ret, terminated, *next_value, discount)

    def error(q, y):
        return student.critic_loss(*q, y).view(1, 1)

    def smoothed(act, noise, clip):
        return student.smoothed_action(act, noise, clip, 1.0)

    def climb(q):
        return student.actor_loss(q[0])

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.td3.smoothed_action", smoothed), \
            patch("spinup.algos.td3.clipped_double_q", lambda q: q), patch("spinup.algos.td3.td_target", target), \
            patch("spinup.algos.td3.squared_error", error), \
            patch("spinup.algos.td3.deterministic_policy_loss", climb):
        result = td3("Pendulum-v1", total_steps=12_000, hidden=(64, 64), threads=1, log_dir=folder, quiet=True,
                     tensorboard=False)
    found = sum(result.returns[-10:]) / 10
    if found < -400:
        raise Wrong(f"TD3 with your functions has a mean return of {found:.0f} over the last 10 episodes of 12,000 "
                    "steps; -400 was expected")
