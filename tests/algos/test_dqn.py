"""DQN's functions and updates calculated by hand, and each improvement on the smallest task in its paper."""
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from spinup.algos import dqn
from spinup.algos.dqn import exploration_rate, greedy_value, importance_weights, n_step_return, td_target
from spinup.bench.papers.dqn_parts import (
    LENGTH,
    error_of_evaluation,
    shares_of_left,
    updates_on_the_cliff,
    updates_with_steps,
)
from spinup.core.critics import QNetwork
from spinup.core.distributions import EpsilonGreedy
from spinup.core.fast.adam import FlatAdam
from spinup.core.priorities import Priorities

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 2560, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "target_every": 50, "explore": 0.5},
    "tasks": {"discrete": {},
              "image": {"total_steps": 768, "batch_size": 32, "learning_starts": 128, "target_every": 20}}}


# Catches: `terminated` in place of 1 - terminated; discounted rewards.
def test_td_target_matches_hand_calculation():
    ret, terminated, value = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([0.0, 1.0, 0.0]), torch.tensor([10.0, 7, -4])
    assert td_target(ret, 0.5, terminated, value).tolist() == [6.0, 2.0, -3.0]
    assert td_target(ret, torch.tensor([0.5, 0.5, 0.25]), terminated, value).tolist() == [6.0, 2.0, -2.0]


# Catches: the value of the online network; the action of the target network in double Q-learning.
def test_greedy_value_matches_hand_calculation():
    target, online = torch.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 5.0]]), torch.tensor([[9.0, 8.0, 7.0], [0.0, 1.0, 2.0]])
    assert greedy_value(target).tolist() == [3.0, 6.0]
    assert greedy_value(target, online).tolist() == [1.0, 5.0]            # where online is highest: actions 0 and 2


# Catches: powers that start at gamma^1; gamma^n although the episode ended earlier.
def test_n_step_return_matches_hand_calculation():
    rew, length = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 0.0], [-3.0, 0.0, 0.0]]), torch.tensor([3, 2, 1])
    for gamma, ret, discount in ((0.5, [3.0, 2.0, -3.0], [0.125, 0.25, 0.5]), (1, [7.0, 3.0, -3.0], [1, 1, 1]),
                                 (0.0, [1.0, 1.0, -3.0], [0, 0, 0])):
        got = n_step_return(rew, length, gamma)
        assert got[0].tolist() == ret and got[1].tolist() == discount


# Catches: a fall to 0 in place of the final share; a fall over the whole run; a division by zero without exploration.
def test_exploration_rate_falls_linearly_to_its_final_value():
    assert [exploration_rate(passed, 0.5, 0.2) for passed in (0, 0.25, 0.5, 1)] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert [exploration_rate(passed, 0, 0.2) for passed in (0, 0.01)] == pytest.approx([1, 0.2])


# Catches: a wrong sign of the exponent; weights that are not divided by their maximum, or are divided by their sum.
def test_importance_weights_match_hand_calculation():
    probability = np.array([0.5, 0.25, 0.125])                            # of 4 steps: 2, 1 and 0.5 times uniform
    for beta, expected in (1.0, [0.25, 0.5, 1.0]), (0.5, [0.5, 0.5**0.5, 1.0]), (0.0, [1.0, 1.0, 1.0]):
        weights = importance_weights(probability, 4, beta)
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
        assert weights.dtype == np.float32


# Sutton & Barto 2018, example 6.7. Catches: a greedy_value that selects and evaluates the action with the same table.
def test_double_q_learning_reduces_maximisation_bias():
    single, double = (np.mean(shares_of_left(double)[-10:]) for double in (False, True))
    assert single > 0.15 and 0.04 < double < 0.08                         # .20 and .06; epsilon alone gives .05


# Wang et al. 2016, sec. 4.1. Catches: a dueling network with Q = A, or with a V that is not added.
@pytest.mark.long
def test_dueling_reduces_the_error_more_with_more_actions():
    few, many = ([error_of_evaluation(dueling, n) for dueling in (False, True)] for n in (5, 20))
    assert few[1] < few[0] / 2 and many[1] < many[0] / 6                  # .015 and .004; .09 and .005
    assert many[0] - many[1] > 3 * (few[0] - few[1])


