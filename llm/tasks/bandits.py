"""Bandits and small MDPs as text: a response is a trial, and the context is the memory of the policy.

The worlds are those of `spinup/envs/worlds/trials.py`. The policy writes one action, a letter. The world replies with
the reward and, in an MDP, the next state. So a response of the policy to the prompt `?` may be `aAb1cC`: here arm a
paid, arm b did not, and arm c paid.
"""
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from llm.tasks.episodes import Episode
from llm.tasks.options import check_options
from llm.tasks.task import LARGEST, Problem, Task, numbered
from spinup.envs.worlds.strategies import baselines
from spinup.envs.worlds.trials import Bandits as Arms
from spinup.envs.worlds.trials import TabularMDPs, Trials
from spinup.runs.config import Range


class Trial(Episode):
    """One trial as an episode: every token of the policy is a step, and `observe` returns the world's reply."""

    def __init__(self, task: "TrialTask", number: int):
        self.task, self.world = task, task.worlds(1, number)
        self.world.reset()

    def act(self, text: str) -> tuple[float, bool]:
        token = torch.tensor([self.task.token(text)])
        reward, reply = self.task.step(self.world, token)
        self.reply = "".join(self.task.alphabet[i - 1] for i in reply[0].tolist())
        return float(reward), self.world.clock == self.world.steps

    def observe(self) -> str:
        return self.reply


class TrialTask(Task):
    """A task whose problems are trials. All prompts are `?`; the number of the trial, `data`, determines its world.

    A token that is no action earns nothing. The world then moves as after action a.
    """

    measure, end_of_turn = "held_out_reward", ""          # each character is a turn
    actions: int            # number of actions: the tokens 1 to `actions`
    reply_tokens: int       # tokens of a reply

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return numbered(n, rng, held_out)

    def open(self, problem: Problem) -> Trial:
        """Start the trial of a problem."""
        return Trial(self, problem.data)

    def worlds(self, batch: int, seed: int) -> Trials:
        """Create `batch` worlds, which depend on the seed alone; call `reset` before the first step."""
        raise NotImplementedError

    def token(self, text: str) -> int:
        """Return the id of a text's only character, 0 for any other text."""
        return 1 + self.alphabet.index(text) if len(text) == 1 and text in self.alphabet else 0

    def step(self, world: Trials, token: Tensor) -> tuple[Tensor, Tensor]:
        """Take the actions that are written as tokens `[B]`. Return rewards `[B]` and the ids of the replies, `[B, r]`.
        """
        legal = (token >= 1) & (token <= self.actions)
        act = torch.where(legal, token - 1, 0)
        state, reward, done = world.step(act)
        reward = torch.where(legal, reward, 0.0)
        return reward, self.reply(act, reward, state, done)

    def reply(self, act: Tensor, reward: Tensor, state: Tensor, done: Tensor) -> Tensor:
        """Return the ids of the world's replies, `[B, r]`, from `[B]` each."""
        raise NotImplementedError

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a trial of the hand-designed strategy for such worlds: Thompson or posterior sampling."""
        world = self.worlds(1, problem.data)
        generator = torch.Generator().manual_seed(int(rng.integers(LARGEST)))
        known = baselines(world, generator)
        strategy = known.get("Thompson") or known["PSRL"]
        state, text, reply = world.reset(), "", []
        strategy.reset(world)
        for t in range(world.steps):
            act = strategy.act(state, t)
            text += "".join(self.alphabet[i - 1] for i in (*reply, int(act) + 1))
            after, reward, done = world.step(act)
            strategy.observe(state, act, reward, done, after)
            reply, state = self.reply(act, reward, after, done)[0].tolist(), after
        return text


@dataclass
class Bandits(TrialTask):
    """Bernoulli bandits. The reply to arm `c` is `C` if it paid, and its number `3` if it did not."""

    arms: Annotated[int, Range(2, 9)] = 5           # arms, as the letters from a
    pulls: Annotated[int, Range(1, 100)] = 10       # pulls in a trial
    name = "bandits"

    def __post_init__(self):
        check_options(self)
        letters = ascii_lowercase[:self.arms]
        self.alphabet = letters + letters.upper() + "".join(str(i + 1) for i in range(self.arms)) + "?"
        self.actions, self.reply_tokens, self.max_tokens = self.arms, 1, 2 * self.pulls

    def worlds(self, batch: int, seed: int) -> Trials:
        return Arms(batch, self.arms, self.pulls, "cpu", torch.Generator().manual_seed(seed))

    def reply(self, act: Tensor, reward: Tensor, state: Tensor, done: Tensor) -> Tensor:
        return (1 + act + self.arms * torch.where(reward > 0, 1, 2))[:, None]


@dataclass
class MDPs(TrialTask):
    """MDPs with 10 states and 5 actions, in episodes of 10 steps. The reply is the reward and the next state.

    The reward is rounded to a whole number from -3 to 5, which is written as a letter from F (-3) to N (5). A state is
    a digit. After the last step of an episode `|` stands in place of the state: the next episode starts in state 0.
    """

    episodes: Annotated[int, Range(1, 16)] = 2      # episodes in a trial, all in the same MDP
    name = "mdps"
    alphabet = "abcdeFGHIJKLMN0123456789|?"

    def __post_init__(self):
        check_options(self)
        self.actions, self.reply_tokens = 5, 2
        self.max_tokens = 3 * 10 * self.episodes

    def worlds(self, batch: int, seed: int) -> Trials:
        return TabularMDPs(batch, self.episodes, "cpu", torch.Generator().manual_seed(seed))

    def reply(self, act: Tensor, reward: Tensor, state: Tensor, done: Tensor) -> Tensor:
        rounded = reward.round().clamp(-3, 5).long() + 3
        return torch.stack([6 + rounded, torch.where(done > 0, 25, 15 + state)], 1)
