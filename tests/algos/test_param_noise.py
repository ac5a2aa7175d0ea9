"""Parameter noise: the distance between policies, the adaptation of sigma, and the perturbed weights that act."""
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch.nn.functional import layer_norm

import spinup
from spinup.algos import param_noise
from spinup.core.fast.acting import NumpyMLPs

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 4096, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02, "noise": "parameters", "explore": 0.5,
        "adapt_every": 8, "adapt": 1.05, "epsilon": 0.02},
    "tasks": {"discrete": {}, "box": {"action_noise": 0.1}}}

SPACES = {"dqn": Discrete(3), "ddpg": Box(np.float32([-1, 0]), np.float32([1, 10]))}


# Catches: an inverted factor.
def test_sigma_adapts_to_the_target_distance():
    sigma = 1.0
    for _ in range(500):                                                  # the distance is three times sigma
        sigma = param_noise.adapted(sigma, 3 * sigma, 0.6, 1.02)
    assert sigma == pytest.approx(0.2, rel=0.03)


# Catches: the sum over action dimensions; an inverted KL divergence; a distance between values in place of policies.
def test_distances_are_those_of_the_paper():
    torch.manual_seed(0)
    act, noise = torch.rand(5000, 3), 0.3 * torch.randn(5000, 3)
    assert float(param_noise.action_distance(act, act + noise)) == pytest.approx(0.3, rel=0.02)
    q, other = torch.randn(6, 4), torch.randn(6, 4)
    kl = torch.distributions.kl_divergence(torch.distributions.Categorical(logits=q),
                                           torch.distributions.Categorical(logits=other)).mean()
    torch.testing.assert_close(param_noise.value_distance(q, other), kl)
    assert float(param_noise.value_distance(q, q + 100)) == pytest.approx(0, abs=1e-5)


# Catches: e (1 - 1/n) without the logarithm; 1 - e as the probability of the greedy action.
def test_epsilon_distance_is_the_kl_of_greedy_and_epsilon_greedy():
    greedy, epsilon = torch.tensor([1.0, 0, 0, 0]), 0.2
    mixed = (1 - epsilon) * greedy + epsilon / 4
    distance = param_noise.epsilon_distance
    assert distance(epsilon, 4) == pytest.approx(float((greedy * (greedy / mixed).log())[0]))
    assert distance(0, 4) == 0 and distance(1, 4) == pytest.approx(math.log(4))


def by_hand(weights: torch.Tensor, sizes: list[int], obs: torch.Tensor) -> torch.Tensor:
    """Output of an MLP with these flat weights and layer normalisation before each ReLU."""
    x, start = obs, 0
    for i, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        matrix = weights[start:start + n_in * n_out].view(n_out, n_in)
        x = x @ matrix.T + weights[start + n_in * n_out:start + (n_in + 1) * n_out]
        start += (n_in + 1) * n_out
        x = layer_norm(x, (n_out,)).relu() if i < len(sizes) - 2 else x
    return x


# Catches: noise that is sampled at each step, or once per run; the weights of another copy; actions of the unperturbed
# network; a sigma that is not used.
@pytest.mark.parametrize("kind", SPACES)
def test_each_copy_keeps_its_perturbed_weights_for_an_episode(kind, watch, monkeypatch):
    given, put = {}, NumpyMLPs.put

    def noted(self, i, flat):
        if len(self.weights[0]) == 2:                                     # the networks that act, not the probe
            given.setdefault(i, []).append(torch.from_numpy(flat.copy()))
        put(self, i, flat)

    monkeypatch.setattr(NumpyMLPs, "put", noted)
    seen = watch("param_noise", SPACES[kind], num_envs=2, sigma=0.3, total_steps=240)
    outputs = 3 if kind == "dqn" else 2
    checked = set()
    for (copy, episode, t), told in ((key, told) for key, told in seen.told.items()):
        i, number = round(copy * 4), round(episode * 64)
        obs = torch.tensor([[copy, episode, t]])
        found = by_hand(given[i][number], [3, 8, 6, outputs], obs)[0]
        if kind == "dqn":
            assert told.action == int(found.argmax())
        else:
            np.testing.assert_allclose(told.action, np.tanh(found.numpy()) * [1, 5] + [0, 5], atol=1e-4)
        checked.add((i, number))
    assert len(checked) > 70                                              # episodes of three steps, of two copies
    first, second = given[0][0], given[0][1]
    assert float((second - first).std()) == pytest.approx(0.3 * math.sqrt(2), rel=0.15)     # no gradient step so far


