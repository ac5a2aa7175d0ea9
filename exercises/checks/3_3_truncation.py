"""Checks of 3.3: case by case in Python's own numbers, and the value of a task without an end."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(10, 20), difficulty=2,
    hints=["Ask of each kind of end: is there a state that the step led to, and is it worth anything? A clock that "
           "nobody sees does not change what a state is worth.",
           "td_target leaves V(s') out in one case only, and there it keeps the reward. next_obs_of_step takes "
           "final_obs wherever the environment has begun the next episode, in whichever way the old one ended.",
           "Target: rew + gamma * next_value, its second part times 1 where the episode has not terminated, else 0. "
           "Observation: by copy, final_obs where terminated or truncated, else next_obs.",
           "A bool tensor can be a factor: ~terminated is 1 where it goes on. torch.where(ended[:, None], ..., ...) "
           "chooses whole rows, with ended = terminated | truncated."])


def flags(*bits):
    return torch.tensor(bits, dtype=torch.bool)


def target_cases():
    by_hand = case(rew=torch.tensor([1.0, 1.0, 1.0]), next_value=torch.tensor([10.0, 10.0, 10.0]),
                   terminated=flags(0, 1, 0), truncated=flags(0, 0, 1), gamma=0.9)
    make = torch.Generator().manual_seed(0)
    return [by_hand,
            case(rew=torch.tensor([2.0, -1.0]), next_value=torch.tensor([4.0, 4.0]), terminated=flags(1, 0),
                 truncated=flags(1, 0), gamma=0.5),
            *(case(rew=torch.randn(12, generator=make), next_value=torch.randn(12, generator=make),
                   terminated=torch.rand(12, generator=make) < 0.3, truncated=torch.rand(12, generator=make) < 0.3,
                   gamma=gamma) for gamma in (0.99, 1.0))]


target = exercise.function("td_target", target_cases())


@target.reference
def one_by_one(rew, next_value, terminated, truncated, gamma):
    return torch.tensor([r if over else r + gamma * v for r, v, over in
                         zip(rew.tolist(), next_value.tolist(), terminated.tolist(), strict=True)])


target.extreme("Large rewards or values are clipped. The target is what the equation says, however large.",
               rew=torch.tensor([300.0, -2000.0]), next_value=torch.tensor([-4000.0, 50.0]), terminated=flags(0, 1),
               truncated=flags(0, 0), gamma=0.9)


@target.mistake("gamma is there twice: V(s') is what follows one step later, and is discounted by one step.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma**2 * next_value * ~terminated


@target.mistake("Truncation is not termination: where only the clock ran out, V(s') still counts. You mask it by both "
                "flags.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * ~(terminated | truncated)


@target.mistake("You never mask V(s'). After a termination nothing follows, whatever the value function says of that "
                "state.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value


@target.mistake("The mask is inverted: V(s') counts after a termination, and nowhere else.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * terminated


@target.mistake("The flags are exchanged: V(s') is left out where the clock ran out, and counts where the task is "
                "over.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * ~truncated


@target.mistake("Where both flags are set the task is over, and the clock does not matter: V(s') must not count.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * (~terminated | truncated)


@target.mistake("The reward of the last step is lost. A termination takes away what follows, not what the step itself "
                "earned.")
def _(rew, next_value, terminated, truncated, gamma):
    return (rew + gamma * next_value) * ~terminated


@target.mistake("gamma is missing: V(s') is what follows one step later, and is discounted by one step.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + next_value * ~terminated


def obs_cases():
    by_hand = case(next_obs=torch.tensor([[1.0, 1.0], [5.0, 5.0], [6.0, 6.0]]),
                   final_obs=torch.tensor([[0.0, 0.0], [2.0, 2.0], [3.0, 3.0]]), terminated=flags(0, 1, 0),
                   truncated=flags(0, 0, 1))
    with_zeros = case(next_obs=torch.tensor([[5.0, 5.0], [6.0, 6.0]]), final_obs=torch.tensor([[0.0, 2.0], [0.0, 0.0]]),
                      terminated=flags(1, 0), truncated=flags(0, 1))      # an observation like any other
    found = [by_hand, with_zeros]
    make = torch.Generator().manual_seed(1)
    for n, d in ((8, 3), (4, 4), (5, 1)):
        terminated, truncated = (torch.rand(n, generator=make) < 0.4 for _ in range(2))
        final_obs = torch.randn(n, d, generator=make)
        final_obs[~(terminated | truncated)] = 0
        found.append(case(next_obs=torch.randn(n, d, generator=make), final_obs=final_obs, terminated=terminated,
                          truncated=truncated))
    return found


obs = exercise.function("next_obs_of_step", obs_cases())


@obs.reference
def row_by_row(next_obs, final_obs, terminated, truncated):
    return torch.stack([final_obs[i] if terminated[i] or truncated[i] else next_obs[i] for i in range(len(next_obs))])


obs.extreme("Observations are clipped; they are handed on as they are.", terminated=flags(1, 0), truncated=flags(0, 0),
            next_obs=torch.tensor([[5.0, 90.0], [-300.0, 6.0]]), final_obs=torch.tensor([[800.0, -70.0], [0.0, 0.0]]))


@obs.mistake("You take what the environment shows now. Where an episode ended that is the first observation of the "
             "next one, to which no action led.")
def _(next_obs, final_obs, terminated, truncated):
    return next_obs.clone()


@obs.mistake("You take final_obs in every copy; where no episode ended there is nothing in it.")
def _(next_obs, final_obs, terminated, truncated):
    return final_obs.clone()


@obs.mistake("Where an episode terminated you still take the first observation of the next one. A masked target hides "
             "it; a model of the environment or a bonus for novelty would learn from it.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(truncated[:, None], final_obs, next_obs)


@obs.mistake("Where an episode was truncated you still take the first observation of the next one, and it is there "
             "that V(s') counts.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(terminated[:, None], final_obs, next_obs)


@obs.mistake("The choice is inverted: final_obs is there for copies whose episode ended, next_obs for the others.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where((terminated | truncated)[:, None], next_obs, final_obs)


@obs.mistake("The choice runs along the wrong axis: a flag belongs to a copy, a row of `[N, d]`, not to a column.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(terminated | truncated, final_obs, next_obs)


@obs.mistake("You tell by the numbers of final_obs whether an episode ended, one number at a time. Numbers of an "
             "observation may be 0 as well: ask terminated and truncated.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(final_obs != 0, final_obs, next_obs)


@obs.mistake("You take a final_obs that is 0 everywhere for one that is not there. An observation may be 0: ask "
             "terminated and truncated.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(final_obs.any(-1, keepdim=True), final_obs, next_obs)


@exercise.property
def a_task_without_an_end(student):
    """A reward of 1 in every state but the first, a clock of 6 steps: values are as if there were no clock."""
    gamma, limit, value = 0.9, 6, torch.zeros(2)
    clock, never = torch.arange(4), torch.zeros(4, dtype=torch.bool)
    seen = torch.eye(2)                                                   # of the first state, and of all others
    for _ in range(70):
        now, truncated = seen[(clock > 0).long()], clock == limit - 1
        led_to = seen[torch.ones_like(clock)]
        next_obs = torch.where(truncated[:, None], seen[0], led_to)
        s = student.next_obs_of_step(next_obs, led_to * truncated[:, None], never, truncated)
        y = student.td_target(now[:, 1], s @ value, never, truncated, gamma)
        value += 0.9 * ((y - now @ value)[:, None] * now).mean(0)
        clock = (clock + 1) % limit
    if abs(float(value[1]) - 10) > 0.5:
        raise Wrong(f"with a reward of 1 a step, gamma = 0.9 and a clock, V settles at {value[1]:.2f}; the task has no "
                    "end, so it should be 1 / (1 - gamma) = 10")


@exercise.probe
def endless(student):
    """PPO with your target on a task without an end, a clock of 10 steps, gamma 0.9: a value of 10"""
    import tempfile

    import gymnasium
    import numpy as np

    from spinup import ppo

    class Endless(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.clock = 0
            return np.ones(1, np.float32), {}

        def step(self, action):
            self.clock += 1
            return np.ones(1, np.float32), 1.0, False, self.clock == 10, {}

    seen = []

    def mine(rew, value, next_value, terminated, truncated, *, gamma, lam):
        seen.append(float(value.mean()))
        over, cut = terminated.bool(), truncated.bool()
        y = torch.stack([student.td_target(*step, gamma) for step in
                         zip(rew.T, next_value.T, over.T, cut.T, strict=True)], 1)
        return y - value, y

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.ppo.gae", mine):
        ppo(Endless, total_steps=12_000, gamma=0.9, num_envs=8, rollout_steps=32, lr=3e-3, anneal=False,
            normalise_reward=False, log_dir=folder, quiet=True, tensorboard=False)
    if abs(seen[-1] - 10) > 0.5:
        raise Wrong(f"PPO with your target gives {seen[-1]:.2f} to a state from which every step earns 1; with "
                    "gamma = 0.9 it is worth 10")
