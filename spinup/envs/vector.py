"""Interface of all vectorised environments: N copies that step together, reset within the step, and can be saved."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from spinup.envs.faults import one_number
from spinup.envs.state import Unsaveable
from spinup.errors import UserError


class Step(NamedTuple):
    """Result of one step of N copies. Read fields by name, `step.reward`, because later versions may add fields."""

    obs: np.ndarray                 # [N, *shape]; after an episode end, the first one of the next episode
    reward: np.ndarray              # [N] float32, as returned by the environment
    terminated: np.ndarray          # [N] bool: the task ended, so the next state has value 0
    truncated: np.ndarray           # [N] bool: e.g. time limit; unless also terminated, bootstrap from final_obs
    final_obs: np.ndarray | None    # [N, *shape]; next observations before any reset; None if no episode ended
    cost: np.ndarray | None = None  # [N] float32, for constrained methods; None if no cost is reported
    info: Sequence[dict] = ()       # N dicts, one per copy, as returned by the environment; () if there are none


class VectorEnv:
    """N copies of one environment, with autoreset in the same step.

    A subclass sets the spaces and implements `_reset`, `_restart`, `_step`, and for saving `_save` and `_load`. This
    class keeps the episode statistics, from raw rewards (`_truth`). UserError if an environment calls sys.exit.

    Attributes:
        num_envs: N, the number of environment copies.
        observation_space, action_space: those of *one* copy.
        obs: the current observations `[N, *shape]`.
        finished: (return, length) of each episode that ended since the last call of `take_finished`.
        finished_costs: total cost of each episode that the last call of `take_finished` returned, in the same order; 0
            if the environment reports no costs.
        frames: number of successive frames along the first axis of an image, the newest last; 1: not stacked.
        shown_by: the commands that show a policy in this environment.
        why_not_saved: the reason why copies of this class can never be saved; "" if they can.
        trial_episodes, trial_steps: length of a trial. After a trial, the environment samples new tasks for all copies.
            None if it has no trials.
        MEASURES: the keys of `measures`, which become columns of `progress.csv`, with their meanings.
    """

    num_envs: int
    observation_space: Space
    action_space: Space
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
        self.costs: list[float] = []                                      # costs of episodes in `finished`
        self.reports_cost = False                                         # True after an info with a "cost"

    def reset(self) -> np.ndarray:
        """Start N new episodes. Return `obs`, which also becomes the attribute."""
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
        """Start a new episode in copy i that depends only on `seed`; `obs[i]` becomes its first observation."""
        self.episode_return[i] = self.episode_length[i] = self.episode_cost[i] = 0
        try:
            self.obs[i] = self._restart(i, seed)
        except SystemExit as end:
            raise UserError(exited(end)) from end

    def reseed(self, seed: int) -> None:
        """Start new episodes in all copies, with seeds made from `seed`. NotImplementedError if it cannot be done.
        EnvPool's environments keep the seeds of their constructor."""
        for i, own in enumerate(copy_seeds(seed, self.num_envs)):
            self.restart(i, own)

    def check_restart(self) -> None:
        """Raise a UserError if `restart` is not supported."""
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
        """Return (return, length) of the episodes that ended since the last call, in the order in which they ended.

        Their total costs are in `finished_costs` afterwards.
        """
        finished, self.finished = self.finished, []
        self.finished_costs, self.costs = self.costs, []
        return finished

    def measures(self) -> dict[str, float]:
        """Return further statistics since the last call, by name: always the keys of `MEASURES`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state as plain arrays and numbers. Unsaveable, with the reason, if it cannot be saved."""
        return {"obs": self.obs.copy(), "episode_return": self.episode_return.copy(),
                "episode_length": self.episode_length.copy(), "finished": [list(e) for e in self.finished],
                "episode_cost": self.episode_cost.copy(), "costs": list(self.costs), "reports_cost": self.reports_cost,
                "copies": self._save()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the output of `state_dict`."""
        self.obs = np.asarray(state["obs"]).copy()
        self.episode_return[:] = state["episode_return"]
        self.episode_length[:] = state["episode_length"]
        self.finished = [(float(r), int(n)) for r, n in state["finished"]]
        self.episode_cost[:] = state["episode_cost"]
        self.costs = [float(cost) for cost in state["costs"]]
        self.reports_cost = bool(state["reports_cost"])
        self._load(state["copies"])

    def close(self) -> None:
        """Release the resources of the copies."""

    def _reset(self) -> np.ndarray:
        raise NotImplementedError

    def _restart(self, i: int, seed: int) -> np.ndarray:
        raise NotImplementedError

    def _step(self, action: np.ndarray) -> Step:
        raise NotImplementedError

    def _truth(self, result: Step) -> tuple[np.ndarray, np.ndarray]:
        """Reward and episode end for the statistics, `[N]` each. Override it if the learner gets other values."""
        return result.reward, result.terminated | result.truncated

    def _cost(self, infos: Sequence[dict]) -> np.ndarray | None:
        """Costs `[N]` that Gymnasium's infos report as "cost", 0 where one is missing; None before the first cost.
        UserError if one is not a finite number."""
        if not self.reports_cost and not any("cost" in info for info in infos):
            return None
        self.reports_cost = True
        costs = np.array([one_number(info.get("cost", 0), "cost") for info in infos], np.float32)
        if not np.isfinite(costs).all():
            raise UserError(f"the environment reported the costs {costs.tolist()} in its copies; make each "
                            "info['cost'] a finite number")
        return costs

    def _save(self) -> Any:
        raise Unsaveable(self.why_not_saved)

    def _load(self, state: Any) -> None:
        raise NotImplementedError


def exited(end: SystemExit) -> str:
    """Return the message for an environment that called sys.exit(), because it must not end the program."""
    return (f"the environment called sys.exit({end.code!r}); make it return terminated = True to end an episode, or "
            "raise an exception where it failed")


def generator(seed: int) -> np.random.Generator:
    """Create the random number generator of an environment. It is independent of the policy's, `default_rng(seed)`."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])


def copy_seeds(seed: int, num_envs: int) -> list[int]:
    """Return a 32-bit seed for each copy, made from (seed, i). With seed + i, different runs would share episodes."""
    return [int(np.random.SeedSequence((seed, i)).generate_state(1)[0]) for i in range(num_envs)]


def all_measures() -> dict[str, str]:
    """Return the columns that environments add to `progress.csv`, with their meanings, for all imported classes."""
    found: dict[str, str] = {}
    classes = [VectorEnv]
    while classes:
        kind = classes.pop()
        found |= kind.MEASURES
        classes += kind.__subclasses__()
    return dict(sorted(found.items()))
