"""Checks of 5.3: advantages as the sums in their definition, from rollouts that stop in the middle of an episode."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    kind="bug hunt", minutes=(10, 20), difficulty=3,
    hints=["For which step of a rollout do value[t + 1] and done[t + 1] not exist? What does the code use instead, and "
           "what should it use?",
           "The loop is correct. Look at the two lines before it, at the entries for the time T, after the last step. "
           "Two of the arguments exist for this purpose.",
           "At time T the value is last_value and the flag is last_done. If the episode continues, the state after the "
           "last step has a value. If the last step ended the episode, that value does not count. The flag of the step "
           "before is irrelevant.",
           "Both lines join `[N, T - 1]` and `[N, 1]` along time. In each line the second piece is one of the two "
           "last_ arguments, with an extra axis."])


def cases():
    half, no = torch.full((1, 3), 0.5), torch.zeros(1, 3, dtype=torch.bool)
    by_hand = {"rew": torch.tensor([[1.0, 0.0, 2.0]]), "value": half, "gamma": 0.5, "lam": 0.5,
               "last_value": torch.tensor([4.0])}
    goes_on, over = torch.tensor([False]), torch.tensor([True])
    found = [case(**by_hand, done=no, last_done=goes_on), case(**by_hand, done=no, last_done=over),
             case(**by_hand, done=torch.tensor([[False, False, True]]), last_done=goes_on)]
    make = torch.Generator().manual_seed(0)
    for steps, gamma, lam in ((12, 0.99, 0.95), (12, 0.9, 0.0), (12, 0.9, 1.0), (1, 0.9, 0.5)):
        done = torch.rand(4, steps, generator=make) < 0.2
        done[:2, -1], last_done = torch.tensor([True, False]), torch.tensor([False, True, False, False])
        found.append(case(rew=torch.randn(4, steps, generator=make), value=torch.randn(4, steps, generator=make),
                          done=done, last_value=torch.randn(4, generator=make), last_done=last_done, gamma=gamma,
                          lam=lam))
    return found


gae = exercise.function("gae", cases())


@gae.reference
def by_sums(rew, value, done, last_value, last_done, gamma, lam):
    adv, steps = torch.zeros_like(rew), rew.shape[1]
    for n in range(rew.shape[0]):
        values, flags = [*value[n].tolist(), float(last_value[n])], [*done[n].tolist(), bool(last_done[n])]
        for t in range(steps):
            for k in range(t, steps):
                worth = 0.0 if flags[k + 1] else values[k + 1]
                adv[n, t] += (gamma * lam) ** (k - t) * (float(rew[n, k]) + gamma * worth - values[k])
                if flags[k + 1]:
                    break
    return adv


gae.extreme("The advantages or their inputs are clipped where they are large; do not clip them.",
            **{**gae.cases[-2], **{n: 1000 * gae.cases[-2][n] for n in ("rew", "value", "last_value")}})


def backwards(rew, value, next_value, over, gamma, lam):
    delta = rew + gamma * next_value * ~over - value
    adv, later = torch.zeros_like(rew), torch.zeros_like(rew[:, 0])
    for t in reversed(range(rew.shape[1])):
        later = delta[:, t] + gamma * lam * ~over[:, t] * later
        adv[:, t] = later
    return adv


def later(x, last):
    return torch.cat([x[:, 1:], last[:, None]], 1)


@gae.mistake("In a rollout that stops during an episode, the last advantages are too low. Compute the last one by "
             "hand.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return backwards(rew, value, later(value, torch.zeros_like(last_value)), later(done, done[:, -1]), gamma, lam)


@gae.mistake("The value after the last step counts now, but the flag of the step before decides whether it counts. An "
             "episode that started with the last step loses this value, and an episode that ended with the last step "
             "keeps it.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return backwards(rew, value, later(value, last_value), later(done, done[:, -1]), gamma, lam)


@gae.mistake("The value after the last step counts even where that step ended the episode. The next observation "
             "belongs to another episode there, so its value must not count.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return backwards(rew, value, later(value, last_value), later(done, torch.zeros_like(last_done)), gamma, lam)


@gae.mistake("You use the value of the last state as the value of the state after it; use the given value of the state "
             "after the last step.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return backwards(rew, value, later(value, value[:, -1]), later(done, last_done), gamma, lam)


def from_last_value(rew, value, next_value, over, last_value, gamma, lam):
    """The recursion of the advantages, started at last_value."""
    delta = rew + gamma * next_value * ~over - value
    adv, after = torch.zeros_like(rew), last_value
    for t in reversed(range(rew.shape[1])):
        after = delta[:, t] + gamma * lam * ~over[:, t] * after
        adv[:, t] = after
    return adv


@gae.mistake("The recursion starts at last_value, which is a value and not an advantage. The loop was correct as "
             "given, because no advantage follows the last step.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return from_last_value(rew, value, later(value, last_value), later(done, last_done), last_value, gamma, lam)


@gae.mistake("You changed only the loop, and it was correct as given: last_value is not an advantage. The lines before "
             "the loop are wrong.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    next_value, over = later(value, torch.zeros_like(last_value)), later(done, done[:, -1])
    return from_last_value(rew, value, next_value, over, last_value, gamma, lam)


@gae.mistake("You discount the value after the last step twice; delta already discounts it.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return backwards(rew, value, later(value, gamma * last_value), later(done, last_done), gamma, lam)


@gae.mistake("You read all end flags one step too early. done[t] belongs to the observation of step t: it says that "
             "step t - 1 ended an episode. So mask step t by the flag of t + 1.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    return backwards(rew, value, later(value, last_value), done, gamma, lam)


@gae.mistake("You use the value after the last step as an advantage. It belongs in delta, after the reward, and not in "
             "the recursion.")
def _(rew, value, done, last_value, last_done, gamma, lam):
    next_value = later(value, torch.zeros_like(last_value))
    return from_last_value(rew, value, next_value, later(done, last_done), last_value, gamma, lam)


@exercise.learning
def cartpole(student):
    """PPO with your advantages, CartPole, 60,000 steps: a return of 400"""
    import tempfile

    from spinup import ppo

    def mine(rew, value, next_value, terminated, truncated, *, gamma, lam):
        ends = (terminated + truncated) > 0
        paid = rew + gamma * next_value * (truncated > 0) * (terminated == 0)        # a time limit is no termination
        done = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
        adv = student.gae(paid, value, done, next_value[:, -1], ends[:, -1], gamma, lam)
        return adv, adv + value

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.ppo.gae", mine):
        result = ppo("CartPole-v1", total_steps=60_000, log_dir=folder, quiet=True, tensorboard=False)
    found = result.progress["return_mean_100"][-1]
    if found < 400:
        raise Wrong(f"PPO with your advantages has a return of {found:.0f} after 60,000 steps; 400 was expected")
