"""CQL: its penalty and every update calculated by hand, and a bandit whose conservative values are known."""
import math

import pytest
import torch
from gymnasium.spaces import Discrete

from spinup.algos.cql import conservative_penalty

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 500, "hidden": (32, 32), "batch_size": 64, "lr": 0.003, "threads": 1, "alpha": 0.1},
    "tasks": {"discrete": {}},
    "draws": False}


# Catches: the maximum or the mean in place of log sum exp; the value of another action.
def test_penalty_matches_hand_calculation():
    q = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [100.0, 0.0]])
    got = conservative_penalty(q, torch.tensor([0, 1, 0]))
    torch.testing.assert_close(got, torch.tensor([math.log(2), math.log(4), 0.0]))
    cloning = -q.log_softmax(-1)[torch.arange(3), torch.tensor([0, 1, 0])]
    torch.testing.assert_close(got, cloning)                              # the loss of behaviour cloning


# There are one state and two actions with reward 1. Both end the episode, and the first is in 3 of 4 transitions. The
# loss has its minimum where alpha (softmax(Q)_a - share_a) + share_a (Q_a - 1) = 0 for both actions. Catches: a penalty
# with the wrong sign, which raises the value of the rare action.
def test_rare_actions_get_lower_values():
    act, q = torch.tensor([0, 0, 0, 1]), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([q], max_iter=100)

    def closure():
        optimizer.zero_grad()
        rows = q.expand(4, 2)
        error = rows.gather(-1, act[:, None])[:, 0] - 1
        loss = (0.5 * error.square() + 0.5 * conservative_penalty(rows, act)).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    share, p = torch.tensor([0.75, 0.25]), q.detach().softmax(-1)
    torch.testing.assert_close(share * (q.detach() - 1), 0.5 * (share - p), atol=1e-4, rtol=0)
    assert q[1] < q[0] - 0.3 and q[1] < 1


# Catches: a penalty that is missing or has a wrong weight; the target of plain DQN; a bootstrap after a termination;
# target networks that are never updated.
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_every_update_matches_hand_calculation(alpha, learn, same_step):
    steps = learn("cql", Discrete(3), gamma=0.9, alpha=alpha, target_every=4, max_grad_norm=1e6)
    for i, step in enumerate(steps):
        (obs, act, rew, next_obs, terminated), policy, target = step.batch, step.nets["policy"], step.nets["target"]
        best = policy(next_obs).argmax(-1)
        y = (rew + 0.9 * (1 - terminated) * target(next_obs)[torch.arange(8), best]).detach()
        every = policy(obs)
        q = every[torch.arange(8), act]
        error = (q - y).abs()
        huber = torch.where(error < 1, 0.5 * error ** 2, error - 0.5)
        penalty = every.exp().sum(-1).log() - q
        same_step(step, (huber + alpha * penalty).mean(), policy.parameters())
        moved = any(not torch.equal(p, t) for p, t in zip(policy.parameters(), target.parameters(), strict=True))
        assert moved == bool(i % 4)
    assert len(steps) == 12 and act.max() <= 2