# Sutton 1988. Catches: gamma in place of gamma^n; rewards, or a last observation, from a wrong step.
def test_n_step_returns_propagate_a_reward_n_times_as_fast():
    one, five = updates_with_steps(1), updates_with_steps(5)
    assert one >= LENGTH and five >= LENGTH / 5 and 0.8 < one / (5 * five) < 1.2
    assert updates_with_steps(LENGTH) == 2                                # the whole episode: 1 - 0.2^2 > 0.9


# Schaul et al. 2016, fig. 1. Catches: priorities that are never set; sampling that ignores them.
def test_prioritised_replay_solves_the_blind_cliffwalk_in_fewer_updates():
    assert 5 * updates_on_the_cliff(0.7, 9) < updates_on_the_cliff(0, 9)


# Schaul et al. 2016, sec. 3.4. One step in ten has reward 1 and the largest error, so it is sampled too often. Without
# weights, the value becomes 1/4, where .1 (1 - v)^2 = .9 v^2. Catches: missing weights, or weights from wrong
# probabilities.
def test_importance_weights_correct_the_bias_of_priorities():
    reward = (np.arange(10) == 3).astype(float)

    def learned(beta: float) -> float:
        rng, priorities, value, seen = np.random.default_rng(0), Priorities(10, 1.0), 0.5, []
        for k in range(1000):
            priorities.set(np.arange(10), np.abs(reward - value) + 1e-6)
            rows, probability = priorities.draw(rng, 16, 10)
            value += 0.05 * np.mean(importance_weights(probability, 10, beta) * (reward[rows] - value))
            seen.append(value)
        return float(np.mean(seen[500:]))

    assert learned(1.0) == pytest.approx(0.1, abs=0.01) and learned(0.0) == pytest.approx(0.25, abs=0.02)


GAMMA = 0.9
VARIANTS = {
    "plain": {"double": False}, "double": {}, "dueling": {"dueling": True, "num_envs": 2, "update_every": 4},
    "n-step": {"n_steps": 2, "num_envs": 2}, "five-step": {"n_steps": 5, "double": False},
    "clipped": {"max_grad_norm": 0.2},
    "prioritised": {"prioritised": True, "num_envs": 2, "update_ratio": 0.5, "n_steps": 2, "replay_size": 60}}


def values(net: QNetwork, obs: tuple[float, ...]) -> Tensor:
    """Q of one observation `[n]`, of a network in float64."""
    features = net.body(torch.tensor(obs, dtype=torch.float64))
    advantage = net.advantage(features)
    return net.value(features) + advantage - advantage.sum() / len(advantage) if net.dueling else advantage


# Every gradient step of a training run is calculated, one transition at a time, from the records of the environment.
# Catches: the reward, action, observation or end of a wrong step; a truncation that counts as a termination, or a
# termination that does not; the first observation of the next episode in place of the last one of this episode; an
# action from the target network, or a value of the online network, in double Q-learning; a gradient through the target;
# the squared error; the sum in place of the mean; a gradient that is not clipped; a missing importance weight, or one
# with a wrong beta, alpha or number of steps; priorities that are not updated, or that belong to overwritten steps.
@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_update_matches_hand_calculation(settings, watch):
    seen, n = watch("dqn", Discrete(3, start=2), gamma=GAMMA, **settings), settings.get("n_steps", 1)
    endings, priority, largest = set(), {}, 1.0
    for step in seen.steps:
        keys = list(map(tuple, step.batch[0].tolist()))
        rows = [seen.told[key].number for key in keys]
        weights = np.ones(len(rows))
        if settings.get("prioritised"):
            priority = {row: priority.get(row, largest) for row in step.rows}
            total, beta = sum(p**0.6 for p in priority.values()), 0.4 + 0.6 * (step.rows.stop - 2) / 120
            weights = np.array([len(step.rows) * priority[row] ** 0.6 / total for row in rows]) ** -beta
            weights /= weights.max()
        loss, errors = 0.0, []
        for key, row, weight in zip(keys, rows, weights, strict=True):
            assert row in step.rows
            at, ret = key, 0.0
            for k in range(n):
                told = seen.told[at]
                ret, at = ret + GAMMA**k * told.reward, told.next_obs
                if told.ended or seen.told.get(at, told).number not in step.rows[1:]:          # not stored yet
                    break
            endings.add((told.terminated, told.ended))
            with torch.no_grad():
                judged = values(step.target, at)
                chooser = values(step.policy, at) if settings.get("double", True) else judged
                y = ret if told.terminated else ret + GAMMA ** (k + 1) * judged[chooser.argmax()].item()
            error = values(step.policy, key)[seen.told[key].action - 2] - y
            errors.append(abs(error.item()))
            loss = loss + weight * (error**2 / 2 if errors[-1] < 1 else abs(error) - 0.5) / len(keys)
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(step.policy.parameters()))])
        norm = gradient.norm().item()
        assert step.stats["loss"].item() == pytest.approx(loss.item(), rel=1e-3)
        assert step.stats["errors"].tolist() == pytest.approx(errors, abs=1e-4)
        assert step.stats["grad_norm"].item() == pytest.approx(norm, rel=1e-3)
        clip = min(1, settings.get("max_grad_norm", 10) / norm)
        torch.testing.assert_close(step.gradient, gradient * clip, rtol=1e-3, atol=1e-4)
        priority.update(zip(rows, np.array(errors) + 1e-6, strict=True))
        largest = max(largest, *priority.values())
    assert endings == {(True, True), (False, True), (False, False)}


