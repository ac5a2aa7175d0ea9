"""TRPO's functions against explicit matrices, finite differences and torch's solver, and its steps in whole training
runs. test_vpg, test_ppo and test_suite have the tests of what it shares with VPG and PPO."""
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from spinup.algos import trpo
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.trpo import conjugate_gradient, fisher_product, flat, line_search, natural_step, surrogate_loss
from spinup.algos.vpg import policy_gradient
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.networks import ActorCritic
from spinup.errors import NonFiniteError
from spinup.runs.training import Training

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"rollout_steps": 16, "max_kl": 0.1, "damping": 0.01, "value_epochs": 5},
    "tasks": {"discrete": {"total_steps": 4096}, "multidiscrete": {"total_steps": 4096},
              "box far": {"total_steps": 5120, "normalise_obs": True, "log_std": -1.5},
              "image": {"rollout_steps": 8, "value_epochs": 1, "max_kl": 0.04, "cg_iterations": 10}},
    "scores": "policy_gradient"}


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tiny(dist, seed=1):
    """A policy in float64 with random weights, its parameters without those of V, and observations."""
    policy = ActorCritic((3,), dist, (4,)).double()
    params = [p for p in policy.parameters() if all(p is not q for q in policy.v.parameters())]
    vector_to_parameters(0.7 * numbers(sum(p.numel() for p in params), seed=seed), params)
    return policy, params, numbers(6, 3, seed=2)


def mean_kl(policy, obs):
    """A function that returns the mean KL divergence from the current policy to the policy at the time of its call."""
    old = deepcopy(policy)
    return lambda: policy.dist.kl(old.params(obs), policy.params(obs)).mean()


GAUSSIAN = DiagGaussian([-1, -1], [1, 1])
each_policy = pytest.mark.parametrize("dist", [Categorical((4,)), Categorical((3, 2)), GAUSSIAN],
                                      ids=["categorical", "several", "gaussian"])


# Catches: a wrong sign; an inverted ratio; a gradient at the old policy that is not that of VPG.
def test_surrogate_equals_that_of_ppo_and_its_first_gradient_that_of_vpg():
    logp = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    adv, moved = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([-1.2, -1.7, -0.5])
    assert surrogate_loss(logp, moved, adv).tolist() == pytest.approx([-2 * np.exp(0.2), np.exp(-0.3), -0.5])
    wide, _ = clipped_surrogate(logp, moved, adv, (1.0, 1e9))
    torch.testing.assert_close(surrogate_loss(logp, moved, adv), wide)
    ours, = torch.autograd.grad(surrogate_loss(logp, logp.detach(), adv).sum(), logp)
    vpgs, = torch.autograd.grad(policy_gradient(logp, adv)[0].sum(), logp)
    assert torch.equal(ours, vpgs)


# By definition, the Fisher matrix is the mean, over states and the actions of the policy, of the outer product of the
# score. Catches: a KL divergence with another Hessian; missing damping; the sum over states; a wrong factor of 2.
def test_fisher_product_matches_the_explicit_fisher_matrix():
    policy, params, obs = tiny(Categorical((4,)))
    size, fisher = sum(p.numel() for p in params), 0.0
    for s in obs:
        log_pi = policy.params(s).log_softmax(-1)
        for log_p in log_pi:
            score = flat(torch.autograd.grad(log_p, params, retain_graph=True))
            fisher = fisher + log_p.exp().detach() * torch.outer(score, score) / len(obs)
    product = fisher_product(mean_kl(policy, obs)(), params, 0.3)
    found = torch.stack([product(v) for v in torch.eye(size, dtype=torch.float64)])
    torch.testing.assert_close(found, fisher + 0.3 * torch.eye(size, dtype=torch.float64))
    assert fisher.abs().max() > 0.1


# Catches: a KL divergence without log_std, or without one of several heads.
@each_policy
def test_fisher_product_matches_finite_differences_of_the_kl_gradient(dist):
    policy, params, obs = tiny(dist)
    kl, theta = mean_kl(policy, obs), parameters_to_vector(params).detach()
    v = numbers(len(theta), seed=3)
    product = fisher_product(kl(), params, 0.0)(v)
    gradients = []
    for sign in (1, -1):
        vector_to_parameters(theta + sign * 1e-5 * v, params)
        gradients.append(flat(torch.autograd.grad(kl(), params)))
    torch.testing.assert_close(product, (gradients[0] - gradients[1]) / 2e-5, rtol=1e-5, atol=1e-7)
    assert product.abs().max() > 0.1


# Catches: directions that are not conjugate; a residual that is not updated.
def test_conjugate_gradient_matches_the_solver_of_torch():
    root, b = numbers(8, 8), numbers(8, seed=1)
    matrix = root @ root.T + 0.1 * torch.eye(8, dtype=torch.float64)
    x = conjugate_gradient(lambda v: matrix @ v, b, 30, tolerance=1e-24)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b), rtol=1e-6, atol=1e-8)


