"""Checks of 3.7: each number of each row in Python; then several trials in sequence."""
from unittest.mock import patch

import torch
from torch.nn.functional import one_hot

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3,
    hints=["The memory holds what this policy has learned about the task. When is this knowledge useful, and when is "
           "it about another task?",
           "Both functions need trial_over. Only one of them needs episode_over: the network gets a flag at the end of "
           "an episode, and keeps its memory.",
           "last = the columns of the one-hot action, the reward and the episode flag, concatenated. Multiply all of "
           "them by 0 where a trial ended, and put the observation in front. Memory: 0 in the rows whose trial ended, "
           "unchanged in the others.",
           "torch.cat([one_hot(act, num_actions), rew[:, None], episode_over[:, None]], 1) gives `[N, A + 2]`. "
           "torch.where(trial_over[:, None], 0.0, hidden) resets rows and lets the gradient through the others."])
make = torch.Generator().manual_seed(0)


def flags(*bits):
    return torch.tensor(bits, dtype=torch.bool)


def chance(n):
    """Return random flags of `[N]` steps for episodes and trials; a trial ends only where an episode ends."""
    over = torch.rand(n, generator=make) < 0.6
    return {"episode_over": over, "trial_over": over & (torch.rand(n, generator=make) < 0.5)}


inputs = exercise.function("network_input", [
    case(obs=torch.tensor([[7.0], [7.0], [7.0]]), act=torch.tensor([1, 0, 1]), rew=torch.tensor([0.5, 1.0, 1.0]),
         episode_over=flags(0, 1, 1), trial_over=flags(0, 0, 1), num_actions=2),
    case(obs=torch.zeros(2, 1), act=torch.tensor([0, 1]), rew=torch.ones(2), episode_over=flags(0, 0),
         trial_over=flags(0, 0), num_actions=4),
    *(case(obs=torch.randn(n, d, generator=make), act=torch.randint(0, a, (n,), generator=make),
           rew=torch.randn(n, generator=make), **chance(n), num_actions=a) for n, d, a in ((9, 3, 4), (8, 1, 5)))])


@inputs.reference
def number_by_number(obs, act, rew, episode_over, trial_over, num_actions):
    rows = []
    for i in range(len(obs)):
        last = [0.0] * (num_actions + 2)
        if not trial_over[i]:
            last[int(act[i])], last[-2], last[-1] = 1.0, float(rew[i]), float(episode_over[i])
        rows.append(obs[i].tolist() + last)
    return torch.tensor(rows)


inputs.extreme("Rewards or observations are clipped; give them to the network unchanged.",
               obs=torch.tensor([[900.0], [-40.0]]),
               act=torch.tensor([0, 1]), rew=torch.tensor([300.0, -2000.0]), episode_over=flags(0, 0),
               trial_over=flags(0, 0), num_actions=2)


def columns(obs, act, rew, flag, known, num_actions):
    return torch.cat([obs, torch.cat([one_hot(act, num_actions), rew[:, None], flag[:, None]], 1) * known[:, None]], 1)


