"""The interface of every vectorised environment here: N copies that step together, restart within the step, and can be
saved."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from spinup.errors import UserError


class Step(NamedTuple):
    """One step of N copies. Read it by name, `step.reward`: more fields may come."""

    obs: np.ndarray                 # [N, *shape]; the first of the next episode where one has ended
    reward: np.ndarray              # [N] float32, as the environment gives it
    terminated: np.ndarray          # [N] bool: the task ended; nothing follows, its value is 0
    truncated: np.ndarray           # [N] bool: the clock ran out; unless terminated too, the future was worth something
    final_obs: np.ndarray | None    # [N, *shape]; what the step led to, before any restart; None if no episode ended
    cost: np.ndarray | None = None  # [N] float32, what constrained methods keep low; None where no cost is reported
    info: Sequence[dict] = ()       # N dicts, one of each copy, as its environment gives them; () where it gives none


class VectorEnv:
    """N copies of one environment, with autoreset in the same step.

    A subclass sets the spaces and implements `_reset`, `_restart`, `_step`, and to be saved `_save` and `_load`;
    episode statistics are kept here, from raw rewards (`_truth`). UserError where an environment calls sys.exit.

    Attributes:
        num_envs: N, the number of copies.
        observation_space, action_space: those of *one* copy.
        obs: the current observations `[N, *shape]`, which the next action answers.
        finished: (return, length) of each episode that ended since `take_finished` was last called.
        finished_costs: total cost of each episode that the last call of `take_finished` returned, in the same order; 0
            where the environment reports no costs.
        frames: successive frames that an image shows along its first axis, the newest last; 1: it shows one moment.
        shown_by: the commands that show a policy in it.
        can_save: whether `state_dict` holds all that the future depends on.
        why_not_saved: where it does not, the reason.
        trial_episodes, trial_steps: of a trial, after which the environment draws new tasks for all copies; None where
            it has no trials.
        MEASURES: the keys of `measures`, which become columns of `progress.csv`, and what each of them means.
    """

    num_envs: int
    observation_space: Space
    action_space: Space
    can_save = True
    shown_by: tuple[str, ...] = ("watch",)
    why_not_saved = ""
    frames = 1
    trial_episodes: int | None = None
    trial_steps: int | None = None
    MEASURES: dict[str, str] = {}

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.episode_return = np.zeros(num_envs)
        self.episode_length = np.zeros(num_envs, np.int64)
        self.episode_cost = np.zeros(num_envs)
        self.finished: list[tuple[float, int]] = []
        self.finished_costs: list[float] = []
        self.costs: list[float] = []                                      # of the episodes in `finished`
        self.reports_cost = False                                         # whether an info has had a "cost"

    def reset(self) -> np.ndarray:
        """Start N new episodes; returns and keeps `obs`."""
        self.episode_return[:] = 0
        self.episode_length[:] = 0
        self.episode_cost[:] = 0
        self.finished.clear()
        self.costs.clear()
        try:
            self.obs = self._reset()
        except SystemExit as end:
            raise UserError(exited(end)) from end
        return self.obs

    def restart(self, i: int, seed: int) -> None:
        """Start a new episode in copy i that depends on `seed` alone; `obs[i]` becomes its first observation."""
        self.episode_return[i] = self.episode_length[i] = self.episode_cost[i] = 0
        try:
            self.obs[i] = self._restart(i, seed)
        except SystemExit as end:
            raise UserError(exited(end)) from end

    def check_restart(self) -> None:
        """UserError where `restart` is not supported."""
        if type(self)._restart is VectorEnv._restart:
            raise UserError(f"{type(self).__name__} cannot reset one copy to a given seed, which this algorithm needs; "
                            "choose an environment of Gymnasium, such as CartPole-v1")

    def step(self, action: np.ndarray) -> Step:
        """Act in every copy.

        action: `[N]` integers (Discrete), `[N, k]` integers (MultiDiscrete) or `[N, *shape]` reals (Box).
        """
        try:
            result = self._step(action)
        except SystemExit as end:
            raise UserError(exited(end)) from end
        self.obs = result.obs
        reward, ended = self._truth(result)
        self.episode_return += reward
        self.episode_length += 1
        if result.cost is not None:
            self.episode_cost += result.cost
        if result.final_obs is not None:
            self.finished += zip(self.episode_return[ended].tolist(), self.episode_length[ended].tolist(), strict=True)
            self.costs += self.episode_cost[ended].tolist()
            self.episode_return[ended] = self.episode_length[ended] = self.episode_cost[ended] = 0
        return result

    def take_finished(self) -> list[tuple[float, int]]:
        """(return, length) of the episodes that ended since the last call, in the order in which they ended.

        Their total costs are then in `finished_costs`.
        """
        finished, self.finished = self.finished, []
        self.finished_costs, self.costs = self.costs, []
        return finished

    def measures(self) -> dict[str, float]:
        """Figures beside returns since the last call, by name: always those of `MEASURES`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, as plain arrays and numbers."""
        return {"obs": self.obs.copy(), "episode_return": self.episode_return.copy(),
                "episode_length": self.episode_length.copy(), "finished": [list(e) for e in self.finished],
                "episode_cost": self.episode_cost.copy(), "costs": list(self.costs), "reports_cost": self.reports_cost,
                "copies": self._save()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.obs = np.asarray(state["obs"]).copy()
        self.episode_return[:] = state["episode_return"]
        self.episode_length[:] = state["episode_length"]
        self.finished = [(float(r), int(n)) for r, n in state["finished"]]
        self.episode_cost[:] = state.get("episode_cost", 0)               # older checkpoints have no costs
        self.costs = [float(cost) for cost in state.get("costs", [0.0] * len(self.finished))]
        self.reports_cost = bool(state.get("reports_cost", False))
        self._load(state["copies"])

    def close(self) -> None:
        """Release what the copies hold."""

    def _reset(self) -> np.ndarray:
        raise NotImplementedError

    def _restart(self, i: int, seed: int) -> np.ndarray:
        raise NotImplementedError

    def _step(self, action: np.ndarray) -> Step:
        raise NotImplementedError

    def _truth(self, result: Step) -> tuple[np.ndarray, np.ndarray]:
        """Reward and end of episode, `[N]` each, that statistics count; overridden where the learner gets others."""
        return result.reward, result.terminated | result.truncated

    def _cost(self, infos: Sequence[dict]) -> np.ndarray | None:
        """The costs `[N]` that Gymnasium's infos report as "cost", 0 where one is missing; None before the first."""
        if not self.reports_cost and not any("cost" in info for info in infos):
            return None
        self.reports_cost = True
        return np.array([info.get("cost", 0) for info in infos], np.float32)

    def _save(self) -> Any:
        raise NotImplementedError

    def _load(self, state: Any) -> None:
        raise NotImplementedError


def exited(end: SystemExit) -> str:
    """The message for an environment that called sys.exit(): it must not end the program."""
    return (f"the environment called sys.exit({end.code!r}); let it return terminated = True to end an episode, or "
            "raise an exception where it failed")


def generator(seed: int) -> np.random.Generator:
    """The random numbers of an environment. They share none with those of the policy, which are `default_rng(seed)`."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])


def copy_seeds(seed: int, num_envs: int) -> list[int]:
    """A seed of 32 bits for each copy, from (seed, i): no two runs share an episode, as they would with seed + i."""
    return [int(np.random.SeedSequence((seed, i)).generate_state(1)[0]) for i in range(num_envs)]
