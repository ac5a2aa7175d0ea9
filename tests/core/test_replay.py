"""The replay buffer, compared with plain lists of all steps; priorities, compared with a table and its running sum."""
from collections import defaultdict
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from spinup.algos import dqn
from spinup.core.priorities import Priorities
from spinup.core.replay import Replay, replay_bytes
from spinup.envs.vector import Step

SIZE = 50               # size of the replay buffers here; it is not divisible by three environments


class Event(NamedTuple):
    """One step of one environment, with all that a replay buffer must return of it."""

    obs: np.ndarray
    act: np.ndarray
    rew: np.float32
    next_obs: np.ndarray
    terminated: bool
    ended: bool
    needs: int                          # number of the first frame of `obs`, counted over all frames

    def same(self, obs, act, next_obs, terminated) -> bool:
        return (np.array_equal(self.obs, obs) and np.array_equal(self.act, act)
                and np.array_equal(self.next_obs, next_obs) and self.terminated == terminated)


class World:
    """N environments with random observations, all of them different. `past[env][step]` holds every step.

    ending: the probability that a step ends an episode. An end is a termination, a truncation or both.
    """

    def __init__(self, num_envs: int, kind: str, ending: float, seed: int = 0):
        self.rng, self.N, self.ending = np.random.default_rng(seed), num_envs, ending
        self.shape, self.dtype, self.frames = {"vector": ((3,), np.float32, 1), "image": ((3, 2, 4), np.uint8, 1),
                                               "stacked": ((4, 3, 2), np.uint8, 4)}[kind]
        self.act_shape, self.act_dtype = ((2,), np.float32) if kind == "vector" else ((), np.int64)
        self.past: list[list[Event]] = [[] for _ in range(num_envs)]
        self.shown = 0                                                    # frames so far
        self.begin()

    def begin(self) -> None:
        """Start a new episode in every environment."""
        self.obs = self.new(self.N, *self.shape)
        self.at = np.array([self.show(self.frames) for _ in range(self.N)])

    def new(self, *shape: int) -> np.ndarray:
        if self.dtype == np.uint8:
            return self.rng.integers(0, 256, shape, np.uint8)
        return self.rng.standard_normal(shape).astype(np.float32)

    def show(self, frames: int) -> np.ndarray:
        self.shown += frames
        return np.arange(self.shown - frames, self.shown)

    def replay(self, size: int = SIZE) -> Replay:
        return Replay(size, self.N, self.shape, np.dtype(self.dtype), self.act_shape, self.act_dtype, self.frames)

    def step(self, *replays: Replay) -> None:
        obs = self.obs
        act = (self.rng.integers(0, 9, self.N) if self.act_dtype == np.int64
               else self.rng.uniform(-1, 1, (self.N, 2)).astype(np.float32))
        led_to = self.new(self.N, *self.shape)
        if self.frames > 1:
            led_to[:, :-1] = obs[:, 1:]
        rew = self.rng.standard_normal(self.N).astype(np.float32)
        ended = self.rng.random(self.N) < self.ending
        terminated, truncated = ended & (self.rng.random(self.N) < 0.6), ended & (self.rng.random(self.N) < 0.6)
        truncated |= ended & ~terminated
        needs = self.at[:, 0].copy()
        newest = np.concatenate([self.show(1) for _ in range(self.N)])[:, None]
        self.at = np.concatenate([self.at[:, 1:], newest], 1)
        for e in range(self.N):
            self.past[e].append(Event(obs[e].copy(), act[e].copy(), rew[e], led_to[e].copy(), bool(terminated[e]),
                                      bool(ended[e]), needs[e]))
        self.obs = led_to.copy()
        for e in np.flatnonzero(ended):
            self.obs[e], self.at[e] = self.new(*self.shape), self.show(self.frames)
        for replay in replays:
            replay.add(obs, act, Step(self.obs, rew, terminated, truncated, led_to if ended.any() else None))

    def row(self, number: int) -> Event:
        return self.past[number % self.N][number // self.N]

    def first_whole_row(self, replay: Replay) -> int:
        """The first row from which on all rows are stored: neither they nor their frames were overwritten."""
        gone = [i for i in range(max(0, replay.count - replay.size), replay.count)
                if self.row(i).needs < self.shown - replay.room]
        return max([replay.count - replay.size, 0, *(i + 1 for i in gone)])


worlds = pytest.mark.parametrize(("num_envs", "kind"), [
    (n, kind) for n in (1, 3) for kind in ("vector", "image", "stacked")])


# Catches: `led_to = step.obs` at an episode end; `frames[:, :1]` of a stack; a `self.now` that is not updated at an
# episode end; `terminated | truncated` stored as terminated; `size` frames without the room for stacks; the oldest
# frame of one environment in place of all: rows of the others would show frames of later steps.
@worlds
@pytest.mark.parametrize("ending", [0, 0.1, 0.5])
def test_every_row_holds_the_transition_of_its_step(num_envs, kind, ending):
    world = World(num_envs, kind, ending, seed=num_envs)
    replay = world.replay()
    for _ in range(4 * SIZE // num_envs):
        world.step(replay)
        rows = np.arange(replay.oldest, replay.count)
        obs, act, rew, next_obs, terminated, length = (x.numpy() for x in replay.sample(rows))
        assert obs.shape == next_obs.shape == (len(rows), *world.shape) and obs.dtype == next_obs.dtype == world.dtype
        assert act.dtype == world.act_dtype and rew.dtype == terminated.dtype == np.float32
        assert length.dtype == np.int64 and (length == 1).all()
        for i, number in enumerate(rows):
            event = world.row(number)
            assert event.same(obs[i], act[i], next_obs[i], terminated[i]) and event.rew == rew[i]
        assert len(rows) == len(replay) and replay.oldest == world.first_whole_row(replay)
    if not ending:
        assert len(replay) == SIZE                                        # no episode end, so no row is dropped early
    past = [event for events in world.past for event in events]
    assert {(e.terminated, e.ended) for e in past} == ({(False, False), (False, True), (True, True)} if ending else
                                                       {(False, False)})


# Catches: rows of another environment (`np.arange(n)` without N); steps of the next episode; `terminated` or `next_obs`
# of the first step; rewards after the episode end.
@worlds
@pytest.mark.parametrize("n", [1, 3, 5])
def test_n_steps_stay_within_the_episode_and_the_stored_rows(num_envs, kind, n):
    world = World(num_envs, kind, 0.15, seed=n)
    replay = world.replay()
    lengths = set()
    for step in range(4 * SIZE // num_envs):
        world.step(replay)
        if step % 7:
            continue
        rows = world.rng.permutation(np.arange(replay.oldest, replay.count))
        obs, act, rew, next_obs, terminated, length = (x.numpy() for x in replay.sample_n(rows, n))
        assert rew.shape == (len(rows), n) and rew.dtype == np.float32
        for i, number in enumerate(rows):
            events = []
            for later in range(number, min(replay.count, number + n * num_envs), num_envs):
                events.append(world.row(later))
                if events[-1].ended:
                    break
            assert length[i] == len(events)
            assert rew[i].tolist() == [e.rew for e in events] + [0] * (n - len(events))
            assert events[0]._replace(next_obs=events[-1].next_obs, terminated=events[-1].terminated).same(
                obs[i], act[i], next_obs[i], terminated[i])
        lengths |= set(length)
    assert lengths == set(range(1, n + 1))


# Catches: a missing check of the frames. Every step here ends an episode, and stores five frames.
@pytest.mark.parametrize("num_envs", [1, 3])
def test_rows_whose_frames_are_overwritten_are_dropped(num_envs):
    world = World(num_envs, "stacked", 1)
    replay = world.replay()
    for _ in range(SIZE):
        world.step(replay)
    assert 0 < len(replay) < SIZE / 3
    assert replay.oldest == world.first_whole_row(replay)
    drawn = replay.draw(np.random.default_rng(0), 1000)
    assert replay.oldest <= drawn.min() and drawn.max() < replay.count


# Catches: `count - 1` as the upper end; 0 as the lower end; samples that ignore the given generator.
def test_rows_are_sampled_uniformly():
    world = World(1, "vector", 0.2)
    replay = world.replay()
    for _ in range(3 * SIZE):
        world.step(replay)
    draws = 100_000
    drawn = replay.draw(np.random.default_rng(0), (draws // 100, 100))
    assert drawn.shape == (draws // 100, 100)
    np.testing.assert_array_equal(drawn, replay.draw(np.random.default_rng(0), (draws // 100, 100)))
    numbers, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_array_equal(numbers, np.arange(replay.oldest, replay.count))
    expected = draws / len(replay)
    np.testing.assert_array_less(np.abs(counts - expected), 4.5 * np.sqrt(expected))


# Catches: a size without the room of current stacks, without the bytes of an action, or without a stack's frame
# numbers.
@worlds
def test_replay_bytes_equals_the_allocated_memory(num_envs, kind):
    world = World(num_envs, kind, 0.1)
    replay = world.replay()
    taken = sum(ring.nbytes for ring, _ in replay.rings().values())
    assert taken == replay_bytes(SIZE, num_envs, world.shape, np.dtype(world.dtype), world.act_shape, world.frames)
    arrays = [v for v in [*vars(replay).values(), *replay.rows.values()] if isinstance(v, np.ndarray)]
    assert taken == sum(array.nbytes for array in arrays)                 # no array beside the rings


def test_replay_buffer_smaller_than_one_step_is_refused():
    with pytest.raises(ValueError, match="a replay buffer of 2 steps cannot hold one step of 3 environments"):
        Replay(2, 3, (1,), np.dtype(np.float32), (), np.int64)


# Catches: a state without one of the counters, or without `now`; a ring that is missing in `rings`, or that has the
# wrong counter; observations that are stored again after loading. The copy gets its rings separately, as from the files
# beside a checkpoint, and `plain` loads nothing.
@worlds
@pytest.mark.parametrize("steps", [5, 70])
def test_restored_replay_buffer_continues_like_the_original(num_envs, kind, steps):
    world = World(num_envs, kind, 0.2)
    plain, replay, copy = (world.replay() for _ in range(3))
    for step in range(steps):
        world.step(*[plain, replay, copy][:2 + (step < 3)])       # the copy stores only the first three steps
    for name, (ring, count) in replay.rings().items():
        written = np.arange(max(0, count - len(ring)), count) % len(ring)
        copy.rings()[name][0][written] = ring[written]
        if name == "rew":
            rew = [world.row(i).rew for i in range(max(0, count - len(ring)), count)]
            np.testing.assert_array_equal(ring[written], rew)
    state = replay.state_dict()
    for other in (replay, copy):                                          # loading its own state changes nothing
        other.load_state_dict(state)
    for _ in range(11):
        world.step(plain, replay, copy)
        assert len(copy) == len(plain) and copy.oldest == plain.oldest
    np.testing.assert_equal(copy.state_dict(), plain.state_dict())
    np.testing.assert_equal(replay.state_dict(), plain.state_dict())
    rows = np.arange(replay.oldest, replay.count)
    for n in (1, 3):
        for ours, theirs in zip(copy.sample_n(rows, n), replay.sample_n(rows, n), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    for ours, number in zip(zip(*copy.sample(rows), strict=True), rows, strict=True):
        obs, act, rew, next_obs, terminated, _ = (x.numpy() for x in ours)
        assert world.row(number).same(obs, act, next_obs, terminated)


# Catches: an episode border that depends on `terminated | truncated`; a `now` that is kept. A resumed run that could
# not save its environments starts new episodes, although none ended. Returns would sum the rewards of two episodes.
@worlds
def test_n_steps_do_not_cross_into_the_episodes_of_a_resumed_run(num_envs, kind):
    world = World(num_envs, kind, 0)
    replay = world.replay()
    for _ in range(6):
        world.step(replay)
    replay.begin_anew()
    seam = replay.count
    world.begin()
    for _ in range(6):
        world.step(replay)
    rows = np.arange(replay.count)
    end = np.where(rows < seam, seam, replay.count)
    np.testing.assert_array_equal(replay.sample_n(rows, 4).length, np.minimum(4, (end - 1 - rows) // num_envs + 1))
    assert not replay.sample_n(rows, 4).terminated.any()


# Catches: counters or current observations that are kept; a `sample_n` without the check `there`, or with a row too
# many: the old rows are still in memory, and their frame numbers match.
@worlds
def test_emptied_replay_buffer_returns_only_new_rows(num_envs, kind):
    old = World(num_envs, kind, 0)
    replay = old.replay()
    for _ in range(SIZE):
        old.step(replay)
    replay.forget()
    assert len(replay) == 0
    world = World(num_envs, kind, 0, seed=1)
    for _ in range(5):
        world.step(replay)
    assert (replay.oldest, replay.count) == (0, 5 * num_envs)
    rows = np.arange(replay.count)
    np.testing.assert_array_equal(replay.sample_n(rows, 3).length, np.minimum(3, 5 - rows // num_envs))
    for number, drawn in enumerate(zip(*replay.sample(rows), strict=True)):
        obs, act, _, next_obs, terminated, _ = (x.numpy() for x in drawn)
        assert world.row(number).same(obs, act, next_obs, terminated)


class Table:
    """Priorities as in the paper: a table of p^alpha that is searched by its running sum."""

    def __init__(self, size: int, alpha: float):
        self.size, self.alpha, self.weight = size, alpha, defaultdict(float)

    def set(self, rows: np.ndarray, priority: np.ndarray) -> None:
        for row, p in zip(rows, np.broadcast_to(priority, len(rows)), strict=True):
            self.weight.pop(row - self.size, None)
            self.weight[int(row)] = float(p) ** self.alpha if p else 0.0

    def in_slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and weights, in the order of the tree's leaves."""
        rows = np.array(sorted(self.weight, key=lambda row: row % self.size))
        return rows, np.array([self.weight[row] for row in rows])


# Catches: a missing alpha; `left > sums`; one random number for all samples; samples without equal shares; sums that
# are not updated up to the root; a number of leaves that is not a power of 2, or is too small; slots in place of row
# numbers.
@pytest.mark.parametrize("size", [1, 2, 7, 8, 33])
@pytest.mark.parametrize("alpha", [0, 0.6, 1])
def test_rows_are_sampled_from_equal_shares_in_proportion_to_priority(size, alpha):
    rng, priorities, table = np.random.default_rng(size), Priorities(size, alpha), Table(size, alpha)
    for count in range(1, 4 * size):
        new, p = np.array([count - 1]), rng.exponential(size=1)
        changed = np.unique(rng.integers(max(0, count - size), count, 5))
        q = rng.exponential(size=len(changed)) * (rng.random(len(changed)) < 0.8) + (changed == count - 1) * 1e-3
        for each in (priorities, table):
            each.set(new, p)
            each.set(changed, q)
        rows, weight = table.in_slots()
        expected = weight / weight.sum()
        places = (np.arange(20) + np.random.default_rng(count).random(20)) / 20
        index = np.searchsorted(np.cumsum(expected), places, side="right")
        drawn, probability = priorities.draw(np.random.default_rng(count), 20, count)
        np.testing.assert_array_equal(drawn, rows[index])
        np.testing.assert_allclose(probability, expected[index], rtol=1e-12)


# Catches: new rows with priority 1, or with that of the newest row; a `largest` that later, smaller priorities lower.
def test_new_rows_have_the_largest_priority_so_far():
    priorities = Priorities(10, 1)

    def shares(count: int) -> list[float]:
        rows, probability = priorities.draw(np.random.default_rng(0), 1000, count)
        first = [probability[rows == row] for row in range(count)]
        return [round(float(p[0] / min(map(np.min, first))), 6) for p in first]

    priorities.set(np.arange(3))
    assert shares(3) == [1, 1, 1]                                         # before any priority was set
    priorities.set(np.array([0, 1]), np.array([4, 0.5]))
    priorities.set(np.array([3]))
    assert shares(4) == [8, 1, 2, 8]
    priorities.set(np.array([0]), 2.0)
    priorities.set(np.array([4]))
    assert shares(5) == [4, 1, 2, 8, 8]


class Edge:
    """A generator whose random numbers are all at an edge of its range."""

    def __init__(self, value: float):
        self.value = value

    def random(self, n: int) -> np.ndarray:
        return np.full(n, self.value)


# Catches: `0 ** alpha` at alpha 0; a missing check for a half with sum 0; `>` in place of `>=` at 0.
@pytest.mark.parametrize("alpha", [0, 0.6, 1])
@pytest.mark.parametrize("rng", [np.random.default_rng(0), Edge(0.0), Edge(float(np.nextafter(1, 0)))],
                         ids=["random", "0", "almost 1"])
def test_rows_with_priority_0_are_never_sampled(alpha, rng):
    priorities, wanted = Priorities(100, alpha), np.array([1, 2, 30, 31, 32, 70])
    priorities.set(np.arange(100), 0.1)
    priorities.set(np.setdiff1d(np.arange(100), wanted), 0)
    for batch in (1, 7, 300):
        rows, probability = priorities.draw(rng, batch, 100)
        assert set(rows) <= set(wanted)
        np.testing.assert_allclose(probability, 1 / 6)
    priorities.set(np.array([], np.int64), 0)                             # nothing to change
    np.testing.assert_allclose(priorities.sums[1], 6 * 0.1 ** alpha)


# Catches: a load that fails for another size. It broke the extension of a run with a large replay buffer.
def test_priorities_are_loaded_into_a_tree_of_another_size():
    short, longer, fresh = Priorities(20, 0.7), Priorities(50, 0.7), Priorities(50, 0.7)
    short.set(np.arange(20), np.linspace(0.1, 5, 20))
    fresh.set(np.arange(20), np.linspace(0.1, 5, 20))
    longer.load_state_dict(short.state_dict())
    np.testing.assert_array_equal(longer.sums, fresh.sums)
    assert longer.largest == fresh.largest

    longer, short, fresh = Priorities(200, 0.7), Priorities(20, 0.7), Priorities(20, 0.7)          # a shortened run
    for priorities in (longer, fresh):
        priorities.set(np.arange(20), np.linspace(0.1, 5, 20))
    short.load_state_dict(longer.state_dict())
    np.testing.assert_array_equal(short.sums, fresh.sums)


# Catches: a state without the sums or without `largest`; a state that is not a copy.
def test_priorities_are_restored_from_their_state():
    kept, other = Priorities(20, 0.7), Priorities(20, 0.7)
    kept.set(np.arange(20), np.linspace(0.1, 5, 20))
    other.set(np.arange(20), 9.0)
    state = kept.state_dict()
    kept.set(np.arange(5), 50.0)
    kept.load_state_dict(state)
    other.load_state_dict(state)
    kept.set(np.arange(4), 0.2)                                           # must not change the state or the other
    other.set(np.arange(4), 0.2)
    for each in (kept, other):
        each.set(np.arange(20, 22))
    ours, theirs = (p.draw(np.random.default_rng(0), 50, 22) for p in (kept, other))
    np.testing.assert_array_equal(ours, theirs)
    share = dict(zip(*ours, strict=True))
    first = np.linspace(0.1, 5, 20)
    assert share[21] / share[10] == pytest.approx((5 / first[10]) ** 0.7)
    assert share[4] / share[10] == pytest.approx((first[4] / first[10]) ** 0.7)
    kept.forget()
    kept.set(np.array([0]))
    assert kept.draw(np.random.default_rng(0), 2, 1)[0].tolist() == [0, 0]


def only_what_is_there(monkeypatch, dies_at: int | None = None) -> list[int]:
    """Make every sample of a dropped row fail. The returned list gains the buffer's length at each sample."""
    sample_n, draws = Replay.sample_n, []

    def checked(replay, rows, n):
        assert replay.oldest <= rows.min() and rows.max() < replay.count
        draws.append(len(replay))
        if len(draws) == dies_at:
            raise SystemError("killed here")
        return sample_n(replay, rows, n)

    monkeypatch.setattr(Replay, "sample_n", checked)
    return draws


def prioritised(tmp_path, **settings) -> dqn.Config:
    return dqn.Config(env="CartPole-v1", total_steps=400, replay_size=100, learning_starts=30, batch_size=32,
                      hidden=(8,), epsilon=1.0, prioritised=True, log_dir=str(tmp_path), exp_name="x", quiet=True,
                      **settings)


# Catches: new rows that get a priority although the small buffer has already dropped them.
def test_new_rows_that_are_dropped_at_once_get_no_priority():
    priorities = Priorities(18, 1.0)
    priorities.follow(SimpleNamespace(count=12, size=18, oldest=9, num_envs=4))
    rows = priorities.sums[priorities.leaves:]
    assert (rows[:9] == 0).all() and (rows[9:12] > 0).all()


# Catches: dropped rows that keep their priority, although their frames by then are those of other steps.
@pytest.mark.long("1")
@pytest.mark.parametrize("num_envs", [1, 3])
def test_prioritised_dqn_never_samples_dropped_rows(num_envs, monkeypatch, tmp_path):
    draws = only_what_is_there(monkeypatch)
    dqn.train(prioritised(tmp_path, num_envs=num_envs))
    assert 30 <= min(draws[-200:]) < 100                                  # full, but episode ends cost rows


# Catches: priorities that are kept when the replay buffer is lost, although their rows no longer exist.
@pytest.mark.long
def test_prioritised_dqn_resumes_without_its_replay_buffer(monkeypatch, tmp_path):
    cfg = prioritised(tmp_path, checkpoint_steps=150, save_replay=False)
    with monkeypatch.context() as patch, pytest.raises(SystemError):
        only_what_is_there(patch, dies_at=200)
        dqn.train(cfg)
    draws = only_what_is_there(monkeypatch)
    assert dqn.train(cfg, resume=tmp_path / "x/x_s1").status == "finished"
    assert draws[0] == 30                                                 # it waited for `learning_starts` steps
