"""Replay memory of single steps, from which off-policy methods draw their batches, and priorities
to draw steps with large errors more often.
"""
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor


class VectorStep(Protocol):
    """The answer of N environments to one action each, as `spinup.envs.vector.Step`: core knows no
    environment."""

    obs: np.ndarray                     # [N, *shape]; where an episode ended, the next one's first
    reward: np.ndarray                  # [N] float32
    terminated: np.ndarray              # [N] bool
    truncated: np.ndarray               # [N] bool
    final_obs: np.ndarray | None        # [N, *shape]; what the step led to; None if none ended


class Batch(NamedTuple):
    """Drawn steps."""

    obs: Tensor             # [B, *shape]; the observation acted on
    act: Tensor             # [B] or [B, k]; the action
    rew: Tensor             # [B] float32; of `sample_n` [B, n], 0 after the last step that counts
    next_obs: Tensor        # [B, *shape]; what the (last) step led to, before any restart
    terminated: Tensor      # [B] float32; 1: nothing follows, `next_obs` is worth 0
    length: Tensor          # [B] int64; steps from `obs` to `next_obs`: 1, or up to n

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        return self if device.type == "cpu" else Batch(*(x.to(device) for x in self))


class Replay:
    """The last `size` steps of N environments, each observation stored once.

    Steps are rows, in order of time, N to a step of the vectorised environment; a row's number
    never changes, and row i lives in slot i % size. A row does not hold its two observations but
    says where their frames are: the next observation of a step is the observation of the one after
    it, and of four stacked frames three were in the stack before. Where an episode ends, its final
    observation is stored too, and the first observation of the next one as a whole.

    Where episodes are so short that these additions need the room of frames that a row still points
    to, that row is forgotten: `len` is then a little below `size`.

    Args:
        size: rows to keep, at least `num_envs`; ValueError below that.
        num_envs: N.
        obs_shape, obs_dtype: of one observation. With `frames` above 1, its first axis counts
            frames, the newest last.
        act_shape, act_dtype: of one action: () and int64, or (k,) and float32.
        frames: stacked frames of an observation, which a step shifts by one; 1: not stacked.
    """

    def __init__(self, size: int, num_envs: int, obs_shape: tuple[int, ...], obs_dtype: np.dtype,
                 act_shape: tuple[int, ...], act_dtype: type, frames: int = 1):
        if size < num_envs:
            raise ValueError(f"a replay of {size} steps cannot hold one step of {num_envs} "
                             "environments")
        self.size, self.num_envs = size, num_envs
        self.obs_shape, self.stacked = tuple(obs_shape), frames
        frame_shape = self.obs_shape[1:] if frames > 1 else self.obs_shape
        self.room = frame_room(size, num_envs, frames)
        self.frames = np.empty((self.room, *frame_shape), obs_dtype)
        self.rows = {"obs_at": np.empty((size, frames), np.int64),
                     "next_at": np.empty((size, frames), np.int64),
                     "act": np.empty((size, *act_shape), act_dtype),
                     "rew": np.empty(size, np.float32),
                     "terminated": np.empty(size, np.float32)}
        self.count = self.frame_count = 0                     # of rows and frames ever stored
        self.oldest = 0
        self.now: np.ndarray | None = None                    # [N, frames], places of the current
        # The same memory for torch, whose index_select is several times as fast as numpy's `take`.
        self._frames = torch.from_numpy(self.frames)
        self._act = torch.from_numpy(self.rows["act"])

    def __len__(self) -> int:
        return self.count - self.oldest

    def add(self, obs: np.ndarray, act: np.ndarray, step: VectorStep) -> None:
        """Store one step of all N environments: observations `[N, *shape]`, the actions taken
        `[N, ...]`, and the answer of `VectorEnv.step`.

        Where an episode ended, `step.obs` is the first observation of the next one; only
        `step.final_obs` tells what the step led to.
        """
        if self.now is None:
            self.now = self._store(self._split(obs))
        led_to = step.obs if step.final_obs is None else step.final_obs
        newest = self._store(self._split(led_to)[:, -1:])     # [N, 1]
        next_at = newest if self.stacked == 1 else np.concatenate([self.now[:, 1:], newest], 1)
        slots = ring(self.count, self.num_envs, self.size)
        for name, value in (("obs_at", self.now), ("next_at", next_at), ("act", act),
                            ("rew", step.reward), ("terminated", step.terminated)):
            self.rows[name][slots] = value
        self.count += self.num_envs
        self.now = next_at
        if step.final_obs is not None:
            ended = step.terminated | step.truncated
            self.now[ended] = self._store(self._split(step.obs[ended]))
        self.oldest = max(self.oldest, self.count - self.size)
        lost = self.frame_count - self.room                   # frames that were overwritten
        while lost > 0 and self.oldest < self.count and self._oldest_frame() < lost:
            self.oldest += 1

    def _oldest_frame(self) -> int:
        """The first frame that a row needs. The oldest row may need later frames than the next one,
        of another environment, if its episode has just begun: so N rows are asked, one of each."""
        rows = min(self.num_envs, self.count - self.oldest)
        return self.rows["obs_at"][ring(self.oldest, rows, self.size), 0].min()

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
        """Numbers of rows, `[*shape]`, uniform over all that are kept."""
        return rng.integers(self.oldest, self.count, shape)

    def sample(self, rows: np.ndarray) -> Batch:
        """The steps with these numbers, `[B]`."""
        slots = rows % self.size
        return self._batch(slots, slots, self.rows["rew"][slots], np.ones_like(slots))

    def sample_n(self, rows: np.ndarray, n: int) -> Batch:
        """Up to n successive steps from each of these, `[B]`: fewer where the episode, or what is
        stored, ends before.

        A step goes on with the next one where that begins with the very frame that this one led to.
        It does not where the episode ended, nor where a resumed run had to begin a new one.
        """
        if n == 1:                                            # the same in two thirds of the time
            one = self.sample(rows)
            return one._replace(rew=one.rew[:, None])
        follow = rows[:, None] + self.num_envs * np.arange(n)             # of the same environment
        there = follow < self.count
        slots = np.where(there, follow, rows[:, None]) % self.size        # no row leads to itself
        next_at, obs_at = self.rows["next_at"][slots, -1], self.rows["obs_at"][slots, -1]
        goes_on = np.cumprod(next_at[:, :-1] == obs_at[:, 1:], 1, dtype=bool)
        counts = np.concatenate([np.ones((len(rows), 1), bool), goes_on], 1)
        length = counts.sum(1)
        rew = np.where(counts, self.rows["rew"][slots], np.float32(0))
        return self._batch(slots[:, 0], slots[np.arange(len(rows)), length - 1], rew, length)

    def _batch(self, first: np.ndarray, last: np.ndarray, rew: np.ndarray,
               length: np.ndarray) -> Batch:
        """From the observation of slots `first` to the next one of slots `last`."""
        get = self.rows
        act = self._act.index_select(0, torch.from_numpy(first))
        return Batch(self._observations(get["obs_at"][first]), act, torch.from_numpy(rew),
                     self._observations(get["next_at"][last]),
                     torch.from_numpy(get["terminated"][last]), torch.from_numpy(length))

    def _observations(self, at: np.ndarray) -> Tensor:
        """The observations whose frames are there, `[B, frames]` -> `[B, *shape]`."""
        index = torch.from_numpy((at % self.room).ravel())
        return self._frames.index_select(0, index).view(len(at), *self.obs_shape)

    def _split(self, obs: np.ndarray) -> np.ndarray:
        """`[N, *shape]` -> `[N, frames, *frame]`."""
        return obs if self.stacked > 1 else obs[:, None]

    def _store(self, frames: np.ndarray) -> np.ndarray:
        """Append frames `[n, m, *frame]`; returns their places, `[n, m]`."""
        n, m = frames.shape[:2]
        first, self.frame_count = self.frame_count, self.frame_count + n * m
        slots = ring(first, n * m, self.room)
        self.frames[slots] = frames.reshape(n * m, *frames.shape[2:])
        return np.arange(first, self.frame_count).reshape(n, m)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters; the rows are kept apart, because they are large (`rings`)."""
        return {"count": self.count, "frame_count": self.frame_count, "oldest": self.oldest,
                "now": None if self.now is None else self.now.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters; the rows come from their files."""
        self.count, self.frame_count = state["count"], state["frame_count"]
        self.oldest = state["oldest"]
        self.now = None if state["now"] is None else np.asarray(state["now"]).copy()

    def begin_anew(self) -> None:
        """Let the next step begin new episodes in all environments, although none ended: where a
        run is resumed whose environments could not be saved."""
        self.now = None

    def forget(self) -> None:
        """Start empty, as where a run is resumed without its replay."""
        self.count = self.frame_count = self.oldest = 0
        self.now = None

    def rings(self) -> dict[str, tuple[np.ndarray, int]]:
        """By name: an array `[size, ...]` whose slot i % size holds element i, and the number of
        elements ever stored."""
        rows = {name: (row, self.count) for name, row in self.rows.items()}
        return {"frames": (self.frames, self.frame_count), **rows}