# Catches: one optimiser for critic and actor; an actor that minimises the value, or whose output has no tanh.
@pytest.mark.parametrize("kind", SPACES)
def test_gradient_steps_are_those_of_dqn_and_ddpg(kind, watch):
    """On the same batches, the gradient steps are those of dqn.py and ddpg.py. Only the noise differs."""
    seen = watch("param_noise", SPACES[kind])
    assert len(seen.of("q")) >= 80 and (kind == "dqn" or len(seen.of("pi")) == len(seen.of("q")))
    for step in seen.of("q")[::20]:
        obs, act, rew, next_obs, terminated = (x.double() if x.is_floating_point() else x for x in step.batch)
        policy, target = step.policy, step.target
        if kind == "dqn":
            best = policy(next_obs).argmax(1, keepdim=True)
            y = rew + 0.99 * (1 - terminated) * target(next_obs).gather(1, best)[:, 0]
            error = (policy(obs).gather(1, act[:, None])[:, 0] - y.detach()).abs()
            loss = torch.where(error < 1, error.square() / 2, error - 0.5).mean()
        else:
            y = rew + 0.99 * (1 - terminated) * target.values(next_obs, target.pi(next_obs).tanh())[0]
            loss = (policy.values(obs, act)[0] - y.detach()).square().mean()
        part = policy if kind == "dqn" else policy.q
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(part.parameters()))])
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-5)
    for step in seen.of("pi")[::20]:
        obs, policy = step.batch[0].double(), step.policy
        loss = -policy.values(obs, policy.pi(obs).tanh())[0].mean()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.pi.parameters()))])
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-5)


# Epsilon-greedy with the same network never reaches the far end. Catches: an evaluation of a policy other than the
# greedy one.
@pytest.mark.long
def test_policy_reaches_the_far_end_of_a_chain(tmp_path):
    result = param_noise.train(param_noise.Config(
        env="Chain-20-v0", total_steps=29 * 110, learning_starts=100, batch_size=32, hidden=(16, 16), explore=0.6,
        sigma=0.01, adapt=1.05, adapt_every=29, quiet=True, tensorboard=False, threads=1, test_episodes=1, seed=1,
        log_dir=tmp_path.as_posix()))
    assert result.progress["test_return"][-10:] == [12.0] * 10


# Catches: a distance on a batch although none was sampled.
def test_sigma_is_adapted_with_an_update_ratio_below_1(tmp_path):
    result = spinup.param_noise("CartPole-v1", total_steps=400, learning_starts=64, batch_size=16, update_every=1,
                                update_ratio=0.25, adapt_every=7, hidden=(16,), log_dir=str(tmp_path), quiet=True,
                                tensorboard=False)
    assert result.progress["sigma"][-1] != result.progress["sigma"][0] and result.progress["distance"][-1] > 0


# Catches: one adaptation per update, whatever its number of steps.
def test_sigma_is_adapted_at_the_set_interval_of_steps(tmp_path, monkeypatch):
    calls, adapted = [], param_noise.adapted
    monkeypatch.setattr(param_noise, "adapted", lambda *args: calls.append(args) or adapted(*args))
    spinup.param_noise("CartPole-v1", total_steps=120, learning_starts=20, batch_size=4, update_every=20,
                       update_ratio=0.05, adapt_every=8, hidden=(4,), log_dir=str(tmp_path), quiet=True,
                       tensorboard=False)
    assert len(calls) == 120 // 8


# Catches: exchanged policies in the distance; a target distance that does not fall with epsilon.
def test_measured_distance_and_target_distance_are_right(watch, monkeypatch):
    outputs, pairs, call, distance = [], [], NumpyMLPs.__call__, param_noise.value_distance
    monkeypatch.setattr(NumpyMLPs, "__call__", lambda self, obs: outputs.append(call(self, obs).copy()) or outputs[-1])
    monkeypatch.setattr(param_noise, "value_distance", lambda q, noisy: pairs.append(
        np.array_equal(noisy.numpy(), outputs[-1])) or distance(q, noisy))
    watch("param_noise", SPACES["dqn"], sigma=0.3, adapt_every=8)
    assert len(pairs) > 5 and all(pairs)
    cfg = param_noise.Config(epsilon=0.1, explore=0.5)
    net = param_noise.make_policy(cfg, Box(-1, 1, (3,)), Discrete(4))
    learner = param_noise.ValueLearner(cfg, net, net)
    for passed, epsilon in ((0, 1), (0.25, 0.55), (0.5, 0.1), (1, 0.1)):
        assert learner.wanted_distance(passed) == pytest.approx(param_noise.epsilon_distance(epsilon, 4), rel=1e-5)
