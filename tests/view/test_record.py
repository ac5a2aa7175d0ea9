"""`spinup record`: datasets from policies, random actions and replay buffers, and what is refused."""
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, flatdim

import spinup
from spinup.data.dataset import load
from spinup.errors import UserError
from spinup.runs import public
from spinup.view.record import record, uniform

TINY = {"preset": "none", "quiet": True, "tensorboard": False, "threads": 1, "hidden": (8,)}
SETTINGS = {"steps": 60, "noise": [0.0], "stochastic": False, "seed": 3}


@pytest.fixture
def run(tmp_path):
    """The folder of a short run of DQN on CartPole."""
    return spinup.dqn("CartPole-v1", total_steps=200, learning_starts=100, batch_size=8, log_dir=str(tmp_path),
                      exp_name="d", **TINY).directory


# Catches: a next observation from after the reset; an incomplete episode; another order; actions that were not taken.
def test_episodes_are_complete_and_in_order(run, tmp_path):
    record([str(run), "random:CartPole-v1"], tmp_path / "d.npz", **{**SETTINGS, "noise": [0.0, 0.5]})
    data, policy = load(tmp_path / "d.npz"), public.load(run)
    assert [part["steps"] >= 60 for part in data.about["parts"]] == [True] * 3
    assert sum(part["episodes"] for part in data.about["parts"]) == len(data.episodes()) == data.about["episodes"]
    for episode in data.episodes():
        np.testing.assert_array_equal(data.obs[episode][1:], data.next_obs[episode][:-1])
        assert not (data.terminated | data.truncated)[episode][:-1].any()
        assert np.abs(data.obs[episode][0]).max() <= 0.05                 # CartPole's initial observations
        assert np.abs(data.next_obs[episode][-1][[0, 2]] / [2.4, 0.2095]).max() > 1
    first, second = (part["steps"] for part in data.about["parts"][:2])
    own = policy.act_batch(data.obs) == data.actions
    assert own[:first].all() and 0.5 < own[first:first + second].mean() < 0.95
    assert data.rewards.sum() == len(data) and data.returns().sum() == len(data)


# Catches: random numbers that do not depend on the seed.
def test_seed_determines_the_dataset(run, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        record([str(run)], tmp_path / f"{name}.npz", **{**SETTINGS, "noise": [0.3], "seed": seed})
    a, b, c = (load(tmp_path / f"{name}.npz") for name in "abc")
    assert a.about["sha256"] == b.about["sha256"] != c.about["sha256"]


# Catches: actions in the units of the network, -1 to 1, in place of those of the environment, -2 to 2.
def test_continuous_actions_are_in_the_units_of_the_environment(tmp_path):
    record(["random:Pendulum-v1"], tmp_path / "p.npz", **SETTINGS)
    data = load(tmp_path / "p.npz")
    assert data.actions.shape == (200, 1) and data.actions.dtype == np.float32 and 1.5 < abs(data.actions).max() <= 2
    cost = data.obs[:, 1:2] * 0 + np.square(np.arctan2(data.obs[:, 1:2], data.obs[:, :1]))
    cost += 0.1 * np.square(data.obs[:, 2:]) + 0.001 * np.square(data.actions)
    np.testing.assert_allclose(data.rewards, -cost[:, 0], rtol=1e-3, atol=1e-3)
    assert data.truncated.sum() == 1 and not data.terminated.any()


class Stop(Exception):
    """Raised to end a run after a row."""


# Catches: mixed rows of several copies; an unfinished episode that is kept; actions in units of -1 to 1.
@pytest.mark.parametrize("env, algorithm", [("CartPole-v1", "dqn"), ("Pendulum-v1", "td3")])
def test_saved_replay_buffer_becomes_a_dataset(env, algorithm, tmp_path):
    def stop(row):
        if row["steps"] >= 900:
            raise Stop

    with pytest.raises(Stop):
        getattr(spinup, algorithm)(env, total_steps=2000, learning_starts=900, batch_size=8, num_envs=2, on_row=stop,
                                   checkpoint_steps=400, log_dir=str(tmp_path), exp_name="r", update_ratio=0.01, **TINY)
    folder = tmp_path / "r" / "r_s1"
    record([f"replay:{folder}"], tmp_path / "r.npz", **SETTINGS)
    data = load(tmp_path / "r.npz")
    for episode in data.episodes():
        np.testing.assert_array_equal(data.obs[episode][1:], data.next_obs[episode][:-1])
    if env == "CartPole-v1":
        assert data.terminated.sum() == len(data.episodes()) > 5 and 700 < len(data) < 800
    else:                                                                 # two copies with two complete episodes each
        assert len(data) == 800 and data.truncated.sum() == 4 and not data.terminated.any()
        assert abs(data.actions).max() > 1.5
    for path in (folder / "replay").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="has no saved replay buffer"):     # no dataset of uninitialised memory
        record([f"replay:{folder}"], tmp_path / "none.npz", **SETTINGS)
    assert not (tmp_path / "none.npz").exists()


