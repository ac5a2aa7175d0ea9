"""Ends of the episodes in a replay buffer."""
import numpy as np

from spinup.core.replay import Replay


class Episodes:
    """For each row of a replay buffer, the last row of its episode so far.

    A checkpoint does not contain these numbers, because the rows determine them: in a resumed run,
    the first call of `follow` reads all rows.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        self.ends = np.empty(replay.size, np.int64)           # by slot; -1: the episode goes on
        self.begun = np.arange(replay.num_envs)               # [N], first row of each open episode
        self.seen = 0                                         # rows read so far

    def follow(self) -> None:
        """Read the rows that were stored since the last call. Call it after `Replay.add`."""
        replay, n = self.replay, self.replay.num_envs
        get, size = replay.rows, replay.size
        for row in range(max(self.seen, replay.oldest), replay.count):
            before = row - n                                  # previous step of this environment
            if before < replay.oldest or (get["next_at"][before % size, -1]
                                          != get["obs_at"][row % size, -1]):
                ended = np.arange(self.begun[row % n], row, n)
                self.ends[ended[ended >= replay.oldest] % size] = before
                self.begun[row % n] = row
            self.ends[row % size] = -1
        self.seen = replay.count

    def last(self, rows: np.ndarray) -> np.ndarray:
        """Last row of the episode of each row `[B]`; of an open episode, the newest one."""
        n, ends = self.replay.num_envs, self.ends[rows % self.replay.size]
        return np.where(ends < 0, self.replay.count - n + rows % n, ends)
