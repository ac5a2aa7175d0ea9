"""The chain: its rewards, its time limit, and its documented difficulty."""
import numpy as np
import pytest

from spinup.envs import make


def play(env, choose, steps: int) -> tuple[list[float], list[bool]]:
    rewards, ended = [], []
    for t in range(steps):
        step = env.step(np.array([choose(t, env.obs[0])]))
        rewards.append(float(step.reward[0]))
        ended.append(bool(step.truncated[0]))
        assert not step.terminated.any() and (step.final_obs is not None) == ended[-1]
    return rewards, ended


# Catches: a start in the first state; an episode of N + 8 steps; a small reward in the second state.
def test_far_end_gives_the_large_reward_and_near_end_the_small_one():
    env = make("Chain-20-v0", 1)
    assert env.reset()[0].tolist() == [1, 1] + [0] * 18
    rewards, ended = play(env, lambda t, obs: 1, 29)
    assert rewards == [0] * 17 + [1] * 12 and ended == [False] * 28 + [True]
    assert env.take_finished() == [(12.0, 29)] and env.obs[0].sum() == 2
    rewards, _ = play(env, lambda t, obs: 0, 29)
    np.testing.assert_allclose(rewards, [1e-3] * 29)


# Catches: labels that depend on the seed, or that are not changed at all; observations that reveal the labels.
@pytest.mark.parametrize("length", [10, 40])
def test_permuted_labels_are_fixed_and_must_be_learned_per_state(length):
    one, other = make(f"ChainPermuted-{length}-v0", 1, seed=1), make(f"ChainPermuted-{length}-v0", 3, seed=2)
    np.testing.assert_array_equal(one.right, other.right)
    assert 0.2 < one.right.mean() < 0.8
    for constant in 0, 1:
        one.reset()
        assert sum(play(one, lambda t, obs, constant=constant: constant, length + 9)[0]) < 1
    one.reset()
    assert sum(play(one, lambda t, obs: one.right[int(obs.sum()) - 1], length + 9)[0]) == 12


def test_random_policy_rarely_or_never_reaches_the_far_end():
    env, rng = make("Chain-10-v0", 500), np.random.default_rng(0)
    env.reset()
    for _ in range(19 * 4):
        env.step(rng.integers(0, 2, 500))
    share = np.mean([r >= 1 for r, _ in env.take_finished()])
    assert 0.02 < share < 0.2                                             # of 2,000 episodes
    env = make("Chain-40-v0", 500)
    env.reset()
    for _ in range(49 * 4):
        env.step(rng.integers(0, 2, 500))
    assert max(r for r, _ in env.take_finished()) < 1
