"""Discrete SAC against closed forms, on a tabular MDP solved by iteration, and its updates calculated by hand."""
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from spinup.algos import sac_discrete
from spinup.algos.dqn import td_target
from spinup.algos.sac import soft_value, temperature_loss
from spinup.algos.sac_discrete import ActorCritics, expectation
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 2048, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02, "alpha": 0.1, "target_entropy": 0.1},
    "tasks": {"discrete": {}}}


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# Catches: the mean over actions in place of the sum; logits in place of log-probabilities.
def test_expectation_matches_the_mean_of_many_samples():
    log_pi = tensor([0.1, 2.0, -1.0]).log_softmax(-1)
    x = tensor([3.0, -1.0, 2.0])
    drawn = torch.multinomial(log_pi.exp()[0], 200_000, replacement=True, generator=torch.Generator().manual_seed(0))
    assert expectation(log_pi, x).item() == pytest.approx(x[0][drawn].mean().item(), abs=0.02)
    assert expectation(log_pi, torch.ones_like(x)).item() == pytest.approx(1)


# The policy softmax(Q / alpha) has the soft value alpha log sum exp(Q / alpha), and no policy has a larger one.
# Catches: a wrong sign of the entropy; a missing alpha; the larger critic.
@pytest.mark.parametrize("alpha", [0.1, 1.0, 3.0])
def test_soft_value_of_the_best_policy_matches_its_closed_form(alpha):
    q = tensor([1.0, -0.5, 0.3], [2.0, 2.0, -1.0])
    best = (q / alpha).log_softmax(-1)
    value = expectation(best, soft_value(torch.stack([q, q + 1]), best, torch.tensor(alpha)))
    torch.testing.assert_close(value, alpha * torch.logsumexp(q / alpha, -1))
    other = torch.log_softmax(q / alpha + tensor([0.3, 0.0, -0.2]), -1)
    assert (expectation(other, soft_value(q[None], other, torch.tensor(alpha))) < value).all()


# The gradient is 0 at softmax(Q / alpha) and nowhere else. Catches: a policy loss with another minimum.
def test_policy_loss_has_its_minimum_at_the_softmax_of_the_values():
    q, alpha = tensor([1.0, -0.5, 0.3])[None], torch.tensor(0.7)

    def slope(logits):
        logits = logits.clone().requires_grad_()
        log_pi = logits.log_softmax(-1)
        return torch.autograd.grad(-expectation(log_pi, soft_value(q, log_pi, alpha)).sum(), logits)[0]

    assert slope(q[0] / alpha + 5).abs().max() < 1e-12
    away = slope(q[0] / alpha + tensor([1.0, 0.0, 0.0]))
    assert away[0, 0] > 0.01 and away[0, 1] < 0                           # a lower probability of the first action


# There are two states and two actions, gamma 1/2 and alpha 1. In state 0, action 0 stays there with reward 0, and
# action 1 leads to state 1 with reward 1. In state 1, both actions end the episode, with rewards 2 and 0. So V(1) is
# log(e^2 + 1), and Q(0, .) is (V(0) / 2, 1 + V(1) / 2). Catches: a bootstrap after a termination; a value without
# entropy.
def test_soft_values_of_a_tabular_mdp_match_hand_calculation():
    rew, next_state, terminated = tensor([0.0, 1.0], [2.0, 0.0]), torch.tensor([[0, 1], [0, 0]]), tensor([0, 0], [1, 1])
    q, alpha = torch.zeros(2, 2, dtype=torch.float64), torch.tensor(1.0)
    for _ in range(60):
        log_pi = (q / alpha).log_softmax(-1)                              # the best policy for these values
        value = expectation(log_pi, soft_value(q[None], log_pi, alpha))
        q = td_target(rew, 0.5, terminated, value[next_state])
    ended = math.log(math.exp(2) + 1)
    assert q[1].tolist() == [2.0, 0.0] and value[1].item() == pytest.approx(ended)
    root = (1 + math.sqrt(1 + 4 * math.exp(1 + ended / 2))) / 2           # e^V = e^(V / 2) + e^(1 + V(1) / 2)
    assert value[0].item() == pytest.approx(2 * math.log(root))
    assert q[0].tolist() == pytest.approx([math.log(root), 1 + ended / 2])


# Catches: a wrong sign; a target entropy that is subtracted; one action in place of all.
@pytest.mark.parametrize("share, sign", [(0.9, -1), (0.2, 1)])
def test_temperature_rises_where_entropy_is_below_its_target(share, sign):
    log_alpha, logits = torch.tensor(0.3, requires_grad=True), torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
    log_pi = logits.log_softmax(-1)
    loss = expectation(log_pi.detach(), temperature_loss(log_alpha, log_pi, share * math.log(3)))
    loss.sum().backward()
    entropy = -(log_pi.exp() * log_pi).sum().item()
    assert log_alpha.grad.item() == pytest.approx(entropy - share * math.log(3)) and logits.grad is None
    assert np.sign(log_alpha.grad.item()) == sign                         # it moves against the slope


