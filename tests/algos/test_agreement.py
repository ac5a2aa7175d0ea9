"""Our losses have the same gradients as those of stable-baselines3: its own `train` gets our weights and batches.

Where a factor differs, the test applies this factor, and the documentation page of the algorithm states the difference.
"""
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.buffers import ReplayBufferSamples, RolloutBufferSamples
from stable_baselines3.common.logger import Logger
from torch import Tensor, nn

from spinup.algos import curiosity, ppo, self_play, vpg
from spinup.core.fast.adam import FlatAdam

ACTIONS = Box(-1, 1, (2,), np.float32)
SPACES = {"CartPole-v1": Discrete(2), "MountainCarContinuous-v0": Box(-1, 1, (1,), np.float32)}
each_environment = pytest.mark.parametrize("env", SPACES)


class Spaces(gymnasium.Env):
    """The two spaces from which stable-baselines3 makes its networks. No step is made in this environment."""

    def __init__(self, actions: gymnasium.Space, size: int):
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (size,)), actions


def peer(algorithm: type, actions: gymnasium.Space, size: int = 3, net: Any = (8, 6), **settings: Any) -> Any:
    """An algorithm of stable-baselines3 whose optimisers make no step. They keep their gradients in `taken`."""
    kwargs = {"net_arch": list(net) if isinstance(net, tuple) else net} | settings.pop("policy_kwargs", {})
    model = algorithm("MlpPolicy", Spaces(actions, size), device="cpu", policy_kwargs=kwargs, **settings)
    model.set_logger(Logger(None, []))
    model.taken = {}

    def kept(optimizer: torch.optim.Optimizer) -> None:
        def step() -> None:
            model.taken |= {p: p.grad.clone() for group in optimizer.param_groups for p in group["params"]}
        optimizer.step = step
    for part in (model.policy, getattr(model, "critic", None), getattr(model, "actor", None)):
        if hasattr(part, "optimizer"):
            kept(part.optimizer)
    if getattr(model, "ent_coef_optimizer", None):
        kept(model.ent_coef_optimizer)
    return model


def linears(*nets: nn.Module) -> list[nn.Linear]:
    """The layers of networks, in order."""
    return [m for net in nets for m in net.modules() if isinstance(m, nn.Linear)]


