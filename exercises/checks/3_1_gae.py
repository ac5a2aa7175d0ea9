"""Checks of 3.1: advantages as the sums in their definition, episode by episode."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(20, 30), difficulty=3,
    hints=["At which end of an episode can you start without knowing the future?",
           "Two things can stop at an episode end. The next value stops counting only after a termination, because "
           "nothing follows it. The sum stops after either kind of end. So you need two different masks.",
           "For t from T - 1 down to 0: delta[t] = r + gamma * V(next) * ~terminated - V(now); A[t] = delta[t] + gamma "
           "* lambda * ~(terminated | truncated) * A[t + 1].",
           "delta = rew + gamma * next_value * ~terminated - value, for all steps at once. Then in the loop: later = "
           "delta[:, t] + gamma * lam * ~(terminated | truncated)[:, t] * later; adv[:, t] = later."])


def cases():
    ends, no = torch.tensor([[False, True, False]]), torch.zeros(1, 3, dtype=torch.bool)
    half = torch.full((1, 3), 0.5)
    by_hand = {"rew": torch.tensor([[1.0, 0.0, 2.0]]), "value": half, "next_value": half, "gamma": 0.5, "lam": 0.5}
    found = [case(**by_hand, terminated=ends, truncated=no), case(**by_hand, terminated=no, truncated=ends),
             case(**by_hand, terminated=no, truncated=no), case(**by_hand, terminated=ends, truncated=ends)]
    make = torch.Generator().manual_seed(0)
    for gamma, lam in ((0.99, 0.95), (0.9, 0.0), (0.9, 1.0), (1.0, 0.5)):
        terminated, truncated = (torch.rand(3, 12, generator=make) < 0.15 for _ in range(2))
        rew, value, next_value = (torch.randn(3, 12, generator=make) for _ in range(3))
        same = ~(terminated | truncated)[:, :-1]                          # the next column has the next state
        next_value[:, :-1] = torch.where(same, value[:, 1:], next_value[:, :-1])
        found.append(case(rew=rew, value=value, next_value=next_value, terminated=terminated, truncated=truncated,
                          gamma=gamma, lam=lam))
    return found


gae = exercise.function("gae", cases())


@gae.reference
def by_sums(rew, value, next_value, terminated, truncated, gamma, lam):
    adv = torch.zeros_like(rew)
    for n in range(rew.shape[0]):
        for t in range(rew.shape[1]):
            for k in range(t, rew.shape[1]):
                worth = 0.0 if terminated[n, k] else float(next_value[n, k])
                adv[n, t] += (gamma * lam) ** (k - t) * (float(rew[n, k]) + gamma * worth - float(value[n, k]))
                if terminated[n, k] or truncated[n, k]:
                    break
    return adv


gae.extreme("The advantages or their inputs are clipped where they are large. An advantage is the sum without "
            "clipping.", **{**gae.cases[-1], **{n: 1000 * gae.cases[-1][n] for n in ("rew", "value", "next_value")}})


def backwards(delta, goes_on):
    adv, later = torch.zeros_like(delta), torch.zeros_like(delta[:, 0])
    for t in reversed(range(delta.shape[1])):
        later = delta[:, t] + goes_on[:, t] * later
        adv[:, t] = later
    return adv


@gae.mistake("You bootstrap through terminal states. V(s') must not count after a termination, so multiply it by "
             "~terminated.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value - value, gamma * lam * ~(terminated | truncated))


@gae.mistake("Truncation is not termination: V(s') still counts where only the time limit ended the episode. Mask "
             "V(s') by terminated alone.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    end = terminated | truncated
    return backwards(rew + gamma * next_value * ~end - value, gamma * lam * ~end)


@gae.mistake("Advantages leak from one episode into the one before it. End the sum at both kinds of episode end.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated - value, torch.full_like(rew, gamma * lam))


@gae.mistake("The sum continues through truncated episodes. The next step in the batch belongs to another episode "
             "there too; end the sum.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated - value, gamma * lam * ~terminated)


@gae.mistake("The sum continues after terminations. There, too, the next step in the batch belongs to another episode; "
             "end the sum.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated - value, gamma * lam * ~truncated)


@gae.mistake("Where both flags are set, the episode has terminated and the time limit does not matter: V(s') must not "
             "count.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    delta = rew + gamma * next_value * (~terminated | truncated) - value
    return backwards(delta, gamma * lam * ~(terminated | truncated))


@gae.mistake("The sum continues where both flags are set. An episode ends there too; end the sum where at least one "
             "flag is set.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated - value, gamma * lam * (terminated == truncated))


@gae.mistake("You multiply the weights of later steps by lambda alone; multiply them by gamma * lambda.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated - value, lam * ~(terminated | truncated))


@gae.mistake("You use V of the next column as V(s'). After an episode end, that column is the first of another "
             "episode; use next_value, which holds V of the state that the step led to.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    beside = torch.cat([value[:, 1:], next_value[:, -1:]], 1)
    return backwards(rew + gamma * beside * ~terminated - value, gamma * lam * ~(terminated | truncated))


@gae.mistake("gamma is in delta twice. V(s') comes one step later, so discount it once.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma**2 * next_value * ~terminated - value, gamma * lam * ~(terminated | truncated))


@gae.mistake("gamma is in the weights of later steps twice. From one step to the next they decrease by gamma * lambda.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated - value, gamma**2 * lam * ~(terminated | truncated))


@gae.mistake("gamma is missing in delta. V(s') comes one step later, so discount it.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + next_value * ~terminated - value, gamma * lam * ~(terminated | truncated))


@gae.mistake("V(s_t) is missing in delta, so these numbers are not advantages. Subtract V(s_t).")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return backwards(rew + gamma * next_value * ~terminated, gamma * lam * ~(terminated | truncated))


@gae.mistake("The loop begins at step T - 2, so the last step, T - 1, keeps the advantage 0. The last step has a delta "
             "too; begin at T - 1.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    delta, goes_on = rew + gamma * next_value * ~terminated - value, gamma * lam * ~(terminated | truncated)
    return torch.cat([backwards(delta[:, :-1], goes_on[:, :-1]), torch.zeros_like(rew[:, :1])], 1)


@gae.mistake("You end the sum with the flags of step t + 1. The flags of step t say whether step t + 1 belongs to the "
             "same episode; use those of step t.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    goes_on = ~(terminated | truncated).roll(-1, 1)
    return backwards(rew + gamma * next_value * ~terminated - value, gamma * lam * goes_on)


@gae.mistake("Both masks read the flags of step t + 1. The flags of step t say what happened at the end of step t; use "
             "them in delta and in the sum.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    terminated, truncated = (torch.cat([x[:, 1:], x[:, -1:]], 1) for x in (terminated, truncated))
    return backwards(rew + gamma * next_value * ~terminated - value, gamma * lam * ~(terminated | truncated))


@gae.mistake("You return advantage plus value, which is the target of the value function; return the advantages alone.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    return by_sums(rew, value, next_value, terminated, truncated, gamma, lam) + value


@gae.mistake("Your loop runs along the first axis; time is the last axis, `[N, T]`.")
def _(rew, value, next_value, terminated, truncated, gamma, lam):
    swapped = backwards((rew + gamma * next_value * ~terminated - value).T, gamma * lam * ~(terminated | truncated).T)
    return swapped.T


@exercise.learning
def cartpole(student):
    """PPO with your advantages, CartPole, 60,000 steps: a return of 400"""
    import tempfile

    from spinup import ppo

    def mine(rew, value, next_value, terminated, truncated, *, gamma, lam):
        adv = student.gae(rew, value, next_value, terminated.bool(), truncated.bool(), gamma, lam)
        return adv, adv + value

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.ppo.gae", mine):
        result = ppo("CartPole-v1", total_steps=60_000, log_dir=folder, quiet=True, tensorboard=False)
    found = result.progress["return_mean_100"][-1]
    if found < 400:
        raise Wrong(f"PPO with your advantages has a return of {found:.0f} after 60,000 steps; 400 was expected")
