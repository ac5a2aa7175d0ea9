"""Baselines for the tasks of `trials.py`: the classic strategies for bandits and small MDPs (Duan et al. 2016,
arXiv 1611.02779)."""
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from spinup.envs.worlds.beliefs import (
    beta_draw,
    beta_mean,
    bonus_model,
    drawn_model,
    mean_model,
    plan,
    ucb_index,
)
from spinup.envs.worlds.trials import Bandits, Trials


class Strategy:
    """Player that learns within a trial. A trained recurrent policy is a strategy too."""

    def reset(self, tasks: Trials) -> None:
        """Forget everything at the start of trials. It may read the sizes of `tasks`, but not the tasks themselves."""

    def act(self, state: Tensor, t: int) -> Tensor:
        """Choose actions `[B]` for step t of the trial, from 0."""
        raise NotImplementedError

    def observe(self, state: Tensor, act: Tensor, reward: Tensor, done: Tensor, next_state: Tensor) -> None:
        """Learn from a step of `Trials.step`, `[B]` each."""


@torch.no_grad()
def play(tasks: Trials, strategy: Strategy) -> Tensor:
    """Sample new tasks and play one trial of each. Return the sum of its rewards, `[B]`."""
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
    """Pull the arm with the highest index; the first one, if several are equal.

    index: function from wins and pulls so far, `[B, k]` each, to indices `[B, k]`: `beta_mean`, or `ucb_index` with c.
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
    """Build a model of the MDP from all data at the start of each episode, and follow the optimal plan for it.

    model: function from sums, visits and moves to rewards and transitions, like `mean_model`.
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
        self.moves[(*at, next_state)] += 1 - done                         # a reset is not a transition


class EpsilonGreedy(Strategy):
    """Take a random action with probability epsilon, else the action of another strategy. That strategy learns from all
    steps. Epsilon 1 is the random policy."""

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


def baselines(tasks: Trials, generator: Generator) -> dict[str, Strategy]:
    """Return the strategies for comparison on `tasks`, by name.

    generator: random number generator of the strategies, on the device of the tasks. Do not use the generator of the
    tasks, because then the tasks would depend on the player.
    """
    if isinstance(tasks, Bandits):
        sample = partial(beta_draw, generator=generator)
        greedy: Strategy = Index(beta_mean)
        others = {"UCB1": Index(partial(ucb_index, c=0.2)), "Thompson": Index(sample), "optimistic Thompson":
                  Index(lambda wins, pulls: sample(wins, pulls).maximum(beta_mean(wins, pulls)))}
    else:
        greedy = Planner(mean_model)
        others = {"PSRL": Planner(partial(drawn_model, generator=generator)),
                  "BEB": Planner(partial(bonus_model, bonus=0.5))}
    return {"random": EpsilonGreedy(greedy, 1.0, generator), "greedy": greedy,
            "epsilon-greedy": EpsilonGreedy(greedy, 0.05, generator), **others}
