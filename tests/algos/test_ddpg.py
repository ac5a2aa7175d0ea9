"""DDPG's functions and updates calculated by hand, and tests of what DDPG, TD3 and SAC have in common."""
from importlib import import_module
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from spinup.algos.ddpg import deterministic_policy_loss, saturation, squared_error
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 3072, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02},
    "tasks": {"box far": {"normalise_obs": True}}}

BOUNDS = Box(np.float32([-1, 0, -3]), np.float32([1, 10, -2.5]))
each = pytest.mark.parametrize("name", ["ddpg", "td3", "sac"])


# Catches: a missing check of shapes; targets that differ between critics; half of the squared error.
def test_squared_error_matches_hand_calculation_and_checks_shapes():
    q, y = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]), torch.tensor([1.0, 0.0, -1.0])
    assert squared_error(q, y).tolist() == [[0.0, 4.0, 16.0], [1.0, 0.0, 4.0]]
    for wrong, target in ((q[..., None], y), (q[0], y), (q, y[:, None]), (q.T, y), (q, y[0])):
        with pytest.raises(ValueError, match=r"pass \[critics, B\] and \[B\]"):
            squared_error(wrong, target)
    with pytest.raises(ValueError, match="the critics have shape"):             # one critic, and [B, 1] against [B]
        squared_error(q[0][:, None], y)


# Catches: a wrong sign; the mean over critics.
def test_policy_loss_is_the_negative_value_of_the_first_critic():
    assert deterministic_policy_loss(torch.tensor([[1.0, -2.0], [9.0, 9.0]])).tolist() == [-1.0, 2.0]


# Catches: a penalty on the outputs after tanh; the sum over action dimensions in place of the mean.
def test_saturation_penalty_has_a_gradient_where_tanh_is_flat():
    assert saturation(torch.tensor([[3.0, -1.0], [0.0, 0.0]])).tolist() == [5.0, 0.0]
    output = torch.full((1, 2), 20.0, requires_grad=True)
    assert torch.autograd.grad(output.tanh().sum(), output)[0].abs().max() == 0
    assert torch.autograd.grad(saturation(output).mean(), output)[0].tolist() == [[20.0, 20.0]]


# Every third gradient step of a training run is calculated, one transition at a time. Catches: an action or a value of
# the wrong network in the target; a missing gamma; the sum in place of the mean; an actor that minimises the value, or
# that maximises the value of the target critic.
def test_updates_match_hand_calculation(watch):
    seen = watch("ddpg", BOUNDS, gamma=0.9, num_envs=2, saturation_coef=0.01)
    assert len(seen.of("q")) == len(seen.of("pi")) == 82
    for step in seen.steps[::3]:
        obs, act, rew, next_obs, terminated = (*(x.double() for x in step.batch), *[None] * 4)[:5]
        policy, target, loss = step.policy, step.target, 0.0
        for i in range(len(obs)):
            if step.part == "q":
                next_act = target.pi(next_obs[i]).tanh()
                y = rew[i] + 0.9 * (1 - terminated[i]) * target.q[0](torch.cat([next_obs[i], next_act]))[0]
                loss = loss + (policy.q[0](torch.cat([obs[i], act[i]]))[0] - y) ** 2 / len(obs)
            else:
                output = policy.pi(obs[i])
                loss = loss - policy.q[0](torch.cat([obs[i], output.tanh()]))[0] / len(obs)
                loss = loss + 0.01 * (output ** 2).mean() / len(obs)
        net = policy.q if step.part == "q" else policy.pi
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])
        assert step.stats["loss"].item() == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-5)


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


