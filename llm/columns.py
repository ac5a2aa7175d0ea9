"""Columns of the log, and the means over the updates between two rows."""
from collections import defaultdict
from typing import Any

from torch import Tensor

from llm.rollout import Batch

# The columns of a row between the accuracies and the seconds; NaN if a method has no such number.
METRICS = ("reward", "reward_std", "zero_variance", "length", "cut_off", "loss", "entropy", "logp", "kl",
           "clip_fraction", "ratio_min", "ratio_max", "grad_norm", "learning_rate")
PHASES = ("rollout", "reward", "update", "evaluation")
BY_LOSS = {"logp", "kl", "clip_fraction"}     # metrics that a loss function may return, also the user's
# Names that no other diagnostic may have.
TAKEN = {"epoch", "steps", "held_out_accuracy", "held_out_greedy", "held_out_reward", "held_out_gold", *METRICS,
         "kl_to_initial", "kl_of_response", "off_policy", *(f"{phase}_seconds" for phase in PHASES), "tokens",
         "tokens_per_second", "wall_seconds", "steps_per_second"} - BY_LOSS


def statistics(batch: Batch) -> dict[str, Tensor]:
    """Return the statistics of a whole batch, `[]` each."""
    r, groups = batch.responses, batch.rewards.view(len(batch.problems), -1)
    found = {"reward": batch.rewards.mean(), "reward_std": batch.rewards.std(correction=0),
             "length": r.lengths.float().mean(), "cut_off": 1 - r.finished.float().mean(), "tokens": r.lengths.sum(),
             **{f"reward_{name}": x.mean() for name, x in batch.parts.items()}}
    if groups.shape[1] > 1:
        found["zero_variance"] = (groups.amax(1) == groups.amin(1)).float().mean()
    return found


class Means:
    """Means of the numbers that updates `add`, and the extremes of their probability ratios, since the last row."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin a new row."""
        self.sums: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)
        self.extremes: dict[str, float] = {}                              # ratios farthest from 1

    def add(self, values: dict[str, float | Tensor]) -> None:
        """Add the numbers of one update, by name; a tensor has one number, `[]`."""
        for name, value in values.items():
            self.sums[name] += float(value)
            self.counts[name] += 1

    def watch_ratio(self, low: Tensor, high: Tensor) -> None:
        """Keep the smallest and the largest pi / pi_old, `[]`; NaN if pi_old is unknown."""
        low, high = float(low), float(high)
        self.extremes = {"ratio_min": min(low, self.extremes.get("ratio_min", low)),
                         "ratio_max": max(high, self.extremes.get("ratio_max", high))}

    def of_row(self) -> dict[str, float]:
        """Return the means and the extremes, by name."""
        return {name: total / self.counts[name] for name, total in self.sums.items()} | self.extremes

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return {"sums": dict(self.sums), "counts": dict(self.counts), "extremes": dict(self.extremes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.sums = defaultdict(float, state["sums"])
        self.counts = defaultdict(int, state["counts"])
        self.extremes = dict(state["extremes"])