# Catches: iterations after the solution is found; a division by 0.
@pytest.mark.parametrize("b, products", [([1.0, -2.0, 3.0], 1), ([0.0, 0.0, 0.0], 0)])
def test_conjugate_gradient_stops_at_the_solution(b, products):
    seen = []
    x = conjugate_gradient(lambda v: (seen.append(v), 2 * v)[1], torch.tensor(b), 10)
    assert x.tolist() == [each / 2 for each in b] and len(seen) == products


# On a quadratic function, the step has a closed form. Catches: a step along the gradient of the loss; a missing 2, or a
# missing root, in the length of the step.
def test_step_follows_the_natural_gradient_to_the_edge_of_the_trust_region():
    root, gradient = numbers(5, 5), numbers(5, seed=1)
    matrix = root @ root.T + torch.eye(5, dtype=torch.float64)
    step = natural_step(gradient, lambda v: matrix @ v, 0.02, 20)
    natural = torch.linalg.solve(matrix, gradient)
    torch.testing.assert_close(step / step.norm(), -natural / natural.norm())
    assert (step @ matrix @ step / 2).item() == pytest.approx(0.02)
    assert torch.equal(natural_step(0 * gradient, lambda v: matrix @ v, 0.02, 20), 0 * gradient)


# Catches: a Fisher matrix or a step of a wrong size, with which the exact KL divergence differs from the quadratic
# model.
@each_policy
def test_exact_kl_of_a_step_matches_the_quadratic_model(dist):
    policy, params, obs = tiny(dist)
    kl, theta = mean_kl(policy, obs), parameters_to_vector(params).detach()
    product = fisher_product(kl(), params, 1e-4)
    gradient = product(numbers(len(theta), seed=4))           # like that of a loss, 0 in directions without KL
    step = natural_step(gradient, product, 1e-4, 100)
    vector_to_parameters(theta + step, params)
    damped = 1e-4 - 1e-4 * (step @ step).item() / 2           # the quadratic model without damping
    assert kl().item() == pytest.approx(damped, rel=0.05) and damped > 0.5e-4


class Line:
    """Loss and KL divergence along a line, and the points that were evaluated."""

    def __init__(self, loss, kl):
        self.loss, self.kl, self.at = loss, kl, []

    def __call__(self, theta):
        self.at.append(theta.item())
        return torch.tensor(self.loss(theta.item())), torch.tensor(self.kl(theta.item()))


# The search begins at 1 with a step of 1. Catches: an accepted step although the loss rises, stays equal or is NaN; an
# ignored limit of the KL divergence; a policy that stays at a refused point.
@pytest.mark.parametrize("loss, kl, share", [
    (lambda x: -x, lambda x: 0.0, 1.0), (lambda x: x, lambda x: 0.0, 0.0), (lambda x: 3.0, lambda x: 0.0, 0.0),
    (lambda x: float("nan") if x > 1 else 0.0, lambda x: 0.0, 0.0),
    (lambda x: -x, lambda x: 0.02 if x > 1.7 else 0.01, 0.8**2), (lambda x: -x, lambda x: 0.02 * (x > 1), 0.0),
    (lambda x: (x - 1.3) ** 2, lambda x: 0.0, 0.8**3), (lambda x: -x, lambda x: float("nan") if x > 1 else 0.0, 0.0)])
def test_line_search_takes_the_longest_improving_step_within_the_kl_limit(loss, kl, share):
    line = Line(loss, kl)
    found, reached, distance = line_search(line, torch.tensor([1.0]), torch.tensor([1.0]), 0.01, 10)
    assert found == pytest.approx(share) and line.at[-1] == pytest.approx(1 + share)
    assert reached.item() == pytest.approx(loss(line.at[-1])) and distance <= 0.01
    assert len(line.at) <= 12


@pytest.fixture
def watched(monkeypatch, tmp_path):
    """Train with TRPO. Return (weights before, weights after, share, KL, observations) of each update, policy and
    result."""
    def training(env, **settings):
        seen, policies, observations = [], [], []
        make_policy, collect, search = trpo.make_policy, trpo.collect, trpo.line_search

        def made(*args):
            policies.append(make_policy(*args))
            return policies[0]

        def collected(*args):
            rollout = collect(*args)
            observations.append(policies[0].normalise(rollout.obs[:, :-1]).flatten(0, 1))
            return rollout

        def searched(evaluate, theta, step, *args):
            share, loss, kl = search(evaluate, theta, step, *args)
            after = flat([p for name, p in policies[0].named_parameters() if not name.startswith("v.")])
            torch.testing.assert_close(after.detach(), theta + share * step)
            seen.append((theta, after.detach().clone(), share, kl.item(), observations[-1]))
            return share, loss, kl

        for name, function in (("make_policy", made), ("collect", collected), ("line_search", searched)):
            monkeypatch.setattr(trpo, name, function)
        result = trpo.train(trpo.Config(env=env, num_envs=4, quiet=True, tensorboard=False, threads=1,
                                        log_dir=tmp_path.as_posix(), **settings))
        return seen, policies[0], result
    return training


