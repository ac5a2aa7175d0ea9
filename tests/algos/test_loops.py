"""What the loops of on-policy algorithms give to their functions: ends, discounts, targets and minibatches."""
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from spinup.algos import curiosity, ppo, rl2, self_play, trpo, vpg

ON_POLICY = [vpg, trpo, ppo, rl2, self_play, curiosity]
BATCHES = [ppo, rl2, self_play, curiosity]


def each(algorithms):
    return pytest.mark.parametrize("algorithm", algorithms, ids=lambda a: a.__name__.rpartition(".")[2])


@pytest.fixture
def train(tmp_path):
    def training(algorithm, **settings):
        given = {"env": "TicTacToe-v0" if algorithm is self_play else "CartPole-v1", "num_envs": 2,
                 "rollout_steps": 16, "total_steps": 128, "threads": 1, "quiet": True, "tensorboard": False,
                 "log_dir": tmp_path.as_posix()}
        if algorithm in BATCHES:
            given |= {"epochs": 1, "minibatches": 1}
        if algorithm is rl2:
            given["inputs"] = "observation"
        return algorithm.train(algorithm.Config(**{**given, **settings}))
    return training


class Ends(gymnasium.Env):
    """Episodes of three steps, ended by turns by the task and by the time limit; no two observations are alike."""

    observation_space, action_space, episode = Box(-np.inf, np.inf, (2,)), Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self.look(), {}

    def step(self, action):
        self.t += 1
        over, cut = self.t == 3, bool(self.episode % 2)
        return self.look(), float(self.t), over and not cut, over and cut, {}

    def look(self):
        return np.array([10 + self.t, self.np_random.normal()], np.float32)


# Turned red by: a time limit that ends the return; the value of the next episode's first observation, or of one that is
# not normalised, after it.
@each([vpg, trpo, ppo])
def test_a_time_limit_is_bootstrapped_from_the_last_observation(algorithm, train, monkeypatch):
    kept, seen, given, make_policy, collect, gae = [], [], [], algorithm.make_policy, algorithm.collect, algorithm.gae
    monkeypatch.setattr(algorithm, "make_policy", lambda *args: kept.append(make_policy(*args)) or kept[0])
    monkeypatch.setattr(algorithm, "collect", lambda *args: (
        seen.append((deepcopy(kept[0]), collect(*args))) or seen[-1][1]))
    monkeypatch.setattr(algorithm, "gae", lambda *args, **settings: given.append(args) or gae(*args, **settings))
    train(algorithm, env=Ends, normalise_obs=True)
    assert len(seen) == len(given) == 4
    for (policy, rollout), (rew, values, next_values, terminated, truncated) in zip(seen, given, strict=True):
        assert rollout.terminated.any() and rollout.truncated.any()
        for found, expected in ((rew, rollout.rew), (terminated, rollout.terminated), (truncated, rollout.truncated)):
            assert torch.equal(found, expected)
        with torch.no_grad():
            before, after = (policy.value(policy.normalise(x)) for x in (rollout.obs[:, :-1], rollout.next_obs()))
        torch.testing.assert_close(values, before)
        torch.testing.assert_close(next_values[~terminated], after[~terminated])


# Turned red by: another discount or lambda than those set; advantages, or the returns of the other reward, as targets.
@each(ON_POLICY)
def test_discount_and_lambda_make_the_targets_of_the_values(algorithm, train, monkeypatch):
    asked, returns, targets, gae, value_loss = [], [], [], algorithm.gae, algorithm.value_loss

    def estimated(*args, gamma, lam, **rest):
        asked.append((gamma, lam))
        found = gae(*args, gamma=gamma, lam=lam, **rest)
        returns.append(found[1].flatten().sort().values)
        return found

    monkeypatch.setattr(algorithm, "gae", estimated)
    monkeypatch.setattr(algorithm, "value_loss", lambda value, target, **rest: (
        targets.append(target.flatten().sort().values), value_loss(value, target, **rest))[1])
    own = {"bonus_gamma": 0.8} if algorithm is curiosity else {}
    train(algorithm, gamma=0.7, lam=0.6, **own)
    assert asked == ([(0.7, 0.6), (0.8, 0.6)] if own else [(0.7, 0.6)]) * 4
    steps = len(targets) // len(returns)
    for i, target in enumerate(targets):
        torch.testing.assert_close(target, returns[i // steps])


# Turned red by: minibatches in the order of time, or in the same order in each epoch; a step that an epoch leaves out.
@each(BATCHES)
def test_each_epoch_is_shuffled_anew(algorithm, train, monkeypatch):
    seen, surrogate = [], algorithm.clipped_surrogate
    monkeypatch.setattr(algorithm, "clipped_surrogate", lambda logp, old, *rest: (
        seen.append(old.flatten()), surrogate(logp, old, *rest))[1])
    train(algorithm, num_envs=4, total_steps=64, epochs=2, minibatches=2)
    first, second = torch.cat(seen[:2]), torch.cat(seen[2:])
    assert len(seen) == 4 and torch.equal(first.sort().values, second.sort().values) and not torch.equal(first, second)


# Turned red by: the default in place of what was set.
def test_damping_and_delta_are_those_asked_for(train, monkeypatch):
    damped, drawn, product, opponents = [], [], trpo.fisher_product, self_play.opponents
    monkeypatch.setattr(trpo, "fisher_product", lambda kl, params, damping: (
        damped.append(damping) or product(kl, params, damping)))
    monkeypatch.setattr(self_play, "opponents", lambda rng, n, versions, delta: (
        drawn.append(delta) or opponents(rng, n, versions, delta)))
    train(trpo, damping=0.7)
    train(self_play, delta=0.25)
    assert set(damped) == {0.7} and set(drawn) == {0.25}