# Catches: a stored action in other units than those of the critics, or one that was not executed; the first observation
# of the next episode in place of the last one of this episode; `ended` in place of `terminated`.
@each
@pytest.mark.parametrize("num_envs", [1, 2])
def test_batches_contain_the_transitions_of_the_environment(name, num_envs, watch):
    seen, endings = watch(name, BOUNDS, num_envs=num_envs, batch_size=16), set()
    middle, half = (BOUNDS.high + BOUNDS.low) / 2, (BOUNDS.high - BOUNDS.low) / 2
    for step in seen.of("q"):
        for obs, act, rew, next_obs, terminated in zip(*(x.tolist() for x in step.batch[:5]), strict=True):
            told = seen.told[tuple(obs)]
            np.testing.assert_allclose((told.action - middle) / half, act, atol=1e-5)
            assert (told.reward, told.next_obs, told.terminated) == (pytest.approx(rew), tuple(next_obs), terminated)
            endings.add((told.terminated, told.ended))
    assert endings == {(True, True), (False, True), (False, False)}


# Catches: gradients of the actor loss in the critics, or of the critic loss in the actor; one optimiser for both; a
# learning rate other than the setting.
@each
def test_actor_and_critic_updates_do_not_change_each_other(name, watch):
    seen = watch(name, BOUNDS)
    for part, other in ("q", "pi"), ("pi", "q"):
        change = {"q": [], "pi": []}
        for step, after in zip(seen.steps[:-1], seen.steps[1:], strict=True):
            if step.part == part:
                for net, changes in change.items():
                    changes.append((flat(getattr(after.policy, net)) - flat(getattr(step.policy, net))).abs().max())
        assert len(change[part]) >= 40 and min(change[part]) > 1e-4 and max(change[other]) == 0
        assert change[part][0] == pytest.approx(0.01, rel=1e-2)           # Adam's first step changes by up to lr


# Catches: exchanged weights tau and 1 - tau; targets that move before the critics, that do not move with the delayed
# actor, or that never move. SAC has target networks only for its critics.
@pytest.mark.parametrize("name", ["ddpg", "td3", "sac", "sac_discrete", "param_noise"])
def test_target_networks_move_by_the_fraction_tau(name, watch):
    seen = watch(name, Discrete(3) if name == "sac_discrete" else BOUNDS, tau=0.25)
    steps = seen.of("q")

    def weights(net: nn.Module) -> torch.Tensor:
        return flat(net.q if name.startswith("sac") else net)

    torch.testing.assert_close(flat(steps[0].target), flat(steps[0].policy), rtol=0, atol=0)
    for k, (step, after) in enumerate(zip(steps[:-1], steps[1:], strict=True), 1):
        tau = 0.25 if name != "td3" or k % 2 == 0 else 0
        moved = weights(step.target).lerp(weights(after.policy), tau)
        torch.testing.assert_close(weights(after.target), moved, rtol=0, atol=1e-6)
        assert tau == 0 or (weights(after.target) - weights(step.target)).abs().max() > 1e-3


# Random first actions fill the box and do not depend on the network. Noise with a standard deviation of 3 reaches the
# bounds. Catches: the bounds of the first dimension for all dimensions; actions that are clipped in place of rescaled,
# or not clipped; noise in wrong units; first actions from the policy.
@pytest.mark.long("sac")
@each
def test_actions_fill_the_bounds_of_each_dimension_and_stay_within_them(name, watch):
    settings = {"num_envs": 2, **({} if name == "sac" else {"explore_noise": 3.0})}
    seen, other = (watch(name, BOUNDS, hidden=hidden, **settings) for hidden in ((8, 6), (4,)))
    actions, others = (np.array([told.action for told in found.told.values()]) for found in (seen, other))
    np.testing.assert_array_equal(actions[:40], others[:40])
    assert (actions[40:44] != others[40:44]).any()
    assert all(BOUNDS.contains(a) for a in actions) and actions.dtype == np.float32
    random, chosen = ((actions[part] - BOUNDS.low) / (BOUNDS.high - BOUNDS.low) for part in
                      (slice(0, 40), slice(40, None)))
    assert (random.min(0) < 0.15).all() and (random.max(0) > 0.85).all()
    assert (np.abs(random.mean(0) - 0.5) < 0.2).all()
    if name != "sac":
        assert (chosen == 0).any(0).all() and (chosen == 1).any(0).all()
    for obs in seen.told:
        assert BOUNDS.contains(seen.result.policy.act(np.array(obs, np.float32)))


