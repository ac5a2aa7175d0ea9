"""PPO's two loss functions against hand calculations, and their use in training."""
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from spinup.algos import ppo, rl2, self_play, trpo, vpg
from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.algos.vpg import policy_gradient
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate
from spinup.core.networks import ActorCritic
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"rollout_steps": 32, "lr": 0.003},
    "tasks": {"discrete": {"total_steps": 4096}, "multidiscrete": {"total_steps": 4096},
              "box far": {"normalise_obs": True, "log_std": -1.5}, "image": {}},
    "scores": "clipped_surrogate",
    "cartpole": 475}

CLIP, NAN = (0.2, 0.2), float("nan")
DISTRIBUTIONS = {"discrete": Categorical((4,)), "multidiscrete": Categorical((3, 2)),
                 "box": DiagGaussian([-1, 0], [1, 4])}
each_distribution = pytest.mark.parametrize("dist", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)


def double(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def random_batch(dist, shape: tuple[int, ...], seed: int = 0) -> tuple[ActorCritic, Tensor, Tensor, Tensor]:
    """A policy in float64, observations `[*shape, 3]`, actions sampled from it, and advantages, `[*shape]`."""
    torch.manual_seed(seed)
    policy = ActorCritic((3,), dist, hidden=(8,)).double()
    torch.nn.init.orthogonal_(policy.pi[-1].weight)                       # with its gain of 0.01, all actions are alike
    obs = torch.randn(*shape, 3, dtype=torch.float64)
    with torch.no_grad():
        act = dist.sample(policy.params(obs), torch.from_numpy(dist.noise(np.random.default_rng(seed), shape)))
    return policy, obs, act, torch.randn(shape, dtype=torch.float64)


def gradient(loss: Tensor, policy: ActorCritic) -> Tensor:
    grads = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    return torch.cat([g.flatten() for g in grads if g is not None])


# Catches: a wrong sign of the loss; an inverted ratio; a squared or absolute advantage.
@each_distribution
def test_gradient_is_the_policy_gradient_where_the_ratio_is_1(dist):
    policy, obs, act, adv = random_batch(dist, (4, 5))
    logp = policy.evaluate(obs, act)[0]
    loss, stats = clipped_surrogate(logp, logp.detach(), adv, CLIP)
    ours = gradient(aggregate(loss), policy)
    torch.testing.assert_close(ours, gradient(aggregate(policy_gradient(policy.evaluate(obs, act)[0], adv)[0]), policy))
    assert ours.abs().max() > 0.01
    assert stats["kl"] == stats["clip_fraction"] == 0


# ratio, advantage, clip range, loss, and its derivative in logp, which is -ratio x advantage, or 0 where it is clipped
BY_HAND = [
    (1.0, 2, (0.2, 0.2), -2.0, -2.0), (1.0, -2, (0.2, 0.2), 2.0, 2.0),
    (1.1, 2, (0.2, 0.2), -2.2, -2.2), (0.9, -2, (0.2, 0.2), 1.8, 1.8),
    (1.5, 2, (0.2, 0.2), -2.4, 0.0), (0.5, -2, (0.2, 0.2), 1.6, 0.0),     # clipped: 1.2 x 2, 0.8 x 2
    (0.5, 2, (0.2, 0.2), -1.0, -1.0), (1.5, -2, (0.2, 0.2), 3.0, 3.0),    # moved in the wrong direction: not clipped
    (1.25, 1, (0.2, 0.28), -1.25, -1.25), (1.25, 1, (0.28, 0.2), -1.2, 0.0),
    (0.75, -1, (0.2, 0.28), 0.8, 0.0), (0.75, -1, (0.28, 0.2), 0.75, 0.75),
    (3.0, 0, (0.2, 0.2), 0.0, 0.0)]


# Catches: the minimum in place of the maximum; the clipped ratio alone, which has no gradient after a move in the wrong
# direction; clip[0] on both sides, or exchanged limits; a clip_fraction that counts every ratio out of range.
@pytest.mark.parametrize("ratio, adv, clip, loss, slope", BY_HAND)
def test_clip_removes_the_gradient_only_where_it_should(ratio, adv, clip, loss, slope):
    logp = double(ratio).log().requires_grad_()
    got, stats = clipped_surrogate(logp, double(0), double(adv), clip)
    got.sum().backward()
    assert got.item() == pytest.approx(loss) and logp.grad.item() == pytest.approx(slope)
    assert stats["clip_fraction"] == (slope == 0 and adv != 0)


# Catches: a detached clip, ratio or maximum.
def test_surrogate_gradient_matches_finite_differences():
    generator = torch.Generator().manual_seed(0)
    logp_old, adv = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
    log_ratio = 2 * torch.rand(6, 5, generator=generator, dtype=torch.float64) - 1
    edges = double(0.7, 1.3).log()
    assert (log_ratio[..., None] - edges).abs().min() > 1e-3              # no corner within the differences
    assert ((log_ratio < edges[0]) & (adv < 0)).any() and ((log_ratio > edges[1]) & (adv > 0)).any()
    assert torch.autograd.gradcheck(lambda logp: clipped_surrogate(logp, logp_old, adv, (0.3, 0.3))[0],
                                    (logp_old + log_ratio).requires_grad_())


# Catches: the estimator k1, which can be negative; a ratio and a log ratio of opposite sign.
def test_kl_is_ratio_minus_1_minus_log_ratio():
    logp, logp_old = torch.randn(2, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for mask in None, torch.arange(100) % 3 > 0:
        _, stats = clipped_surrogate(logp, logp_old, logp, CLIP, mask)
        log_ratio = (logp - logp_old)[slice(None) if mask is None else mask]
        torch.testing.assert_close(stats["kl"], (log_ratio.exp() - 1 - log_ratio).mean())
    for one, other in zip(logp, logp_old, strict=True):
        assert clipped_surrogate(one, other, one, CLIP)[1]["kl"] >= 0


# Catches: `adv.reshape(-1)`, with which the advantages of rows are applied to columns.
@pytest.mark.parametrize("mask", [None, torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 1]])], ids=["all", "masked"])
def test_one_advantage_applies_to_all_steps_of_its_row(mask):
    logp, logp_old = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    adv = torch.tensor([[1.0], [-2.0], [0.5]])
    for loss in policy_gradient, lambda *arrays: clipped_surrogate(arrays[0], logp_old, arrays[1], CLIP, arrays[2]):
        (short, stats), (long, same) = loss(logp, adv, mask), loss(logp, adv.expand(3, 3), mask)
        assert torch.equal(short, long) and stats == same


