"""Training run on environments: it makes rows from episodes and saves the state of the environments."""
import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from spinup.core.fast.adam import FlatAdam
from spinup.core.replay import Replay
from spinup.envs.atari import in_words, protocol
from spinup.envs.make import make
from spinup.envs.spaces import observation_view, space_to_json
from spinup.envs.state import Unsaveable, load_rng, save_rng
from spinup.envs.try_out import try_out
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError, source_name
from spinup.machine import check_compile, cores, find_device
from spinup.runs import ranks
from spinup.runs.best import Best
from spinup.runs.config import BaseConfig
from spinup.runs.diagnose import diagnose
from spinup.runs.display import number, quoted
from spinup.runs.episodes import play_episodes
from spinup.runs.folders import describe
from spinup.runs.log import read_progress
from spinup.runs.policy import Policy, initial
from spinup.runs.replay import ReplayFiles, statement
from spinup.runs.result import Result
from spinup.runs.training import Training
from spinup.runs.workers import torchrun

WIDE = 128              # width of a hidden layer from which a second thread is faster


def make_env(cfg: BaseConfig, num_envs: int | None = None, seed: int | None = None) -> VectorEnv:
    """Make the environments of a training run: those of the settings, or `num_envs` copies with another seed.
    UserError if the settings contradict each other."""
    if cfg.test_episodes and isinstance(cfg.env, gymnasium.vector.VectorEnv):
        raise UserError("--test-episodes needs separate environments; give a function that makes the vector "
                        "environment, instead of the object")
    try_out(cfg.env, cfg.seed, **cfg.env_settings)
    seed, device = cfg.seed if seed is None else seed, find_device(cfg.device, gpu_helps=False)
    return make(cfg.env, num_envs or cfg.num_envs, seed, cfg.env_workers, device=device, **cfg.env_settings)


