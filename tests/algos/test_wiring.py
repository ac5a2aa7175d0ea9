"""Settings reach the functions that use them, and columns of the log have the right values."""
from collections.abc import Callable
from copy import deepcopy
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from spinup.algos import curiosity, es, ppo, rainbow, rl2, self_play, trpo, vpg
from spinup.core.fast.adam import FlatAdam
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.result import Result

ON_POLICY = [vpg, trpo, ppo, rl2, self_play, curiosity]
BATCHES = [ppo, rl2, self_play, curiosity]                                # those with minibatches
SCALED = {vpg: "gamma", trpo: "gamma", ppo: "gamma", rl2: "gamma", curiosity: "bonus_gamma"}


def each(algorithms: list[ModuleType]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("algorithm", algorithms, ids=lambda a: a.__name__.rpartition(".")[2])


@pytest.fixture
def train(tmp_path) -> Callable[..., Result]:
    """`train(ppo, gamma=0.9)`: four updates of 32 steps."""
    def training(algorithm: ModuleType, **settings: Any) -> Result:
        given = {"env": "TicTacToe-v0" if algorithm is self_play else "CartPole-v1", "num_envs": 2,
                 "rollout_steps": 16, "total_steps": 128, "threads": 1, "quiet": True, "tensorboard": False,
                 "log_dir": tmp_path.as_posix()}
        if algorithm in BATCHES:
            given |= {"epochs": 1, "minibatches": 1}
        if algorithm is rl2:
            given["inputs"] = "observation"
        return algorithm.train(algorithm.Config(**{**given, **settings}))
    return training


# Catches: a setting that does not reach an optimiser, so that it clips nothing.
@each(ON_POLICY)
def test_gradients_are_clipped_at_max_grad_norm(algorithm, train, monkeypatch):
    steps, step = {}, FlatAdam.step

    def watched(optimizer, lr=None):
        norm = step(optimizer, lr)
        steps.setdefault(id(optimizer), []).append((float(norm), float(optimizer.flat.grad.norm())))
        return norm

    monkeypatch.setattr(FlatAdam, "step", watched)
    train(algorithm, max_grad_norm=1e-3)
    clipped = [max(after for _, after in of) <= 1.001e-3 for of in steps.values()]
    assert all(max(before for before, _ in of) > 2e-3 for of in steps.values())
    assert sum(clipped) == len(clipped) - (algorithm is curiosity) > 0    # its predictors have no limit


def test_gradients_of_cql_and_rainbow_are_clipped_at_max_grad_norm(learn, tmp_path, monkeypatch):
    assert max(step.gradient.norm() for step in learn("cql", Discrete(3), max_grad_norm=1e-3)) <= 1.001e-3
    norms, step = [], FlatAdam.step
    monkeypatch.setattr(FlatAdam, "step", lambda optimizer, lr=None: (
        step(optimizer, lr), norms.append(float(optimizer.flat.grad.norm())))[0])
    rainbow.train(rainbow.Config(env="CartPole-v1", total_steps=64, learning_starts=16, batch_size=8, hidden=(8, 8),
                                 max_grad_norm=1e-3, threads=1, quiet=True, tensorboard=False,
                                 log_dir=tmp_path.as_posix()))
    assert norms and max(norms) <= 1.001e-3


# Catches: the 1e-8 of torch, or a larger number.
@each(BATCHES)
def test_adam_has_the_epsilon_of_the_original_ppo(algorithm, train, monkeypatch):
    made, init = [], FlatAdam.__init__
    monkeypatch.setattr(FlatAdam, "__init__", lambda self, params, **settings: (
        init(self, params, **settings), made.append(self.eps))[0])
    train(algorithm)
    assert made[0] == 1e-5


# Catches: a wrong discount factor; truncations that do not end the return.
@each([*SCALED])
def test_rewards_are_scaled_by_the_discounted_return_of_an_episode(algorithm, train, monkeypatch):
    class Short(gymnasium.Env):
        observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.steps += 1
            return np.zeros(2, np.float32), 1.0, False, self.steps == 3, {}

    made, given, scaler = [], [], algorithm.ReturnScaler

    class Watched(scaler):
        def __init__(self, num_envs, gamma):
            super().__init__(num_envs, gamma)
            made.append((num_envs, gamma))

        def update_and_scale(self, rewards, terminated, truncated):
            given.append((terminated.any().item(), truncated.sum().item()))
            return super().update_and_scale(rewards, terminated, truncated)

    monkeypatch.setattr(algorithm, "ReturnScaler", Watched)
    own = {} if algorithm is curiosity else {"normalise_reward": True}
    train(algorithm, env=Short, **own, **{"gamma": 0.6, SCALED[algorithm]: 0.7})
    assert made == [(2, 0.7)]
    # Two copies, 16 steps each: five episodes, and the third step of the next one falls into a later rollout.
    ends = [0] * 4 if algorithm is curiosity else [10, 10, 12, 10]
    assert given == [(False, n) for n in ends]


# Catches: a coefficient that keeps its first value, as without `anneal`.
@each([rl2, self_play])
def test_entropy_coefficient_falls_with_the_learning_rate(algorithm, train, monkeypatch):
    coefficients, minimizer = [], FlatAdam.minimizer

    def watched(optimizer, loss):
        minimize = minimizer(optimizer, loss)

        def step(*batch, **settings):
            coefficients.append(float(batch[-1]))
            return minimize(*batch, **settings)
        return step

    monkeypatch.setattr(FlatAdam, "minimizer", watched)
    train(algorithm, entropy_coef=0.3, anneal=True)
    assert coefficients == pytest.approx([0.3, 0.225, 0.15, 0.075])


# Catches: an inverted ratio of variances, or one that is not subtracted from 1.
@each([vpg, trpo, ppo, rl2, self_play])
def test_explained_variance_matches_its_definition(algorithm, train, monkeypatch):
    kept, original = [], algorithm.gae

    def watched(rew, values, *rest, **settings):
        adv, ret = original(rew, values, *rest, **settings)
        kept.append(float(1 - (ret - values).var() / ret.var()))
        return adv, ret

    monkeypatch.setattr(algorithm, "gae", watched)
    found = train(algorithm).progress["explained_variance"]
    assert found == pytest.approx(kept, rel=1e-3, abs=1e-4)


# Catches: the loss of the intrinsic value function although there is no intrinsic reward, so that its discount factor
# has an effect.
def test_intrinsic_values_do_not_train_without_intrinsic_reward(train):
    policies = [train(curiosity, bonus_coef=0, bonus_gamma=gamma).policy.module for gamma in (0.5, 0.9)]
    for a, b in zip(*(policy.parameters() for policy in policies), strict=True):
        assert torch.equal(a, b)


# Catches: exchanged coefficients; advantages that are not divided by their standard deviation.
def test_only_the_ratio_of_reward_and_bonus_coefficient_has_an_effect(train):
    weights = [torch.nn.utils.parameters_to_vector(train(curiosity, reward_coef=r, bonus_coef=b).policy.module.pi
                                                   .parameters()) for r, b in ((2, 1), (20, 10), (1, 2))]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(weights[0], weights[2], rtol=1e-3, atol=1e-4)


# Catches: statistics of the first rollout alone.
def test_input_statistics_of_the_predictors_include_every_rollout(train):
    view = load_checkpoint(train(curiosity).directory / "checkpoint.pt")["parts"]["obs_normaliser"]
    assert view["count"] == 128 + 32                                      # the first of four counts twice


# Catches: exchanged columns; the mean over the wrong axis.
@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_columns_of_actors_and_critics_have_the_right_values(algorithm, watch):
    seen = watch(algorithm, Box(-1, 1, (2,)), total_steps=60)
    progress, (q, pi) = seen.result.progress, (seen.of(part)[-1] for part in ("q", "pi"))
    columns = {"q": q.stats["q"], "q_loss": q.stats["loss"], "q_grad_norm": q.stats["grad_norm"],
               "pi_loss": pi.stats["loss"], "pi_grad_norm": pi.stats["grad_norm"]}
    assert {column: progress[column][-1] for column in columns} == pytest.approx(
        {column: float(value) for column, value in columns.items()}, rel=1e-5)
    if algorithm != "sac":
        act = pi.policy.params(pi.batch[0].double())[0].detach()
        assert progress["action_std"][-1] == pytest.approx(float(act.std(0).mean()), rel=1e-4)


# Catches: the variance in place of the standard deviation; the sum in place of the norm.
def test_columns_of_evolution_strategies_have_the_right_values(tmp_path, monkeypatch):
    played, play = [], es.play
    monkeypatch.setattr(es, "play", lambda *args: played.append(play(*args)) or played[-1])
    result = es.train(es.Config(env="CartPole-v1", pairs=3, total_steps=300, hidden=(4,), threads=1, quiet=True,
                                tensorboard=False, log_dir=tmp_path.as_posix()))
    assert result.progress["return_std"] == pytest.approx([float(totals[..., 0].std()) for totals in played])
    weights = torch.cat([p.flatten() for p in result.policy.module.pi.parameters()])
    assert result.progress["weight_norm"][-1] == pytest.approx(float(weights.norm()), rel=1e-5)


class Ends(gymnasium.Env):
    """Episodes of three steps that terminate or are truncated in turn. All observations differ."""

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


# Catches: a truncation that ends the return; after it, the value of the first observation of the next episode, or the
# value of an observation that is not normalised.
@each([vpg, trpo, ppo])
def test_truncation_bootstraps_from_the_last_observation(algorithm, train, monkeypatch):
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


# Catches: a wrong discount or lambda; advantages, or the returns of the other reward, as targets.
@each(ON_POLICY)
def test_value_targets_use_the_discount_and_lambda_of_the_settings(algorithm, train, monkeypatch):
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


# Catches: minibatches in the order of time, or in the same order in each epoch; a step that is missing in an epoch.
@each(BATCHES)
def test_each_epoch_has_a_new_order(algorithm, train, monkeypatch):
    seen, surrogate = [], algorithm.clipped_surrogate
    monkeypatch.setattr(algorithm, "clipped_surrogate", lambda logp, old, *rest: (
        seen.append(old.flatten()), surrogate(logp, old, *rest))[1])
    train(algorithm, num_envs=4, total_steps=64, epochs=2, minibatches=2)
    first, second = torch.cat(seen[:2]), torch.cat(seen[2:])
    assert len(seen) == 4 and torch.equal(first.sort().values, second.sort().values) and not torch.equal(first, second)


# Catches: the default in place of the setting.
def test_damping_and_delta_have_the_values_of_their_settings(train, monkeypatch):
    damped, drawn, product, opponents = [], [], trpo.fisher_product, self_play.opponents
    monkeypatch.setattr(trpo, "fisher_product", lambda kl, params, damping: (
        damped.append(damping) or product(kl, params, damping)))
    monkeypatch.setattr(self_play, "opponents", lambda rng, n, versions, delta: (
        drawn.append(delta) or opponents(rng, n, versions, delta)))
    train(trpo, damping=0.7)
    train(self_play, delta=0.25)
    assert set(damped) == {0.7} and set(drawn) == {0.25}
