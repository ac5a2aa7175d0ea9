"""Settings of the gradient steps: their ratio to environment steps, learning rate, clipping, and requested return."""
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import spinup
from spinup.algos import dqn, her, rainbow
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import step_size
from spinup.data.dataset import Dataset, join
from spinup.envs.make import make
from spinup.envs.spaces import space_to_json


# Catches: one gradient step per environment step, whatever the ratio is.
@pytest.mark.parametrize("name", ["rainbow", "sac_discrete", "param_noise"])
def test_methods_for_discrete_actions_follow_the_update_ratio(name, watch):
    seen = watch(name, Discrete(2), num_envs=2, update_every=10, update_ratio=0.3, replay_size=40)
    assert abs(len(seen.of("q")) - 0.3 * (120 - 40 + 10)) < 1


# Catches: the same bug as the test above.
def test_her_follows_the_update_ratio(tmp_path, monkeypatch):
    seen, relabel = [], her.relabel
    monkeypatch.setattr(her, "relabel", lambda *args: seen.append(1) or relabel(*args))
    her.train(her.Config(env="GoalReacher-v0", total_steps=260, learning_starts=200, batch_size=8, update_ratio=0.5,
                         hidden=(8,), num_envs=2, threads=1, quiet=True, tensorboard=False,
                         log_dir=tmp_path.as_posix()))
    assert len(seen) == 130 - 99


# Catches: a constant learning rate; a learning rate that falls only in the log.
@pytest.mark.parametrize("algorithm", [dqn, rainbow], ids=["dqn", "rainbow"])
def test_annealed_learning_rate_falls_linearly_to_0(algorithm, tmp_path, monkeypatch):
    taken, step = [], FlatAdam.step
    monkeypatch.setattr(FlatAdam, "step", lambda self, lr=None: taken.append(lr) or step(self, lr))
    told = algorithm.train(algorithm.Config(
        total_steps=200, learning_starts=100, batch_size=4, hidden=(4,), lr=1e-3, anneal=True,
        log_dir=tmp_path.as_posix(), tensorboard=False, quiet=True)).progress["learning_rate"]
    np.testing.assert_allclose(told, [1e-3 * (1 - i / 200) for i in range(200)])
    np.testing.assert_allclose(taken, told[99:])


# Catches: a constant learning rate; gradients that are not clipped; the largest return in place of the quantile.
def test_decision_transformer_uses_its_request_learning_rate_and_clip(tmp_path, monkeypatch):
    taken, norms, step = [], [], FlatAdam.step

    def watched(self, lr=None):
        norm = step(self, lr)
        taken.append(lr)
        norms.append(float(self.flat.grad.norm()))
        return norm

    monkeypatch.setattr(FlatAdam, "step", watched)
    rng, envs = np.random.default_rng(0), make("CartPole-v1")
    obs, ends = rng.uniform(-1, 1, (300, 4)).astype(np.float32), np.arange(300) % 6 == 5
    rewards = np.repeat(np.arange(50), 6).astype(np.float32)
    data = join([Dataset(obs, rng.integers(0, 2, 300), rewards, obs, ends, np.zeros(300, bool))], {
        "env": "CartPole-v1", "env_settings": {}, "observation_space": space_to_json(envs.observation_space),
        "action_space": space_to_json(envs.action_space), "parts": [], "seed": 0, "versions": {}})
    with open(tmp_path / "data.npz", "wb") as file:
        data.write(file)
    result = spinup.decision_transformer(
        data=str(tmp_path / "data.npz"), context=3, layers=1, width=8, batch_size=8, total_steps=4, warmup=2, lr=0.01,
        max_grad_norm=1e-3, request=0.5, test_episodes=0, quiet=True, tensorboard=False, threads=1,
        log_dir=str(tmp_path))
    assert taken == pytest.approx([step_size(0.01, update, 4, 2, True) for update in range(4)])
    assert max(norms) <= 1.001e-3 and result.policy.module.request.item() == pytest.approx(6 * 24.5)
