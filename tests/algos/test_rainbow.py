"""Rainbow: its functions by brute force, its noise in closed form, its updates by hand, and DQN as a special case."""
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

import spinup
from spinup.algos import dqn, rainbow
from spinup.algos.rainbow import NoisyLinear, ReturnNetwork, divergence, project, signed_root
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 2560, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "target_every": 50, "atoms": 21, "v_min": 0, "v_max": 2},
    "tasks": {"discrete": {},
              "image": {"total_steps": 704, "batch_size": 32, "learning_starts": 128, "target_every": 20}}}
GAMMA = 0.9


def projected(ret: float, discount: float, terminated: float, p: list[float], support: list[float]) -> list[float]:
    """One target distribution, atom by atom, by eq. 7 of Bellemare et al. 2017."""
    m, gap = [0.0] * len(support), support[1] - support[0]
    for z, mass in zip(support, p, strict=True):
        moved = min(max(ret + discount * (1 - terminated) * z, support[0]), support[-1])
        for i, atom in enumerate(support):
            m[i] += mass * max(0.0, 1 - abs(moved - atom) / gap)
    return m


# Catches: mass that is lost where T z is exactly on an atom; exchanged neighbours; a bootstrap after a termination;
# returns outside the support that are dropped or wrapped around.
def test_projection_matches_brute_force():
    rng = np.random.default_rng(0)
    support, count = torch.linspace(-2, 3, 11), 200
    p = torch.from_numpy(rng.dirichlet(np.ones(11), count)).float()
    ret = torch.from_numpy(rng.uniform(-4, 5, count)).float()
    ret[:50] = support[torch.arange(50) % 11]                 # T z on atoms, also on the first and the last
    discount = torch.tensor([1.0, 0.0, 0.9, 0.73])[torch.arange(count) % 4]
    terminated = (torch.arange(count) % 3 == 0).float()
    m = project(ret, discount, terminated, p, support)
    rows = zip(ret, discount, terminated, p, strict=True)
    expected = [projected(*map(float, row[:3]), row[3].tolist(), support.tolist()) for row in rows]
    np.testing.assert_allclose(m, expected, atol=2e-6)
    np.testing.assert_allclose(m.sum(1), 1, atol=1e-5)
    y = ret + discount * (1 - terminated) * (p * support).sum(1)
    low = ret + discount * (1 - terminated) * support[0]
    high = ret + discount * (1 - terminated) * support[-1]
    inside = (low >= support[0]) & (high <= support[-1])
    assert inside.sum() > 40                                  # where nothing is clipped, the mean is the TD target
    np.testing.assert_allclose((m * support).sum(1)[inside], y[inside], atol=1e-5)
    assert m[low > support[-1]][:, -1].allclose(torch.ones(())) and (low > support[-1]).any()
    assert m[high < support[0]][:, 0].allclose(torch.ones(())) and (high < support[0]).any()


def test_divergence_matches_hand_calculation():
    p, q = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]])
    assert divergence(p, q.clamp(min=1e-12).log()).tolist() == pytest.approx([0.5 * math.log(2), 0.0])


# Catches: noise with the size of another layer; a missing f; a bias without noise; sigma / n_in without the root.
def test_noisy_layer_has_the_weights_mean_and_variance_of_the_paper():
    torch.manual_seed(0)
    layer, x = NoisyLinear(4, 3, 0.5), torch.tensor([1.0, -2.0, 0.0, 0.5])
    assert layer.weight_sigma.eq(0.25).all() and layer.bias_sigma.eq(0.25).all()
    assert layer.weight.abs().max() <= 0.5 and NoisyLinear(4, 3, 0.0)(x, torch.zeros(0)).shape == (3,)
    with torch.no_grad():
        layer.weight_sigma.copy_(torch.rand(3, 4))
        layer.bias_sigma.copy_(torch.rand(3))
        eps = torch.randn(layer.noise_size)
        f = [math.copysign(abs(e) ** 0.5, e) for e in eps.tolist()]       # 4 inputs, then 3 outputs
        weight = layer.weight + layer.weight_sigma * torch.tensor([[o * i for i in f[:4]] for o in f[4:]])
        bias = layer.bias + layer.bias_sigma * torch.tensor(f[4:])
        torch.testing.assert_close(layer(x, eps), weight @ x + bias)
        many = torch.randn(200_000, layer.noise_size)
        y = layer(x.expand(len(many), 4), many)
        each = math.sqrt(2 / math.pi)                                     # E f(eps)^2 = E |eps|
        variance = each * (each * layer.weight_sigma.square() @ x.square() + layer.bias_sigma.square())
        torch.testing.assert_close(y.mean(0), layer.weight @ x + layer.bias, rtol=0, atol=0.01)
        torch.testing.assert_close(y.var(0), variance, rtol=0.03, atol=0)
    assert signed_root(torch.tensor([-4.0, 0.0, 9.0])).tolist() == [-2, 0, 3]


