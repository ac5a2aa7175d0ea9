"""IQL: its weights and every update calculated by hand, and the functions that it shares with other algorithms."""
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.algos import iql
from spinup.algos.iql import advantage_weight

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 600, "hidden": (32, 32), "batch_size": 64, "lr": 0.003, "threads": 1, "tau": 0.02},
    "tasks": {"box far": {}},
    "draws": False}

BOUNDS = Box(np.float32([-1, 0]), np.float32([1, 10]))


# Catches: a weight without a limit, or with a limit before the exponential; advantages that are divided by beta.
def test_advantage_weights_match_hand_calculation():
    adv = torch.tensor([0.0, math.log(4), -math.log(4), 50.0])
    torch.testing.assert_close(advantage_weight(adv, 0.5), torch.tensor([1.0, 2.0, 0.5, 100.0]))
    assert (advantage_weight(adv, 0.0) == 1).all()                        # imitation


# Catches: a V that learns from the online critics, or from one critic; a target of Q with an action of the policy; a
# gradient through the weights, or weights from a wrong V; a bootstrap after a termination.
def test_every_update_matches_hand_calculation(learn, same_step):
    steps = learn("iql", BOUNDS, gamma=0.9, expectile=0.8, beta=2.0)
    assert [len(step.batch) for step in steps] == [2, 3, 5] * 12          # V, the policy, the critics
    for step in steps:
        policy, target = step.nets["policy"], step.nets["target"]
        value = policy.v(step.batch[0])[:, 0]
        if len(step.batch) == 2:
            obs, q = step.batch
            error = q - value
            same_step(step, (torch.where(error < 0, 0.2, 0.8) * error ** 2).mean(), policy.v.parameters())
        elif len(step.batch) == 3:
            obs, act, q = step.batch
            both = torch.cat([obs, act], -1)
            torch.testing.assert_close(q, torch.minimum(*(net(both)[:, 0] for net in target)), rtol=1e-4, atol=1e-5)
            std = policy.log_std.exp()
            logp = -0.5 * ((act - policy.pi(obs)) / std).square() - policy.log_std - 0.5 * math.log(2 * math.pi)
            weight = (2.0 * (q - value)).exp().clip(max=100).detach()
            same_step(step, -(weight * logp.sum(-1)).mean(), [*policy.pi.parameters(), policy.log_std])
        else:
            obs, act, rew, next_obs, terminated = step.batch
            y = (rew + 0.9 * (1 - terminated) * policy.v(next_obs)[:, 0]).detach()
            loss = sum(((q(torch.cat([obs, act], -1))[:, 0] - y) ** 2).mean() for q in policy.q)
            same_step(step, loss, policy.q.parameters())


# Catches: a loss function of IQL that is not the one in the file of its equation.
@pytest.mark.parametrize("shared", ["policy_gradient", "td_target", "expectile_loss", "clipped_double_q",
                                    "squared_error"])
def test_iql_uses_the_loss_functions_of_other_files(shared, learn, monkeypatch):
    monkeypatch.setattr(iql, shared, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        learn("iql", BOUNDS)


# Catches: a standard deviation without limits. On data with a single action, it falls until the loss is infinite.
def test_standard_deviation_stays_within_its_limits(learn, monkeypatch):
    monkeypatch.setattr(iql, "LOG_STD", (0.5, 1.0))
    last = learn("iql", BOUNDS)[-1].nets["policy"].log_std
    assert (last >= 0.5).all() and (last <= 1.0).all()