class Run(Training):
    """Training run of an agent in `env`; see `Training`. UserError if `--compile` finds no compiler.

    whole_episodes: each update plays complete episodes from seeded initial states, so `env` keeps no state between
    updates.
    """

    def __init__(self, config: BaseConfig, env: VectorEnv, resume: str | Path | None = None, *,
                 whole_episodes: bool = False):
        images = len(observation_view(env.observation_space)[0]) == 3
        wide = images or max(getattr(config, "hidden", (0,))) >= WIDE
        if config.compile:
            check_compile()
        super().__init__(config, source_name(config.env), find_device(config.device, images),
                         min(2, cores()) if wide else 1, resume)
        self.compiling = config.compile                                   # until the first gradient step
        self.env, self.whole_episodes = env, whole_episodes
        if not self.leads:                                                # else the ranks would explore alike
            self.rng = np.random.default_rng(ranks.own_seed(config.seed))
        self.said_unsaved = False                                         # whether this was printed
        by_id = isinstance(config.env, str)                               # else a command cannot make it again
        self.next_words = ("plot", *env.shown_by, "eval", "resume") if by_id else ("plot",)
        self.recent: deque[float] = deque(maxlen=100)                     # returns of the last 100 episodes
        self.lowest, self.highest, self.episodes = math.inf, -math.inf, 0                 # returns so far
        self.pending: list[tuple[float, int]] = []                        # episodes since the last row
        self.replay: Replay | None = None

    def place(self, policy: nn.Module) -> nn.Module:
        """Move the policy to the run's device. With `--init`, load the weights of the other run's policy.

        UserError if the weights do not fit.
        """
        return initial(policy.to(self.device), self.config.init if self.state is None else "")

    def updates(self, total: int, steps_each: int = 1) -> Iterator[int]:
        for update in super().updates(total, steps_each):
            if not self.compiling:
                yield update
                continue
            began, before = time.perf_counter(), self._gradient_steps()
            yield update
            if self._gradient_steps() > before:
                self.compiling = False
                self.display.say("compiled; the first update, with compilation, took "
                                 f"{time.perf_counter() - began:.1f} s")

    def _gradient_steps(self) -> int:
        return sum(part.steps for part in self.parts.values() if isinstance(part, FlatAdam))

    def keep(self, **parts: Any) -> None:
        """Keep parts for the checkpoint. A part called `replay` has its own files; only its counters are in the
        checkpoint."""
        super().keep(**parts, best=Best() if self.config.keep_best else None)
        self.replay, self.replay_files = parts.get("replay"), ReplayFiles(self.directory)

    def updates_due(self, ratio: float) -> int:
        """Return the number of gradient steps in the current update, at `ratio` per environment step. Over a run they
        sum to int(ratio x steps), for any size of an update."""
        return int((self.steps + self.steps_each) * ratio) - int(self.steps * ratio)

    def result(self, module: nn.Module) -> Result | None:
        """End the run and return its result. Ranks other than 0 return None: their machine may not have its folder."""
        self.finish()
        if not self.leads:
            return None
        progress = read_progress(self.directory) if self.rows else {}
        quality = progress[self.measure][-1] if progress else math.nan
        return Result(self._policy(module), progress, self.directory, self.status, quality, self.measure,
                      list(self.recent))

    def _policy(self, module: nn.Module) -> Policy:
        return Policy(module, self.env.observation_space, self.env.action_space, self.config.seed,
                      self.config.env_settings)

    def describe_subject(self) -> dict[str, Any]:
        rules = {"protocol": self.config.env_settings} if protocol(self.config.env) else {}
        return {**rules, "observation_space": space_to_json(self.env.observation_space),
                "action_space": space_to_json(self.env.action_space)}

    def after_update(self) -> None:
        finished = self.env.take_finished()
        if not self.whole_episodes:                                       # else each rank knows all episodes
            finished = list(chain.from_iterable(ranks.gather(finished)))
        self.pending += finished
        self.recent.extend(r for r, _ in finished[-100:])

    def row(self) -> dict[str, float]:
        returns, lengths = [r for r, _ in self.pending], [n for _, n in self.pending]
        self.pending = []
        tests = self._test()
        return {"episodes": len(returns), "return_mean": float(np.mean(returns)) if returns else np.nan,
                "return_min": min(returns, default=np.nan), "return_max": max(returns, default=np.nan),
                "length_mean": float(np.mean(lengths)) if lengths else np.nan,
                "return_mean_100": float(np.mean(self.recent)) if self.recent else np.nan,
                **self.env.measures(), **({"test_return": float(np.mean(tests))} if tests else {})}

    def _returns_before(self) -> None:
        """Read the smallest and the largest return of earlier processes, so `diagnose` knows the whole run."""
        before = read_progress(self.directory)
        self.episodes = int(np.nansum(before.get("episodes", 0)))
        if self.episodes:
            self.lowest, self.highest = np.nanmin(before["return_min"]), np.nanmax(before["return_max"])

    def diagnose(self, row: dict[str, float]) -> list[str]:
        low, high = row["return_min"], row["return_max"]
        if not math.isnan(low):
            self.lowest, self.highest = min(self.lowest, low), max(self.highest, high)
            self.episodes += int(row["episodes"])
        alike = self.episodes if self.lowest == self.highest else 0
        largest = max(abs(self.lowest), abs(self.highest)) if self.episodes else math.inf
        return diagnose(row, self.config, self.env.action_space, largest, alike, self.steps / self.end)

    def _test(self) -> list[float]:
        """Return the returns of the current policy in separate test episodes, always the same ones, without
        exploration; [] if the settings ask for none. With `keep_best`, consider the policy."""
        if not self.config.test_episodes or not self.leads:
            return []
        returns, _ = play_episodes(self._policy(self.parts["policy"]), self.config.env, self.config.test_episodes,
                                   seed=self.config.seed)
        if self.config.keep_best:
            self.parts["best"].consider(float(np.mean(returns)), self.steps, self.parts["policy"])
        return returns

    def outcome(self) -> dict[str, Any]:
        return {"return_mean_100": float(np.mean(self.recent)) if self.recent else None, "returns": list(self.recent)}

    def summary(self) -> str:
        if not self.recent:
            return "no episode ended"
        return f"the last {len(self.recent)} episodes returned {number(float(np.mean(self.recent)))} on average"

    def announce(self) -> None:
        if protocol(self.config.env):
            self.display.say(f"protocol: {in_words(self.config.env_settings)}")
        if self.state is not None and self.rows:
            self._returns_before()
        if self.replay is not None:
            if self.state is None:
                self.replay_files.remove()                                # left by a process that saved no checkpoint
            self.display.say(statement(self.replay))
        if not self.whole_episodes:
            self._saved_env()                                             # tells the user if it cannot be saved

    def _saved_env(self) -> dict[str, Any] | None:
        """Return the state of the environments. If they cannot be saved now, return None and tell the user once."""
        try:
            return self.env.state_dict()
        except Unsaveable as error:
            if not self.said_unsaved:
                self.said_unsaved = True
                self.display.say(f"{self.subject} cannot be saved ({error}): a resumed run starts new episodes, and "
                                 "its curve will differ from an uninterrupted one")
            return None

    def save_subject(self) -> dict[str, Any]:
        saved = self.replay is not None and self.config.save_replay
        if saved:
            self.replay_files.append(self.replay)
        env = None if self.whole_episodes else self._saved_env()
        own = None if self.leads or self.whole_episodes else {"env": env, "rng": save_rng(self.rng)}
        return {"replay": dict(self.replay_files.sums) if saved else {},
                "recent": list(self.recent), "pending": [list(e) for e in self.pending],
                "env": env, "others": ranks.gather(own)[1:]}

    def after_save(self) -> None:
        if self.replay is not None and self.config.save_replay:
            self.replay_files.tidy(self.replay)
        elif self.replay is not None:
            self.replay_files.remove()                                    # of an earlier process that saved it

    def load_subject(self, state: dict[str, Any]) -> None:
        """Restore the state from `save_subject`. UserError if it was saved by another number of processes."""
        self.recent = deque((float(r) for r in state["recent"]), maxlen=100)          # raises if they are not numbers
        self.pending = [(float(r), int(n)) for r, n in state["pending"]]
        others = state["others"]                                          # of ranks 1, 2, ...
        if not self.whole_episodes and len(others) != self.workers.size - 1:
            where, n = describe(self.directory), len(others) + 1
            start, longer = torchrun(n) if n > 1 else "spinup", f" --total-steps {self.config.total_steps}"
            raise UserError(f"{where} was saved by {n} processes, and there are {self.workers.size}; type: {start} "
                            f"resume {quoted(where)}{longer * self.longer}")
        own = state if self.leads or self.whole_episodes else others[self.workers.rank - 1]
        if own["env"] is not None:
            self.env.load_state_dict(own["env"])
        if own is not state:
            load_rng(self.rng, own["rng"])

    def recover(self, state: dict[str, Any]) -> str:
        if self.steps >= self.end:                                        # the run is complete
            return ""
        lost = "; its environments could not be saved, so it starts new episodes"
        if state["env"] or self.whole_episodes:
            lost = ""
        if lost:
            place = (self.config.seed, self.workers.rank, self.steps)
            with suppress(NotImplementedError):                           # else the first episodes would come again
                self.env.reseed(int(np.random.SeedSequence(place).generate_state(1)[0]))
            for part in self.parts.values():
                if hasattr(part, "begin_anew"):               # what follows each episode, such as a replay buffer
                    part.begin_anew()
        if self.replay is not None and not self.replay_files.read(self.replay, state.get("replay", {})):
            self.forgot = True
            self.replay_files.remove()                                    # incomplete files, if there are any
            for part in (self.replay, self.parts.get("priorities")):
                if part is not None:
                    part.forget()
            lost += "; its replay buffer was not saved, so it starts with an empty one, and its curve will differ"
        return lost

    def finish(self) -> None:
        if self.status == "finished" and self.replay is not None:
            self.replay_files.remove()                                    # a longer run begins with an empty buffer
        super().finish()

    def close_subject(self) -> None:
        self.env.close()