@inputs.mistake("The new trial gets the last step of the old trial. Its action, its reward and its flag belong to "
                "another task; set them to 0 where a trial has ended.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    return columns(obs, act, rew, episode_over, torch.ones_like(trial_over), num_actions)


@inputs.mistake("The new trial gets the last action of the old trial, which belongs to another task; set the action "
                "columns to 0 there.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    seen = number_by_number(obs, act, rew, episode_over, trial_over, num_actions)
    seen[:, obs.shape[1]:-2] = one_hot(act, num_actions)
    return seen


@inputs.mistake("The width depends on the largest action in the batch. If no row took the last action, the input is "
                "too narrow; give num_actions to one_hot.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    return columns(obs, act, rew, episode_over, ~trial_over, int(act.max()) + 1)


@inputs.mistake("A new trial looks as if action 0 was just taken. No action has been taken yet; use a row of zeros, "
                "not the one-hot form of 0.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    known = ~trial_over
    seen = number_by_number(obs, act, rew, episode_over, trial_over, num_actions)
    seen[:, obs.shape[1]:-2] = one_hot(act * known, num_actions)
    return seen


@inputs.mistake("You set the last action and reward to 0 at the end of each episode. Often the last reward of an "
                "episode says most about the task; set them to 0 only where a trial ended.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    seen = columns(obs, act, rew, episode_over, ~episode_over, num_actions)
    seen[:, -1] = episode_over & ~trial_over
    return seen


@inputs.mistake("The flag is 1 in the first step of a new trial. The episode that ended belongs to the old trial; set "
                "the flag to 0 there, like the action and the reward.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    seen = columns(obs, act, rew, episode_over, ~trial_over, num_actions)
    seen[:, -1] = episode_over
    return seen


@inputs.mistake("You set the last action and reward to 0 at the end of each episode, and the flag nowhere. Treat all "
                "three alike: set them to 0 only where a trial ended.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    seen = columns(obs, act, rew, episode_over, ~episode_over, num_actions)
    seen[:, -1] = episode_over
    return seen


@inputs.mistake("Everything is 0 where an episode ended, including the flag, so the network never learns of an episode "
                "end. Use zeros only at the start of a new trial.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    return columns(obs, act, rew, episode_over, ~episode_over, num_actions)


@inputs.mistake("You use the flag of the trial. The network must know when an episode ended; it recognises the end of "
                "a trial by its empty memory. Use episode_over.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    known = (~trial_over)[:, None]
    last = torch.cat([one_hot(act, num_actions) * known, rew[:, None] * known, trial_over[:, None]], 1)
    return torch.cat([obs, last], 1)


@inputs.mistake("The reward is missing. Without it no arm looks better than another, and nothing can be learned within "
                "a trial; add its column.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    seen = number_by_number(obs, act, rew, episode_over, trial_over, num_actions)
    return torch.cat([seen[:, :-2], seen[:, -1:]], 1)


@inputs.mistake("The flag is missing. Without it the jump from the last state of an episode to the first state of the "
                "next looks like an effect of the action; add its column.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    return number_by_number(obs, act, rew, episode_over, trial_over, num_actions)[:, :-1]


@inputs.mistake("The action is one column that holds its number. Actions have no order, so give each action its own "
                "column.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    return torch.cat([obs, torch.stack([act, rew, episode_over], 1) * ~trial_over[:, None]], 1)


@inputs.mistake("You set the observation to 0 at a new trial too. It already belongs to the new trial, and nothing "
                "else is known there; keep it.")
def _(obs, act, rew, episode_over, trial_over, num_actions):
    return columns(obs, act, rew, episode_over, torch.ones_like(trial_over), num_actions) * ~trial_over[:, None]


def carry_cases():
    found = [case(hidden=torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), episode_over=flags(0, 1, 1),
                  trial_over=flags(0, 0, 1))]
    for n, h, derive in ((7, 3, True), (6, 6, False), (4, 4, True)):
        found.append(case(hidden=torch.randn(n, h, generator=make).requires_grad_(derive), **chance(n)))
    return [*found, case(hidden=torch.ones(4, 4), episode_over=flags(0, 1, 0, 1), trial_over=flags(0, 0, 0, 1))]


memory = exercise.function("carry", carry_cases())


@memory.reference
def row_by_row(hidden, episode_over, trial_over):
    return torch.stack([h * 0 if over else h * 1 for h, over in zip(hidden, trial_over.tolist(), strict=True)])


memory.extreme("The memory is clipped; keep it unchanged.", hidden=torch.tensor([[500.0, -40.0], [1.0, 2.0]]),
               episode_over=flags(0, 1), trial_over=flags(0, 1))


def wiped(hidden, which):
    return torch.where(which[:, None], 0.0, hidden)


@memory.mistake("You reset hidden in place. The caller and the gradient still need its old values; make a new tensor.")
def _(hidden, episode_over, trial_over):
    hidden[trial_over] = 0
    return hidden


@memory.mistake("The memory is reset after each episode. The next episode of the same trial needs it; with this reset "
                "the policy is a recurrent policy, not RL². Reset it only where a trial ended.")
def _(hidden, episode_over, trial_over):
    return wiped(hidden, episode_over)


@memory.mistake("The memory is never reset, so the policy treats the new task as the old one; reset it where a trial "
                "ended.")
def _(hidden, episode_over, trial_over):
    return hidden.clone()


@memory.mistake("The condition is inverted: you keep the memory between trials and reset it within them.")
def _(hidden, episode_over, trial_over):
    return wiped(hidden, ~trial_over)


@memory.mistake("The memory is kept only where an episode ended, and reset during the episode; keep it at all steps of "
                "a trial.")
def _(hidden, episode_over, trial_over):
    return wiped(hidden, trial_over | ~episode_over)


@memory.mistake("One trial that ends resets the memory of all rows; each of the N rows is a separate trial.")
def _(hidden, episode_over, trial_over):
    return hidden * 0 if trial_over.any() else hidden * 1


@memory.mistake("You reset columns instead of rows; a trial is a row of `[N, H]`.")
def _(hidden, episode_over, trial_over):
    return torch.where(trial_over, 0.0, hidden)


@memory.mistake("The memory was detached. No gradient reaches earlier steps, so exploration gets no credit for later "
                "rewards; do not detach it.")
def _(hidden, episode_over, trial_over):
    return wiped(hidden.detach(), trial_over)


@exercise.property
def two_trials(student):
    """Run three trials of two episodes with two steps each. Raise Wrong if a memory that sums rewards contains
    rewards of another trial."""
    hidden = torch.zeros(1, 1)
    act = torch.zeros(1, dtype=torch.int64)
    for step in range(12):
        episode_over, trial_over = flags(step % 2 == 0), flags(step % 4 == 0)         # ended by the step before
        x = student.network_input(torch.zeros(1, 1), act, torch.full((1,), float(step)), episode_over, trial_over, 3)
        hidden = student.carry(hidden, episode_over, trial_over) + x[:, -2:-1]
        expected = sum(range(step - step % 4 + 1, step + 1))
        if abs(float(hidden) - expected) > 1e-4:
            raise Wrong(f"a memory that sums rewards holds {float(hidden):g} in step {step % 4} of a trial; the "
                        f"rewards since the start of the trial sum to {expected}", "carry")


@exercise.learning
def bandits(student):
    """RL² with your functions, bandits of 5 arms and 10 pulls, 1,000,000 steps: a return of 6; random actions reach 5
    """
    import importlib
    import tempfile

    import numpy as np
    from gymnasium.spaces import Box

    from spinup import rl2
    from spinup.envs.memory import Memory
    from spinup.envs.vector import Step

    class Yours(Memory):
        def __init__(self, env, episodes):
            super().__init__(env, episodes)
            self.observation_space = Box(-np.inf, np.inf, (self.size + self.actions + 3,))

        def _see(self, obs, act, rew, ended, over):
            given = (torch.as_tensor(x) for x in (obs, act, rew, ended, over))
            return np.c_[student.network_input(*given, self.actions).numpy(), over].astype(np.float32)

        def _first(self, obs):
            begin = np.ones(self.num_envs, bool)
            return self._see(obs, np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.float32), begin, begin)

        def _step(self, action):
            step = self.env.step(action)
            ended = step.terminated | step.truncated
            self.env.finished.clear()
            self.played = self.played % self.episodes + ended
            over = self.played == self.episodes
            obs = self._see(step.obs, action, step.reward, ended, over)
            return Step(obs, step.reward, step.terminated & over, step.truncated & over, obs if over.any() else None)

    def remember(self, obs, hidden):
        found = []
        for x in obs.unbind(1):
            hidden = student.carry(hidden, (x[:, -2] > 0) | (x[:, -1] > 0), x[:, -1] > 0)
            _, last = self.gru(x[:, None], hidden[None].contiguous())
            hidden = last[0]
            found.append(hidden)
        return torch.stack(found, 1)

    with tempfile.TemporaryDirectory() as folder, patch(
            "spinup.algos.rl2.RecurrentActorCritic.remember", remember), patch.object(
            importlib.import_module("spinup.envs.make"), "Memory", Yours):
        result = rl2("Bandits-5x10-v0", total_steps=1_000_000, log_dir=folder, quiet=True, tensorboard=False)
    found = float(np.mean(result.progress["return_mean"][-20:]))
    if found < 6:
        raise Wrong(f"RL² with your functions has a return of {found:.2f} after 1,000,000 steps; 6 was expected, and "
                    "random actions reach 5")
