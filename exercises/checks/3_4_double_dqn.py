"""Checks of 3.4: row by row in Python's own numbers; then the gradient; then the overestimation."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(10, 20), difficulty=2,
    hints=["Two questions, two networks. Which one chooses an action, and which one says what that action is worth?",
           "The choice is made in each row by itself, over the axis of actions, and picks one number from the same row "
           "of the other network's values: `[B]`. Who terminated gets the reward alone.",
           "best = position of the largest value of the online network, for each row. value = the target network's "
           "value there. y = rew + gamma * value, without its second part where terminated. All under torch.no_grad().",
           "best = next_q_online.argmax(-1, keepdim=True) has the shape `[B, 1]`, which is what gather(-1, best) "
           "wants; squeeze(-1) makes `[B]` of what it gives."])


def cases(derive):
    """The same, with or without networks that could get a gradient."""
    make = torch.Generator().manual_seed(0)
    found = [case(rew=torch.tensor([1.0, 0.0]), terminated=torch.tensor([False, True]),
                  next_q_online=torch.tensor([[1.0, 3.0, 2.0], [0.0, 1.0, 2.0]]),
                  next_q_target=torch.tensor([[6.0, 2.0, 4.0], [5.0, 7.0, 3.0]]), gamma=0.5)]
    for batch, actions, gamma in ((6, 4, 0.99), (5, 5, 0.9), (7, 2, 1.0)):
        found.append(case(rew=torch.randn(batch, generator=make), terminated=torch.rand(batch, generator=make) < 0.3,
                          next_q_online=torch.randn(batch, actions, generator=make),
                          next_q_target=torch.randn(batch, actions, generator=make), gamma=gamma))
    return [{**c, "next_q_online": c["next_q_online"].requires_grad_(derive),
             "next_q_target": c["next_q_target"].requires_grad_(derive)} for c in found]


values = exercise.function("double_dqn_target", cases(derive=False))
gradients = exercise.function("double_dqn_target", cases(derive=True))    # only when the numbers are right


@values.reference
@gradients.reference
def row_by_row(rew, terminated, next_q_online, next_q_target, gamma):
    y = []
    for r, over, online, target in zip(rew.tolist(), terminated.tolist(), next_q_online.tolist(),
                                       next_q_target.tolist(), strict=True):
        y.append(r if over else r + gamma * target[online.index(max(online))])
    return torch.tensor(y)


def at(q, best):
    return q.gather(-1, best).squeeze(-1)


values.extreme("Large rewards or values are clipped. The target is what the equation says, however large.",
               rew=torch.tensor([300.0, -2000.0]), terminated=torch.tensor([False, True]),
               next_q_online=torch.tensor([[50.0, 90.0], [3.0, 2.0]]),
               next_q_target=torch.tensor([[8000.0, -4000.0], [3.0, 2.0]]), gamma=0.9)


@values.mistake("gamma is there twice: what the next state is worth is discounted by one step.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma**2 * at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("This is DQN: the target network both chooses and judges. Let the online network choose.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target.amax(-1) * ~terminated


@values.mistake("The networks are exchanged: the target network chooses and the online network judges.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_online, next_q_target.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("The online network both chooses and judges. Its errors count twice, and the target moves with every "
                "gradient step.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_online.amax(-1) * ~terminated


@values.mistake("This is the smaller of both networks' values, as in TD3. Double DQN takes the target network's value, "
                "be it the smaller one or not.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    best = next_q_online.argmax(-1, keepdim=True)
    return rew + gamma * torch.minimum(at(next_q_online, best), at(next_q_target, best)) * ~terminated


@values.mistake("You do not look at terminated: where the task is over, no action follows, and there is nothing to be "
                "worth.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True))


@values.mistake("gamma is missing: what the next state is worth comes one step later, and is discounted by one step.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("The mask is inverted: what follows counts only where nothing follows.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * terminated


@values.mistake("The reward of the last step is lost: a termination takes away what follows, not what the step itself "
                "earned.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return (rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True))) * ~terminated


@values.mistake("`[B, 1]` has met `[B]`, and every reward is added to every value: `[B, B]` comes out. One axis of "
                "length 1 is left over.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target.gather(-1, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("An index of the second axis picks columns for all rows at once: `[B, B]` comes out. Each row needs "
                "the value of its own action.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target[:, next_q_online.argmax(-1)] * ~terminated


@values.mistake("The best row is chosen for each action; choose the best action for each row, along the last axis.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target.gather(0, next_q_online.argmax(0, keepdim=True)).squeeze(0) * ~terminated


@gradients.mistake("The numbers are right, but a gradient flows through the target into next_q_target. The loss would "
                   "then move the target towards the estimate, not only the estimate towards the target.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@exercise.property
def no_overestimation(student):
    """Where errors of the two networks have nothing to do with each other, none of them is on average an error up."""
    make = torch.Generator().manual_seed(0)
    online, target = (torch.randn(20_000, 10, generator=make) for _ in range(2))
    found = float(student.double_dqn_target(torch.zeros(20_000), torch.zeros(20_000, dtype=torch.bool), online, target,
                                            1.0).mean())
    if abs(found) > 0.05:
        raise Wrong(f"a value of 0 is overestimated by {found:.2f} on average, where DQN has "
                    f"{float(target.amax(-1).mean()):.2f} and double DQN nothing", "double_dqn_target")


@exercise.learning
def cartpole(student):
    """DQN with your target, CartPole, 30,000 steps: a return of 200"""
    import tempfile

    from spinup import dqn

    def mine(rew, discount, terminated, next_q):
        online, target = next_q                                           # each row with a discount of its own, gamma^n
        return student.double_dqn_target(rew, terminated.bool(), online, discount[:, None] * target, 1.0)

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.dqn.td_target", mine), patch(
            "spinup.algos.dqn.greedy_value", lambda target_q, online_q: (online_q, target_q)):
        result = dqn("CartPole-v1", total_steps=30_000, double=True, hidden=(64, 64), log_dir=folder,
                     quiet=True, tensorboard=False)
    found = sum(result.returns[-30:]) / 30
    if found < 200:
        raise Wrong(f"DQN with your target has a return of {found:.0f} after 30,000 steps; 200 was expected")
