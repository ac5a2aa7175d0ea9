"""Behaviour cloning: its likelihoods calculated by hand, and the policy that minimises its loss."""
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.algos import bc
from spinup.algos.bc import log_likelihood
from spinup.algos.vpg import policy_gradient
from spinup.core.distributions import Categorical, Deterministic, DiagGaussian

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 600, "hidden": (32, 32), "batch_size": 64, "lr": 0.003, "threads": 1},
    "tasks": {"discrete": {}, "multidiscrete": {}, "box far": {}},
    "draws": False}


# Catches: probabilities in place of log-probabilities; a standard deviation other than 1; a missing constant.
def test_likelihoods_match_hand_calculation():
    logits = torch.tensor([[0.0, math.log(3)], [1.0, 1.0]])
    got = log_likelihood(Deterministic(Categorical((2,))), logits, torch.tensor([1, 0]))
    torch.testing.assert_close(got.exp(), torch.tensor([0.75, 0.5]))
    means, act = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.0, 1.0]])
    got = log_likelihood(Deterministic(DiagGaussian([-1, -1], [1, 1])), means, act)
    assert got.item() == pytest.approx(-0.5 * (0.25 + 4) - math.log(2 * math.pi))


# One observation has the actions 0, 0, 1. The policy of maximum likelihood has the probabilities 2/3 and 1/3. If the
# actions are real numbers, it has the mean 1/3. Catches: a loss with another minimum.
def test_loss_has_its_minimum_at_the_frequencies_of_the_dataset():
    for dist, act, least in ((Categorical((2,)), torch.tensor([0, 0, 1]), [math.log(2), 0.0]),
                             (DiagGaussian([-1], [1]), torch.tensor([[0.0], [0.0], [1.0]]), [1 / 3])):
        output = torch.tensor([least] * 3, requires_grad=True)
        loss = -log_likelihood(Deterministic(dist), output, act).mean()
        assert torch.autograd.grad(loss, output)[0].sum(0).abs().max() < 1e-7


# Catches: rewards or other weights in the loss; actions in the units of the environment; observations that are not
# normalised.
def test_every_update_matches_hand_calculation(learn, same_step, monkeypatch):
    seen = []

    def told(logp, adv):
        seen.append(adv)
        return policy_gradient(logp, adv)

    monkeypatch.setattr(bc, "policy_gradient", told)
    steps = learn("bc", Box(np.float32([-1, 0]), np.float32([1, 10])))
    for step in steps:
        policy, (obs, act) = step.nets["policy"], step.batch
        loss = 0.5 * (policy.pi(obs) - act).square().sum(-1).mean() + math.log(2 * math.pi)
        same_step(step, loss, policy.parameters())
    act, obs = torch.cat([step.batch[1] for step in steps]), torch.cat([step.batch[0] for step in steps])
    assert act.abs().max() <= 1 and (act.min(0).values < -0.8).all() and (act.max(0).values > 0.8).all()
    assert obs.mean(0).abs().max() < 0.4 and len(steps) == 12
    assert len(seen) == 12 and all((adv == 1).all() for adv in seen)      # VPG's loss, with weight 1
