"""Seconds of a run's phases since the last row of its log."""
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from llm.columns import PHASES

SAMPLING = ("rollout", "reward")        # phases that an evaluation has too


class Clock:
    """Timers of the phases in `PHASES`, whose seconds are read by `clock["rollout"]`.

    device: that of the run; on a GPU, a phase ends when its work is done.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.restart()

    def __getitem__(self, phase: str) -> float:
        return self.seconds[phase]

    def restart(self) -> None:
        """Set all timers to 0, for a new row."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.began = time.perf_counter()

    def since(self) -> float:
        """Return the seconds since the last `restart`."""
        return time.perf_counter() - self.began

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the seconds of a block, with its work on a GPU, to the timer of a phase."""
        began = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[phase] += time.perf_counter() - began

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Count sampling and judging in the block as evaluation."""
        before = {phase: self.seconds[phase] for phase in SAMPLING}
        yield
        self.seconds["evaluation"] += sum(self.seconds[phase] - before[phase] for phase in SAMPLING)
        self.seconds.update(before)

    def end_update(self) -> None:
        """Add the seconds since `restart` that belong to no phase to the timer of updates."""
        self.seconds["update"] += max(0.0, self.since() - sum(self.seconds[phase] for phase in PHASES))

    @property
    def training(self) -> float:
        """Seconds of sampling, judging and updates, above 0."""
        return max(self.seconds["update"] + sum(self.seconds[phase] for phase in SAMPLING), 1e-9)
