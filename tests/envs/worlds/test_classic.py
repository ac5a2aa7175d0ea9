"""Classic control tasks, compared step by step with Gymnasium's; their seeds, saving and separate arrays."""
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step
from spinup.envs.worlds.classic import WORLDS as CLASSIC

# Weights of the observation: the sign of the weighted sum is the direction to the goal. So episodes end in both ways.
PUSH = {"CartPole-v1": [0.1, 0.2, 1, 0.5], "StatelessCartPole-v0": [0, 1],
        "Acrobot-v1": [0, 0, 0, 0, -1, 1], "MountainCar-v0": [0, 1],
        "MountainCarContinuous-v0": [0, 1], "Pendulum-v1": [0, 0, 1]}
# The largest difference that rounding causes in one step. Acrobot is chaotic: an error in the last bit would grow
# without limit. So Gymnasium's version of these tasks gets our state after every step. The others are equal bit for bit
# through whole episodes.
ROUNDING = {"Acrobot-v1": 1e-12, "MountainCar-v0": 1e-15, "MountainCarContinuous-v0": 1e-7}
# The range of each state variable, to either side.
WIDE = {"CartPole-v1": [3, 5, 0.3, 5], "StatelessCartPole-v0": [3, 5, 0.3, 5],
        "Acrobot-v1": [np.pi, np.pi, 4 * np.pi, 9 * np.pi],
        "MountainCar-v0": [1.2, 0.07], "MountainCarContinuous-v0": [1.2, 0.07], "Pendulum-v1": [20, 8]}
each = pytest.mark.parametrize("id", CLASSIC)


class Dealt:
    """Replaces the generator of a Gymnasium environment. It returns the given state, and records the requested
    bounds."""

    def __init__(self, state: np.ndarray):
        self.state = state

    def uniform(self, low, high, size=None):
        self.low, self.high = low, high
        return self.state if size or np.ndim(low) else self.state[0]      # the cars sample only their position


def begin(game: gymnasium.Env, state: np.ndarray) -> np.ndarray:
    """Start an episode of Gymnasium's environment in the given state. Return its first observation."""
    game.unwrapped._np_random = Dealt(state.copy())
    obs = game.reset()[0]
    game.unwrapped.state = state.copy()                                   # Acrobot has just rounded it to float32
    return obs


def act(rng: np.random.Generator, id: str, env) -> np.ndarray:
    """Actions: random in the first copy, mostly towards the goal in the others. Continuous ones may exceed the
    bounds."""
    num_envs, space = env.num_envs, env.action_space
    aims = (rng.random(num_envs) < 0.95) & (np.arange(num_envs) > 0)
    forward = env.obs @ np.array(PUSH[id]) > 0
    if isinstance(space, Discrete):
        return np.where(aims, forward * (space.n - 1), rng.integers(space.n, size=num_envs))
    action = np.where(aims, np.where(forward, 1.0, -1.0), rng.uniform(-1.5, 1.5, num_envs))
    return (action[:, None] * space.high).astype(np.float32)


def run(id: str, env, steps: int, seed: int = 0) -> list[Step]:
    rng = np.random.default_rng(seed)
    return [env.step(act(rng, id, env)) for _ in range(steps)]


def same(a: list[Step], b: list[Step]) -> bool:
    parts = [pair for s, t in zip(a, b, strict=True) for pair in zip(s, t, strict=True)]
    return all(y is None if x is None else np.array_equal(x, y) for x, y in parts)


