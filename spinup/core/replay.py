"""Replay buffer of transitions (Lin 1992; Mnih et al. 2015). Off-policy methods sample from it."""
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spinup.core.fast.copies import copied


class Batch(NamedTuple):
    """Sampled transitions."""

    obs: Tensor             # [B, *shape]; observation before the action
    act: Tensor             # [B] or [B, k]; action
    rew: Tensor             # [B] float32; from `sample_n` [B, n], 0 after the last step that counts
    next_obs: Tensor        # [B, *shape]; observation after the (last) step, before any reset
    terminated: Tensor      # [B] float32; 1: the episode ended, `next_obs` has value 0
    length: Tensor          # [B] int64; steps from `obs` to `next_obs`: 1, or up to n

    def to(self, device: torch.device) -> "Batch":
        """Move the batch to a device."""
        return self if device.type == "cpu" else Batch(*copied(self, device))

    def seen(self, view: Callable[[Tensor], Tensor]) -> "Batch":
        """Replace both observations `[B, *shape]` by `view` of them, such as `policy.normalise`."""
        return self._replace(obs=view(self.obs), next_obs=view(self.next_obs))


class Replay:
    """Ring buffer of the last `size` steps of N environments. It stores each observation once.

    A row is one step of one environment. Rows are in order of time, and each step of the vectorised
    environment adds N of them. The number of a row never changes: row i is in slot i % size. A row
    stores the places of its frames, not the frames. This saves memory: the next observation of a
    step is the observation of the following step. Of four stacked frames, three were already in the
    last stack. At an episode end the buffer also stores the final observation, and all frames of
    the first observation of the next episode.

    With short episodes, these additional frames overwrite frames that old rows still need, and the
    buffer drops these rows. With episodes of L steps and F frames per observation, it keeps about
    size L / (L + F) rows.

    Args:
        size: rows to keep, at least `num_envs`; ValueError below that.
        num_envs: N.
        obs_shape, obs_dtype: of one observation. With `frames` above 1, its first axis is the
            frames, the newest last.
        act_shape, act_dtype: of one action: () and int64, or (k,) and float32.
        frames: stacked frames per observation, which each step shifts by one; 1: not stacked.
    """

    def __init__(self, size: int, num_envs: int, obs_shape: tuple[int, ...], obs_dtype: np.dtype,
                 act_shape: tuple[int, ...], act_dtype: type, frames: int = 1):
        if size < num_envs:
            raise ValueError(f"a replay buffer of {size} steps cannot hold one step of {num_envs} "
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
        self.count = self.frame_count = 0                     # rows and frames stored so far
        self.oldest = 0
        self.now: np.ndarray | None = None                    # [N, frames], current observations
        self.breaks: list[int] = []               # values of `count` at each call of `begin_anew`
        # The same memory as tensors: torch's index_select is several times faster than numpy.take.
        self._frames = torch.from_numpy(self.frames)
        self._act = torch.from_numpy(self.rows["act"])

    def __len__(self) -> int:
        return self.count - self.oldest

    def add(self, obs: np.ndarray, act: np.ndarray, step: Any) -> None:
        """Store one step of all N environments: observations `[N, *shape]`, actions `[N, ...]`, and
        the result of `spinup.envs.vector.VectorEnv.step`.

        If an episode ended, `step.obs` is the first observation of the next episode. The last
        observation of the old episode is in `step.final_obs`.
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
        """First frame that a row needs. If the oldest row starts an episode, the next row, of
        another environment, may need earlier frames. So this checks one row per environment."""
        rows = min(self.num_envs, self.count - self.oldest)
        return self.rows["obs_at"][ring(self.oldest, rows, self.size), 0].min()

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
        """Sample row numbers `[*shape]`, uniform over all stored rows."""
        return rng.integers(self.oldest, self.count, shape)

    def sample(self, rows: np.ndarray) -> Batch:
        """Look up the transitions with these row numbers `[B]`, as `draw` returns them."""
        slots = rows % self.size
        return self._batch(slots, slots, self.rows["rew"][slots], np.ones_like(slots))

    def sample_n(self, rows: np.ndarray, n: int) -> Batch:
        """Look up n successive steps from each of these rows `[B]`: fewer if the episode or the
        stored data ends earlier.

        The next row continues a step if it starts at the frame where this step ended. This is false
        after an episode end, and where a resumed run had to start new episodes.
        """
        if n == 1:                                 # the same result, in two thirds of the time
            one = self.sample(rows)
            return one._replace(rew=one.rew[:, None])
        follow = rows[:, None] + self.num_envs * np.arange(n)             # of the same environment
        there = follow < self.count
        slots = np.where(there, follow, rows[:, None]) % self.size        # no row follows itself
        next_at, obs_at = self.rows["next_at"][slots, -1], self.rows["obs_at"][slots, -1]
        goes_on = np.cumprod(next_at[:, :-1] == obs_at[:, 1:], 1, dtype=bool)
        counts = np.concatenate([np.ones((len(rows), 1), bool), goes_on], 1)
        length = counts.sum(1)
        rew = np.where(counts, self.rows["rew"][slots], np.float32(0))
        return self._batch(slots[:, 0], slots[np.arange(len(rows)), length - 1], rew, length)

    def _batch(self, first: np.ndarray, last: np.ndarray, rew: np.ndarray,
               length: np.ndarray) -> Batch:
        """Batch from the observations of slots `first` to the next observations of slots `last`."""
        get = self.rows
        act = self._act.index_select(0, torch.from_numpy(first))
        return Batch(self._observations(get["obs_at"][first]), act, torch.from_numpy(rew),
                     self._observations(get["next_at"][last]),
                     torch.from_numpy(get["terminated"][last]), torch.from_numpy(length))

    def _observations(self, at: np.ndarray) -> Tensor:
        """Observations `[B, *shape]` with frames at these places `[B, frames]`."""
        index = torch.from_numpy((at % self.room).ravel())
        return self._frames.index_select(0, index).view(len(at), *self.obs_shape)

    def _split(self, obs: np.ndarray) -> np.ndarray:
        """Split observations `[N, *shape]` into frames `[N, frames, *frame]`."""
        return obs if self.stacked > 1 else obs[:, None]

    def _store(self, frames: np.ndarray) -> np.ndarray:
        """Append frames `[n, m, *frame]` and return their places, `[n, m]`."""
        n, m = frames.shape[:2]
        first, self.frame_count = self.frame_count, self.frame_count + n * m
        slots = ring(first, n * m, self.room)
        self.frames[slots] = frames.reshape(n * m, *frames.shape[2:])
        return np.arange(first, self.frame_count).reshape(n, m)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters. `rings` returns the rows separately, because they are large."""
        return {"count": self.count, "frame_count": self.frame_count, "oldest": self.oldest,
                "now": None if self.now is None else self.now.copy(), "breaks": [*self.breaks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters. The rows are loaded from their files."""
        self.count, self.frame_count = state["count"], state["frame_count"]
        self.oldest, self.breaks = state["oldest"], [*state["breaks"]]
        self.now = None if state["now"] is None else np.asarray(state["now"]).copy()

    def begin_anew(self) -> None:
        """Start new episodes in all environments at the next step, although none ended. A resumed
        run needs this if it could not save its environments."""
        self.now = None
        self.breaks.append(self.count)

    def forget(self) -> None:
        """Empty the buffer, e.g. if a run is resumed without its replay buffer."""
        self.count = self.frame_count = self.oldest = 0
        self.now, self.breaks = None, []

    def rings(self) -> dict[str, tuple[np.ndarray, int]]:
        """Return by name an array `[size, ...]`, whose slot i % size holds element i, and the
        number of elements stored so far."""
        rows = {name: (row, self.count) for name, row in self.rows.items()}
        return {"frames": (self.frames, self.frame_count), **rows}


def ring(first: int, n: int, size: int) -> slice | np.ndarray:
    """Slots of elements `first` to `first + n` in a ring of `size`: a slice if possible, because
    writing to it is faster, else indices `[n]`."""
    start = first % size
    return slice(start, start + n) if start + n <= size else np.arange(start, start + n) % size


def frame_room(size: int, num_envs: int, frames: int) -> int:
    """Number of frames that a buffer of `size` rows keeps: one per row, plus current ones."""
    return size + num_envs * (frames + 1)


def replay_bytes(size: int, num_envs: int, obs_shape: tuple[int, ...], obs_dtype: np.dtype,
                 act_shape: tuple[int, ...], frames: int = 1) -> int:
    """Memory of such a replay buffer in bytes."""
    numbers = int(np.prod(obs_shape[1:] if frames > 1 else obs_shape))
    frame = numbers * np.dtype(obs_dtype).itemsize
    action = 4 * int(np.prod(act_shape)) if act_shape else 8
    return frame_room(size, num_envs, frames) * frame + size * (2 * 8 * frames + action + 8)
