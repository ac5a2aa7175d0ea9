"""The decision transformer: its windows, its outputs in acting and in training, and the returns that are requested."""
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import spinup
from llm.algos.decision_transformer import Config, DecisionTransformer, Window, Windows, make_policy, returns_to_go
from spinup.core.distributions import Categorical, DiagGaussian
from spinup.core.fast.adam import FlatAdam
from spinup.core.normaliser import Normaliser
from spinup.data.dataset import Dataset, join
from spinup.envs.make import make
from spinup.envs.spaces import space_to_json
from spinup.errors import UserError
from spinup.runs.episodes import play_episodes

# Settings for tests/algos/test_suite.py, with which each task is learned in seconds.
SUITE = {
    "settings": {"total_steps": 128, "context": 3, "layers": 1, "width": 32, "batch_size": 32, "lr": 0.01, "warmup": 10,
                 "max_grad_norm": 10.0, "threads": 1},
    "tasks": {"discrete": {}, "box": {}},
    "draws": False, "remembers": True}
SMALL = {"context": 4, "layers": 2, "width": 16, "heads": 2, "longest": 6}


# Catches: advice whose settings are refused too.
@pytest.mark.parametrize("width, heads, advice", [(66, 4, "--heads 1"), (65, 1, "--width 66 --heads 1")])
def test_settings_in_the_advice_about_heads_are_valid(width, heads, advice):
    with pytest.raises(UserError, match=f"choose {advice}$"):
        Config(env="CartPole-v1", data="d.npz", width=width, heads=heads)
    Config(env="CartPole-v1", data="d.npz", width=66, heads=1)