@pytest.mark.long("Acrobot-v1")
@each
def test_steps_match_gymnasium_through_whole_episodes(id):
    # Catches: `/ 1.0` in place of CartPole's `/ 1.1`; a missing penalty of 0.001 torque^2; a left wall that does not
    # stop the car; a `force` that is not clipped, or whose penalty is clipped; `limit` in place of `limit - 1`; `obs`
    # in place of `obs.copy()`; angles that are not wrapped.
    ours, games = CLASSIC[id](3, seed=7), [gymnasium.make(id) for _ in range(3)]
    assert (ours.observation_space, ours.action_space) == (games[0].observation_space, games[0].action_space)
    slack, rng = ROUNDING.get(id, 0.0), np.random.default_rng(0)
    pairs = [(obs, begin(games[i], ours.state[:, i])) for i, obs in enumerate(ours.reset())]
    finished, tally, endings = [], np.zeros((3, 2)), set()
    for _ in range(3_000):
        action = act(rng, id, ours)
        step = ours.step(action)
        seen = step.obs if step.final_obs is None else step.final_obs
        assert (step.final_obs is None) == (not (step.terminated | step.truncated).any())
        for i, game in enumerate(games):
            obs, reward, terminated, truncated, _ = game.step(action[i])
            reward = np.float32(reward)
            assert (step.reward[i], step.terminated[i], step.truncated[i]) == (reward, terminated, truncated)
            pairs.append((seen[i], obs))
            tally[i] += reward, 1
            if terminated or truncated:
                endings.add((terminated, truncated))
                finished.append(tuple(tally[i]))
                tally[i] = 0
                obs = begin(game, ours.state[:, i])
            elif slack:
                assert np.abs(game.unwrapped.state - ours.state[:, i]).max() <= slack
                game.unwrapped.state = ours.state[:, i].copy()
            pairs.append((step.obs[i], obs))
    left, right = map(np.array, zip(*pairs, strict=True))
    np.testing.assert_allclose(left, right, rtol=2e-7 if slack else 0, atol=slack)
    assert left.dtype == right.dtype == step.reward.dtype == np.float32
    assert ours.take_finished() == finished
    either = id not in ("Pendulum-v1", "StatelessCartPole-v0")            # the first never terminates, the other always
    assert len(endings) == (2 if either else 1)                           # else a kind of episode end was not compared


@each
def test_one_step_from_any_state_matches_gymnasium(id):
    # Catches: Acrobot's spins without a clip; a Pendulum angle that is wrapped only once. Real episodes do not reach
    # such states.
    ours, game, rng = CLASSIC[id](1000, seed=0), gymnasium.make(id), np.random.default_rng(0)
    ours.reset()
    ours.state[:] = before = rng.uniform(-1, 1, ours.state.shape) * np.array(WIDE[id])[:, None]
    action = act(rng, id, ours)
    step = ours.step(action)
    for i in range(1000):
        begin(game, before[:, i])
        obs, reward, terminated, _, _ = game.step(action[i])
        seen = step.obs[i] if step.final_obs is None else step.final_obs[i]
        np.testing.assert_allclose(seen, obs, rtol=2e-7, atol=1e-7)
        assert (step.reward[i], step.terminated[i]) == (np.float32(reward), terminated)


def test_fall_in_the_last_step_is_terminated_and_truncated():
    # Catches: a `truncated` with `& ~terminated`.
    ours, game = CLASSIC["CartPole-v1"](1, seed=0), gymnasium.make("CartPole-v1")
    ours.reset()
    ours.state[:, 0] = [2.39, 5.0, 0.0, 0.0]                              # off the track in one step
    begin(game, ours.state[:, 0])
    ours.episode_length[0] = game._elapsed_steps = 499
    step = ours.step(np.array([1]))
    assert (step.terminated[0], step.truncated[0]) == game.step(1)[2:4] == (True, True)


@each
def test_initial_states_cover_gymnasiums_bounds(id):
    # Catches: -0.04 in place of -0.05; `(4, 1) * np.ones(count)` in place of `(4, count)`; `np.ones` in place of a
    # car's `np.zeros`.
    ours, game = CLASSIC[id](4096, seed=3), gymnasium.make(id)
    ours.reset()
    begin(game, ours.state[:, 0])
    dealt = game.unwrapped.np_random
    drawn = ours.state[:1] if id.startswith("MountainCar") else ours.state
    low, high = np.broadcast_to(dealt.low, len(drawn)), np.broadcast_to(dealt.high, len(drawn))
    margin = 0.01 * (high - low)
    assert ((drawn.min(1) >= low) & (drawn.min(1) < low + margin)).all()
    assert ((drawn.max(1) <= high) & (drawn.max(1) > high - margin)).all()
    np.testing.assert_allclose(drawn.mean(1), (low + high) / 2, atol=3 * margin.max())
    assert (np.abs(np.corrcoef(drawn) - np.eye(len(drawn))) < 0.1).all()  # each quantity is sampled independently
    assert len(drawn) == len(ours.state) or not ours.state[1].any()       # a car starts at rest


