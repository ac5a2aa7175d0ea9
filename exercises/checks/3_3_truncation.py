"""Checks of 3.3: each case computed with Python numbers, and the value of a task without an end."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(10, 20), difficulty=2,
    hints=["For each kind of end, ask two questions. Did the step lead to a state? Does this state have a value? A "
           "time limit that the policy does not observe does not change the value of a state.",
           "td_target omits V(s') in one case only, and there it keeps the reward. next_obs_of_step uses final_obs "
           "wherever the environment has started the next episode, after either kind of end.",
           "Target: rew + gamma * next_value, where the second term is multiplied by 1 if the episode has not "
           "terminated, else by 0. Observation: for each environment copy, final_obs if terminated or truncated, else "
           "next_obs.",
           "You can multiply by a bool tensor: ~terminated is 1 where the episode has not terminated. "
           "torch.where(ended[:, None], ..., ...) selects whole rows, with ended = terminated | truncated."])


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


target.extreme("Large rewards or values are clipped. Do not clip them: the target is the value of the equation, "
               "however large it is.",
               rew=torch.tensor([300.0, -2000.0]), next_value=torch.tensor([-4000.0, 50.0]), terminated=flags(0, 1),
               truncated=flags(0, 0), gamma=0.9)


@target.mistake("You apply gamma twice. V(s') comes one step later, so discount it once.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma**2 * next_value * ~terminated


@target.mistake("Truncation is not termination: V(s') still counts where only the time limit ended the episode. You "
                "mask it by both flags; mask it by terminated alone.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * ~(terminated | truncated)


@target.mistake("You never mask V(s'). Nothing follows a termination, whatever the value function predicts for that "
                "state; mask V(s') there.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value


@target.mistake("The mask is inverted: your V(s') counts only after a termination; it must count everywhere else.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * terminated


@target.mistake("The flags are exchanged: you omit V(s') after a truncation and count it after a termination; do the "
                "opposite.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * ~truncated


@target.mistake("Where both flags are set, the episode has terminated and the time limit does not matter: V(s') must "
                "not count.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * (~terminated | truncated)


@target.mistake("You mask V(s') only where both flags are set. Nothing follows a termination, whether or not the "
                "time limit was also reached; mask V(s') wherever terminated is set.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + gamma * next_value * ~(terminated & truncated)


@target.mistake("You lose the reward of the last step. A termination removes the value of later steps, not the reward "
                "of this step.")
def _(rew, next_value, terminated, truncated, gamma):
    return (rew + gamma * next_value) * ~terminated


@target.mistake("gamma is missing: V(s') comes one step later, so discount it.")
def _(rew, next_value, terminated, truncated, gamma):
    return rew + next_value * ~terminated


@target.mistake("You set V(s') to 0 in place, so you change next_value, which the caller still needs; compute a new "
                "tensor.")
def _(rew, next_value, terminated, truncated, gamma):
    next_value[terminated] = 0
    return rew + gamma * next_value


def obs_cases():
    by_hand = case(next_obs=torch.tensor([[1.0, 1.0], [5.0, 5.0], [6.0, 6.0]]),
                   final_obs=torch.tensor([[0.0, 0.0], [2.0, 2.0], [3.0, 3.0]]), terminated=flags(0, 1, 0),
                   truncated=flags(0, 0, 1))
    with_zeros = case(next_obs=torch.tensor([[5.0, 5.0], [6.0, 6.0]]), final_obs=torch.tensor([[0.0, 2.0], [0.0, 0.0]]),
                      terminated=flags(1, 0), truncated=flags(0, 1))      # a valid observation
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


obs.extreme("Observations are clipped; return them unchanged.", terminated=flags(1, 0), truncated=flags(0, 0),
            next_obs=torch.tensor([[5.0, 90.0], [-300.0, 6.0]]), final_obs=torch.tensor([[800.0, -70.0], [0.0, 0.0]]))


@obs.mistake("You use next_obs everywhere. Where an episode ended, it is the first observation of the next episode, "
             "and no action led to it; use final_obs there.")
def _(next_obs, final_obs, terminated, truncated):
    return next_obs.clone()


@obs.mistake("You write into next_obs in place. The caller still needs the observations that it gave you; work on a "
             "copy, or make a new tensor.")
def _(next_obs, final_obs, terminated, truncated):
    ended = terminated | truncated
    next_obs[ended] = final_obs[ended]
    return next_obs


@obs.mistake("You use final_obs in every copy; where no episode ended it contains no observation, so use next_obs "
             "there.")
def _(next_obs, final_obs, terminated, truncated):
    return final_obs.clone()


@obs.mistake("After a termination you still use the first observation of the next episode. A masked target hides this, "
             "but a model of the environment or an exploration bonus would learn from it.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(truncated[:, None], final_obs, next_obs)


@obs.mistake("After a truncation you still use the first observation of the next episode, and there V(s') counts; use "
             "final_obs.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(terminated[:, None], final_obs, next_obs)


@obs.mistake("You use final_obs only where exactly one flag is set. The episode has also ended where both are set; "
             "combine the flags with |.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where((terminated ^ truncated)[:, None], final_obs, next_obs)


@obs.mistake("You use final_obs only where both flags are set. An episode has ended where at least one is set; combine "
             "the flags with |.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where((terminated & truncated)[:, None], final_obs, next_obs)


@obs.mistake("The choice is inverted: use final_obs for copies whose episode ended, and next_obs for the others.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where((terminated | truncated)[:, None], next_obs, final_obs)


@obs.mistake("You select along the wrong axis: a flag belongs to a copy, which is a row of `[N, d]`, not a column.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(terminated | truncated, final_obs, next_obs)


@obs.mistake("You decide from each number of final_obs whether an episode ended. Numbers of an observation can be 0 "
             "too; use terminated and truncated.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(final_obs != 0, final_obs, next_obs)


@obs.mistake("You treat a final_obs that is 0 everywhere as missing. An observation can be 0; use terminated and "
             "truncated.")
def _(next_obs, final_obs, terminated, truncated):
    return torch.where(final_obs.any(-1, keepdim=True), final_obs, next_obs)


@exercise.property
def a_task_without_an_end(student):
    """Learn the values of a task with reward 1 in every state except the first and a time limit of 6 steps. Raise Wrong
    unless they equal the values without the time limit."""
    gamma, limit, value = 0.9, 6, torch.zeros(2)
    clock, never = torch.arange(4), torch.zeros(4, dtype=torch.bool)
    seen = torch.eye(2)                                       # observations of the first state and of all others
    for _ in range(70):
        now, truncated = seen[(clock > 0).long()], clock == limit - 1
        led_to = seen[torch.ones_like(clock)]
        next_obs = torch.where(truncated[:, None], seen[0], led_to)
        s = student.next_obs_of_step(next_obs, led_to * truncated[:, None], never, truncated)
        y = student.td_target(now[:, 1], s @ value, never, truncated, gamma)
        value += 0.9 * ((y - now @ value)[:, None] * now).mean(0)
        clock = (clock + 1) % limit
    if abs(float(value[1]) - 10) > 0.5:
        raise Wrong(f"with a reward of 1 per step, gamma = 0.9 and a time limit, V converges to {value[1]:.2f}; the "
                    "task has no end, so V should be 1 / (1 - gamma) = 10")


@exercise.probe
def endless(student):
    """PPO with your target on a task without an end, a time limit of 10 steps, gamma 0.9: a value of 10"""
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
        raise Wrong(f"PPO with your target gives the value {seen[-1]:.2f} to a state from which every step has reward "
                    "1; with gamma = 0.9 the value is 10")