# Catches: one gradient step for each step of all copies together; a ratio that is rounded at each update, so that .3
# becomes 0; the `len` of a replay buffer, which short episodes keep below its size, as the condition for the first
# update.
@pytest.mark.long("2-10-2-sac")
@each
@pytest.mark.parametrize("num_envs, update_every, ratio", [(1, 1, 0.3), (4, 4, 1), (2, 10, 2)])
def test_number_of_gradient_steps_follows_the_update_ratio(name, num_envs, update_every, ratio, watch):
    seen = watch(name, BOUNDS, num_envs=num_envs, update_every=update_every, update_ratio=ratio, replay_size=40)
    count = len(seen.of("q"))
    assert abs(count - ratio * (120 - 40 + update_every)) < 1
    assert len(seen.of("pi")) == (count // 2 if name == "td3" else count)


class Aim(gymnasium.Env):
    """Episodes of one step. The reward is 1 minus the squared distance of the action from the best action."""

    action_space, observation_space = Box(np.float32([-1, 0]), np.float32([1, 10])), Box(-1, 1, (1,))
    best = np.array([0.5, 2.0])                                           # in units of half the range, .5 and -.6

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        return self.observe(), 1 - np.square((action - self.best) / [1, 5]).sum(), True, False, {}

    def observe(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 1).astype(np.float32)


# Catches: a bootstrap after a termination, with which all values would be 1 / (1 - gamma) times as large; nearly every
# other bug.
@pytest.mark.long("sac", "td3")
@each
def test_actor_finds_the_best_action_and_critics_learn_the_values(name, tmp_path):
    algorithm = import_module(f"spinup.algos.{name}")
    special = {"alpha": 0.1} if name == "sac" else {}
    result = algorithm.train(algorithm.Config(
        env=Aim, total_steps=1600, learning_starts=200, batch_size=64, hidden=(32, 32), lr=3e-3, tau=0.02, threads=1,
        num_envs=4, update_ratio=0.5, log_dir=tmp_path.as_posix(), quiet=True, tensorboard=False, **special))
    policy, obs = result.policy.module, torch.linspace(-1, 1, 5)[:, None]
    for x in obs.numpy():
        np.testing.assert_allclose((result.policy.act(x) - Aim.best) / [1, 5], 0, atol=0.15)
    act = 0.6 * torch.tensor([[0.5, -0.6], [1, 1], [-1, 1], [1, -1], [-1, -1]])
    worth = 1 - (act - torch.tensor([0.5, -0.6])).square().sum(-1)
    with torch.no_grad():
        for q in policy.values(obs, act):
            torch.testing.assert_close(q, worth, rtol=0, atol=0.25)


@each
@pytest.mark.parametrize("space, advice", [
    (Discrete(3), "it supports Box actions"), (Box(-np.inf, np.inf, (2,)), "gymnasium.wrappers.TransformAction"),
    (Box(np.float32([-1, 2]), np.float32([1, 2])), "finite bounds, low below high")])
def test_unsupported_action_spaces_are_refused(name, space, advice, watch, tmp_path):
    with pytest.raises(UserError, match=advice):
        watch(name, space)
    assert not list(tmp_path.iterdir())


# Catches: offline target networks that do not move, or that are copies; an update of the networks in place of the
# targets.
@pytest.mark.parametrize("name, trained", [("iql", lambda policy: policy.q), ("td3_bc", lambda policy: policy)])
def test_offline_target_networks_move_by_the_fraction_tau(name, trained, learn):
    steps = learn(name, Box(-1, 1, (2,)), tau=0.25)[::3]                  # three gradient steps per update of a target
    for before, after in pairwise(steps):
        nets = before.nets["target"], trained(after.nets["policy"]), after.nets["target"]
        for old, new, target in zip(*(net.parameters() for net in nets), strict=True):
            torch.testing.assert_close(target, old.lerp(new, 0.25), rtol=0, atol=1e-6)
        assert not torch.equal(target, old)