# value, old value, target, clip range, loss, derivative
VALUES = [
    (1.0, 0.5, 2.0, 0.0, 0.5, -1.0),                                      # no clip: (1 - 2)^2 / 2
    (1.0, 0.5, 2.0, 0.2, 0.845, 0.0),                                     # clipped to 0.7: (0.7 - 2)^2 / 2
    (1.0, 0.9, 2.0, 0.2, 0.5, -1.0),                                      # within the clip
    (1.0, 0.5, 0.0, 0.2, 0.5, 1.0),                                       # moved in the wrong direction: not clipped
    (0.0, 0.5, -1.0, 0.2, 0.845, 0.0), (0.0, 0.5, 1.0, 0.2, 0.5, -1.0)]


# Catches: the minimum in place of the maximum; a clip range around the target; a missing factor of a half.
@pytest.mark.parametrize("value, old, target, clip, loss, slope", VALUES)
def test_value_loss_matches_hand_calculation(value, old, target, clip, loss, slope):
    v = double(value).requires_grad_()
    got = value_loss(v, double(target), old=double(old), clip=clip)
    got.sum().backward()
    assert got.item() == pytest.approx(loss) and v.grad.item() == pytest.approx(slope)


# Catches: a required `old` although nothing is clipped.
def test_value_loss_without_a_clip_needs_no_old_values():
    value, target = double(1.0, 3.0), double(2.0, 1.0)
    assert value_loss(value, target).tolist() == value_loss(value, target, old=7 * value).tolist() == [0.5, 2.0]


