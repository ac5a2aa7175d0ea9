"""Curiosity: the intrinsic rewards, the training of their networks, and the effect of episode ends on returns."""
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import Env
from gymnasium.spaces import Box, Discrete

from spinup.algos import curiosity
from spinup.algos.curiosity import Config, Surprise
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"rollout_steps": 32, "lr": 0.003, "bonus_coef": 0.2, "entropy_coef": 0.0, "feature_hidden": (32,)},
    "tasks": {"discrete": {"total_steps": 5120}, "image": {"total_steps": 2048}},
    "scores": "clipped_surrogate"}

KINDS = ("rnd", "inverse", "random", "pixels")
SETTINGS = {"num_envs": 4, "rollout_steps": 16, "minibatches": 2, "hidden": (8,), "feature_hidden": (8,),
            "feature_size": 4, "quiet": True, "threads": 1, "tensorboard": False}


def learned(surprise: Surprise, batch, steps: int, lr: float = 3e-3) -> Surprise:
    optimizer = FlatAdam([p for p in surprise.parameters() if p.requires_grad], lr=lr)
    minimize = optimizer.minimizer(lambda *b: (surprise.loss(*b).mean(), {}))
    for _ in range(steps):
        minimize(*batch())
    return surprise


# Catches: a fixed feature network that is trained; a predictor of the features of s in place of s'.
@pytest.mark.long("inverse")
@pytest.mark.parametrize("kind", KINDS)
def test_intrinsic_reward_falls_for_familiar_transitions(kind):
    torch.manual_seed(0)
    surprise = Surprise(kind, (6,), 3, 8, (32,))
    fixed = [p.clone() for p in surprise.features.parameters()]
    obs, act = torch.randn(64, 6), torch.randint(3, (64,))
    move = torch.randn(3, 6)
    before = surprise.error(obs, act, obs + move[act]).detach()
    learned(surprise, lambda: (obs, act, obs + move[act]), 800)
    known = surprise.error(obs, act, obs + move[act]).detach()
    new = surprise.error(obs, act, 4 * torch.randn(64, 6)).detach()
    assert known.shape == (64,) and (kind == "inverse" or float(known.mean()) < 0.25 * float(before.mean()))
    assert float(new.mean()) > 5 * float(known.mean())
    if kind in ("rnd", "random"):
        assert all(torch.equal(a, b) for a, b in zip(fixed, surprise.features.parameters(), strict=True))


# Pixels are left out, because no network here can predict those of an image. Catches: normalised images that are
# divided by 255; a fixed feature network that is trained.
@pytest.mark.long("inverse")
@pytest.mark.parametrize("kind", ["rnd", "inverse", "random"])
def test_intrinsic_reward_falls_for_familiar_images(kind):
    torch.manual_seed(0)
    surprise = Surprise(kind, (1, 36, 36), 2, 8, (16,))
    fixed = [p.clone() for p in surprise.features.parameters()]
    obs, then, act = torch.randn(8, 1, 36, 36), torch.randn(8, 1, 36, 36), torch.arange(8) % 2
    before = surprise.error(obs, act, then).detach()
    learned(surprise, lambda: (obs, act, then), 150)
    known = surprise.error(obs, act, then).detach()
    assert known.shape == (8,) and (kind == "inverse" or float(known.mean()) < 0.25 * float(before.mean()))
    assert float(surprise.error(obs, act, 2 * torch.randn(8, 1, 36, 36)).detach().mean()) > 3 * float(known.mean())
    features = surprise.features(torch.randn(64, 1, 36, 36))
    assert kind == "inverse" or float(features.std(0).mean()) > 0.1       # different images have different features
    changed = [not torch.equal(a, b) for a, b in zip(fixed, surprise.features.parameters(), strict=True)]
    assert all(changed) if kind == "inverse" else not any(changed)


