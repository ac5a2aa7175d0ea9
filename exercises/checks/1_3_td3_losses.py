"""Checks of 1.3: one number after the other in Python; gradients of critics, actor and target."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(20, 30), difficulty=2,
    hints=["Of everything that comes from a network and is then believed, TD3 believes the less promising: of two "
           "critics the lower one, of a peak what is left beside it.",
           "Two clips in the action: one of the noise alone, one of the sum. In the target, (1 - terminated) belongs "
           "to what is bootstrapped and not to the reward. Optimisers make things smaller.",
           "action: clip the noise to noise_clip, add it, clip that to limit. target: without gradients, reward plus "
           "gamma times (1 - terminated) times the smaller of the two values, element by element. critics: mean of the "
           "squared differences, once for each, added. actor: the mean, negated.",
           "(next_act + noise.clamp(..., ...)).clamp(..., ...). with torch.no_grad(): rew + gamma * (1 - terminated) * "
           "torch.minimum(..., ...). ((q1 - target)**2).mean() + ... . And -q1.mean()."])

make = torch.Generator().manual_seed(0)


def normal(*shape, scale=1.0, derive=False):
    return (scale * torch.randn(shape, generator=make)).requires_grad_(derive)


def one_by_one(rule, *columns):
    """A Python function of numbers, for each element of tensors of one shape."""
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


smoothed.extreme("Actions or noise have bounds of their own beside noise_clip and limit.", noise_clip=30.0, limit=60.0,
                 next_act=torch.tensor([[50.0], [-45.0]]), noise=torch.tensor([[-25.0], [-40.0]]))


@smoothed.mistake("The noise is not clipped: now and then it is large, and the target is asked about an action that "
                  "has little to do with the actor's.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise).clamp(-limit, limit)


@smoothed.mistake("The action may lie beyond its limits: there the critic never saw anything, and what it says is "
                  "invented.")
def _(next_act, noise, noise_clip, limit):
    return next_act + noise.clamp(-noise_clip, noise_clip)


@smoothed.mistake("The noise is clipped to the limit of the actions; it has a limit of its own, noise_clip.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise.clamp(-limit, limit)).clamp(-limit, limit)


@smoothed.mistake("The sum is clipped to noise_clip; that is for the noise alone, and the sum is limited by limit.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise).clamp(-noise_clip, noise_clip).clamp(-limit, limit)


@smoothed.mistake("Actions are clipped to -1 to 1; here they are from -limit to limit, which differs between "
                  "environments.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise.clamp(-noise_clip, noise_clip)).clamp(-1, 1)


@smoothed.mistake("Only the upper ends are clipped: noise and action may be too small as well as too large.")
def _(next_act, noise, noise_clip, limit):
    return (next_act + noise.clamp(max=noise_clip)).clamp(max=limit)


@smoothed.mistake("The noise is missing: that is the target of DDPG, for which a narrow peak of the critic counts in "
                  "full.")
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
target.extreme("Large rewards or values are clipped. The target is what the equation says, however large.", **LARGE)


@target.mistake("gamma is there twice: what follows comes one step later, and is discounted by one step.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.minimum(next_q1, next_q2), gamma**2)


@target.mistake("You take the larger of the two values: that makes the error upwards worse than with one critic.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.maximum(next_q1, next_q2), gamma)


@target.mistake("You take the mean of the two values: it errs less often, but upwards still, because the actor looks "
                "for that.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, (next_q1 + next_q2) / 2, gamma)


@target.mistake("Only the first critic is asked: that is the target of DDPG, and the second critic has no effect.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, next_q1, gamma)


@target.mistake("You take the smallest value of the whole batch; the smaller of two is wanted, for each step by "
                "itself.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.cat([next_q1, next_q2]).min(), gamma)


@target.mistake("You bootstrap through terminal states: after a termination nothing follows, so the next value counts "
                "for nothing there.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, 0 * terminated, torch.minimum(next_q1, next_q2), gamma)


@target.mistake("The mask is the other way round: the next value counts where the episode goes on.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, 1 - terminated, torch.minimum(next_q1, next_q2), gamma)


@target.mistake("The reward of a terminal step is lost: only what would follow is masked, and the reward was earned.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return ((1 - terminated) * (rew + gamma * torch.minimum(next_q1, next_q2))).detach()


@target.mistake("The next value is not discounted; multiply it by gamma.")
def _(rew, terminated, next_q1, next_q2, gamma):
    return bootstrapped(rew, terminated, torch.minimum(next_q1, next_q2), 1.0)


@target.mistake("A gradient flows into the target: then the critics can make their errors smaller by moving what they "
                "should reach.")
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


critics.extreme("Large errors are clipped, or count less than their square.", q1=torch.tensor([0.0, 400.0]),
                q2=torch.tensor([300.0, -900.0]), target=torch.tensor([-500.0, 1.0]))


@critics.mistake("`[B, 1]` has met `[B]`: each value is compared with the targets of all steps, and the mean is taken "
                 "of B times B errors.")
def _(q1, q2, target):
    return ((q1[:, None] - target)**2).mean() + ((q2[:, None] - target)**2).mean()


@critics.mistake("Only the first critic learns: the second keeps its first weights, and the smaller of the two means "
                 "nothing.")
def _(q1, q2, target):
    return ((q1 - target)**2).mean()


@critics.mistake("Only the smaller of the two values learns: for each step, the other critic gets no gradient. The "
                 "minimum is for the target alone.")
def _(q1, q2, target):
    return ((torch.minimum(q1, q2) - target)**2).mean()


@critics.mistake("It is the mean of the critics that learns: one may err upwards as far as the other errs downwards, "
                 "and the loss is 0. Each critic has an error of its own.")
def _(q1, q2, target):
    return (((q1 + q2) / 2 - target)**2).mean()


@critics.mistake("The two errors are averaged, so that each critic learns with half of its gradient; add them.")
def _(q1, q2, target):
    return 0.5 * (((q1 - target)**2).mean() + ((q2 - target)**2).mean())


@critics.mistake("You sum over the batch: the step would grow with the batch's size. Take the mean.")
def _(q1, q2, target):
    return ((q1 - target)**2).sum() + ((q2 - target)**2).sum()


@critics.mistake("The errors are not squared: errors upwards and downwards cancel out, and the gradient is the same "
                 "however large they are.")
def _(q1, q2, target):
    return (q1 - target).mean() + (q2 - target).mean()


@critics.mistake("One number comes out for each step; the mean over the batch is missing.")
def _(q1, q2, target):
    return (q1 - target)**2 + (q2 - target)**2


actor = exercise.function("actor_loss", [case(q1=torch.tensor([3.0])), case(q1=normal(6, derive=True)),
                                         case(q1=normal(4, scale=3, derive=True))])


@actor.reference
def less_is_better(q1):
    return sum((x / len(q1) for x in q1), torch.zeros(())) * -1


actor.extreme("Large values are clipped: where they are, the actor learns nothing.", q1=torch.tensor([500.0, -30.0]))


@actor.mistake("The sign is the other way round: an optimiser makes this smaller, so the actor would look for the "
               "worst actions.")
def _(q1):
    return q1.mean()


@actor.mistake("The values of the batch are summed; their mean is wanted, which does not grow with the batch.")
def _(q1):
    return -q1.sum()


@actor.mistake("No gradient reaches the actor: the value was detached, though the way from action to value is what it "
               "learns by.")
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
        raise Wrong(f"TD3 with your functions has a return of {found:.0f} over the last 10 of 12,000 steps' episodes; "
                    "-400 was expected")