# Catches: a mask as a factor (NaN x 0 is NaN); a missing mask of the log ratio, or of the statistics.
@pytest.mark.parametrize("surrogate", ["ppo", "vpg"])
def test_nan_in_padding_does_not_change_the_gradient(surrogate):
    policy, obs, act, adv = random_batch(Categorical((4,)), (2, 5))
    noise = 0.3 * torch.randn(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0, 0, 1], [1, 0, 1, 1, 0]])
    counts, nan = mask > 0, torch.where(mask > 0, 0.0, NAN)

    def loss(obs, act, noise, adv, nan, mask=None):
        logp = policy.evaluate(obs, act)[0] + nan
        if surrogate == "vpg":
            return policy_gradient(logp, adv, mask)
        return clipped_surrogate(logp, (logp + noise).detach(), adv, CLIP, mask)

    per_step, stats = loss(obs[counts], act[counts], noise[counts], adv[counts], 0)
    expected = gradient(aggregate(per_step), policy)
    per_step, masked_stats = loss(obs, act, noise, adv + nan, nan, mask)
    torch.testing.assert_close(gradient(aggregate(per_step, mask), policy), expected)
    assert {k: v.item() for k, v in masked_stats.items()} == pytest.approx({k: v.item() for k, v in stats.items()})


# Catches: a wrong sign of either loss, or of FlatAdam's step.
@each_distribution
@pytest.mark.parametrize("surrogate", ["ppo", "vpg"])
def test_one_step_makes_good_actions_more_and_bad_ones_less_likely(surrogate, dist):
    for sign in 1, -1:
        policy, obs, act, _ = random_batch(dist, (1,))
        adv, before = double(sign), policy.evaluate(obs, act)[0].detach()

        def loss(obs, act, logp_old, adv, policy=policy):
            logp = policy.evaluate(obs, act)[0]
            if surrogate == "vpg":
                return policy_gradient(logp, adv)[0].sum(), {}
            return clipped_surrogate(logp, logp_old, adv, CLIP)[0].sum(), {}

        parameters = [p for p in policy.parameters() if all(p is not q for q in policy.v.parameters())]
        FlatAdam(parameters, lr=1e-3).minimizer(loss)(obs, act, before, adv)
        assert (policy.evaluate(obs, act)[0] - before) * sign > 1e-4