def test_zero_coefficients_and_pixel_prediction_of_images_are_refused(tmp_path):
    with pytest.raises(UserError, match="leave nothing to learn from; raise one of them"):
        Config(env="CartPole-v1", reward_coef=0, bonus_coef=0)
    with pytest.raises(UserError, match="choose --bonus rnd, inverse or random"):
        curiosity.make_policy(curiosity.Config(bonus="pixels"), Box(0, 255, (36, 36, 1), np.uint8), Discrete(2))


# Catches: a gradient of the forward error in the features, which would make all features equal; a missing inverse
# model.
def test_icm_features_learn_only_from_the_inverse_model():
    torch.manual_seed(0)
    surprise = Surprise("inverse", (6,), 3, 8, (16,))
    obs, act, then = torch.randn(32, 6), torch.randint(3, (32,)), torch.randn(32, 6)
    surprise.error(obs, act, then).mean().backward()
    assert all(p.grad is None for p in surprise.features.parameters())
    assert all(p.grad is not None for p in surprise.predict.parameters())
    surprise.loss(obs, act, then).mean().backward()
    assert all(p.grad.abs().sum() > 0 for p in surprise.features.parameters())


# Catches: features that include what the agent cannot influence.
@pytest.mark.long
def test_icm_ignores_noise_and_pixel_prediction_does_not():
    def batch(n: int = 256):
        obs, act = torch.randn(n, 6), torch.randint(2, (n,))
        then = torch.randn(n, 6)                                          # the last three are noise, the others move
        then[:, :3] = obs[:, :3] + (2.0 * act[:, None] - 1)
        return obs, act, then

    def share(kind: str) -> float:
        """Share of the variance of the features that comes from the noise."""
        torch.manual_seed(0)
        surprise = learned(Surprise(kind, (6,), 2, 8, (32,)), batch, 1500)
        obs, act, then = batch(2000)
        still = then.clone()
        still[:, 3:] = 0
        with torch.no_grad():
            moved = surprise.features(then) - surprise.features(still)
            spread = surprise.features(then).var(0).sum()
            return float(moved.square().sum(-1).mean() / spread)
    assert share("inverse") < 0.5 * share("random")
    torch.manual_seed(0)
    pixels = learned(Surprise("pixels", (6,), 2, 8, (32,)), batch, 1500)
    left = pixels.error(*batch(2000)).detach().mean()
    assert float(left) == pytest.approx(0.25, rel=0.1)                    # 0.5 x the variance 1 x half of the numbers


class Two(Env):
    """Episodes of two steps that terminate or are truncated in turn. The reward is the action, times `worth`."""

    worth = 1.0

    def __init__(self):
        self.observation_space, self.action_space, self.episode = Box(-np.inf, np.inf, (3,)), Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self.look(), {}

    def look(self):
        return np.array([self.t, self.episode % 7, self.np_random.random()], np.float32)

    def step(self, action):
        self.t += 1
        over, odd = self.t == 2, bool(self.episode % 2)
        return self.look(), self.worth * float(action), over and odd, over and not odd, {}


def train(tmp_path, env=Two, **settings):
    return curiosity.train(Config(env=env, log_dir=tmp_path.as_posix(), **{**SETTINGS, "total_steps": 256, **settings}))


