"""The replay beside plain lists of all that ever happened; priorities beside a table that is summed from left to right.
"""
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

SIZE = 50               # of replays here; three environments do not divide it


class Event(NamedTuple):
    """One step of one environment, and all that a replay should know of it."""

    obs: np.ndarray
    act: np.ndarray
    rew: np.float32
    next_obs: np.ndarray
    terminated: bool
    ended: bool
    needs: int                          # the first frame of `obs`, counted over all that were shown

    def same(self, obs, act, next_obs, terminated) -> bool:
        return (np.array_equal(self.obs, obs) and np.array_equal(self.act, act)
                and np.array_equal(self.next_obs, next_obs) and self.terminated == terminated)


class World:
    """N environments of random observations, no two alike, and every step that they made: `past[env][step]`.

    ending: how likely a step ends an episode; half of these are terminated, half truncated, some of them both.
    """

    def __init__(self, num_envs: int, kind: str, ending: float, seed: int = 0):
        self.rng, self.N, self.ending = np.random.default_rng(seed), num_envs, ending
        self.shape, self.dtype, self.frames = {"vector": ((3,), np.float32, 1), "image": ((3, 2, 4), np.uint8, 1),
                                               "stacked": ((4, 3, 2), np.uint8, 4)}[kind]
        self.act_shape, self.act_dtype = ((2,), np.float32) if kind == "vector" else ((), np.int64)
        self.past: list[list[Event]] = [[] for _ in range(num_envs)]
        self.shown = 0                                                    # frames
        self.begin()

    def begin(self) -> None:
        """New episodes everywhere."""
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
        """The first row all of whose followers are still there: neither they nor their frames were overwritten."""
        gone = [i for i in range(max(0, replay.count - replay.size), replay.count)
                if self.row(i).needs < self.shown - replay.room]
        return max([replay.count - replay.size, 0, *(i + 1 for i in gone)])


worlds = pytest.mark.parametrize(("num_envs", "kind"), [
    (n, kind) for n in (1, 3) for kind in ("vector", "image", "stacked")])


# Catches: `led_to = next_obs`; `frames[:, :1]` of a stack; `self.now` not set where an episode was
# cut; `terminated | truncated` stored for terminated; `size` frames without the room for stacks; the
# oldest frame of one environment for that of all: the others' rows would show frames of later steps.
@worlds
@pytest.mark.parametrize("ending", [0, 0.1, 0.5])
def test_every_row_is_the_step_that_was_made(num_envs, kind, ending):
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
        assert len(replay) == SIZE                                        # where no episode ends, all of them
    past = [event for events in world.past for event in events]
    assert {(e.terminated, e.ended) for e in past} == ({(False, False), (False, True), (True, True)} if ending else
                                                       {(False, False)})


# Catches: rows of another environment (`np.arange(n)` without N); episodes not told apart; `terminated` or
# `next_obs` of the first step; rewards after the end kept.
@worlds
@pytest.mark.parametrize("n", [1, 3, 5])
def test_n_steps_stay_within_an_episode_and_what_is_stored(num_envs, kind, n):
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


# Catches: no test of the frames at all. Every step begins an episode here, and stores five frames.
@pytest.mark.parametrize("num_envs", [1, 3])
def test_where_frames_run_out_rows_are_forgotten(num_envs):
    world = World(num_envs, "stacked", 1)
    replay = world.replay()
    for _ in range(SIZE):
        world.step(replay)
    assert 0 < len(replay) < SIZE / 3
    assert replay.oldest == world.first_whole_row(replay)
    drawn = replay.draw(np.random.default_rng(0), 1000)
    assert replay.oldest <= drawn.min() and drawn.max() < replay.count


# Catches: `count - 1` as the end; from 0 on; a draw that is not of the generator given.
def test_each_row_is_drawn_as_often_as_another():
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


# Catches: the room of current stacks left out; the bytes of an action, or of a stack's numbers, left out.
@worlds
def test_the_memory_announced_is_the_memory_taken(num_envs, kind):
    world = World(num_envs, kind, 0.1)
    replay = world.replay()
    taken = sum(ring.nbytes for ring, _ in replay.rings().values())
    assert taken == replay_bytes(SIZE, num_envs, world.shape, np.dtype(world.dtype), world.act_shape, world.frames)
    arrays = [v for v in [*vars(replay).values(), *replay.rows.values()] if isinstance(v, np.ndarray)]
    assert taken == sum(array.nbytes for array in arrays)                 # and nothing beside the rings


