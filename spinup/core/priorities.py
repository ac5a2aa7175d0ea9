"""Sampler of a replay buffer's rows, each with a probability proportional to priority^alpha."""
from typing import Any

import numpy as np

from spinup.core.replay import Replay


class Priorities:
    """Sampler of rows, each with a probability proportional to priority^alpha (Schaul et al. 2016,
    arXiv:1511.05952, eq. 1).

    It uses a sum tree: sampling or changing B priorities takes log2(size) steps for all B together.

    Args:
        size: number of slots, equal to that of the replay buffer; row i has slot i % size.
        alpha: 0 samples uniformly, 1 in proportion to the priority.
    """

    def __init__(self, size: int, alpha: float):
        self.size, self.alpha = size, alpha
        self.leaves = 1 << max(1, (size - 1).bit_length())
        self.sums = np.zeros(2 * self.leaves)                 # node i: sum of 2 i and 2 i + 1
        self.largest = 1.0                                    # for new rows: sampled soon

    def set(self, rows: np.ndarray, priority: np.ndarray | float | None = None) -> None:
        """Set the priority of these rows `[n]`; by default the largest so far, for new rows. A row
        with priority 0 is never sampled."""
        if priority is not None:
            self.largest = max(self.largest, float(np.max(priority)))
        priority = np.asarray(self.largest if priority is None else priority)
        node = rows % self.size + self.leaves
        self.sums[node] = np.where(priority > 0, priority ** self.alpha, 0)       # 0 ** 0 is 1
        while len(node) and node[0] > 1:
            node = node >> 1                                  # repeats are harmless
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def follow(self, replay: Replay) -> None:
        """Update after `replay.add`: new rows get the largest priority so far, dropped rows 0."""
        self.set(np.arange(max(0, replay.count - self.size), replay.oldest), 0)
        self.set(np.arange(max(replay.oldest, replay.count - replay.num_envs), replay.count))

    def draw(self, rng: np.random.Generator, batch: int,
             count: int) -> tuple[np.ndarray, np.ndarray]:
        """Sample rows `[B]`, one from each of B equal shares of the total priority, with their
        probabilities `[B]`.

        count: number of rows stored so far, which determines the row in each slot.
        """
        left = (np.arange(batch) + rng.random(batch)) * (self.sums[1] / batch)
        node = np.ones(batch, np.int64)
        while node[0] < self.leaves:
            node *= 2
            # Rounding errors must never lead to a half with sum 0.
            right = (left >= self.sums[node]) & (self.sums[node + 1] > 0)
            left -= np.where(right, self.sums[node], 0)
            node += right
        newest = count - 1
        rows = newest - (newest - (node - self.leaves)) % self.size
        return rows, self.sums[node] / self.sums[1]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the sum tree, and the largest priority."""
        return {"sums": self.sums.copy(), "largest": self.largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the priorities. Their number may differ, after a new --total-steps."""
        priorities = np.split(np.asarray(state["sums"]), 2)[1][:self.leaves]
        self.sums[:] = 0
        self.sums[self.leaves:self.leaves + len(priorities)] = priorities
        level = self.leaves
        while level > 1:
            level >>= 1
            below = self.sums[2 * level:4 * level]
            self.sums[level:2 * level] = below[::2] + below[1::2]
        self.largest = float(state["largest"])

    def forget(self) -> None:
        """Remove all priorities. Call it after `Replay.forget`, which removes the rows."""
        self.sums[:] = 0
