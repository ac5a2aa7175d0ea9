"""SAC's functions, its temperature, and a training of it by hand. What it shares with DDPG and TD3 stands in test_ddpg.
"""
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.algos.sac import soft_value, temperature_loss

# Settings for tests/algos/test_suite.py: each learns its task there in a second or two.
SUITE = {
    "settings": {"total_steps": 3072, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02, "alpha": 0.1},
    "tasks": {"box": {}, "box far": {"normalise_obs": True}}}

BOUNDS = Box(np.float32([-1, 0, -3]), np.float32([1, 10, -2.5]))


# Turned red by: the sign of the entropy; the larger critic.
def test_soft_value_by_hand():
    q, logp = torch.tensor([[1.0, 5.0], [2.0, 3.0]]), torch.tensor([-1.0, 2.0])
    assert soft_value(q, logp, torch.tensor(0.5)).tolist() == [1.5, 2.0]


# Turned red by: the sign; a gradient that reaches the policy; the target entropy subtracted.
@pytest.mark.parametrize("entropy, slope", [(-3.0, -1.0), (-1.0, 1.0), (-2.0, 0.0)])
def test_the_temperature_rises_where_entropy_is_below_its_target(entropy, slope):
    log_alpha, logp = torch.tensor(0.3, requires_grad=True), torch.tensor([-entropy, -entropy], requires_grad=True)
    temperature_loss(log_alpha, logp, -2.0).mean().backward()
    assert log_alpha.grad.item() == slope and logp.grad is None           # it goes against the slope


def drawn(net, obs, noise):
    """The action in -1 to 1 that the noise draws, and its log-density, by the change of variables as it is written."""
    outputs = net.pi(obs)
    mean, log_std = outputs[:3], outputs[3:].clip(-20, 2)
    u = mean + log_std.exp() * noise
    normal = -noise**2 / 2 - log_std - math.log(2 * math.pi) / 2
    return u.tanh(), (normal - (1 - u.tanh() ** 2).log()).sum()


# Every gradient step of a training, one transition at a time. Turned red by: the target of an actor that lags, or of
# the critics that do not; entropy left out, or paid after the end; the larger critic in either loss; an alpha that the
# actor's loss moves, or that does not reach it; a target entropy that forgets the dimensions; density in other units.
@pytest.mark.parametrize("learn_alpha", [True, False])
def test_every_update_is_the_one_worked_out_by_hand(learn_alpha, watch):
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


# Turned red by: a temperature that goes the wrong way, or is not learned; entropy in units of the environment.
def test_alpha_falls_where_entropy_is_above_its_target_and_rises_where_it_is_below(watch):
    above, below, kept = (watch("sac", BOUNDS, target_entropy=target, learn_alpha=learned).result.progress
                          for target, learned in ((-4.0, True), (0.69, True), (-4.0, False)))
    for progress, sign in (above, -1), (below, 1):
        alpha = np.array(progress["alpha"])[40:]
        assert (sign * np.diff(alpha) > 0).all() and sign * np.log(alpha[-1]) > 0.3
    assert min(above["entropy"][40:]) > 3 * -4
    assert set(kept["alpha"]) == {1.0}


# What the actor draws is what its critics are taught to expect of it: noise of both losses is standard normal.
def test_noise_is_standard_normal(watch):
    seen = watch("sac", BOUNDS)
    for part in "q", "pi":
        noise = torch.cat([step.batch[-1] for step in seen.of(part)])
        assert noise.std() == pytest.approx(1, abs=0.08) and noise.mean().abs() < 0.08