# Catches: a soft update of the target network; an update one gradient step too early or too late; an interval in
# environment steps.
@pytest.mark.parametrize("settings", [{}, {"num_envs": 4, "update_ratio": 2.0}], ids=["one", "four"])
def test_target_network_is_copied_at_the_set_interval_of_gradient_steps(settings, watch):
    seen = watch("dqn", Discrete(2), target_every=7, **settings)
    flat = [[torch.cat([p.detach().flatten() for p in net.parameters()]) for net in (step.policy, step.target)]
            for step in seen.steps]
    assert len(flat) > 70
    for k, (policy, target) in enumerate(flat):
        assert torch.equal(target, flat[k - k % 7][0])
        assert k % 7 == 0 or not torch.equal(target, policy)


# Catches: `explore` in steps of all copies together, or from the first gradient step on; a final value of 0; random
# first actions that end too early.
@pytest.mark.parametrize("num_envs", [1, 4])
def test_epsilon_falls_linearly_from_1_to_its_final_value(num_envs, watch, monkeypatch):
    used, sample = [], EpsilonGreedy.sample
    monkeypatch.setattr(EpsilonGreedy, "sample", lambda self, params, noise: (used.extend([params[1]] * len(noise)),
                                                                              sample(self, params, noise))[1])
    seen = watch("dqn", Discrete(2), epsilon=0.2, explore=0.5, num_envs=num_envs)
    # Random actions until step 40. Epsilon is on the line from 1 at step 0 to .2 at step 60, and then stays at .2.
    steps = np.arange(120) // num_envs * num_envs
    np.testing.assert_allclose(used, np.where(steps < 40, 1, np.maximum(1 - 0.8 * steps / 60, 0.2)), rtol=1e-6)
    assert seen.result.progress["epsilon"] == pytest.approx(used[num_envs - 1::num_envs])
    assert seen.result.policy.module.epsilon.item() == pytest.approx(0.2)


# Catches: one gradient step for each step of all copies together; a ratio that is rounded at each update, so that .3
# becomes 0; the `len` of a replay buffer, which short episodes keep below its size, as the condition for the first
# update.
@pytest.mark.parametrize("num_envs, each, ratio", [(1, 1, 1), (4, 4, 1), (1, 1, 0.3), (4, 4, 0.1), (2, 10, 2)])
def test_number_of_gradient_steps_follows_the_update_ratio(num_envs, each, ratio, watch):
    seen = watch("dqn", Discrete(2), num_envs=num_envs, update_every=each, update_ratio=ratio, replay_size=40)
    assert abs(len(seen.steps) - ratio * (120 - 40 + each)) < 1


# Catches: a constant learning rate; a learning rate that is logged and not used.
@pytest.mark.parametrize("anneal", [False, True])
def test_annealed_learning_rate_falls_linearly_to_0(anneal, tmp_path, monkeypatch):
    taken = []

    def step(self, lr=None, original=FlatAdam.step):
        taken.append(lr)
        return original(self, lr)

    monkeypatch.setattr(FlatAdam, "step", step)
    cfg = dqn.Config(total_steps=200, learning_starts=100, batch_size=4, hidden=(4,), lr=1e-3, anneal=anneal,
                     log_dir=tmp_path.as_posix(), tensorboard=False, quiet=True)
    told = dqn.train(cfg).progress["learning_rate"]
    np.testing.assert_allclose(told, [1e-3 * (1 - i / 200 if anneal else 1) for i in range(200)])
    np.testing.assert_allclose(taken, told[99:])