class Obey(gymnasium.Env):
    """Episodes of three steps. The reward of a step is its action, or half of it with Box actions."""

    def __init__(self, box: bool = False):
        self.observation_space = Box(-1, 1, (2,))
        self.action_space = Box(0, 2, (1,)) if box else Discrete(2)
        self.box = box

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        return self.observe(), float(np.ravel(action)[0] / (1 + self.box)), self.t == 3, False, {}

    def observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def walked(lengths: list[int], box: bool = False, seed: int = 0) -> Dataset:
    """A dataset of episodes with these lengths and random numbers."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    ends = np.isin(np.arange(n), np.cumsum(lengths) - 1)
    obs = rng.standard_normal((n, 2)).astype(np.float32)
    actions = rng.uniform(0, 2, (n, 1)).astype(np.float32) if box else rng.integers(0, 2, n)
    return Dataset(obs, actions, rng.standard_normal(n).astype(np.float32), obs, ends, np.zeros(n, bool))


# Catches: a sum that continues after the episode end, that leaves out the reward of the step, or that includes earlier
# rewards.
def test_returns_to_go_are_sums_to_the_episode_end():
    data = walked([3, 1, 5])
    got = returns_to_go(data.rewards, data.episodes())
    ends = [3, 3, 3, 4, 9, 9, 9, 9, 9]
    assert got == pytest.approx([data.rewards[i:end].sum(dtype=np.float64) for i, end in enumerate(ends)])


# Catches: a window with steps of the previous episode, or in a wrong order; time steps that are counted from the start
# of the window; padding that counts as a step; a step of the dataset at which no window ends.
def test_window_contains_the_last_steps_of_one_episode():
    data = walked([3, 1, 6])
    normaliser, found = Normaliser(data.obs.shape[1:]), set()
    windows = Windows(data, torch.from_numpy(data.actions), normaliser, 4)
    obs = normaliser(torch.from_numpy(data.obs))
    np.testing.assert_allclose(normaliser.mean, data.obs.mean(0), rtol=1e-5)
    w = windows.draw(np.random.default_rng(0), 200)
    to_go = returns_to_go(data.rewards, data.episodes())
    for row in range(200):
        last = int((obs == w.obs[row, -1]).all(1).nonzero())
        start = max(e.start for e in data.episodes() if e.start <= last)
        steps = [i for i in range(last - 3, last + 1) if i >= start]
        assert w.mask[row].tolist() == [0] * (4 - len(steps)) + [1] * len(steps)
        for column, i in zip(range(4 - len(steps), 4), steps, strict=True):
            assert w.to_go[row, column].item() == pytest.approx(to_go[i]) and w.time[row, column] == i - start
            assert w.act[row, column] == data.actions[i] and w.obs[row, column].tolist() == obs[i].tolist()
        found.add(last)
    assert found == set(range(10))


def random_window(dist: Categorical | DiagGaussian) -> tuple[DecisionTransformer, Window]:
    torch.manual_seed(0)
    discrete = isinstance(dist, Categorical)
    act = torch.randint(0, 2, (3, 4)) if discrete else torch.randn(3, 4, 1)
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]).float()
    time = torch.tensor([[0, 0, 0, 1], [2, 3, 4, 5], [0, 0, 1, 2]])
    window = Window(torch.randn(3, 4), torch.randn(3, 4, 2), act, time, mask)
    return DecisionTransformer(Config(**SMALL), 2, dist), window


# Catches: attention to a later token, to the action of the same step, or to padding; an ignored input.
@pytest.mark.parametrize("dist", [Categorical((2,)), DiagGaussian([0], [2])], ids=["discrete", "box"])
def test_output_depends_only_on_inputs_up_to_the_observation(dist):
    policy, window = random_window(dist)
    before = policy(window)
    for name, column, changes in (("to_go", 2, [2, 3]), ("obs", 2, [2, 3]), ("act", 2, [3]), ("act", 3, [])):
        x = getattr(window, name).clone()
        x[:, column] = 1 - x[:, column]
        moved = (policy(window._replace(**{name: x})) - before).abs().amax(2)[1] > 1e-7
        assert moved.tolist() == [i in changes for i in range(4)]
    moved = policy(window._replace(time=window.time.flip(1))) - before
    assert float(moved[1].abs().max()) > 1e-4                             # the time step is an input
    padding = window.mask == 0
    other = window._replace(to_go=torch.where(padding, 9.0, window.to_go),
                            obs=torch.where(padding[..., None], -7.0, window.obs))
    torch.testing.assert_close(policy(other)[~padding], before[~padding])


# Catches: a reward that is subtracted one step late; an action in the units of the environment; a context that includes
# the previous episode; a time step that is not reset; observations that are not normalised.
@pytest.mark.parametrize("box", [False, True])
def test_actor_outputs_equal_those_of_training_windows(box):
    def env():
        return Obey(box)
    envs = make(env, 2, 0, episodes=1)
    torch.manual_seed(0)
    policy = make_policy(Config(**SMALL | {"context": 3}), envs.observation_space, envs.action_space)
    policy.request.fill_(2.5)
    policy.normaliser.update(torch.randn(50, 2) * 3 + 1)
    actor, obs, rng, past = policy.actor(), envs.reset(), np.random.default_rng(0), []
    for t in range(7):                                                    # two episodes and a step
        got = actor(obs)
        if t % 3 == 0:
            past = []
        act = rng.uniform(0, 2, (2, 1)).astype(np.float32) if box else rng.integers(0, 2, 2)
        past.append((obs[:, :2], act, np.zeros(2)))
        to_go = 2.5 - np.cumsum([np.zeros(2), *(r for _, _, r in past[:-1])], 0)
        seen, acts = (np.stack(x, 1) for x in list(zip(*past, strict=True))[:2])
        units = torch.from_numpy(acts - 1 if box else acts)               # 0 to 2 becomes -1 to 1
        n = len(past)
        window = Window(torch.from_numpy(to_go.T).float(), policy.normaliser(torch.from_numpy(seen)), units,
                        torch.arange(n).expand(2, n), torch.ones(2, n))
        np.testing.assert_allclose(got, policy(window)[:, -1].detach().numpy(), rtol=1e-4, atol=1e-5)
        step = envs.step(act)
        past[-1] = (*past[-1][:2], step.reward)
        obs = step.obs


# Catches: a loss that does not depend on the return-to-go, or that has the wrong sign; a requested return that is not
# passed on.
@pytest.mark.long("False")
@pytest.mark.parametrize("box", [False, True])
def test_policy_reaches_the_requested_return(box, tmp_path):
    def env():
        return Obey(box)
    rng, envs = np.random.default_rng(1), make(env)
    rewards = np.repeat(rng.random(200), 3) if box else (rng.random(600) < np.repeat(rng.random(200), 3))
    obs = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
    actions = (2 * rewards[:, None]).astype(np.float32) if box else rewards.astype(np.int64)
    ends, none = np.arange(600) % 3 == 2, np.zeros(600, bool)
    data = join([Dataset(obs, actions, rewards.astype(np.float32), obs, ends, none)], {
        "env": "obey", "env_settings": {}, "observation_space": space_to_json(envs.observation_space),
        "action_space": space_to_json(envs.action_space), "parts": [], "seed": 0, "versions": {}})
    with open(tmp_path / "data.npz", "wb") as file:
        data.write(file)
    result = spinup.decision_transformer(
        env=env, data=str(tmp_path / "data.npz"), log_dir=str(tmp_path), context=3, layers=1, width=32, batch_size=32,
        total_steps=400, lr=0.01, warmup=10, max_grad_norm=10.0, test_episodes=2, quiet=True, tensorboard=False,
        threads=1)
    assert result.policy.module.request.item() == pytest.approx(data.returns().max())         # by default the best
    for wanted in (0.5, 1.5, 2.5) if box else (0.0, 3.0):
        result.policy.module.request.fill_(wanted)
        assert np.mean(play_episodes(result.policy, env, 4)[0]) == pytest.approx(wanted, abs=0.25)


def test_discrete_observations_are_refused_before_a_folder_is_made(tmp_path):
    envs, n = make("FrozenLake-v1"), 16
    data = join([Dataset(np.eye(n, dtype=np.float32), np.zeros(n, np.int64), np.zeros(n, np.float32),
                         np.eye(n, dtype=np.float32), np.arange(n) == n - 1, np.zeros(n, bool))], {
        "env": "FrozenLake-v1", "env_settings": {}, "observation_space": space_to_json(envs.observation_space),
        "action_space": space_to_json(envs.action_space), "parts": [], "seed": 0, "versions": {}})
    with open(tmp_path / "data.npz", "wb") as file:
        data.write(file)
    with pytest.raises(UserError, match="FrozenLake-v1 has numbered states; choose bc or cql"):
        spinup.decision_transformer(data=str(tmp_path / "data.npz"), log_dir=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


# Catches: a loss on padding, which comes before the first step of an episode.
def test_padding_is_not_in_the_loss(tmp_path, monkeypatch):
    found, minimizer = [], FlatAdam.minimizer

    def kept(optimizer, loss):
        minimize = minimizer(optimizer, loss)

        def step(*batch, **settings):
            window = Window(*batch)
            other = window._replace(act=torch.where(window.mask > 0, window.act, 1 - window.act))
            with torch.no_grad():
                found.append((float(window.mask.mean()), float(loss(*batch)[0]), float(loss(*other)[0])))
            return minimize(*batch, **settings)
        return step

    monkeypatch.setattr(FlatAdam, "minimizer", kept)
    rng, envs = np.random.default_rng(0), make("CartPole-v1")
    ends, none = np.arange(300) % 6 == 5, np.zeros(300, bool)
    obs = rng.uniform(-1, 1, (300, 4)).astype(np.float32)
    data = join([Dataset(obs, rng.integers(0, 2, 300), np.ones(300, np.float32), obs, ends, none)], {
        "env": "CartPole-v1", "env_settings": {}, "observation_space": space_to_json(envs.observation_space),
        "action_space": space_to_json(envs.action_space), "parts": [], "seed": 0, "versions": {}})
    with open(tmp_path / "data.npz", "wb") as file:
        data.write(file)
    spinup.decision_transformer(data=str(tmp_path / "data.npz"), context=5, layers=1, width=32, batch_size=32,
                                total_steps=3, quiet=True, tensorboard=False, threads=1, log_dir=str(tmp_path))
    assert len(found) == 3
    for share, loss, other in found:
        assert share < 0.9 and loss == pytest.approx(other, abs=1e-6)
