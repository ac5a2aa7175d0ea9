"""SAME_STEP: no stored transition crosses an episode end, neither in an environment nor in an algorithm."""
import itertools

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Discrete

from spinup.algos import curiosity, ppo, rl2, trpo, vpg
from spinup.core.networks import ActorCritic
from spinup.envs import VectorEnv, make
from spinup.envs.ids import OURS


class Counter(Env):
    """Episodes of three steps with rewards 0, 1, 2. An observation is 10 x episode + step.

    Episodes 1, 3, ... terminate, and episodes 2, 4, ... are truncated. Copy i starts in step i of its first episode, so
    that no two of three copies are in phase.
    """

    observation_space, action_space = Box(-np.inf, np.inf, (1,)), Discrete(2)

    def __init__(self, start: int):
        self.episode, self.t, self.start = 0, 0, start

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.t, self.start = self.start, 0
        return self.observe(), {}

    def step(self, action):
        reward, self.t = self.t, self.t + 1
        over = self.t == 3
        return self.observe(), reward, over and self.episode % 2 == 1, over and self.episode % 2 == 0, {}

    def observe(self) -> np.ndarray:
        return np.array([10 * self.episode + self.t], np.float32)


OF = {vpg: {}, ppo: {"minibatches": 1}, trpo: {}}         # settings for very small batches
each_algorithm = pytest.mark.parametrize("algorithm", OF, ids=lambda a: a.__name__.rpartition(".")[2])


def counters(looks: int = 0):
    """A function that makes counters with starts 0, 1, 2 in turn. looks: counters that `try_out` makes before the
    training."""
    starts = itertools.count(-looks)
    return lambda: Counter(next(starts) % 3)


def truth(copy: int, steps: int) -> list[tuple[float, float, float, bool, bool]]:
    """The transitions (s, r, s', terminated, truncated) of a copy, written from the description of Counter."""
    found, episode, t = [], 1, copy
    while len(found) < steps:
        s, last = 10 * episode + t, t == 2
        found.append((s, t, s + 1, last and episode % 2 == 1, last and episode % 2 == 0))
        episode, t = (episode + 1, 0) if last else (episode, t + 1)
    return found


def columns(num_envs: int, start: int, steps: int) -> list[np.ndarray]:
    """The transitions of `num_envs` copies from step `start` on, as five arrays [N, T]."""
    rows = [list(zip(*truth(i, start + steps)[start:], strict=True)) for i in range(num_envs)]
    return [np.array(column, float) for column in zip(*rows, strict=True)]


# Catches: a `final_obs` from after the reset, or None; empty rows of `final_obs` in unfinished episodes; an observation
# array that is overwritten.
@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_stored_transitions_never_cross_an_episode_end(num_envs):
    env = make(counters(), num_envs)
    obs, stored = env.reset(), []
    assert env.obs is obs
    for _ in range(20):
        step = env.step(np.zeros(num_envs, np.int64))
        ended = step.terminated | step.truncated
        assert (step.final_obs is not None) == ended.any()
        led_to = step.obs if step.final_obs is None else step.final_obs
        stored.append((obs, step.reward, led_to, step.terminated, step.truncated))
        assert env.obs is step.obs and step.obs.dtype == np.float32 and step.reward.dtype == np.float32
        np.testing.assert_array_equal(led_to[~ended], step.obs[~ended])
        np.testing.assert_array_equal(step.obs[ended] % 10, 0)            # the first observation of a new episode
        obs = step.obs
    for mine, true in zip(zip(*stored, strict=True), columns(num_envs, 0, 20), strict=True):
        np.testing.assert_array_equal(np.stack([np.ravel(x) for x in mine], 1), true)


# Catches: a return that continues in the next episode; finished episodes in another order; episodes that are returned
# twice, or kept after a reset.
def test_finished_episodes_are_returned_once_with_return_and_length():
    env = make(counters(), 3)
    env.reset()
    for _ in range(4):
        env.step(np.zeros(3, np.int64))
    # copy 2 ends after 1 step, 1 after 2, 0 after 3, and copy 2 again after 4
    assert env.take_finished() == [(2.0, 1), (3.0, 2), (3.0, 3), (3.0, 3)]
    assert env.take_finished() == []
    env.step(np.zeros(3, np.int64))
    env.reset()
    assert env.take_finished() == [] and not env.episode_return.any() and not env.episode_length.any()