# Catches: an old policy that changes with the new one (its log_std is a weight); a KL divergence over a part of the
# batch; a step of V in the weights of the policy.
@pytest.mark.parametrize("env, settings", [("CartPole-v1", {}), ("Pendulum-v1", {"normalise_obs": True})])
def test_every_update_stays_in_the_trust_region(env, settings, watched):
    seen, policy, result = watched(env, rollout_steps=32, total_steps=128 * 8, max_kl=0.02, **settings)
    assert len(seen) == 8 and result.status == "finished"
    params = [p for name, p in policy.named_parameters() if not name.startswith("v.")]
    for before, after, share, kl, obs in seen:
        pis = []
        for theta in before, after:
            vector_to_parameters(theta, params)
            with torch.no_grad():
                outputs = policy.params(obs)
            pis.append(Independent(Normal(outputs[0], outputs[1].exp().clone()), 1) if isinstance(outputs, tuple)
                       else TorchCategorical(logits=outputs))
        exact = kl_divergence(*pis).mean().item()
        assert exact == pytest.approx(kl, rel=1e-3, abs=1e-6) and exact <= 0.02 * (1 + 1e-3)
        assert share > 0 and exact > 0.1 * 0.02 * share**2
    assert max(result.progress["kl"]) <= 0.02 and min(result.progress["step_share"]) > 0
    assert max(result.progress["loss"]) < 0


# Catches: missing advantage normalisation; advantages that differ between the gradient and the line search.
def test_advantages_are_normalised_in_the_gradient_and_the_line_search(watched, monkeypatch):
    seen, gradient, surrogate = [], trpo.policy_gradient, trpo.surrogate_loss
    monkeypatch.setattr(trpo, "policy_gradient", lambda logp, adv: (seen.append([adv]), gradient(logp, adv))[1])
    monkeypatch.setattr(trpo, "surrogate_loss", lambda logp, old, adv: (
        seen[-1].append(adv), surrogate(logp, old, adv))[1])
    watched("CartPole-v1", rollout_steps=8, total_steps=96)
    assert len(seen) == 3
    for adv, *others in seen:
        assert adv.mean().abs() < 1e-5 and adv.std(correction=0) == pytest.approx(1, abs=1e-4)
        assert len(others) >= 2 and all(torch.equal(adv, other) for other in others)


# Large matrix products on a CPU have our own backward pass. Catches: a backward pass without second derivatives.
def test_second_derivatives_of_large_and_small_batches_agree():
    policy = ActorCritic((3,), Categorical((4,)), (64, 64))
    params = [*policy.pi.parameters()]
    obs, v = torch.randn(1024, 3, generator=torch.Generator().manual_seed(5)), numbers(
        sum(p.numel() for p in params)).float()
    whole = fisher_product(mean_kl(policy, obs)(), params, 0.0)(v)
    parts = [fisher_product(mean_kl(policy, part)(), params, 0.0)(v) for part in obs.split(128)]
    torch.testing.assert_close(whole, sum(parts) / len(parts), rtol=1e-3, atol=1e-6)


# Catches: advice with a setting that TRPO does not have.
def test_advice_after_a_nan_names_a_setting_of_trpo():
    run = SimpleNamespace(config=trpo.Config(), steps=0, steps_each=8, directory=Path("runs/x"))
    with pytest.raises(NonFiniteError, match="loss became NaN.*try a smaller --value-lr first"):
        Training.check_finite(run, loss=torch.tensor(float("nan")))


# Catches: advantages as the targets of the values; fewer steps than `value_epochs`.
def test_value_function_learns_the_returns_of_gae(tmp_path, monkeypatch):
    returns, targets, gae, value_loss = [], [], trpo.gae, trpo.value_loss

    def kept(*arrays, **settings):
        found = gae(*arrays, **settings)
        returns.append(found[1].flatten())
        return found

    def told(value, target, **rest):
        targets.append(target.clone())
        return value_loss(value, target, **rest)

    monkeypatch.setattr(trpo, "gae", kept)
    monkeypatch.setattr(trpo, "value_loss", told)
    trpo.train(trpo.Config(env="CartPole-v1", num_envs=2, rollout_steps=16, total_steps=96, value_epochs=5, threads=1,
                           quiet=True, tensorboard=False, log_dir=tmp_path.as_posix()))
    assert len(returns) == 3 and len(targets) == 15
    for i, target in enumerate(targets):
        torch.testing.assert_close(target, returns[i // 5])


# Catches: an entropy bonus that is missing, or has the wrong sign, in the gradient or in the line search.
def test_entropy_bonus_alone_raises_the_entropy(tmp_path, monkeypatch):
    monkeypatch.setattr(trpo, "policy_gradient", lambda logp, adv: (0 * logp, {}))
    monkeypatch.setattr(trpo, "surrogate_loss", lambda logp, old, adv: 0 * logp)
    progress = trpo.train(trpo.Config(env="Pendulum-v1", num_envs=2, rollout_steps=16, total_steps=96, entropy_coef=1.0,
                                      threads=1, quiet=True, tensorboard=False, log_dir=tmp_path.as_posix())).progress
    assert min(progress["step_share"]) > 0 and (np.diff(progress["entropy"]) > 0).all()
