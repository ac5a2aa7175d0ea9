"""DQN's functions by hand, each improvement on the smallest task that its paper has for it, and a training rebuilt."""
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from spinup.algos import dqn
from spinup.algos.dqn import greedy_value, importance_weights, n_step_return, td_target
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

# Settings for tests/algos/test_suite.py: each learns its task there in a second or two.
SUITE = {
    "settings": {"total_steps": 2560, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "target_every": 50, "explore": 0.5},
    "tasks": {"discrete": {},
              "image": {"total_steps": 768, "batch_size": 32, "learning_starts": 128, "target_every": 20}}}


# Catches: `terminated` for 1 - terminated; a discount on the rewards too.
def test_td_target_by_hand():
    ret, terminated, value = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([0.0, 1.0, 0.0]), torch.tensor([10.0, 7, -4])
    assert td_target(ret, 0.5, terminated, value).tolist() == [6.0, 2.0, -3.0]
    assert td_target(ret, torch.tensor([0.5, 0.5, 0.25]), terminated, value).tolist() == [6.0, 2.0, -2.0]


# Catches: the online network's own value; the actions of the target network in both.
def test_greedy_value_by_hand():
    target, online = torch.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 5.0]]), torch.tensor([[9.0, 8.0, 7.0], [0.0, 1.0, 2.0]])
    assert greedy_value(target).tolist() == [3.0, 6.0]
    assert greedy_value(target, online).tolist() == [1.0, 5.0]            # where online is highest: actions 0 and 2


# Catches: powers from gamma^1 on; gamma^n where the episode ended before.
def test_n_step_return_by_hand():
    rew, length = torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 0.0], [-3.0, 0.0, 0.0]]), torch.tensor([3, 2, 1])
    for gamma, ret, discount in ((0.5, [3.0, 2.0, -3.0], [0.125, 0.25, 0.5]), (1, [7.0, 3.0, -3.0], [1, 1, 1]),
                                 (0.0, [1.0, 1.0, -3.0], [0, 0, 0])):
        got = n_step_return(rew, length, gamma)
        assert got[0].tolist() == ret and got[1].tolist() == discount


# Catches: an exponent of the wrong sign; weights not divided by their maximum, or by their sum.
def test_importance_weights_by_hand():
    probability = np.array([0.5, 0.25, 0.125])                            # of 4 steps: twice, as, and half as often
    for beta, expected in (1.0, [0.25, 0.5, 1.0]), (0.5, [0.5, 0.5**0.5, 1.0]), (0.0, [1.0, 1.0, 1.0]):
        weights = importance_weights(probability, 4, beta)
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
        assert weights.dtype == np.float32


# Sutton & Barto 2018, example 6.7. Catches: a greedy_value that lets one table both choose and judge.
def test_double_does_not_take_luck_for_worth():
    single, double = (np.mean(shares_of_left(double)[-10:]) for double in (False, True))
    assert single > 0.15 and 0.04 < double < 0.08                         # .20 and .06, where .05 is what epsilon asks


# Wang et al. 2016, sec. 4.1. Catches: a duel that is not one, as Q = A alone, or V added to nothing.
@pytest.mark.long
def test_dueling_learns_of_every_action_from_each_and_the_more_there_are_the_more_so():
    few, many = ([error_of_evaluation(dueling, n) for dueling in (False, True)] for n in (5, 20))
    assert few[1] < few[0] / 2 and many[1] < many[0] / 6                  # .015 and .004; .09 and .005
    assert many[0] - many[1] > 3 * (few[0] - few[1])


# Sutton 1988. Catches: a discount gamma for gamma^n; rewards, or the last observation, of the wrong step of n.
def test_with_n_steps_a_reward_travels_n_times_as_fast():
    one, five = updates_with_steps(1), updates_with_steps(5)
    assert one >= LENGTH and five >= LENGTH / 5 and 0.8 < one / (5 * five) < 1.2
    assert updates_with_steps(LENGTH) == 2                                # the whole episode: 1 - 0.2^2 > 0.9