# Catches: a state without the returns or lengths of open episodes, or without the finished episodes.
def test_statistics_of_open_episodes_are_saved():
    env = make(counters(), 3)
    env.reset()
    for _ in range(2):
        env.step(np.zeros(3, np.int64))
    other: VectorEnv = make(counters(), 3)
    other.reset()
    other.load_state_dict(env.state_dict())
    for e in env, other:
        e.step(np.zeros(3, np.int64))
    assert env.take_finished() == other.take_finished() == [(2.0, 1), (3.0, 2), (3.0, 3)]
    np.testing.assert_array_equal(env.obs, other.obs)


# The advantages of two rollouts of 4 steps of copies 0, 1, 2, with gamma = lam = 0.5 and V(obs) = obs, worked by hand.
# Copy 0: 10 11 12 | 20 : deltas 0 + 5.5 - 10 = -4.5, 1 + 6 - 11 = -4, 2 - 12 = -10 (terminated), 0 + 10.5 - 20 = -9.5
#         A = -4.5 + (-4 - 2.5) / 4, -4 - 10 / 4, -10, and -9.5 where the rollout cuts the episode
#         21 22 | 30 31 : deltas -9, 2 + 11.5 - 22 = -8.5 (truncated: the value of 23 counts), -14.5, -14
# Copy 1: 11 12 | 20 21 : deltas -4, -10 (terminated), -9.5, -9
#         22 | 30 31 32 : deltas -8.5 (truncated), -14.5, -14, -30 (terminated)
# Copy 2: 12 | 20 21 22 : deltas -10 (terminated), -9.5, -9, -8.5 (truncated)
#         30 31 32 | 40 : deltas -14.5, -14, -30 (terminated), -19.5
BY_HAND = [[[-6.125, -6.5, -10, -9.5], [-6.5, -10, -11.75, -9], [-10, -12.28125, -11.125, -8.5]],
           [[-11.125, -8.5, -18, -14], [-8.5, -19.875, -21.5, -30], [-19.875, -21.5, -30, -19.5]]]


def record_gae(algorithm, monkeypatch) -> list[tuple]:
    """Make the algorithm train with V(obs) = obs[0]. Return the arguments and advantages of each call of gae."""
    calls, original, net_value, net_evaluate = [], algorithm.gae, ActorCritic.value, ActorCritic.evaluate

    def value(self, obs):
        return obs[..., 0] + 0 * net_value(self, obs)                     # a critic in training needs a gradient

    def evaluate(self, obs, act):
        return *net_evaluate(self, obs, act)[:2], value(self, obs)

    def gae(*arrays, **settings):
        result = original(*arrays, **settings)
        calls.append(([x.numpy().copy() for x in arrays], result[0].numpy().copy()))
        return result

    monkeypatch.setattr(ActorCritic, "value", value)
    monkeypatch.setattr(ActorCritic, "evaluate", evaluate)
    monkeypatch.setattr(algorithm, "gae", gae)
    return calls


def train(algorithm, tmp_path, **settings) -> None:
    algorithm.train(algorithm.Config(env=counters(looks=1), gamma=0.5, lam=0.5, log_dir=tmp_path.as_posix(), quiet=True,
                                     tensorboard=False, **settings, **OF[algorithm]))


# Catches: next_values that are the values shifted by one, so that a truncation gets the value of the next episode; rows
# and columns of final observations exchanged; a last column from `values`; terminated and truncated swapped or merged;
# advantages that continue over a truncation.
@pytest.mark.parametrize("num_envs", [1, 2, 3])
@each_algorithm
def test_training_bootstraps_from_the_next_observation_of_each_step(algorithm, num_envs, tmp_path, monkeypatch):
    calls = record_gae(algorithm, monkeypatch)
    train(algorithm, tmp_path, num_envs=num_envs, rollout_steps=4, total_steps=5 * 4 * num_envs)
    assert len(calls) == 5                                                # cuts at steps 4, 8, ...: in all phases
    for k, ((rewards, values, next_values, terminated, truncated), _) in enumerate(calls):
        s, r, led_to, over, cut = columns(num_envs, 4 * k, 4)
        np.testing.assert_array_equal(values, s)
        np.testing.assert_array_equal(rewards, r)
        np.testing.assert_array_equal(terminated, over)
        np.testing.assert_array_equal(truncated, cut)
        np.testing.assert_array_equal(np.where(over, 0, next_values), np.where(over, 0, led_to))
    for (_, adv), by_hand in zip(calls[:2], BY_HAND, strict=True):
        np.testing.assert_allclose(adv, by_hand[:num_envs], rtol=0, atol=1e-5)


