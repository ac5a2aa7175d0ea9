"""Settings reach the function that uses them, and a column of the log holds what its name says."""
from collections.abc import Callable
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


# Turned red by: the setting not given to an optimiser, which would clip nothing.
@each(ON_POLICY)
def test_gradients_are_clipped_at_the_setting(algorithm, train, monkeypatch):
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


def test_the_gradients_of_cql_and_rainbow_are_clipped_too(learn, tmp_path, monkeypatch):
    assert max(step.gradient.norm() for step in learn("cql", Discrete(3), max_grad_norm=1e-3)) <= 1.001e-3
    norms, step = [], FlatAdam.step
    monkeypatch.setattr(FlatAdam, "step", lambda optimizer, lr=None: (
        step(optimizer, lr), norms.append(float(optimizer.flat.grad.norm())))[0])
    rainbow.train(rainbow.Config(env="CartPole-v1", total_steps=64, learning_starts=16, batch_size=8, hidden=(8, 8),
                                 max_grad_norm=1e-3, threads=1, quiet=True, tensorboard=False,
                                 log_dir=tmp_path.as_posix()))
    assert norms and max(norms) <= 1.001e-3


# Turned red by: torch's 1e-8, or a larger number.
@each(BATCHES)
def test_adam_has_the_epsilon_of_the_original_ppo(algorithm, train, monkeypatch):
    made, init = [], FlatAdam.__init__
    monkeypatch.setattr(FlatAdam, "__init__", lambda self, params, **settings: (
        init(self, params, **settings), made.append(self.eps))[0])
    train(algorithm)
    assert made[0] == 1e-5


# Turned red by: another discount factor; ends of episodes by truncation that do not end the return.
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


# Turned red by: a coefficient that keeps its first value, as without `anneal`.
@each([rl2, self_play])
def test_the_entropy_bonus_anneals_with_the_learning_rate(algorithm, train, monkeypatch):
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


# Turned red by: the ratio of variances inverted, or not taken from 1.
@each([vpg, trpo, ppo, rl2, self_play])
def test_the_explained_variance(algorithm, train, monkeypatch):
    kept, function = [], "trial_advantages" if algorithm is rl2 else "gae"
    original = getattr(algorithm, function)

    def watched(rew, values, *rest, **settings):
        adv, ret = original(rew, values, *rest, **settings)
        kept.append(float(1 - (ret - values).var() / ret.var()))
        return adv, ret

    monkeypatch.setattr(algorithm, function, watched)
    found = train(algorithm).progress["explained_variance"]
    assert found == pytest.approx(kept, rel=1e-3, abs=1e-4)


# Turned red by: the error of the bonus values in the loss although no bonus is used; its discount factor then matters.
def test_without_a_bonus_its_values_do_not_train(train):
    policies = [train(curiosity, bonus_coef=0, bonus_gamma=gamma).policy.module for gamma in (0.5, 0.9)]
    for a, b in zip(*(policy.parameters() for policy in policies), strict=True):
        assert torch.equal(a, b)


# Turned red by: the two coefficients exchanged, or advantages that are not divided by their deviation.
def test_only_the_ratio_of_the_two_coefficients_counts(train):
    weights = [torch.nn.utils.parameters_to_vector(train(curiosity, reward_coef=r, bonus_coef=b).policy.module.pi
                                                   .parameters()) for r, b in ((2, 1), (20, 10), (1, 2))]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(weights[0], weights[2], rtol=1e-3, atol=1e-4)


# Turned red by: statistics of the first rollout alone.
def test_the_view_of_the_predictors_sees_every_rollout(train):
    view = load_checkpoint(train(curiosity).directory / "checkpoint.pt")["parts"]["view"]
    assert view["count"] == 128 + 32                                      # the first of four counts twice


# Turned red by: two columns exchanged; the mean over the other axis.
@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_the_columns_of_actors_and_critics(algorithm, watch):
    seen = watch(algorithm, Box(-1, 1, (2,)), total_steps=60)
    progress, (q, pi) = seen.result.progress, (seen.of(part)[-1] for part in ("q", "pi"))
    columns = {"q": q.stats["q"], "q_loss": q.stats["loss"], "q_grad_norm": q.stats["grad_norm"],
               "pi_loss": pi.stats["loss"], "pi_grad_norm": pi.stats["grad_norm"]}
    assert {column: progress[column][-1] for column in columns} == pytest.approx(
        {column: float(value) for column, value in columns.items()}, rel=1e-5)
    if algorithm != "sac":
        act = pi.policy.params(pi.batch[0].double())[0].detach()
        assert progress["action_std"][-1] == pytest.approx(float(act.std(0).mean()), rel=1e-4)


# Turned red by: a variance in place of the deviation; a sum in place of the norm.
def test_the_columns_of_evolution_strategies(tmp_path, monkeypatch):
    played, play = [], es.play
    monkeypatch.setattr(es, "play", lambda *args: played.append(play(*args)) or played[-1])
    result = es.train(es.Config(env="CartPole-v1", pairs=3, total_steps=300, hidden=(4,), threads=1, quiet=True,
                                tensorboard=False, log_dir=tmp_path.as_posix()))
    assert result.progress["return_std"] == pytest.approx([float(totals[..., 0].std()) for totals in played])
    weights = torch.cat([p.flatten() for p in result.policy.module.pi.parameters()])
    assert result.progress["weight_norm"][-1] == pytest.approx(float(weights.norm()), rel=1e-5)