def ring(first: int, n: int, size: int) -> slice | np.ndarray:
    """Slots of elements `first` to `first + n` in a ring of `size`: a slice where possible, which
    is faster to fill, else `[n]`."""
    start = first % size
    return slice(start, start + n) if start + n <= size else np.arange(start, start + n) % size


def frame_room(size: int, num_envs: int, frames: int) -> int:
    """Frames that a replay of `size` rows keeps: one a step, and those of current observations."""
    return size + num_envs * (frames + 1)


def replay_bytes(size: int, num_envs: int, obs_shape: tuple[int, ...], obs_dtype: np.dtype,
                 act_shape: tuple[int, ...], frames: int = 1) -> int:
    """Memory that such a replay will take, in bytes."""
    numbers = int(np.prod(obs_shape[1:] if frames > 1 else obs_shape))
    frame = numbers * np.dtype(obs_dtype).itemsize
    action = 4 * int(np.prod(act_shape)) if act_shape else 8
    return frame_room(size, num_envs, frames) * frame + size * (2 * 8 * frames + action + 8)


class Priorities:
    """Draws row i in proportion to its priority to the power alpha (Schaul et al. 2015,
    arXiv:1511.05952, eq. 1).

    A tree of sums: drawing and changing B priorities takes log2(size) steps for all B at once.

    Args:
        size: slots, as of the replay beside it; row i has slot i % size.
        alpha: 0 draws uniformly, 1 in full proportion.
    """

    def __init__(self, size: int, alpha: float):
        self.size, self.alpha = size, alpha
        self.leaves = 1 << max(1, (size - 1).bit_length())
        self.sums = np.zeros(2 * self.leaves)                 # node i: sum of 2 i and 2 i + 1
        self.largest = 1.0                                    # for new rows: each is drawn soon

    def set(self, rows: np.ndarray, priority: np.ndarray | float | None = None) -> None:
        """Give these rows, `[n]`, a priority; without one, the largest so far, as new rows get it.
        A row of priority 0 is never drawn."""
        if priority is not None:
            self.largest = max(self.largest, float(np.max(priority)))
        priority = np.asarray(self.largest if priority is None else priority)
        node = rows % self.size + self.leaves
        self.sums[node] = np.where(priority > 0, priority ** self.alpha, 0)       # 0 ** 0 is 1
        while len(node) and node[0] > 1:
            node = node >> 1                                  # some twice, which does no harm
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def follow(self, replay: Replay) -> None:
        """After `replay.add`: new rows get the largest priority so far; rows forgotten early, 0."""
        self.set(np.arange(max(0, replay.count - self.size), replay.oldest), 0)
        self.set(np.arange(max(replay.oldest, replay.count - replay.num_envs), replay.count))

    def draw(self, rng: np.random.Generator, batch: int,
             count: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows `[B]`, one from each of B equal shares of the total, and their probabilities `[B]`.

        count: number of rows ever stored, which decides the row that a slot holds.
        """
        left = (np.arange(batch) + rng.random(batch)) * (self.sums[1] / batch)
        node = np.ones(batch, np.int64)
        while node[0] < self.leaves:
            node *= 2
            # Rounding must never lead into an empty half.
            right = (left >= self.sums[node]) & (self.sums[node + 1] > 0)
            left -= np.where(right, self.sums[node], 0)
            node += right
        newest = count - 1
        rows = newest - (newest - (node - self.leaves)) % self.size
        return rows, self.sums[node] / self.sums[1]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the tree of sums, and the largest priority."""
        return {"sums": self.sums.copy(), "largest": self.largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the priorities."""
        self.sums[:] = np.asarray(state["sums"])
        self.largest = float(state["largest"])

    def forget(self) -> None:
        """Start empty, as the replay beside it."""
        self.sums[:] = 0