# Catches: the action with the most likely return, or with the largest possible return.
def test_the_greedy_action_has_the_largest_mean_return():
    cfg = rainbow.Config(atoms=3, v_min=0, v_max=10, hidden=(4,), sigma=0.5, dueling=False)
    net = ReturnNetwork((2,), 3, cfg)
    p = torch.tensor([[0.45, 0.0, 0.55], [0.0, 0.6, 0.4], [0.4, 0.0, 0.6]]).clamp(min=1e-9)
    with torch.no_grad():
        for layer in net.layers:
            layer.weight.zero_()
        net.layers[-1].bias.copy_(p.log().flatten())
        net.epsilon.zero_()
    obs = np.zeros((1, 2), np.float32)
    values, epsilon = net.actor()(obs)
    np.testing.assert_allclose(values, [[5.5, 7.0, 6.0]], rtol=1e-4)
    assert net.dist.mode((values, epsilon)).tolist() == [1]
    noisy = net.actor()(obs, np.arange(net.noise_size, dtype=np.float32)[None])[0]
    assert not np.allclose(noisy, values) and np.array_equal(net.actor()(obs)[0], values)         # no noise is stored


def test_support_of_width_0_is_refused():
    with pytest.raises(UserError, match="--v-min 3 is not below --v-max 3"):
        rainbow.Config(v_min=3, v_max=3)


# Catches: the support of the initial run, which replaces --v-min and --v-max without a message.
def test_support_other_than_that_of_the_initial_run_is_refused(tmp_path):
    given = {"preset": "none", "hidden": (8,), "total_steps": 20, "learning_starts": 8, "batch_size": 4, "quiet": True,
             "tensorboard": False, "threads": 1, "log_dir": str(tmp_path)}
    first = spinup.rainbow("CartPole-v1", v_min=0, v_max=50, exp_name="first", **given).directory
    assert spinup.rainbow("CartPole-v1", v_min=0, v_max=50, init=str(first), exp_name="b", **given).status == "finished"
    with pytest.raises(UserError, match="type --v-min 0 --v-max 50, as in the run of --init"):
        spinup.rainbow("CartPole-v1", v_min=0, v_max=60, init=str(first), exp_name="c", **given)
    assert not (tmp_path / "c").exists()


def outputs(net: nn.Module, obs: tuple[float, ...], eps: Tensor) -> Tensor:
    """Logits of one observation, `[n, K]`, from weight matrices with their noise, in float64."""
    x, used, streams = net.body(torch.tensor(obs, dtype=torch.float64)), 0, []
    f, h = eps.double().sign() * eps.double().abs().sqrt(), x
    for i, layer in enumerate(net.layers):
        weight, bias = layer.weight, layer.bias
        if layer.noise_size:
            middle, end = used + layer.in_features, used + layer.noise_size
            weight = weight + layer.weight_sigma * torch.outer(f[middle:end], f[used:middle])
            bias = bias + layer.bias_sigma * f[middle:end]
            used = end
        h = weight @ (h.relu() if i % 2 else x) + bias
        if i % 2:
            streams.append(h.view(-1, net.atoms))
    return streams[0] + streams[1] - streams[1].mean(0) if net.dueling else streams[0]


PARTS = {"rainbow": {"num_envs": 2, "update_ratio": 0.5},
         "c51": {"sigma": 0, "double": False, "dueling": False, "n_steps": 1, "prioritised": False},
         "five-step": {"n_steps": 5, "dueling": False}}


