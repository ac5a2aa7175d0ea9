"""Checks of 3.4: each row computed with Python numbers; then the gradient; then the overestimation."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(10, 20), difficulty=2,
    hints=["There are two questions and two networks. Which network chooses the action? Which network evaluates it?",
           "Choose separately in each row, over the axis of actions. Then take one number from the same row of the "
           "other network: `[B]`. After a termination, the target is the reward alone.",
           "best = the position of the largest value of the online network in each row. value = the value of the "
           "target network at that position. y = rew + gamma * value, without the second term where terminated. "
           "Compute all of this under torch.no_grad().",
           "best = next_q_online.argmax(-1, keepdim=True) has the shape `[B, 1]`, which gather(-1, best) needs. "
           "squeeze(-1) turns its result into `[B]`."])


def cases(derive):
    """Return the cases, where derive says whether the values of both networks require gradients."""
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


values.extreme("Large rewards or values are clipped. Do not clip them: the target is the value of the equation, "
               "however large it is.",
               rew=torch.tensor([300.0, -2000.0]), terminated=torch.tensor([False, True]),
               next_q_online=torch.tensor([[50.0, 90.0], [3.0, 2.0]]),
               next_q_target=torch.tensor([[8000.0, -4000.0], [3.0, 2.0]]), gamma=0.9)


@values.mistake("You apply gamma twice. Discount the value of the next state once.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma**2 * at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("This is DQN: the target network both chooses and evaluates the action. Let the online network choose.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target.amax(-1) * ~terminated


@values.mistake("The networks are exchanged: let the online network choose and the target network evaluate.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_online, next_q_target.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("The online network both chooses and evaluates. Its errors count twice, and the target moves with "
                "every gradient step; evaluate with the target network.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_online.amax(-1) * ~terminated


@values.mistake("You take the smaller value of the two networks, as TD3 does. Double DQN always takes the value of the "
                "target network.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    best = next_q_online.argmax(-1, keepdim=True)
    return rew + gamma * torch.minimum(at(next_q_online, best), at(next_q_target, best)) * ~terminated


@values.mistake("You ignore terminated. No action follows a termination, so the value of the next state must not count "
                "there.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True))


@values.mistake("gamma is missing: the next state comes one step later, so discount its value.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("The mask is inverted: your next value counts only after a termination; it must count everywhere else.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * terminated


@values.mistake("You lose the reward of the last step. A termination removes the value of later steps, not the reward "
                "of this step.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return (rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True))) * ~terminated


@values.mistake("Broadcasting combined `[B, 1]` with `[B]`: every reward is added to every value, and the result is "
                "`[B, B]`. Remove one axis of length 1.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target.gather(-1, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@values.mistake("Your index of the second axis picks columns for all rows at once, so the result is `[B, B]`. Take the "
                "value of its own action in each row.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target[:, next_q_online.argmax(-1)] * ~terminated


@values.mistake("You choose the best row for each action; choose the best action for each row, along the last axis.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * next_q_target.gather(0, next_q_online.argmax(0, keepdim=True)).squeeze(0) * ~terminated


@gradients.mistake("The numbers are correct, but a gradient flows through the target into next_q_target. Then the loss "
                   "would also move the target towards the estimate; compute the target without gradients.")
def _(rew, terminated, next_q_online, next_q_target, gamma):
    return rew + gamma * at(next_q_target, next_q_online.argmax(-1, keepdim=True)) * ~terminated


@exercise.property
def no_overestimation(student):
    """Raise Wrong if the target overestimates on average where the errors of the two networks are independent."""
    make = torch.Generator().manual_seed(0)
    online, target = (torch.randn(20_000, 10, generator=make) for _ in range(2))
    found = float(student.double_dqn_target(torch.zeros(20_000), torch.zeros(20_000, dtype=torch.bool), online, target,
                                            1.0).mean())
    if abs(found) > 0.05:
        raise Wrong(f"a value of 0 is overestimated by {found:.2f} on average; DQN overestimates by "
                    f"{float(target.amax(-1).mean()):.2f} and double DQN by 0", "double_dqn_target")


@exercise.learning
def cartpole(student):
    """DQN with your target, CartPole, 30,000 steps: a return of 200"""
    import tempfile

    from spinup import dqn

    def mine(rew, discount, terminated, next_q):
        online, target = next_q                                           # each row has its own discount, gamma^n
        return student.double_dqn_target(rew, terminated.bool(), online, discount[:, None] * target, 1.0)

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.dqn.td_target", mine), patch(
            "spinup.algos.dqn.greedy_value", lambda target_q, online_q: (online_q, target_q)):
        result = dqn("CartPole-v1", total_steps=30_000, double=True, hidden=(64, 64), log_dir=folder,
                     quiet=True, tensorboard=False)
    found = sum(result.returns[-30:]) / 30
    if found < 200:
        raise Wrong(f"DQN with your target has a return of {found:.0f} after 30,000 steps; 200 was expected")
