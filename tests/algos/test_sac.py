"""SAC's functions and updates calculated by hand, its temperature, and images. test_ddpg has the tests of what it
shares with DDPG and TD3."""
import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import spinup
from spinup.algos import sac
from spinup.algos.sac import soft_value, temperature_loss

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 3072, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02, "alpha": 0.1},
    "tasks": {"box far": {"normalise_obs": True, "total_steps": 4096}}}

BOUNDS = Box(np.float32([-1, 0, -3]), np.float32([1, 10, -2.5]))


# Catches: a wrong sign of the entropy; the larger critic.
def test_soft_value_matches_hand_calculation():
    q, logp = torch.tensor([[1.0, 5.0], [2.0, 3.0]]), torch.tensor([-1.0, 2.0])
    assert soft_value(q, logp, torch.tensor(0.5)).tolist() == [1.5, 2.0]


# Catches: a wrong sign; a gradient in the policy; a target entropy that is subtracted.
@pytest.mark.parametrize("entropy, slope", [(-3.0, -1.0), (-1.0, 1.0), (-2.0, 0.0)])
def test_temperature_rises_where_entropy_is_below_its_target(entropy, slope):
    log_alpha, logp = torch.tensor(0.3, requires_grad=True), torch.tensor([-entropy, -entropy], requires_grad=True)
    temperature_loss(log_alpha, logp, -2.0).mean().backward()
    assert log_alpha.grad.item() == slope and logp.grad is None           # it moves against the slope


def drawn(net, obs, noise):
    """The action in -1 to 1 for this noise, and its log-density by the change of variables."""
    outputs = net.pi(obs)
    mean, log_std = outputs[:3], outputs[3:].clip(-20, 2)
    u = mean + log_std.exp() * noise
    normal = -noise**2 / 2 - log_std - math.log(2 * math.pi) / 2
    return u.tanh(), (normal - (1 - u.tanh() ** 2).log()).sum()


# Every third gradient step of a training run is calculated, one transition at a time. Catches: an action of a target
# actor, or values of the online critics, in the target; a missing entropy, or an entropy after a termination; the
# larger critic in either loss; a temperature that the actor loss changes, or that is missing in it; a target entropy
# without the number of dimensions; a density in wrong units.
@pytest.mark.parametrize("learn_alpha", [True, False])
def test_updates_match_hand_calculation(learn_alpha, watch):
    seen = watch("sac", BOUNDS, gamma=0.9, num_envs=2, alpha=0.5, target_entropy=-0.5, learn_alpha=learn_alpha)
    assert [step.part for step in seen.steps] == ["q", "pi"] * 82
    least = set()
    for step in seen.steps[::3]:
        obs, noise = step.batch[0].double(), step.batch[-1].double()
        act, rew, next_obs, terminated = (x.double() for x in step.batch[1:5]) if step.part == "q" else [None] * 4
        policy, target, alpha, loss, entropy = step.policy, step.target, step.policy.log_alpha.exp().item(), 0.0, 0.0
        for i in range(len(obs)):
            if step.part == "q":
                next_act, logp = drawn(policy, next_obs[i], noise[i])
                value = min(q(torch.cat([next_obs[i], next_act]))[0] for q in target.q) - alpha * logp
                y = (rew[i] + 0.9 * (1 - terminated[i]) * value).item()
                loss = loss + sum((q(torch.cat([obs[i], act[i]]))[0] - y) ** 2 for q in policy.q) / len(obs)
            else:
                act_i, logp = drawn(policy, obs[i], noise[i])
                judged = [q(torch.cat([obs[i], act_i]))[0] for q in policy.q]
                least.add(judged[0].item() < judged[1].item())
                loss = loss + (alpha * logp - min(judged)) / len(obs)
                loss = loss - learn_alpha * policy.log_alpha * (logp.item() - 0.5 * 3) / len(obs)
                entropy -= logp.item() / len(obs)
        params = list(policy.q.parameters()) if step.part == "q" else [*policy.pi.parameters(),
                                                                            *[policy.log_alpha] * learn_alpha]
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, params)])
        assert step.stats["loss"].item() == pytest.approx(loss.item(), rel=1e-3, abs=1e-4)
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-4)
        assert step.part == "q" or step.stats["entropy"].item() == pytest.approx(entropy, abs=1e-3)
    assert least == {True, False}
    assert (seen.policy.log_alpha.item() != pytest.approx(math.log(0.5))) == learn_alpha


# Catches: a temperature that moves in the wrong direction, or that is not learned; an entropy in the units of the
# environment.
@pytest.mark.long
def test_alpha_falls_above_the_target_entropy_and_rises_below_it(watch):
    above, below, kept = (watch("sac", BOUNDS, target_entropy=target, learn_alpha=learned).result.progress
                          for target, learned in ((-4.0, True), (0.69, True), (-4.0, False)))
    for progress, sign in (above, -1), (below, 1):
        alpha = np.array(progress["alpha"])[40:]
        assert (sign * np.diff(alpha) > 0).all() and sign * np.log(alpha[-1]) > 0.3
    assert min(above["entropy"][40:]) > 3 * -4
    assert set(kept["alpha"]) == {1.0}