# Catches: intrinsic returns that end with the episode; the last observation of an episode as input of the intrinsic
# value function; the first observation of the next episode as input of the value function; negative intrinsic rewards.
def test_returns_end_with_the_episode_and_intrinsic_returns_do_not(tmp_path, monkeypatch):
    calls, gae, kept, make_policy = [], curiosity.gae, [], curiosity.make_policy

    def noted(*args, **kwargs):
        calls.append((deepcopy(kept[0]), args, kwargs))
        return gae(*args, **kwargs)

    monkeypatch.setattr(curiosity, "gae", noted)
    monkeypatch.setattr(curiosity, "make_policy", lambda *args: kept.append(make_policy(*args)) or kept[-1])
    train(tmp_path, gamma=0.9, bonus_gamma=0.8)
    assert len(calls) == 8
    for (policy, reward, of_reward), (_, bonus, of_bonus) in zip(calls[::2], calls[1::2], strict=True):
        _, values, next_values, term, trunc = reward
        i, bonus_values, bonus_next, never, nor = bonus
        assert of_reward["gamma"] == 0.9 and of_bonus["gamma"] == 0.8
        assert term.any() and trunc.any() and not never.any() and not nor.any()
        torch.testing.assert_close(bonus_next[:, :-1], bonus_values[:, 1:])
        assert bool((bonus_values != values).any()) and bool((bonus_next[:, -1] != next_values[:, -1]).any())
        ends = term | trunc
        assert bool((next_values[:, :-1] != values[:, 1:])[trunc[:, :-1]].all())             # term: not used
        torch.testing.assert_close(next_values[:, :-1][~ends[:, :-1]], values[:, 1:][~ends[:, :-1]])
        assert bool((i > 0).all())


# Catches: a reward with coefficient 0 that changes the advantages, the networks or the gradient norm.
def test_rewards_with_coefficient_0_change_nothing(tmp_path):
    class Rich(Two):
        worth = 1000.0

    runs = [train(tmp_path, env, reward_coef=0) for env in (Two, Rich)]
    one, other = (torch.cat([p.flatten() for p in r.policy.module.pi.parameters()]) for r in runs)
    assert torch.equal(one, other)
    three = train(tmp_path, Rich, reward_coef=1)
    assert not torch.equal(one, torch.cat([p.flatten() for p in three.policy.module.pi.parameters()]))


# Catches: networks of the intrinsic reward, or the statistics that scale their inputs and outputs, that are missing in
# the checkpoint.
@pytest.mark.long("rnd")
@pytest.mark.parametrize("kind", ["rnd", "inverse"])
def test_killed_run_resumes_with_the_same_curve(kind, few_rows, killed, cli, curve, tmp_path):
    words = ["curiosity", "--preset", "none", "--exp-name", "x", "--total-steps", 2560, "--num-envs", 4,
             "--rollout-steps", 8, "--bonus", kind, "--checkpoint-steps", 416, "--epochs", 1, "--minibatches", 1]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, Path("runs/x/x_s1"), len(expected), 2, kind)
    assert done.code == 0 and curve(tmp_path / "runs/x/x_s1") == expected


# Catches: an intrinsic reward for the first observation after a reset; exchanged arguments of the predictor; a
# predictor that learns from other transitions, or from the whole batch.
def test_predictor_learns_a_share_of_the_rewarded_transitions(tmp_path, monkeypatch):
    rollouts, asked, collect, error = [], [], curiosity.collect, Surprise.error
    monkeypatch.setattr(curiosity, "collect", lambda *args: rollouts.append(collect(*args)) or rollouts[-1])
    monkeypatch.setattr(Surprise, "error", lambda self, *batch: asked.append(batch) or error(self, *batch))
    monkeypatch.setattr(curiosity.Normaliser, "forward", lambda self, x: x.float())
    curiosity.train(Config(env="CartPole-v1", **{**SETTINGS, "minibatches": 1, "rollout_steps": 40}, bonus="inverse",
                           epochs=1, bonus_share=0.25, total_steps=160, log_dir=tmp_path.as_posix()))
    (seen, act, then), (of, _, led_to) = asked                            # intrinsic reward; the step of the predictor
    assert torch.equal(seen, rollouts[0].obs[:, :-1]) and torch.equal(then, rollouts[0].next_obs())
    assert torch.equal(act, rollouts[0].act) and rollouts[0].terminated.any()
    pairs = {*map(tuple, torch.cat([seen, then], -1).flatten(0, 1).tolist())}
    assert len(of) == 40 and {*map(tuple, torch.cat([of, led_to], -1).tolist())} <= pairs