class Unsaveable(gymnasium.Env):
    """Episodes of ten steps with a reward of 1. It holds a Python generator and cannot be saved."""

    observation_space, action_space = Box(-1, 1, (2,)), Discrete(2)

    def __init__(self, render_mode=None):
        self.generator = iter(range(0))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 10, False, {}


gymnasium.register("Unsaveable-v0", Unsaveable)


# Catches: an episode that a resumed run did not complete, but that counts as complete; breaks between episodes that are
# missing in the checkpoint.
def test_episode_that_an_interruption_ended_is_left_out(tmp_path):
    def stop_at(steps):
        def stop(row):
            if row["steps"] >= steps:
                raise Stop
        return stop

    folder, settings = None, {"total_steps": 400, "learning_starts": 50, "batch_size": 8, "update_ratio": 0.02,
                              "num_envs": 2, "checkpoint_steps": 34, "log_dir": str(tmp_path), "exp_name": "u", **TINY}
    for steps in (100, 200):
        with pytest.raises(Stop):
            spinup.dqn("Unsaveable-v0", **settings, on_row=stop_at(steps), resume=folder)
        folder = tmp_path / "u" / "u_s1"
    record([f"replay:{folder}"], tmp_path / "u.npz", **SETTINGS)
    data = load(tmp_path / "u.npz")
    assert set(data.returns()) == {10.0} and not data.truncated.any() and len(data) >= 140


# Catches: one random number for all bits; only zeros.
@pytest.mark.parametrize("space", [MultiBinary(1), MultiBinary(3), MultiBinary((2, 2)), Discrete(3),
                                   MultiDiscrete([2, 3])])
def test_random_actions_are_uniform_over_the_whole_space(space):
    rng, envs = np.random.default_rng(0), SimpleNamespace(action_space=space)
    drawn = np.stack([uniform(envs, rng)[0] for _ in range(2000)])
    kinds, counts = np.unique(drawn.reshape(2000, -1), axis=0, return_counts=True)
    choices = space.nvec.prod() if isinstance(space, MultiDiscrete) else (
        space.n if isinstance(space, Discrete) else 2 ** flatdim(space))
    assert len(kinds) == choices and counts.min() > 0.7 * 2000 / choices


# Catches: an environment that is seeded again for each part, so that all parts have the same episodes.
def test_every_part_has_different_episodes(tmp_path):
    record(["random:InvertedPendulum-v5"] * 2, tmp_path / "d.npz", **{**SETTINGS, "steps": 1})
    data = load(tmp_path / "d.npz")
    first, second = (data.obs[episode][0] for episode in data.episodes())
    assert not np.array_equal(first, second)