# Catches: a CNN that the actor loss trains, although its features are those of the critics; a CNN that no loss trains.
def test_only_the_critics_train_the_cnn_and_the_actor_uses_its_features():
    cfg = sac.Config(env="Pendulum-v1", hidden=(8,))
    policy = sac.make_policy(cfg, Box(0, 255, (36, 36, 3), np.uint8), BOUNDS)
    image = torch.randint(0, 256, (5, 3, 36, 36), dtype=torch.uint8)
    mean, _ = policy.params(image)
    mean.sum().backward()
    assert all(p.grad is None for p in policy.body.parameters()) and policy.pi[0].weight.grad.any()
    policy.values(image, torch.zeros(5, 3)).sum().backward()
    assert all(p.grad.any() for p in policy.body.parameters())
    torch.testing.assert_close(torch.from_numpy(policy.actor()(image.numpy())[0]), mean.detach())


# Catches: a CNN that is not among the parameters of the critics, or that is also among those of the actor.
def test_training_from_images_changes_every_network(tmp_path):
    cfg = sac.Config(env=Shades, hidden=(8,), log_dir=tmp_path.as_posix(), total_steps=40, learning_starts=20,
                     batch_size=4, quiet=True, tensorboard=False, threads=1)
    torch.manual_seed(cfg.seed)
    before = sac.make_policy(cfg, Shades.observation_space, Shades.action_space).state_dict()
    after = sac.train(cfg).policy.module.state_dict()
    assert all(not torch.equal(x, after[name]) for name, x in before.items())


# Catches: the temperature of the initial run in place of the fixed one.
@pytest.mark.parametrize("name, env", [("sac", "Pendulum-v1"), ("sac_discrete", "CartPole-v1")])
def test_fixed_temperature_has_the_value_of_its_setting(name, env, tmp_path):
    given = {"preset": "none", "hidden": (8,), "total_steps": 20, "learning_starts": 8, "batch_size": 4,
             "quiet": True, "tensorboard": False, "threads": 1, "log_dir": str(tmp_path)}
    train = getattr(spinup, name)
    first = train(env, alpha=0.5, exp_name="first", **given).directory
    then = train(env, init=str(first), learn_alpha=False, alpha=0.3, exp_name="then", **given)
    assert then.policy.module.log_alpha.exp().item() == pytest.approx(0.3)


class Shades(gymnasium.Env):
    """Random images; the reward is the action."""

    observation_space, action_space = Box(0, 255, (36, 36, 1), np.uint8), Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(0, 256, (36, 36, 1), np.uint8), {}

    def step(self, action):
        return self.reset()[0], float(action[0]), False, False, {}


class Halves(gymnasium.Env):
    """Episodes of eight steps. The best action is -1 if the left half of the image is the brighter one, else 1."""

    observation_space, action_space = Box(0, 255, (36, 36, 1), np.uint8), Box(-2, 2, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        reward, self.t = 1 - np.square(action[0] / 2 - (self.wanted - 0.5)), self.t + 1
        return self.draw(), float(reward), False, self.t == 8, {}

    def draw(self):
        self.wanted = self.np_random.integers(2)
        image = self.np_random.integers(0, 100, (36, 36, 1), np.uint8)
        image[:, 18 * self.wanted:18 * (self.wanted + 1)] += 100
        return image


# Catches: a CNN that does not learn, so that all images have the same features. The error of the critics then stays at
# the variance of the rewards. The actor stays random, because no action is better than the others on average.
@pytest.mark.long
def test_critics_and_actor_learn_from_images(tmp_path):
    cfg = sac.Config(env=Halves, log_dir=tmp_path.as_posix(), total_steps=704, hidden=(64, 64), batch_size=32,
                     learning_starts=256, lr=5e-4, update_every=8, update_ratio=1.0, threads=1, tau=0.02, alpha=0.1,
                     num_envs=8, gamma=0.5, quiet=True, tensorboard=False)
    progress = sac.train(cfg).progress
    errors = [x for x in progress["q_loss"] if not np.isnan(x)]
    assert np.mean(errors[-10:]) < 0.25 * np.mean(errors[:10])
    assert progress["entropy"][-1] < 0.3


# The critics learn the values of sampled actions, so the noise in both losses must be standard normal.
def test_noise_in_both_losses_is_standard_normal(watch):
    seen = watch("sac", BOUNDS)
    for part in "q", "pi":
        noise = torch.cat([step.batch[-1] for step in seen.of(part)])
        assert noise.std() == pytest.approx(1, abs=0.08) and noise.mean().abs() < 0.08