def test_a_replay_smaller_than_one_step_is_refused():
    with pytest.raises(ValueError, match="a replay buffer of 2 steps cannot hold one step of 3 environments"):
        Replay(2, 3, (1,), np.dtype(np.float32), (), np.int64)


# Catches: any of the counters, or `now`, not in the state; a ring not in `rings`, or counted by the other
# counter. The copy gets its rings from elsewhere, as from the files beside a checkpoint.
@worlds
@pytest.mark.parametrize("steps", [5, 70])
def test_a_copy_of_rings_and_counters_goes_on_alike(num_envs, kind, steps):
    world = World(num_envs, kind, 0.2)
    replay, copy = world.replay(), world.replay()
    for step in range(steps):
        world.step(*[replay, copy][:1 + (step < 3)])                      # the copy has a history of its own
    for name, (ring, count) in replay.rings().items():
        written = np.arange(max(0, count - len(ring)), count) % len(ring)
        copy.rings()[name][0][written] = ring[written]
        if name == "rew":
            rew = [world.row(i).rew for i in range(max(0, count - len(ring)), count)]
            np.testing.assert_array_equal(ring[written], rew)
    state = replay.state_dict()
    frames = replay.frame_count
    for other in (replay, copy):                                          # saving loads what was saved
        other.load_state_dict(state)
    world.step(replay, copy)
    assert copy.frame_count == replay.frame_count < frames + 2 * num_envs * (replay.stacked + 1)       # nothing twice
    assert len(copy) == len(replay) and copy.oldest == replay.oldest
    for _ in range(10):
        world.step(replay, copy)
    np.testing.assert_equal(copy.state_dict(), replay.state_dict())
    rows = np.arange(replay.oldest, replay.count)
    for n in (1, 3):
        for ours, theirs in zip(copy.sample_n(rows, n), replay.sample_n(rows, n), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    for ours, number in zip(zip(*copy.sample(rows), strict=True), rows, strict=True):
        obs, act, rew, next_obs, terminated, _ = (x.numpy() for x in ours)
        assert world.row(number).same(obs, act, next_obs, terminated)


# Catches: `terminated | truncated` asked for the border, or `now` kept: a resumed run whose environments could
# not be saved has begun new episodes, but none ended, and returns would sum the rewards of two.
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


# Catches: counters, or the current observations, kept; `there` not asked by `sample_n`, or one row too many: the
# rows of before still lie there, with numbers of frames that fit.
@worlds
def test_a_forgotten_replay_begins_anew(num_envs, kind):
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
    """Priorities as the paper has them: a list of p^alpha, searched in its running sum."""

    def __init__(self, size: int, alpha: float):
        self.size, self.alpha, self.weight = size, alpha, defaultdict(float)

    def set(self, rows: np.ndarray, priority: np.ndarray) -> None:
        for row, p in zip(rows, np.broadcast_to(priority, len(rows)), strict=True):
            self.weight.pop(row - self.size, None)
            self.weight[int(row)] = float(p) ** self.alpha if p else 0.0

    def in_slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and weights, in the order in which the tree has them."""
        rows = np.array(sorted(self.weight, key=lambda row: row % self.size))
        return rows, np.array([self.weight[row] for row in rows])


# Catches: no alpha; `left > sums`; one number for all draws; no shares, or of unequal size; sums not renewed up
# to the root; leaves not a power of 2 (or one too few); row numbers not turned back from slots.
@pytest.mark.parametrize("size", [1, 2, 7, 8, 33])
@pytest.mark.parametrize("alpha", [0, 0.6, 1])
def test_rows_are_drawn_in_shares_in_proportion_to_their_priority(size, alpha):
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


# Catches: new rows with 1, or with the priority of the newest; `largest` lowered by later, smaller ones.
def test_new_rows_have_the_largest_priority_so_far():
    priorities = Priorities(10, 1)

    def shares(count: int) -> list[float]:
        rows, probability = priorities.draw(np.random.default_rng(0), 1000, count)
        first = [probability[rows == row] for row in range(count)]
        return [round(float(p[0] / min(map(np.min, first))), 6) for p in first]

    priorities.set(np.arange(3))
    assert shares(3) == [1, 1, 1]                                         # before anything was measured
    priorities.set(np.array([0, 1]), np.array([4, 0.5]))
    priorities.set(np.array([3]))
    assert shares(4) == [8, 1, 2, 8]
    priorities.set(np.array([0]), 2.0)
    priorities.set(np.array([4]))
    assert shares(5) == [4, 1, 2, 8, 8]


class Edge:
    """The random numbers at an edge of what a generator can give."""

    def __init__(self, value: float):
        self.value = value

    def random(self, n: int) -> np.ndarray:
        return np.full(n, self.value)


# Catches: `0 ** alpha` for alpha 0; no look at the empty half; `>` for `>=` at 0.
@pytest.mark.parametrize("alpha", [0, 0.6, 1])
@pytest.mark.parametrize("rng", [np.random.default_rng(0), Edge(0.0), Edge(float(np.nextafter(1, 0)))],
                         ids=["random", "0", "almost 1"])
def test_what_has_priority_0_is_never_drawn(alpha, rng):
    priorities, wanted = Priorities(100, alpha), np.array([1, 2, 30, 31, 32, 70])
    priorities.set(np.arange(100), 0.1)
    priorities.set(np.setdiff1d(np.arange(100), wanted), 0)
    for batch in (1, 7, 300):
        rows, probability = priorities.draw(rng, batch, 100)
        assert set(rows) <= set(wanted)
        np.testing.assert_allclose(probability, 1 / 6)
    priorities.set(np.array([], np.int64), 0)                             # nothing to change
    np.testing.assert_allclose(priorities.sums[1], 6 * 0.1 ** alpha)


# Catches: a state of another size, which broke the extension of a run with a large replay buffer.
def test_priorities_of_an_extended_run_keep_their_rows():
    short, longer, fresh = Priorities(20, 0.7), Priorities(50, 0.7), Priorities(50, 0.7)
    short.set(np.arange(20), np.linspace(0.1, 5, 20))
    fresh.set(np.arange(20), np.linspace(0.1, 5, 20))
    longer.load_state_dict(short.state_dict())
    np.testing.assert_array_equal(longer.sums, fresh.sums)
    assert longer.largest == fresh.largest

    longer, short, fresh = Priorities(200, 0.7), Priorities(20, 0.7), Priorities(20, 0.7)          # and of a shortened
    for priorities in (longer, fresh):
        priorities.set(np.arange(20), np.linspace(0.1, 5, 20))
    short.load_state_dict(longer.state_dict())
    np.testing.assert_array_equal(short.sums, fresh.sums)


# Catches: the sums or `largest` not in the state, or not copied.
def test_priorities_go_on_from_their_state():
    kept, other = Priorities(20, 0.7), Priorities(20, 0.7)
    kept.set(np.arange(20), np.linspace(0.1, 5, 20))
    other.set(np.arange(20), 9.0)
    state = kept.state_dict()
    kept.set(np.arange(5), 50.0)
    kept.load_state_dict(state)
    other.load_state_dict(state)
    kept.set(np.arange(4), 0.2)                                           # must not reach into the state, nor the other
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
    """From now on a draw of anything else fails; the list gains the number of rows of each draw of what is there."""
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


# Catches: the newest rows given their priority after the forgotten ones lost it, where they are the same.
def test_of_a_tiny_replay_what_is_forgotten_has_no_priority():
    priorities = Priorities(18, 1.0)
    priorities.follow(SimpleNamespace(count=12, size=18, oldest=9, num_envs=4))
    rows = priorities.sums[priorities.leaves:]
    assert (rows[:9] == 0).all() and (rows[9:12] > 0).all()


# Catches: forgotten rows left with their priority: their frames are those of other steps by then.
@pytest.mark.long("1")
@pytest.mark.parametrize("num_envs", [1, 3])
def test_prioritised_dqn_never_draws_what_is_forgotten(num_envs, monkeypatch, tmp_path):
    draws = only_what_is_there(monkeypatch)
    dqn.train(prioritised(tmp_path, num_envs=num_envs))
    assert 30 <= min(draws[-200:]) < 100                                  # when it was full: episodes ended


# Catches: priorities kept when the replay is lost: they are of rows that are no more.
@pytest.mark.long
def test_prioritised_dqn_goes_on_without_its_replay(monkeypatch, tmp_path):
    cfg = prioritised(tmp_path, checkpoint_steps=150, save_replay=False)
    with monkeypatch.context() as patch, pytest.raises(SystemError):
        only_what_is_there(patch, dies_at=200)
        dqn.train(cfg)
    draws = only_what_is_there(monkeypatch)
    assert dqn.train(cfg, resume=tmp_path / "x/x_s1").status == "finished"
    assert draws[0] == 30                                                 # it waited until there was enough again