# Every third gradient step of a training run is calculated, one transition and one action at a time. Catches:
# probabilities of a target actor, or values of the online critics, in the target; a missing entropy, or an entropy
# after a termination; the value of a wrong action; the larger critic in either loss; a temperature that the actor loss
# changes, or an actor that the temperature loss changes; a target entropy without log n.
@pytest.mark.parametrize("learn_alpha", [True, False])
def test_updates_match_hand_calculation(learn_alpha, watch):
    seen = watch("sac_discrete", Discrete(3), gamma=0.9, num_envs=2, alpha=0.5, target_entropy=0.4,
                 learn_alpha=learn_alpha)
    assert [step.part for step in seen.steps] == ["q", "pi"] * 82
    least = set()
    for step in seen.steps[::3]:
        obs, policy, target = step.batch[0].double(), step.policy, step.target
        alpha, loss, entropy = policy.log_alpha.exp().item(), 0.0, 0.0
        for i in range(len(obs)):
            if step.part == "q":
                act, rew, next_obs, terminated = (x[i] for x in step.batch[1:])
                pi = policy.pi(next_obs.double()).softmax(-1)
                next_q = [q(next_obs.double()) for q in target.q]
                value = sum(pi[a] * (min(next_q[0][a], next_q[1][a]) - alpha * pi[a].log()) for a in range(3))
                y = (rew + 0.9 * (1 - terminated) * value).item()
                loss = loss + sum((q(obs[i])[act] - y) ** 2 for q in policy.q) / len(obs)
                continue
            pi, judged = policy.pi(obs[i]).softmax(-1), [q(obs[i]) for q in policy.q]
            least |= {bool(judged[0][a] < judged[1][a]) for a in range(3)}
            for a in range(3):
                p, constant = pi[a], pi[a].item()
                loss = loss + p * (alpha * p.log() - min(judged[0][a].item(), judged[1][a].item())) / len(obs)
                entropy -= constant * math.log(constant) / len(obs)
                if learn_alpha:
                    loss = loss - policy.log_alpha * constant * (math.log(constant) + 0.4 * math.log(3)) / len(obs)
        params = list(policy.q.parameters()) if step.part == "q" else [*policy.pi.parameters(),
                                                                            *[policy.log_alpha] * learn_alpha]
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, params)])
        assert step.stats["loss"].item() == pytest.approx(loss.item(), rel=1e-3, abs=1e-4)
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-3, atol=1e-4)
        assert step.part == "q" or step.stats["entropy"].item() == pytest.approx(entropy, abs=1e-3)
    assert least == {True, False}
    assert (seen.policy.log_alpha.item() != pytest.approx(math.log(0.5))) == learn_alpha


# Catches: actions of the policy before `learning_starts`, or uniform actions after it; a transition of another step.
@pytest.mark.long
def test_replay_buffer_has_true_transitions_and_uniform_first_actions(watch, monkeypatch):
    make_policy = sac_discrete.make_policy

    def certain(*args):
        policy = make_policy(*args)
        policy.pi[-1].bias.data[:] = torch.tensor([0.0, 50.0, 0.0])
        return policy

    monkeypatch.setattr(sac_discrete, "make_policy", certain)
    seen = watch("sac_discrete", Discrete(3), lr=1e-9, total_steps=400, learning_starts=200)
    taken = np.array([told.action for told in seen.told.values()])
    assert (np.bincount(taken[:200], minlength=3) > 40).all() and (taken[200:] == 1).all() and len(taken) == 400
    step = seen.of("q")[-1]
    for obs, act, rew, next_obs, terminated in zip(*step.batch, strict=True):
        told = seen.told[tuple(obs.tolist())]
        assert (act, rew, terminated) == (told.action, told.reward, told.terminated)
        assert tuple(next_obs.tolist()) == told.next_obs


# Catches: an actor whose outputs differ from those of the learner, or that keeps old weights.
def test_actor_outputs_equal_those_of_the_learner():
    policy = ActorCritics(3, 4, (8,))
    act, obs = policy.actor(), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        logits = torch.from_numpy(act(obs.numpy())).log_softmax(-1)
        torch.testing.assert_close(logits, policy.log_pi(obs).detach(), atol=1e-5, rtol=1e-5)
        for p in policy.pi.parameters():
            p.data += 0.3
    assert policy.values(obs).shape == (2, 5, 4)


def test_images_are_refused():
    pixels = Box(0, 255, (36, 36, 1), np.uint8)
    with pytest.raises(UserError, match="sac_discrete supports vector observations, not images"):
        sac_discrete.make_policy(sac_discrete.Config(), pixels, Discrete(2))
