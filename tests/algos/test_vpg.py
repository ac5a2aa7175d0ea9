"""VPG's two loss functions by hand. test_ppo and test_suite have the tests of what it shares with PPO."""
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.algos import trpo, vpg
from spinup.algos.vpg import policy_gradient, value_loss
from spinup.core.distributions import Categorical
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"rollout_steps": 16, "lr": 0.01, "anneal": True},
    "tasks": {"discrete": {"total_steps": 4096}, "multidiscrete": {"total_steps": 4096},
              "box far": {"normalise_obs": True, "log_std": -1.5}, "image": {"rollout_steps": 8, "value_epochs": 1}},
    "scores": "policy_gradient"}


# Catches: a wrong sign; a missing advantage.
def test_policy_gradient_matches_hand_calculation():
    logp = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    loss, stats = policy_gradient(logp, torch.tensor([2.0, -1.0, 0.0]))
    loss.sum().backward()
    assert loss.tolist() == [2.0, -2.0, 0.0] and logp.grad.tolist() == [-2.0, 1.0, 0.0]
    assert stats["logp"].item() == pytest.approx(-3.5 / 3) and not stats["logp"].requires_grad


def test_value_loss_matches_hand_calculation():
    value = torch.tensor([1.0, -1.0], requires_grad=True)
    loss = value_loss(value, torch.tensor([3.0, -1.5]))
    loss.sum().backward()
    assert loss.tolist() == [2.0, 0.125] and value.grad.tolist() == [-2.0, 0.5]


# The policy gradient theorem, exactly: all actions of one state, weighted by their probabilities. It holds without a
# baseline. Catches: a wrong sign; a weight other than A.
def test_policy_gradient_is_the_gradient_of_the_expected_reward():
    dist, reward = Categorical((4,)), torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    logits = torch.tensor([0.1, 0.5, -1.0, 0.3], dtype=torch.float64, requires_grad=True)
    probability = logits.softmax(0)
    expected, = torch.autograd.grad(-(probability * reward).sum(), logits, retain_graph=True)
    logp = dist.log_prob(logits.expand(4, 4), torch.arange(4))
    loss, _ = policy_gradient(logp, reward)
    got, = torch.autograd.grad((probability.detach() * loss).sum(), logits)
    torch.testing.assert_close(got, expected)


def train(tmp_path, **settings):
    return vpg.train(vpg.Config(num_envs=2, rollout_steps=8, total_steps=48, quiet=True, tensorboard=False,
                                log_dir=tmp_path.as_posix(), **settings))


# Catches: a setting that does not reach the network, or that also scales other layers.
@pytest.mark.parametrize("algorithm", [vpg, trpo])
def test_output_gain_scales_only_the_last_layer_of_the_policy(algorithm):
    one, two = (algorithm.make_policy(algorithm.Config(output_gain=gain), Box(-1, 1, (3,)), Box(-1, 1, (2,)))
                for gain in (0.01, 0.5))
    assert [float(torch.linalg.matrix_norm(p.pi[-1].weight, 2)) for p in (one, two)] == pytest.approx([0.01, 0.5])
    assert float(torch.linalg.matrix_norm(two.pi[0].weight, 2)) == pytest.approx(2**0.5)


# Catches: several steps of the policy on one batch, which VPG does not allow; a single step of the value function.
def test_each_batch_has_one_policy_step_and_many_value_steps(tmp_path, monkeypatch):
    calls = {"policy_gradient": 0, "value_loss": 0}

    def count(name, original):
        def counted(*args):
            calls[name] += 1
            return original(*args)
        monkeypatch.setattr(vpg, name, counted)

    count("policy_gradient", policy_gradient)
    count("value_loss", value_loss)
    train(tmp_path, value_epochs=7)
    assert calls == {"policy_gradient": 3, "value_loss": 21}


# Catches: missing advantage normalisation, with which the step depends on the scale of the rewards.
def test_advantages_are_normalised(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(vpg, "policy_gradient", lambda logp, adv: (seen.append(adv), policy_gradient(logp, adv))[1])
    train(tmp_path)
    assert len(seen) == 3
    for adv in seen:
        assert adv.mean().abs() < 1e-5 and adv.std(correction=0) == pytest.approx(1, abs=1e-4)


class Screen(gymnasium.Env):
    """Random images. The reward is the action."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def look(self):
        return self.np_random.integers(0, 256, (36, 36, 1), np.uint8)

    def step(self, action):
        return self.look(), float(action), bool(self.np_random.random() < 0.2), False, {}


# Catches: a value loss that changes the CNN, whose features are those of the policy.
@pytest.mark.parametrize("algorithm, still", [(vpg, {"lr": 1e-12}), (trpo, {"max_kl": 1e-20})], ids=["vpg", "trpo"])
def test_value_loss_on_images_trains_only_the_value_head(algorithm, still, tmp_path, monkeypatch):
    begun, make_policy = [], algorithm.make_policy

    def noted(*args):
        policy = make_policy(*args)
        begun.append({name: x.clone() for name, x in policy.state_dict().items()})
        return policy

    monkeypatch.setattr(algorithm, "make_policy", noted)
    cfg = algorithm.Config(env=Screen, num_envs=2, rollout_steps=8, total_steps=48, value_lr=0.1, quiet=True,
                           tensorboard=False, log_dir=tmp_path.as_posix(), **still)
    ended = algorithm.train(cfg).policy.module.state_dict()
    moved = {name.split(".")[0] for name, x in begun[0].items() if not torch.allclose(x, ended[name], atol=1e-8)}
    assert moved == {"v"}


# Catches: a missing `select`.
def test_masked_steps_are_not_in_the_loss():
    nan, mask = float("nan"), torch.tensor([1, 0])
    loss, stats = policy_gradient(torch.tensor([-1.0, nan]), torch.tensor([2.0, nan]), mask)
    assert loss.tolist() == [2.0, 0.0] and stats["logp"] == -1


@pytest.mark.parametrize("settings, advice", [
    ({"num_envs": 1, "rollout_steps": 1}, "advantages cannot be normalised over a batch of one step"),
    ({"rollout_steps": 16, "total_steps": 100}, "--total-steps 100 is less than one batch of 128 steps")])
@pytest.mark.parametrize("algorithm", [vpg, trpo], ids=["vpg", "trpo"])
def test_invalid_batch_sizes_are_refused(algorithm, settings, advice):
    with pytest.raises(UserError, match=advice):
        algorithm.Config(**settings)