# The tests above have gamma = lambda, and cannot tell them apart. Catches: gamma and lambda exchanged; the discount of
# rewards for the intrinsic reward.
@pytest.mark.parametrize("algorithm, given", [
    (vpg, [(0.5, 0.25)]), (ppo, [(0.5, 0.25)]), (trpo, [(0.5, 0.25)]), (rl2, [(0.5, 0.25)]),
    (curiosity, [(0.75, 0.25), (0.5, 0.25)])],
    ids=lambda x: x.__name__.rpartition(".")[2] if hasattr(x, "__name__") else "")
def test_each_advantage_estimate_gets_its_gamma_and_lambda(algorithm, given, tmp_path, monkeypatch):
    calls, original = [], algorithm.gae

    def told(*arrays, gamma, lam, **rest):
        calls.append((gamma, lam))
        return original(*arrays, gamma=gamma, lam=lam, **rest)

    monkeypatch.setattr(algorithm, "gae", told)
    own = {} if algorithm in (vpg, trpo) else {"minibatches": 1}
    own |= {"bonus_gamma": 0.75} if algorithm is curiosity else {}
    algorithm.train(algorithm.Config(env="CartPole-v1", gamma=0.5, lam=0.25, num_envs=4, rollout_steps=8,
                                     total_steps=32, log_dir=tmp_path.as_posix(), quiet=True, tensorboard=False,
                                     threads=1, **own))
    assert sorted(calls) == sorted(given)


# Catches: final or last observations that are not normalised; statistics that change within a rollout (an update before
# the evaluation); observations that are normalised twice.
@each_algorithm
def test_all_values_of_a_rollout_use_the_same_normalisation(algorithm, tmp_path, monkeypatch):
    calls = record_gae(algorithm, monkeypatch)
    train(algorithm, tmp_path, num_envs=3, rollout_steps=4, total_steps=60, normalise_obs=True)
    seen = np.zeros((3, 0))
    for k, ((_, values, next_values, _, _), _) in enumerate(calls):
        s, _, led_to, over, _ = columns(3, 4 * k, 4)
        mean, deviation = (seen.mean(), seen.std()) if k else (0, 1)      # of the previous rollouts
        both = np.stack([s, led_to])
        expected = np.clip((both - mean) / deviation, -10, 10)
        np.testing.assert_allclose(values, expected[0], rtol=0, atol=1e-4)
        np.testing.assert_allclose(np.where(over, 0, next_values), np.where(over, 0, expected[1]), rtol=0, atol=1e-4)
        seen = np.concatenate([seen, s], 1)
    assert len(calls) == 5


# Catches: a first observation that depends on earlier steps or on the other copies; statistics of the old episode that
# are kept; a change of the other copies; a generator that later resets of the other copies share.
@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Hopper-v5"])
def test_restarted_copy_depends_only_on_its_seed(env):
    found = []
    for copies, before in (2, 0), (3, 7):
        vector = make(env, copies, seed=5)
        vector.reset()
        rng = np.random.default_rng(0)

        def step(vector=vector, rng=rng):
            space = vector.action_space
            n = vector.num_envs
            return vector.step(rng.integers(space.n, size=n) if hasattr(space, "n") else
                               rng.uniform(-1, 1, (n, *space.shape)).astype(np.float32))
        for _ in range(before):
            step()
        others = vector.obs[[0]].copy()
        vector.restart(1, 77)
        np.testing.assert_array_equal(vector.obs[[0]], others)
        assert vector.episode_length[1] == vector.episode_return[1] == 0
        first, action = vector.obs[1].copy(), np.zeros((copies, *vector.action_space.shape), vector.action_space.dtype)
        found.append((first, *(vector.step(action).obs[1].copy() for _ in range(3))))
        vector.restart(1, 78)
        assert not np.array_equal(vector.obs[1], first)
    np.testing.assert_array_equal(*found)


# Catches: `default_rng(seed)`, or the seed itself, for the generator of an environment.
def test_environments_share_no_random_numbers_with_the_policy():
    policy, found = np.random.default_rng(3).bit_generator.state["state"], set()
    for name in OURS:
        env = make(name, 2, seed=3)
        if hasattr(env, "trials"):
            assert env.trials.generator.initial_seed() != 3
            found.add(type(env))
        for owner in (env, getattr(env, "game", None)):
            if hasattr(owner, "rng"):
                assert owner.rng.bit_generator.state["state"] != policy, name
                found.add(type(owner))
    assert len(found) > 8
