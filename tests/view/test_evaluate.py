"""Evaluation: which episodes count, what stays unchanged, and what is refused."""
import json

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import spinup
from spinup.core.distributions import Categorical
from spinup.core.networks import ActorCritic
from spinup.envs import make
from spinup.envs.zoo import num_agents
from spinup.errors import UserError
from spinup.runs import episodes as played
from spinup.runs.episodes import UNSEEN
from spinup.runs.policy import Policy
from spinup.view import evaluate as module
from spinup.view.evaluate import evaluate


class Lottery(gymnasium.Env):
    """Episodes of 1 or 30 steps, at random, with a reward of 1 per step."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 30 if self.np_random.random() < 0.5 else 1
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}


class Endless(Lottery):
    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        self.left = -1
        return result


def policy_for(env, normalise=False) -> Policy:
    torch.manual_seed(0)
    copy = make(env, num_agents(env))
    network = ActorCritic(copy.observation_space.shape, Categorical((int(copy.action_space.n),)), normalise=normalise)
    return Policy(network, copy.observation_space, copy.action_space)


def first_lengths(seed: int, count: int) -> list[int]:
    env = Lottery()
    env.reset(seed=seed)
    lengths = []
    for _ in range(count):
        lengths.append(env.left)
        env.reset()
    return lengths


# Catches: the first 53 episodes that end; 5 episodes, or 6, of every copy.
def test_every_copy_plays_its_share_of_episodes_of_any_length():
    found = evaluate(policy_for(Lottery), Lottery, episodes=53, seed=4)
    seeds = make(Lottery, 10, UNSEEN + 4).seeds
    expected = [n for i, seed in enumerate(seeds) for n in first_lengths(seed, 6 if i < 3 else 5)]
    assert found.lengths == expected
    assert found.returns == [float(n) for n in expected]
    assert found.mean > 10                                    # the first to end would average 4


@pytest.mark.parametrize(("env", "episodes", "copies"), [
    ("CartPole-v1", 3, 3), ("CartPole-v1", 100, 100), ("CartPole-v1", 230, 100), (Lottery, 4, 4), (Lottery, 25, 10)])
def test_requested_episodes_run_on_seeds_far_from_training(monkeypatch, env, episodes, copies):
    asked = []
    monkeypatch.setattr(played, "make", lambda *a, **how: asked.append(a) or make(*a, **how))
    found = evaluate(policy_for(env), env, episodes=episodes, seed=7)
    assert asked == [(env, copies, 1_000_007)]
    assert len(found.returns) == len(found.lengths) == episodes


# Catches: a refusal, because it has fewer copies than an evaluation would make; episodes that are divided by that
# larger number.
def test_vector_environment_is_evaluated_with_its_own_number_of_copies():
    vector = gymnasium.vector.SyncVectorEnv([Lottery] * 3, autoreset_mode="SameStep")
    for source in (vector, lambda: gymnasium.vector.SyncVectorEnv([Lottery] * 3, autoreset_mode="SameStep")):
        found = evaluate(policy_for(Lottery), source, episodes=20, seed=4)
        seeds = make(Lottery, 3, UNSEEN + 4).seeds
        assert found.lengths == [n for i, seed in enumerate(seeds) for n in first_lengths(seed, 7 if i < 2 else 6)]


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_is_repeatable_and_does_not_change_the_policy(deterministic):
    policy = policy_for("CartPole-v1", normalise=True)
    policy.module.normaliser.update(torch.randn(100, 4) * 3 + 1)
    before = {k: v.clone() for k, v in policy.module.state_dict().items()}
    generators = policy.rng.bit_generator.state, torch.get_rng_state()
    found = evaluate(policy, "CartPole-v1", episodes=20, deterministic=deterministic)
    after = policy.module.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(v, after[k]) for k, v in before.items())
    assert "normaliser.mean" in before
    assert policy.rng.bit_generator.state == generators[0] and torch.equal(torch.get_rng_state(), generators[1])
    policy.act(np.zeros(4, np.float32), deterministic=False)  # must not affect the next evaluation
    assert evaluate(policy, "CartPole-v1", episodes=20, deterministic=deterministic) == found
    assert evaluate(policy, "CartPole-v1", episodes=20, deterministic=deterministic, seed=1) != found


# Catches: the statistics of observations from the time when the Policy was created.
def test_evaluation_uses_the_current_statistics_of_the_normaliser():
    policy = policy_for("CartPole-v1", normalise=True)
    stale = evaluate(policy, "CartPole-v1", episodes=20)
    policy.module.normaliser.update(torch.randn(1000, 4) * 0.01 + 0.3)
    fresh = Policy(policy.module, policy.observation_space, policy.action_space)
    assert evaluate(policy, "CartPole-v1", episodes=20) == evaluate(fresh, "CartPole-v1", episodes=20) != stale


def test_evaluation_can_be_written_as_json():
    found = module.Evaluation([1.0, 2.0, 6.0], [1, 2, 6])
    data = json.loads(json.dumps(found.as_dict()))
    assert (data["mean"], data["min"], data["max"], data["length_mean"], data["episodes"]) == (3.0, 1.0, 6.0, 3.0, 3)
    assert data["returns"] == found.returns and tuple(data["interval"]) == found.interval
    assert found.interval[0] <= found.mean <= found.interval[1]


# Catches: agents of one game that count as independent episodes; a game of which only some agents count.
def test_agents_of_one_game_count_as_one_episode():
    policy = policy_for("mpe/simple_spread-v3")
    found = evaluate(policy, "mpe/simple_spread-v3", episodes=10)
    assert (len(found.returns), found.agents) == (12, 3)
    games = np.reshape(found.returns, (4, 3))
    assert np.ptp(games, 1).max() < np.ptp(games.mean(1))                 # they share most of their reward
    assert found.interval == module.Evaluation(games.mean(1).tolist(), [1] * 4).interval


def test_environments_that_cannot_be_evaluated_are_refused(monkeypatch):
    policy = policy_for(Lottery)
    with pytest.raises(UserError, match="CartPole-v1 has Box.*choose the environment"):
        evaluate(policy, "CartPole-v1")
    with pytest.raises(UserError, match="episodes must be at least 1"):
        evaluate(policy, Lottery, episodes=0)
    monkeypatch.setattr(played, "LONGEST", 100)
    with pytest.raises(UserError, match="an episode of Endless did not end within 100 steps"):
        evaluate(policy, Endless)


class Small(gymnasium.Env):
    """An environment with 32-bit actions. A saved space does not contain this data type."""

    observation_space, action_space = Box(-1, 1, (2,)), MultiDiscrete([3, 3], dtype=np.int32, start=[1, 1])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert 1 <= min(action) <= max(action) <= 3
        return np.zeros(2, np.float32), 1.0, True, False, {}


# Catches: spaces that differ only in their data type, so that a run's own environment is refused.
def test_loaded_policy_is_accepted_in_its_own_environment(tmp_path):
    run = spinup.ppo(Small, preset="none", total_steps=64, num_envs=2, rollout_steps=16, minibatches=1, quiet=True,
                     tensorboard=False, log_dir=str(tmp_path)).directory
    assert evaluate(spinup.load(run), Small, episodes=2).returns == [1.0, 1.0]