def copy(ours: Iterable[nn.Linear], theirs: Iterable[nn.Linear]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        b.load_state_dict(a.state_dict())


def gradient(model: Any, *nets: nn.Module) -> Tensor:
    """The gradients that the peer's optimiser got for the layers of these networks, flat."""
    return torch.cat([model.taken[p].flatten() for layer in linears(*nets) for p in layer.parameters()])


def replayed(model: Any, obs: Tensor, *rest: Tensor) -> None:
    """Call the peer's `train` for one gradient step on this batch of eight. For a step of the actor, `obs` is enough.

    rest: actions, rewards, next observations, terminations.
    """
    zeros = torch.zeros(8, 1)
    act, rew, next_obs, terminated = rest or (torch.zeros(8, 2), zeros, obs, zeros)
    batch = ReplayBufferSamples(obs, act.view(8, -1), next_obs, terminated.view(8, 1), rew.view(8, 1))
    model.replay_buffer = SimpleNamespace(sample=lambda *_, **__: batch)
    model.train(gradient_steps=1, batch_size=8)


def same(ours: Tensor, theirs: Tensor, factor: float = 1.0) -> None:
    """Assert that ours is `factor` times theirs, and that theirs is not 0."""
    torch.testing.assert_close(ours.float(), factor * theirs, rtol=1e-3, atol=1e-6)
    assert theirs.abs().max() > 1e-5


def by_hand(policy: nn.Module, weights: list[Tensor], loss: Callable[[], Tensor]) -> list[Tensor]:
    """The gradient of a loss for each parameter of a policy with these weights; zeros where there is none."""
    params = list(policy.parameters())
    before = [p.detach().clone() for p in params]
    for p, x in zip(params, weights, strict=True):
        p.data.copy_(x)
    found = torch.autograd.grad(loss(), params, allow_unused=True)
    for p, x in zip(params, before, strict=True):
        p.data.copy_(x)
    return [torch.zeros_like(p) if x is None else x for p, x in zip(params, found, strict=True)]


@pytest.fixture
def update(monkeypatch, tmp_path) -> Callable[..., list[SimpleNamespace]]:
    """`update(ppo, "CartPole-v1", ...)`: train for one update of 64 steps, and return its gradient steps.

    Each has the weights before it, the batch, the gradient of each of its parameters by number, and `stats`.
    """
    minimizer, steps = FlatAdam.minimizer, []

    def trained(algorithm: Any, env: str, **settings: Any) -> list[SimpleNamespace]:
        make_policy = algorithm.make_policy

        def made(*args: Any) -> nn.Module:
            trained.policy = make_policy(*args)
            return trained.policy

        def kept(optimizer: FlatAdam, loss: Callable) -> Callable:
            minimize = minimizer(optimizer, loss)

            def step(*batch: Tensor, **settings: float) -> dict[str, Tensor]:
                params = list(trained.policy.parameters())
                weights = [p.detach().clone() for p in params]
                stats = minimize(*batch, **settings)
                gradients = {i: p.grad.clone() for i, p in enumerate(params) if any(p is q for q in optimizer.params)}
                steps.append(SimpleNamespace(policy=trained.policy, weights=weights, batch=batch, gradients=gradients,
                                             stats=stats))
                return stats
            return step

        monkeypatch.setattr(algorithm, "make_policy", made)
        monkeypatch.setattr(FlatAdam, "minimizer", kept)
        algorithm.train(algorithm.Config(
            env=env, num_envs=2, rollout_steps=32, total_steps=64, hidden=(8, 6), max_grad_norm=1e9, threads=1,
            tensorboard=False, quiet=True, log_dir=str(tmp_path), **settings))
        return steps
    return trained


def on_policy(model: Any, step: SimpleNamespace, deviation: float, ours: dict[int, Tensor], *batch: Tensor) -> None:
    """Call the peer's `train` with the weights of our step, and compare its gradients with `ours`, by parameter number.

    Its gradients of the policy must be `deviation` times ours. Those of the value function must be equal.
    """
    for p, data in zip(step.policy.parameters(), step.weights, strict=True):
        p.data.copy_(data)
    net, std = model.policy, []
    actor, critic = [net.mlp_extractor.policy_net, net.action_net], [net.mlp_extractor.value_net, net.value_net]
    copy(linears(step.policy.pi, step.policy.v), linears(*actor, *critic))
    if step.policy.log_std is not None:
        net.log_std.data.copy_(step.policy.log_std)
        std = [net.log_std]
    model.rollout_buffer = SimpleNamespace(get=lambda batch_size: [RolloutBufferSamples(*batch)], values=np.ones(3),
                                           returns=np.ones(3))
    model.train()
    of_actor, of_critic = ([p for layer in linears(*nets) for p in layer.parameters()] for nets in (actor, critic))
    theirs = [model.taken[p] / deviation for p in (*std, *of_actor)] + [model.taken[p] for p in of_critic]
    assert sorted(ours) == list(range(len(theirs)))
    for i, gradients in enumerate(theirs):
        same(ours[i], gradients)


# Two factors differ. The standard deviation of the advantages divides by n - 1 there, by n here. Our value loss is half
# of the squared error, as in the paper. After the first step, the ratios differ from 1, and some are clipped. Catches:
# a wrong clip range of the ratios; a wrong sign or weight of the entropy bonus; the sum in place of the mean.
@each_environment
def test_ppo_gradients_match_stable_baselines3(env, update):
    steps = update(ppo, env, epochs=3, minibatches=2, lr=0.03, entropy_coef=0.02, value_coef=0.8, anneal=False)
    deviation = (31 / 32) ** 0.5
    model = peer(sb3.PPO, SPACES[env], steps[0].batch[0].shape[1], {"pi": [8, 6], "vf": [8, 6]}, n_epochs=1,
                 ent_coef=0.02 * deviation, vf_coef=0.8 / 2, max_grad_norm=1e9)
    for step in steps:
        obs, act, logp_old, ret, values, adv = step.batch
        on_policy(model, step, deviation, step.gradients, obs, act, values, logp_old, adv, ret)
    assert len(steps) == 6 and steps[-1].stats["clip_fraction"] > 0


# A2C makes one step for policy and value function together, so only the first of our ten steps of the value function
# has the same weights. Catches: the same bugs as the test of PPO.
@each_environment
def test_vpg_gradients_match_a2c_of_stable_baselines3(env, update):
    policy_step, value_step, *_ = update(vpg, env, entropy_coef=0.02)
    (obs, act, adv), ret = policy_step.batch, value_step.batch[1]
    deviation = (63 / 64) ** 0.5
    model = peer(sb3.A2C, SPACES[env], obs.shape[1], {"pi": [8, 6], "vf": [8, 6]}, ent_coef=0.02 * deviation,
                 vf_coef=1 / 2, max_grad_norm=1e9, normalize_advantage=True)      # False by default there
    ours, zeros = policy_step.gradients | value_step.gradients, torch.zeros_like(adv)
    on_policy(model, policy_step, deviation, ours, obs, act, zeros, zeros, adv, ret)


# Catches: a loss other than the Huber loss, or a wrong width of it; a bootstrap after a termination; the maximum of the
# online network.
def test_dqn_gradients_match_stable_baselines3(watch):
    seen = watch("dqn", Discrete(3), gamma=0.9, double=False)
    model = peer(sb3.DQN, Discrete(3), gamma=0.9)
    for step in seen.steps[-20:]:
        copy(linears(step.policy), linears(model.q_net))
        copy(linears(step.target), linears(model.q_net_target))
        replayed(model, *step.batch[:5])
        same(step.gradient, gradient(model, model.q_net))


# Catches: the mean over critics in place of the sum; noise that is not clipped; a target from one critic; an actor that
# maximises the second critic.
@pytest.mark.parametrize(("name", "critics", "settings"), [
    ("ddpg", 1, {}), ("td3", 2, {"target_noise": 0.4, "noise_clip": 0.3})])
def test_ddpg_and_td3_gradients_match_stable_baselines3(name, critics, settings, watch, monkeypatch):
    # stable-baselines3 has no saturation penalty.
    seen = watch(name, ACTIONS, gamma=0.9, saturation_coef=0.0, **settings)
    model = peer(sb3.TD3, ACTIONS, gamma=0.9, policy_delay=1, policy_kwargs={"n_critics": critics},
                 target_noise_clip=settings.get("noise_clip", 0.0))
    for step in seen.steps[-20:]:
        copy(linears(step.policy), linears(model.actor, model.critic))
        copy(linears(step.target), linears(model.actor_target, model.critic_target))
        noise = step.batch[5] if len(step.batch) > 5 else torch.zeros(8, 2)
        with monkeypatch.context() as patch:
            patch.setattr(Tensor, "normal_", lambda x, *_, noise=noise: x.copy_(noise))
            replayed(model, *step.batch[:5])
        same(step.gradient, gradient(model, model.critic if step.part == "q" else model.actor))


# Catches: a target without the entropy, or with the new temperature; a wrong target entropy; wrong limits of log_std;
# the density of the action before tanh.
def test_sac_gradients_match_stable_baselines3(watch, monkeypatch):
    seen = watch("sac", ACTIONS, gamma=0.9, alpha=0.5)
    model = peer(sb3.SAC, ACTIONS, gamma=0.9, ent_coef="auto_0.5")
    model.actor.action_dist.epsilon = 0                                   # 1e-6 inside their logarithm; ours is exact
    for step in seen.steps[-20:]:
        policy = step.policy
        *hidden, last = linears(policy.pi)
        copy(hidden, linears(model.actor.latent_pi))
        for head, rows in ((model.actor.mu, slice(2)), (model.actor.log_std, slice(2, None))):
            head.weight.data.copy_(last.weight[rows])
            head.bias.data.copy_(last.bias[rows])
        copy(linears(policy.q), linears(model.critic))
        copy(linears(step.target.q), linears(model.critic_target))
        model.log_ent_coef.data.fill_(policy.log_alpha.item())
        *batch, noise = step.batch
        with monkeypatch.context() as patch:
            patch.setattr("torch.distributions.normal._standard_normal", lambda *_, noise=noise, **__: noise)
            replayed(model, *batch)
        if step.part == "q":
            same(step.gradient, gradient(model, model.critic), factor=2)  # theirs is half of the squared error
        else:
            theirs = gradient(model, model.actor.latent_pi)
            for kind in ("weight", "bias"):
                theirs = torch.cat([theirs, *(model.taken[getattr(head, kind)].flatten()
                                              for head in (model.actor.mu, model.actor.log_std))])
            same(step.gradient, torch.cat([theirs, model.taken[model.log_ent_coef]]))


# The clipped value loss of stable-baselines3 has another form, so this one is calculated here. Catches: the target or
# the new value in place of `old`; a clip range that is not passed on; the smaller of the two errors.
def test_clipped_value_loss_of_ppo_matches_hand_calculation(update):
    steps = update(ppo, "CartPole-v1", epochs=3, minibatches=2, lr=0.03, clip_value=0.05, value_coef=0.8,
                   entropy_coef=0.0, clip_ratio=10.0)
    moved = 0
    for step in steps:
        obs, act, logp_old, target, old, adv = step.batch

        def loss(step=step, obs=obs, act=act, logp_old=logp_old, target=target, old=old, adv=adv) -> Tensor:
            logp, _, value = step.policy.evaluate(obs, act)
            near = old + (value - old).clamp(-0.05, 0.05)
            error = torch.maximum((value - target) ** 2, (near - target) ** 2)
            return (-(logp - logp_old).exp() * adv + 0.8 * 0.5 * error).mean()
        for i, x in enumerate(by_hand(step.policy, step.weights, loss)):
            if i in step.gradients:
                torch.testing.assert_close(step.gradients[i], x, rtol=1e-3, atol=1e-6)
        moved += int(((step.policy.value(obs) - old).abs() > 0.05).sum())
    assert moved > 20


# Catches: a value function that is missing in the loss, or that learns the returns of the other one; a wrong sign of
# the entropy bonus; missing advantage normalisation.
def test_curiosity_loss_matches_hand_calculation(update):
    step, = (s for s in update(curiosity, "CartPole-v1", epochs=1, minibatches=1, entropy_coef=0.3, value_coef=0.8,
                               feature_size=4, feature_hidden=(4,)) if s.gradients)
    obs, act, logp_old, adv, target, bonus_target = step.batch
    adv = (adv - adv.mean()) / adv.std(correction=0)

    def loss() -> Tensor:
        logp, entropy, value = step.policy.evaluate(obs, act)
        errors = (value - target) ** 2 + (step.policy.bonus_value(obs) - bonus_target) ** 2
        return (-(logp - logp_old).exp() * adv + 0.8 * 0.5 * errors - 0.3 * entropy).mean()
    found = by_hand(step.policy, step.weights, loss)
    assert len(step.gradients) == len(found)
    for i, x in enumerate(found):
        torch.testing.assert_close(step.gradients[i], x, rtol=1e-3, atol=1e-6)


# Catches: a wrong sign of the entropy bonus; a value loss without its coefficient; missing advantage normalisation.
def test_self_play_loss_matches_hand_calculation(update):
    step, = update(self_play, "TicTacToe-v0", epochs=1, minibatches=1, entropy_coef=0.3, value_coef=0.8)
    obs, act, logp_old, adv, target, coef = step.batch
    adv = (adv - adv.mean()) / adv.std(correction=0)

    def loss() -> Tensor:
        logp, entropy, value = step.policy.evaluate(obs, act)
        return (-(logp - logp_old).exp() * adv + 0.8 * 0.5 * (value - target) ** 2 - coef * entropy).mean()
    assert coef.item() == pytest.approx(0.3)
    for i, x in enumerate(by_hand(step.policy, step.weights, loss)):
        torch.testing.assert_close(step.gradients[i], x, rtol=1e-3, atol=1e-6)
