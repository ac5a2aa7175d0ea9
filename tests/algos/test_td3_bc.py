"""TD3+BC's functions and updates calculated by hand, with imitation and without it."""
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.algos.td3_bc import imitation_loss, value_weight

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 700, "hidden": (32, 32), "batch_size": 64, "lr": 0.001, "threads": 1, "tau": 0.02,
                 "alpha": 1.0},
    "tasks": {"box far": {}},
    "draws": False}

BOUNDS = Box(np.float32([-1, 0]), np.float32([1, 10]))


# Eq. 5 of the paper. Catches: the mean of Q, which is 0 here, in place of that of |Q|; a gradient through the weight.
def test_weight_of_the_values_matches_hand_calculation():
    q = torch.tensor([3.0, -3.0, 1.0, -1.0], requires_grad=True)
    weight = value_weight(q, 2.5)
    assert weight.item() == pytest.approx(2.5 / 2) and not weight.requires_grad


# Catches: the sum over dimensions; a distance that is not squared.
def test_imitation_loss_matches_hand_calculation():
    act, data_act = torch.tensor([[0.5, -0.5], [1.0, 0.0]]), torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    assert imitation_loss(act, data_act).tolist() == [0.5, 0.5]


# Catches: a term of eq. 3 that is missing or has the wrong sign; a weight from another critic; an actor update at every
# step; a target without noise, or from one critic; a bootstrap after a termination, or none after a truncation.
@pytest.mark.parametrize("imitate", [True, False])
def test_every_update_matches_hand_calculation(imitate, learn, same_step):
    steps = learn("td3_bc", BOUNDS, gamma=0.9, target_noise=0.4, noise_clip=0.3, alpha=1.7, imitate=imitate)
    assert [len(step.batch) for step in steps] == [6, 6, 2] * 6           # two of the critics, one of the actor
    for step in steps:
        policy, target = step.nets["policy"], step.nets["target"]
        if len(step.batch) == 6:
            obs, act, rew, next_obs, terminated, noise = step.batch
            next_act = (target.pi(next_obs).tanh() + noise.clip(-0.3, 0.3)).clip(-1, 1)
            both = torch.cat([next_obs, next_act], -1)
            y = rew + 0.9 * (1 - terminated) * torch.minimum(target.q[0](both), target.q[1](both))[:, 0]
            loss = sum(((q(torch.cat([obs, act], -1))[:, 0] - y.detach()) ** 2).mean() for q in policy.q)
            same_step(step, loss, policy.q.parameters())
        else:
            obs, data_act = step.batch
            act = policy.pi(obs).tanh()
            q = policy.q[0](torch.cat([obs, act], -1))[:, 0]
            loss = -1.7 / q.detach().abs().mean() * q.mean() + imitate * (act - data_act).square().mean()
            same_step(step, loss, policy.pi.parameters())
    ends = torch.cat([step.batch[4] for step in steps if len(step.batch) == 6])
    assert 0 < ends.mean() < 0.4                                          # half of the episodes terminate
    noise = torch.cat([step.batch[5] for step in steps if len(step.batch) == 6])
    assert float(noise.std()) == pytest.approx(0.4, rel=0.2)