# Every gradient step of a training run is calculated, one transition at a time, from the records of the environment.
# Catches: a target without noise, or with the noise of another network; an action from the target network in double
# Q-learning; the distribution of a wrong action; rewards, ends or next observations of a wrong step; a gradient through
# the target; importance weights from wrong priorities.
@pytest.mark.parametrize("settings", PARTS.values(), ids=PARTS)
def test_every_update_matches_hand_calculation(settings, watch):
    chosen = {"v_min": 0, "v_max": 6, "atoms": 5, "n_steps": 3, **settings}
    seen = watch("rainbow", Discrete(3, start=2), gamma=GAMMA, **chosen)
    endings, priority, largest, noise = set(), {}, 1.0, []
    support = torch.linspace(0, 6, 5, dtype=torch.float64)
    for step in seen.steps:
        keys = list(map(tuple, step.batch[0].tolist()))
        rows, eps = [seen.told[key].number for key in keys], step.batch[-1]
        noise += eps[:, :1].flatten().tolist()
        weights = np.ones(len(rows))
        if settings.get("prioritised", True):
            priority = {row: priority.get(row, largest) for row in step.rows}
            passed = (step.rows.stop - settings.get("num_envs", 1)) / 120
            total, beta = sum(p**0.5 for p in priority.values()), 0.4 + 0.6 * passed
            weights = np.array([len(step.rows) * priority[row] ** 0.5 / total for row in rows]) ** -beta
            weights /= weights.max()
        loss, losses = 0.0, []
        for key, weight in zip(keys, weights, strict=True):
            at, ret = key, 0.0
            for k in range(chosen["n_steps"]):
                told = seen.told[at]
                ret, at = ret + GAMMA**k * told.reward, told.next_obs
                if told.ended or seen.told.get(at, told).number not in step.rows[1:]:          # not stored yet
                    break
            endings.add((told.terminated, told.ended))
            with torch.no_grad():
                judge = outputs(step.target, at, eps[0]).softmax(-1)
                chooser = outputs(step.policy, at, eps[1]).softmax(-1) if settings.get("double", True) else judge
                best = (chooser * support).sum(-1).argmax()
                m = torch.tensor(projected(ret, GAMMA ** (k + 1), told.terminated, judge[best].tolist(),
                                           support.tolist()), dtype=torch.float64)
            log_p = outputs(step.policy, key, eps[2])[seen.told[key].action - 2].log_softmax(-1)
            each = sum(a * (a.log() - b) for a, b in zip(m, log_p, strict=True) if a > 0)
            losses.append(each.item())
            loss = loss + weight * each / len(keys)
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(step.policy.parameters()))])
        assert step.stats["loss"].item() == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
        assert step.stats["errors"].tolist() == pytest.approx(losses, abs=1e-4)
        torch.testing.assert_close(step.gradient, gradient * min(1, 10 / gradient.norm().item()), rtol=1e-3, atol=1e-4)
        priority.update(zip(rows, np.array(losses) + 1e-6, strict=True))
        largest = max(largest, *priority.values())
    assert endings == {(True, True), (False, True), (False, False)}
    assert len(set(noise)) == len(noise)                      # new noise for each network and gradient step


# Catches: any difference between its loop and that of dqn.py that its docstring does not name.
@pytest.mark.long("settings1")
@pytest.mark.parametrize("settings", [{"prioritised": False, "double": False, "dueling": False, "n_steps": 1},
                                      {"prioritised": True, "double": True, "dueling": True, "n_steps": 3}])
def test_rainbow_without_its_new_parts_equals_dqn(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(rainbow, "FlatAdam", lambda *a, **given: FlatAdam(*a, **given | {"eps": 1e-8}))
    shared = {"total_steps": 600, "learning_starts": 100, "batch_size": 16, "hidden": (16, 8), "threads": 1,
              "alpha": 0.5, "target_every": 20, "log_dir": tmp_path.as_posix(), "tensorboard": False, "quiet": True,
              **settings}
    ours = rainbow.train(rainbow.Config(atoms=1, sigma=0, **shared)).progress
    plain = dqn.train(dqn.Config(**shared)).progress
    for name in ("return_mean", "q", "error", "loss", "grad_norm", "epsilon"):
        np.testing.assert_allclose(ours[name], plain[name], rtol=1e-3, err_msg=name)


# Catches: epsilon-greedy in addition to the noise; noise that environments or steps share; a policy with noise after
# training.
def test_each_action_has_its_own_noise_and_epsilon_is_0(watch, monkeypatch):
    drawn, forward = [], ReturnNetwork.forward

    def noted(self, obs, eps=None):
        if eps is not None and eps.ndim == 2:
            drawn.append(eps)
        return forward(self, obs, eps)

    monkeypatch.setattr(ReturnNetwork, "forward", noted)
    seen = watch("rainbow", Discrete(2), num_envs=4, update_every=4)
    assert len(drawn) == 30 and len({float(x) for eps in drawn for x in eps[:, 0]}) == 120
    assert [x for x in seen.result.progress["epsilon"] if x != 1][-1] == 0
    level = seen.policy.layers[-1].weight_sigma.detach().abs().mean()
    assert seen.result.progress["noise_level"][-1] == pytest.approx(float(level), rel=1e-4)


# Catches: a log that does not show that the limits of returns are too narrow.
def test_log_shows_that_returns_exceed_the_limits(tmp_path):
    runs = [spinup.rainbow("CartPole-v1", preset="none", total_steps=200, learning_starts=100, batch_size=16,
                           hidden=(8,), v_min=0, v_max=v_max, threads=1, quiet=True, tensorboard=False,
                           log_dir=tmp_path.as_posix()) for v_max in (2, 400)]
    narrow, wide = (run.progress["clipped"][-1] for run in runs)
    assert narrow > 0.5 and wide == pytest.approx(0, abs=1e-3)
