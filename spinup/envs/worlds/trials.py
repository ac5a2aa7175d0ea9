"""Tasks that are new in every trial, so that a policy can only do well by learning within it: the bandits and the small
MDPs of RL² (Duan et al. 2016, arXiv 1611.02779), and the classic strategies that it is compared with.

B trials in tensors, on any device, all of the same length: a trial is `steps` steps in one task, in episodes of
`horizon` steps. New tasks come only with `reset`, and between trials the generator is all the state there is.
"""
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from spinup.envs.worlds.beliefs import (
    beta_draw,
    beta_mean,
    bonus_model,
    dirichlet,
    drawn_model,
    mean_model,
    plan,
    ucb_index,
)


class Trials:
    """B tasks, played side by side.

    The tasks and the luck of their players depend on the generator alone, not on what is done: whoever plays with the
    same seed plays the same trials.

    Attributes:
        batch: B.
        num_states, num_actions: states and actions are int64 from 0.
        horizon, steps: of an episode and of a trial.
    """

    num_states: int
    num_actions: int
    horizon: int

    def __init__(self, batch: int, episodes: int, device: torch.device | str, generator: Generator):
        self.batch, self.steps, self.device, self.generator = batch, episodes * self.horizon, device, generator
        self.rows = torch.arange(batch, device=device)

    def reset(self) -> Tensor:
        """Draw B new tasks; the first states, `[B]`."""
        self._draw()
        self.clock = 0
        self.state = torch.zeros_like(self.rows)
        return self.state

    def step(self, act: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Act, `[B]` int64. Returns state, reward and done, `[B]` each, the last two float32.

        done: 1 where this was the last step of an episode; the state is then the first of the next one.
        """
        reward, state = self._step(act)
        self.clock += 1
        over = self.clock % self.horizon == 0
        self.state = torch.zeros_like(state) if over else state
        return self.state, reward, torch.full_like(reward, float(over))

    def optimal(self) -> Tensor:
        """Expected return of a trial for a player who knows the task, `[B]`."""
        raise NotImplementedError

    def _draw(self) -> None:
        raise NotImplementedError

    def _step(self, act: Tensor) -> tuple[Tensor, Tensor]:
        """Reward and what it led to, `[B]` each."""
        raise NotImplementedError


class Bandits(Trials):
    """Arms that give 1 with a probability drawn from [0, 1], and else 0. A trial is `pulls` episodes of one pull.

    probs: `[B, arms]`, set by `reset`.
    """

    num_states = horizon = 1

    def __init__(self, batch: int, arms: int, pulls: int, device: torch.device | str, generator: Generator):
        self.num_actions = arms
        super().__init__(batch, pulls, device, generator)

    def optimal(self) -> Tensor:
        return self.steps * self.probs.amax(1)

    def _draw(self) -> None:
        self.probs = torch.rand(self.batch, self.num_actions, device=self.device, generator=self.generator)

    def _step(self, act: Tensor) -> tuple[Tensor, Tensor]:
        luck = torch.rand(self.batch, device=self.device, generator=self.generator)
        return (luck < self.probs[self.rows, act]).float(), self.state


class TabularMDPs(Trials):
    """10 states, 5 actions, rewards Normal(m, 1) with m from Normal(1, 1), transitions from a flat Dirichlet.

    Every episode starts in state 0. reward_means: `[B, S, A]`, transitions: `[B, S, A, S]`, set by `reset`.
    """

    num_states, num_actions, horizon = 10, 5, 10

    def optimal(self) -> Tensor:
        _, value = plan(self.reward_means, self.transitions, self.horizon)
        return self.steps // self.horizon * value[:, 0]

    def _draw(self) -> None:
        shape = self.batch, self.num_states, self.num_actions
        self.reward_means = 1 + torch.randn(shape, device=self.device, generator=self.generator)
        self.transitions = dirichlet(torch.ones(*shape, self.num_states, device=self.device), self.generator)
        # Without the last entry, which rounding may leave below 1: a draw above it would lead out of the states.
        self.cumulative = self.transitions.cumsum(-1)[..., :-1]

    def _step(self, act: Tensor) -> tuple[Tensor, Tensor]:
        at = self.rows, self.state, act
        reward = self.reward_means[at] + torch.randn(self.batch, device=self.device, generator=self.generator)
        luck = torch.rand(self.batch, 1, device=self.device, generator=self.generator)
        return reward, (luck >= self.cumulative[at]).sum(-1)


class Strategy:
    """A player of trials, which keeps what it learns within a trial; a trained recurrent policy is one too."""

    def reset(self, tasks: Trials) -> None:
        """Forget: trials begin, of tasks with such sizes. It must not look at what they are."""

    def act(self, state: Tensor, t: int) -> Tensor:
        """Actions `[B]` for step t of the trial, from 0."""
        raise NotImplementedError

    def observe(self, state: Tensor, act: Tensor, reward: Tensor, done: Tensor, next_state: Tensor) -> None:
        """Learn from a step, `[B]` each, as `Trials.step` gave it."""


@torch.no_grad()
def play(tasks: Trials, strategy: Strategy) -> Tensor:
    """Draw new tasks and play a trial of each; the sum of its rewards, `[B]`."""
    state, total = tasks.reset(), torch.zeros(tasks.batch, device=tasks.device)
    strategy.reset(tasks)
    for t in range(tasks.steps):
        act = strategy.act(state, t)
        next_state, reward, done = tasks.step(act)
        strategy.observe(state, act, reward, done, next_state)
        total += reward
        state = next_state
    return total


class Index(Strategy):
    """Pull the arm with the highest index, the first of several.

    index: from wins and pulls so far, `[B, k]` each, to `[B, k]`: `beta_mean`, or `ucb_index` with its c.
    """

    def __init__(self, index: Callable[[Tensor, Tensor], Tensor]):
        self.index = index

    def reset(self, tasks: Trials) -> None:
        self.wins = torch.zeros(tasks.batch, tasks.num_actions, device=tasks.device)
        self.pulls = torch.zeros_like(self.wins)
        self.rows = tasks.rows

    def act(self, state: Tensor, t: int) -> Tensor:
        return self.index(self.wins, self.pulls).argmax(1)

    def observe(self, state: Tensor, act: Tensor, reward: Tensor, done: Tensor, next_state: Tensor) -> None:
        self.wins[self.rows, act] += reward
        self.pulls[self.rows, act] += 1


class Planner(Strategy):
    """At the start of each episode make a model of the MDP from all that was seen, and follow the best plan for it.

    model: from sums, visits and moves to rewards and transitions, as `mean_model`.
    """

    def __init__(self, model: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]):
        self.model = model

    def reset(self, tasks: Trials) -> None:
        shape = tasks.batch, tasks.num_states, tasks.num_actions
        self.sums, self.visits = torch.zeros(2, *shape, device=tasks.device)
        self.moves = self.sums.new_zeros(*shape, tasks.num_states)
        self.rows, self.horizon = tasks.rows, tasks.horizon

    def act(self, state: Tensor, t: int) -> Tensor:
        if t % self.horizon == 0:
            self.policy, _ = plan(*self.model(self.sums, self.visits, self.moves), self.horizon)
        return self.policy[self.rows, t % self.horizon, state]

    def observe(self, state: Tensor, act: Tensor, reward: Tensor, done: Tensor, next_state: Tensor) -> None:
        at = self.rows, state, act
        self.sums[at] += reward
        self.visits[at] += 1
        self.moves[(*at, next_state)] += 1 - done                         # a restart is no move of the MDP


class EpsilonGreedy(Strategy):
    """Any action with probability epsilon, else that of another strategy, which learns from both; 1: play at random."""

    def __init__(self, greedy: Strategy, epsilon: float, generator: Generator):
        self.greedy, self.epsilon, self.generator = greedy, epsilon, generator

    def reset(self, tasks: Trials) -> None:
        self.greedy.reset(tasks)
        self.num_actions = tasks.num_actions

    def act(self, state: Tensor, t: int) -> Tensor:
        explores = torch.rand(state.shape, device=state.device, generator=self.generator) < self.epsilon
        other = torch.randint(self.num_actions, state.shape, device=state.device, generator=self.generator)
        return torch.where(explores, other, self.greedy.act(state, t))

    def observe(self, state: Tensor, act: Tensor, reward: Tensor, done: Tensor, next_state: Tensor) -> None:
        self.greedy.observe(state, act, reward, done, next_state)


def baselines(tasks: Trials, generator: Generator, *, epsilon: float = 0.05, c: float = 0.2,
              bonus: float = 0.5) -> dict[str, Strategy]:
    """The strategies that `tasks` are played with for comparison, by name.

    generator: what they draw from, on the device of the tasks; not that of the tasks, which would then depend on who
    plays. epsilon, c, bonus: of epsilon-greedy, UCB1 and BEB.
    """
    if isinstance(tasks, Bandits):
        sample = partial(beta_draw, generator=generator)
        greedy: Strategy = Index(beta_mean)
        others = {"UCB1": Index(partial(ucb_index, c=c)), "Thompson": Index(sample), "optimistic Thompson":
                  Index(lambda wins, pulls: sample(wins, pulls).maximum(beta_mean(wins, pulls)))}
    else:
        greedy = Planner(mean_model)
        others = {"PSRL": Planner(partial(drawn_model, generator=generator)),
                  "BEB": Planner(partial(bonus_model, bonus=bonus))}
    return {"random": EpsilonGreedy(greedy, 1.0, generator), "greedy": greedy,
            "epsilon-greedy": EpsilonGreedy(greedy, epsilon, generator), **others}