# Schaul et al. 2016, fig. 1. Catches: priorities that are never set; a draw that does not heed them.
def test_prioritised_replay_finds_the_one_reward_on_the_blind_cliffwalk():
    assert 5 * updates_on_the_cliff(0.7, 9) < updates_on_the_cliff(0, 9)


# Schaul et al. 2016, sec. 3.4. One step in ten pays 1, which surprises most, so it is drawn too often: without weights
# its share becomes 1/4, where .1 (1 - v)^2 = .9 v^2. Catches: no weights, or weights of another probability.
def test_weights_undo_what_priorities_distort():
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


# Every gradient step of a training, one transition at a time, from what the environment itself has noted. Catches:
# the reward, action, observation or ending of another step; a truncation that ends, or a termination that does not;
# the first observation of the next episode for the last of this one; the target network's choice in double, or the
# online one's value; a gradient through the target; the squared error; a sum for the mean; a gradient not clipped; a
# weight left out, or that of another beta, alpha or number of steps; priorities that are not renewed, or drawn though
# forgotten.
@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_update_is_the_one_worked_out_by_hand(settings, watch):
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
                if told.ended or seen.told.get(at, told).number not in step.rows[1:]:          # not done at that time
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


# Catches: a target that follows a little, is renewed a step too early or late, or by environment steps.
@pytest.mark.parametrize("settings", [{}, {"num_envs": 4, "update_ratio": 2.0}], ids=["one", "four"])
def test_the_target_network_is_renewed_every_so_many_gradient_steps(settings, watch):
    seen = watch("dqn", Discrete(2), target_every=7, **settings)
    flat = [[torch.cat([p.detach().flatten() for p in net.parameters()]) for net in (step.policy, step.target)]
            for step in seen.steps]
    assert len(flat) > 70
    for k, (policy, target) in enumerate(flat):
        assert torch.equal(target, flat[k - k % 7][0])
        assert k % 7 == 0 or not torch.equal(target, policy)


# Catches: an explore counted in steps of the environments' copies, or from the first gradient step; a last value
# of 0; random actions that end early.
@pytest.mark.parametrize("num_envs", [1, 4])
def test_epsilon_falls_from_1_to_its_last_value(num_envs, watch, monkeypatch):
    used, sample = [], EpsilonGreedy.sample
    monkeypatch.setattr(EpsilonGreedy, "sample", lambda self, params, noise: (used.extend([params[1]] * len(noise)),
                                                                              sample(self, params, noise))[1])
    seen = watch("dqn", Discrete(2), epsilon=0.2, explore=0.5, num_envs=num_envs)
    # Random until 40; then on the line from 1 at 0 to .2 at 60, and .2 from there.
    steps = np.arange(120) // num_envs * num_envs
    np.testing.assert_allclose(used, np.where(steps < 40, 1, np.maximum(1 - 0.8 * steps / 60, 0.2)), rtol=1e-6)
    assert seen.result.progress["epsilon"] == pytest.approx(used[num_envs - 1::num_envs])
    assert seen.result.policy.module.epsilon.item() == pytest.approx(0.2)


# Catches: a gradient step for each step of all copies; a ratio that is rounded at each update, by which .3 is 0;
# the `len` of a replay, which short episodes keep below its size, as the sign that there is enough to learn from.
@pytest.mark.parametrize("num_envs, each, ratio", [(1, 1, 1), (4, 4, 1), (1, 1, 0.3), (4, 4, 0.1), (2, 10, 2)])
def test_there_are_as_many_gradient_steps_as_the_ratio_says(num_envs, each, ratio, watch):
    seen = watch("dqn", Discrete(2), num_envs=num_envs, update_every=each, update_ratio=ratio, replay_size=40)
    assert abs(len(seen.steps) - ratio * (120 - 40 + each)) < 1


# Catches: a step size that stays, or is told and not taken.
@pytest.mark.parametrize("anneal", [False, True])
def test_an_annealed_step_size_falls_to_nothing(anneal, tmp_path, monkeypatch):
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
