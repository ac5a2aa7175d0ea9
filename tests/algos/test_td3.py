"""TD3's functions and updates calculated by hand. test_ddpg has the tests of what it shares with DDPG and SAC."""
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.algos.td3 import clipped_double_q, smoothed_action

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 3072, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02},
    "tasks": {"box far": {"normalise_obs": True}}}

BOUNDS = Box(np.float32([-1, 0, -3]), np.float32([1, 10, -2.5]))


# Catches: the maximum or the mean over critics; the minimum over the batch.
def test_clipped_double_q_is_the_minimum_over_the_critics():
    q = torch.tensor([[1.0, 5.0, -2.0], [2.0, 3.0, -4.0]], requires_grad=True)
    got = clipped_double_q(q)
    got.sum().backward()
    assert got.tolist() == [1.0, 3.0, -4.0] and q.grad.tolist() == [[1, 0, 0], [0, 1, 1]]


# Catches: noise that is not clipped, or is clipped only together with the action; an action out of bounds.
def test_smoothed_action_clips_the_noise_and_then_the_action():
    act, noise = torch.tensor([[0.0, 0.5, 0.8, -0.9]]), torch.tensor([[0.3, -2.0, 0.4, -0.7]])
    torch.testing.assert_close(smoothed_action(act, noise, 0.5), torch.tensor([[0.3, 0.0, 1.0, -1.0]]))
    torch.testing.assert_close(smoothed_action(act, noise, 0.0), act)


# Every third gradient step of a training run is calculated, one transition at a time. Catches: a target from one
# critic, or from the larger one; noise that is missing, not clipped, or of a wrong size; the mean over critics in place
# of the sum; an actor that maximises the second critic, or the smaller one; an actor update at every step, or at wrong
# steps.
def test_updates_match_hand_calculation(watch):
    seen = watch("td3", BOUNDS, gamma=0.9, num_envs=2, target_noise=0.4, noise_clip=0.3, policy_delay=3,
                 saturation_coef=0.01)
    assert [step.part for step in seen.steps] == ["q", "q", "q", "pi"] * 27 + ["q"]
    noises, least = [], set()
    for step in seen.steps[::3]:
        obs, act, rew, next_obs, terminated, noise = (*(x.double() for x in step.batch), *[None] * 5)[:6]
        policy, target, loss = step.policy, step.target, 0.0
        for i in range(len(obs)):
            if step.part == "q":
                noises.append(noise[i])
                next_act = (target.pi(next_obs[i]).tanh() + noise[i].clip(-0.3, 0.3)).clip(-1, 1)
                judged = [q(torch.cat([next_obs[i], next_act]))[0] for q in target.q]
                least.add(judged[0].item() < judged[1].item())
                y = rew[i] + 0.9 * (1 - terminated[i]) * min(judged)
                loss = loss + sum((q(torch.cat([obs[i], act[i]]))[0] - y) ** 2 for q in policy.q) / len(obs)
            else:
                output = policy.pi(obs[i])
                loss = loss - policy.q[0](torch.cat([obs[i], output.tanh()]))[0] / len(obs)
                loss = loss + 0.01 * (output ** 2).mean() / len(obs)
        net = policy.q if step.part == "q" else policy.pi
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])
        assert step.stats["loss"].item() == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-5)
    assert least == {True, False}
    assert torch.stack(noises).std() == pytest.approx(0.4, rel=0.1) and torch.stack(noises).mean().abs() < 0.05
