"""Tasks that change in every trial, so that a policy must learn within the trial: the bandits and the small MDPs of RL²
(Duan et al. 2016, arXiv 1611.02779). `strategies.py` has the baselines.

B trials run in parallel in tensors on any device. A trial has `steps` steps in one task, in episodes of `horizon`
steps, and all trials have the same length. Only `reset` samples new tasks. Between trials the generator is the only
state.
"""
import torch
from torch import Generator, Tensor

from spinup.envs.worlds.beliefs import dirichlet, plan


class Trials:
    """B tasks, played in parallel.

    The tasks and all random numbers depend only on the generator, not on the actions. So all players with the same seed
    play the same trials.

    Attributes:
        batch: B.
        num_states, num_actions: states and actions are int64 from 0.
        horizon, steps: length of an episode and of a trial.
    """

    num_states: int
    num_actions: int
    horizon: int

    def __init__(self, batch: int, episodes: int, device: torch.device | str, generator: Generator):
        self.batch, self.steps, self.device, self.generator = batch, episodes * self.horizon, device, generator
        self.rows = torch.arange(batch, device=device)

    def reset(self) -> Tensor:
        """Sample B new tasks. Return the first states, `[B]`."""
        self._draw()
        self.clock = 0
        self.state = torch.zeros_like(self.rows)
        return self.state

    def step(self, act: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take actions `[B]` int64. Return state, reward and done, `[B]` each, the last two float32.

        done: 1 after the last step of an episode; the state is then the first one of the next episode.
        """
        reward, state = self._step(act)
        self.clock += 1
        over = self.clock % self.horizon == 0
        self.state = torch.zeros_like(state) if over else state
        return self.state, reward, torch.full_like(reward, float(over))

    def optimal(self) -> Tensor:
        """Expected return of a trial for a player that knows the task, `[B]`."""
        raise NotImplementedError

    def _draw(self) -> None:
        raise NotImplementedError

    def _step(self, act: Tensor) -> tuple[Tensor, Tensor]:
        """Return reward and next state, `[B]` each."""
        raise NotImplementedError


class Bandits(Trials):
    """Bernoulli bandits, with probabilities sampled uniformly from [0, 1]. A trial has `pulls` episodes of one pull.

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
    """MDPs with 10 states and 5 actions: rewards Normal(m, 1) with m from Normal(1, 1), transitions from a flat
    Dirichlet.

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
        # Drop the last entry, which may be below 1 by rounding: a sample above it would give an invalid state.
        self.cumulative = self.transitions.cumsum(-1)[..., :-1]

    def _step(self, act: Tensor) -> tuple[Tensor, Tensor]:
        at = self.rows, self.state, act
        reward = self.reward_means[at] + torch.randn(self.batch, device=self.device, generator=self.generator)
        luck = torch.rand(self.batch, 1, device=self.device, generator=self.generator)
        return reward, (luck >= self.cumulative[at]).sum(-1)