class Noise(gymnasium.Env):
    """Random observations on different scales, random rewards, and short episodes."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        return self.observe(), self.np_random.standard_normal(), self.np_random.random() < 0.1, False, {}

    def observe(self):
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)
        return self.np_random.normal([5, -50, 0], [1, 10, 0.1]).astype(np.float32)


VECTOR, IMAGE = Box(-np.inf, np.inf, (3,)), Box(0, 255, (36, 36, 1), np.uint8)
NOISE = {"discrete": (VECTOR, Discrete(3)), "multidiscrete": (VECTOR, MultiDiscrete([2, 3])),
         "box": (VECTOR, Box(-1, 3, (2,))), "image": (IMAGE, Discrete(3))}


def train(tmp_path, env, **settings):
    small = {"num_envs": 2, "rollout_steps": 16, "total_steps": 4 * 32, "epochs": 2, "minibatches": 2, "threads": 1}
    quiet = {"log_dir": tmp_path.as_posix(), "quiet": True, "tensorboard": False}
    return ppo.train(ppo.Config(env=env, **quiet, **{**small, **settings}))


# Catches: different shuffles of actions and observations in a minibatch; logp_old from observations with another
# normalisation than those of the minibatches.
@pytest.mark.parametrize("spaces", NOISE.values(), ids=NOISE)
def test_the_first_ratio_of_an_update_is_1(spaces, tmp_path, monkeypatch):
    ratios, kls = [], []

    def recorded(logp, logp_old, *rest):
        loss, stats = clipped_surrogate(logp, logp_old, *rest)
        ratios.append(((logp - logp_old).exp() - 1).abs().max().item())
        kls.append(stats["kl"].item())
        return loss, stats

    monkeypatch.setattr(ppo, "clipped_surrogate", recorded)
    train(tmp_path, lambda: Noise(*spaces), normalise_obs=True, lr=1e-3)
    assert len(ratios) == 4 * 4                                           # updates x minibatches of all epochs
    assert max(ratios[::4]) < 1e-5 and max(kls[::4]) < 1e-6
    assert min(max(ratios[i + 1:i + 4]) for i in range(0, 16, 4)) > 1e-4  # later, it differs from 1


# Catches: a learning rate that is logged and not used; an epoch that follows although the KL divergence is above
# target_kl.
def test_annealing_lowers_the_learning_rate_and_target_kl_ends_epochs(tmp_path):
    def env():
        return Noise(*NOISE["discrete"])

    annealed, constant, stopped = (train(tmp_path, env, lr=1e-3, **settings).progress for settings in (
        {}, {"anneal": False}, {"anneal": False, "target_kl": 1e-9}))
    assert annealed["learning_rate"] == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    assert constant["learning_rate"] == pytest.approx([1e-3] * 4)
    first, second = zip(annealed["value_loss"][:2], constant["value_loss"][:2], strict=True)
    assert first[0] == first[1] and second[0] != second[1]
    assert constant["epochs"] == [2] * 4 and stopped["epochs"] == [1] * 4


# Catches: the KL divergence of the last minibatch in place of the mean over the epoch, also in the log.
@pytest.mark.parametrize("kls, epochs", [((0.1, 0.0), 1), ((0.0, 0.1), 1), ((0.029, 0.0), 2), ((0.0, 0.029), 2)])
def test_mean_kl_of_an_epoch_is_logged_and_ends_the_update(kls, epochs, tmp_path, monkeypatch):
    calls = []

    def told(*args):
        loss, stats = clipped_surrogate(*args)
        calls.append(len(calls))
        return loss, {**stats, "kl": torch.tensor(kls[calls[-1] % 2])}

    monkeypatch.setattr(ppo, "clipped_surrogate", told)
    result = train(tmp_path, lambda: Noise(*NOISE["discrete"]), target_kl=0.01)
    assert result.progress["epochs"] == [epochs] * 4 and len(calls) == 4 * 2 * epochs
    assert result.progress["kl"] == pytest.approx([sum(kls) / 2] * 4)


# Catches: a missing scaler. Rewards that are a thousand times as large then make values a thousand times as large.
@pytest.mark.parametrize("algorithm", [ppo, vpg, trpo, rl2], ids=lambda a: a.__name__.rpartition(".")[2])
def test_normalised_rewards_do_not_depend_on_their_scale(algorithm, tmp_path):
    class Dear(Noise):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, 1000 * reward, *rest

    given = {"num_envs": 2, "rollout_steps": 16, "total_steps": 128, "threads": 1, "quiet": True, "tensorboard": False,
             "log_dir": tmp_path.as_posix(), "normalise_reward": True}
    given |= {ppo: {"minibatches": 2}, rl2: {"minibatches": 2, "inputs": "observation"}}.get(algorithm, {})
    losses = [algorithm.train(algorithm.Config(env=lambda kind=kind: kind(*NOISE["discrete"]), **given)).progress[
        "value_loss"] for kind in (Noise, Dear)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2)


@pytest.mark.parametrize("settings, advice", [
    ({"minibatches": 3}, "--minibatches 3 does not divide a batch of --num-envs 2 x --rollout-steps 16 = 32 steps"),
    ({"minibatches": 32}, "choose --minibatches below 32"),
    ({"total_steps": 31}, "--total-steps 31 is less than one batch of 32 steps")])
def test_invalid_batch_sizes_are_refused(settings, advice, tmp_path):
    with pytest.raises(UserError, match=advice):
        train(tmp_path, "CartPole-v1", **settings)
    assert not list(tmp_path.iterdir())


# Catches: a learning rate that falls only in the log.
@pytest.mark.parametrize("algorithm, env", [(vpg, "CartPole-v1"), (rl2, "CartPole-v1"), (self_play, "TicTacToe-v0")],
                         ids=["vpg", "rl2", "self_play"])
def test_annealed_learning_rate_is_used(algorithm, env, tmp_path, monkeypatch):
    taken, step = [], FlatAdam.step
    monkeypatch.setattr(FlatAdam, "step", lambda self, lr=None: taken.append(lr) or step(self, lr))
    own = {} if algorithm is vpg else {"epochs": 1, "minibatches": 1}
    algorithm.train(algorithm.Config(env=env, num_envs=2, rollout_steps=16, total_steps=128, lr=1e-3, anneal=True,
                                     threads=1, quiet=True, tensorboard=False, log_dir=tmp_path.as_posix(), **own))
    assert [lr for lr in taken if lr is not None] == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])