class Lever(gymnasium.Env):
    """One lever with three positions. The reward is the position. An episode has two steps."""

    observation_space, action_space = Box(-1, 1, (1,)), MultiDiscrete([3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return np.zeros(1, np.float32), float(action[0]), self.t == 2, False, {}


class Levers(Lever):
    """An environment with actions that no algorithm supports."""

    action_space = Dict({"a": Discrete(2)})


@pytest.fixture
def levers():
    """The ids of Lever and Levers, registered for a test."""
    for kind in (Lever, Levers):
        gymnasium.register(f"{kind.__name__}-v0", kind)
    yield "Lever-v0", "Levers-v0"
    for kind in (Lever, Levers):
        del gymnasium.registry[f"{kind.__name__}-v0"]


# Catches: actions with one choice that are numbers from a policy but lists from random play; a traceback for
# unsupported actions.
def test_single_choice_is_recorded_and_cloned(levers, tmp_path):
    lever, others = levers
    trained = spinup.ppo(lever, total_steps=64, num_envs=2, rollout_steps=16, minibatches=1, log_dir=str(tmp_path),
                         exp_name="p", **TINY).directory
    record([str(trained), f"random:{lever}"], tmp_path / "d.npz", **{**SETTINGS, "noise": [0.0, 0.5]})
    data = load(tmp_path / "d.npz")
    assert data.actions.shape == (len(data), 1) and np.array_equal(data.actions[:, 0], data.rewards)
    cloned = spinup.bc(data=str(tmp_path / "d.npz"), total_steps=20, batch_size=8, test_episodes=1,
                       log_dir=str(tmp_path), exp_name="b", **TINY)
    assert cloned.status == "finished"
    with pytest.raises(UserError, match="record cannot act in Dict"):
        record([f"random:{others}"], tmp_path / "e.npz", **SETTINGS)


# Catches: different names of one environment that count as two environments; a lost module name, so that training
# cannot find the environment.
def test_short_and_full_ids_of_one_environment_are_equal(tmp_path, monkeypatch):
    run = spinup.ppo("CartPole", total_steps=64, num_envs=2, rollout_steps=16, minibatches=1, log_dir=str(tmp_path),
                     exp_name="p", **TINY).directory
    record([str(run), "random:CartPole-v1"], tmp_path / "a.npz", **SETTINGS)
    assert load(tmp_path / "a.npz").about["env"] == "CartPole-v1"
    (tmp_path / "module_of_a_source.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    record(["random:module_of_a_source:CartPole-v1"], tmp_path / "b.npz", **SETTINGS)
    assert load(tmp_path / "b.npz").about["env"] == "module_of_a_source:CartPole-v1"


# Catches: a policy with one frame and one with four that are recorded together.
def test_sources_must_have_the_same_number_of_frames(run, tmp_path):
    stacked = spinup.ppo("CartPole-v1", total_steps=64, num_envs=2, rollout_steps=16, minibatches=1, frame_stack=4,
                         log_dir=str(tmp_path), exp_name="p", **TINY).directory
    for sources in ([run, stacked], [stacked, run]):
        with pytest.raises(UserError, match="record them separately"):
            record(list(map(str, sources)), tmp_path / "d.npz", **SETTINGS)


# Catches: a policy on the shelf for which a run folder is searched.
def test_policy_on_the_shelf_is_recorded(tmp_path):
    record(["shelf/ppo-CartPole-v1"], tmp_path / "s.npz", **{**SETTINGS, "steps": 100})
    assert load(tmp_path / "s.npz").about["mean_return"] > 400


# Catches: a source of another environment; an overwritten file; a traceback; a file that is written in spite of the
# error.
@pytest.mark.parametrize("sources, words", [
    (["DIR", "random:Pendulum-v1"], "has the environment Pendulum-v1"), (["replay:DIR"], "no saved replay buffer"),
    (["replay:shelf/ppo-CartPole-v1"], "no saved replay buffer"),
    (["random:CartPol-v1"], "Did you mean 'CartPole-v1'"), (["nowhere"], "holds no run")])
def test_invalid_source_or_output_is_refused(sources, words, run, tmp_path):
    with pytest.raises(UserError, match=words):
        record([source.replace("DIR", str(run)) for source in sources], tmp_path / "d.npz", **SETTINGS)
    assert not (tmp_path / "d.npz").exists()
    (tmp_path / "d.npz").write_text("mine")
    with pytest.raises(UserError, match="exists; choose another file"):
        record([str(run)], tmp_path / "d.npz", **SETTINGS)
    assert (tmp_path / "d.npz").read_text() == "mine"


# Catches: an allocation that ends the program after hours.
def test_more_steps_than_fit_into_memory_are_refused(tmp_path):
    with pytest.raises(UserError, match="1,000,000,000,000 steps need .* GB of memory, and .* GB are free"):
        record(["random:CartPole-v1"], tmp_path / "d.npz", **{**SETTINGS, "steps": 10**12})
    assert not list(tmp_path.iterdir())


# Catches: a card that needs the run; ignored numbers on the command line.
def test_command_records_and_shows_the_card(cli, tmp_path):
    out = tmp_path / "c.npz"
    done = cli("record", "random:CartPole-v1", "--steps", "50", "--seed", "5", "--out", str(out))
    assert done.code == 0 and load(out).about["seed"] == 5 and 50 <= len(load(out)) < 600
    card = cli("record", "--card", str(out))
    assert card.code == 0 and card.out.strip() in done.out and load(out).about["sha256"] in card.out
    assert cli("record").code == 2


# Catches: the working folder that is read in place of a source without a name; a link that becomes a file.
@pytest.mark.parametrize("sources, out, words", [
    (["random:CartPole-v1", ""], "a.npz", "a source has no name"), (["replay:"], "a.npz", "a source has no name"),
    (["random:CartPole-v1"], "link.npz", "exists; choose another file, such as link_2.npz"),
    (["random:CartPole-v1"], ".npz", "is not a name such as a.npz; choose another file, such as dataset.npz")])
def test_sources_need_names_and_the_file_must_be_new(sources, out, words, tmp_path):
    (tmp_path / "link.npz").symlink_to(tmp_path / "missing.npz")
    with pytest.raises(UserError, match=words):
        record(sources, tmp_path / out, **SETTINGS)
    assert (tmp_path / "link.npz").is_symlink() and len([*tmp_path.iterdir()]) == 1