@each
def test_seed_determines_everything(id):
    # Catches: a generator without a seed, or with the seed 0; numpy's global generator as `rng`.
    ours, twin, other = (CLASSIC[id](3, seed) for seed in (5, 5, 6))
    for env in (ours, twin, other):
        env.reset()
    steps = run(id, ours, 1100)                                           # beyond episode ends; `twin` runs afterwards
    assert same(steps, run(id, twin, 1100))
    assert not same(steps[:1], run(id, other, 1))


@each
def test_restored_environment_continues_with_the_same_steps(id):
    # Catches: a `_save` that does not copy `state`; a `_load` without `load_rng`, or with a new initial state.
    ours, fresh = CLASSIC[id](3, seed=1), CLASSIC[id](3, seed=2)
    ours.reset()
    run(id, ours, 130)
    saved = ours.state_dict()
    steps = run(id, ours, 1100)                                           # longer than any limit, so each copy is reset
    fresh.load_state_dict(saved)
    assert same(steps, run(id, fresh, 1100))
    assert fresh.take_finished() == ours.take_finished() and fresh.rng.random() == ours.rng.random()


def test_saved_generator_is_strings_and_small_numbers():
    # Catches: a `load_rng` that sets only `state["state"]`; `index(...)` or `str(...)` in place of `str(index(...))`.
    rng, other = np.random.default_rng(1), np.random.default_rng(2)
    rng.integers(9, dtype=np.int32)                                       # the unused half of a number is saved too
    saved = save_rng(rng)
    load_rng(other, saved)
    draws = [[one.integers(99, dtype=np.int32) for _ in range(3)] for one in (rng, other)]
    assert draws[0] == draws[1]
    assert max(saved["has_uint32"], saved["uinteger"]) < 2**63 and {type(v) for v in saved["state"].values()} == {str}
    with pytest.raises(TypeError):
        save_rng(np.random.Generator(np.random.MT19937(0)))


@each
def test_results_of_one_copy_keep_their_first_axis(id):
    # Catches: a squeezed observation or `terminated`.
    env = CLASSIC[id](1, seed=0)
    assert env.reset().shape == (1, *env.observation_space.shape)
    steps = run(id, env, 1000)
    assert len(env.take_finished()) == sum(step.final_obs is not None for step in steps) > 0
    for step in steps:
        shapes = {part.shape for part in (step.reward, step.terminated, step.truncated)}
        assert shapes == {(1,)} and step.obs.shape == (1, *env.observation_space.shape)


@each
def test_returned_arrays_are_never_changed_later(id):
    # Catches: an `_observe` or a Pendulum reward that fills the same array at each step; order "K" in place of "C"; a
    # `.T` without a copy.
    env = CLASSIC[id](3, seed=0)
    first = env.reset()
    kept, copies, rng = [first], [first.copy()], np.random.default_rng(0)
    for _ in range(400):
        parts = [part for part in env.step(act(rng, id, env))[:5] if part is not None]
        kept += parts
        copies += [part.copy() for part in parts]
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))
    assert all(part.flags.c_contiguous for part in kept)                  # like loaded ones: layout affects rounding


# Catches: other physics in one copy than in several; an episode end that one copy misses.
def test_single_cart_moves_as_among_others():
    alone, among = CLASSIC["CartPole-v1"](1, 3), CLASSIC["CartPole-v1"](5, 4)
    alone.reset(), among.reset()
    rng, ends = np.random.default_rng(0), 0
    for _ in range(500):
        among.state[:, 2] = alone.state[:, 0]
        action = rng.integers(0, 2, 5)
        step, other = alone.step(action[2:3]), among.step(action)
        assert step.terminated[0] == other.terminated[2]
        ends += step.terminated[0]
        ours = (step.obs if step.final_obs is None else step.final_obs)[0]
        np.testing.assert_allclose(ours, (other.obs if other.final_obs is None else other.final_obs)[2], rtol=1e-6)
    assert ends > 10
