"""Names, creation and seeds of environments, and the messages if an environment cannot be created."""
import sys
from importlib.machinery import ModuleSpec

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from spinup.algos import dqn, rl2
from spinup.envs import make, worlds
from spinup.envs.ids import OURS, find_id, registered
from spinup.envs.memory import Memory
from spinup.envs.spaces import action_distribution
from spinup.envs.vector import all_measures
from spinup.envs.worlds.classic import WORLDS as CLASSIC
from spinup.errors import EnvironmentFailure, UserError, source_name
from spinup.runs.config import BaseConfig
from spinup.runs.run import make_env


class Ears(gymnasium.Env):
    """Records the actions of `step`. Its observation is a number from its own generator."""

    observation_space = Box(-1, 1, (1,))

    def __init__(self, action_space=None, size: float = 1.0, ends: bool = False):
        self.action_space, self.size, self.ends, self.heard = action_space or Discrete(2), size, ends, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        self.heard.append(action)
        return self.observe(), 0.0, self.ends, False, {}

    def observe(self):
        return (self.size * self.np_random.uniform(-1, 1, 1)).astype(np.float32)


@pytest.fixture
def registry(monkeypatch):
    """A copy of Gymnasium's registry, so that the registrations of a test are removed after it."""
    monkeypatch.setattr("gymnasium.envs.registration.registry", dict(gymnasium.registry))
    monkeypatch.setattr("gymnasium.registry", sys.modules["gymnasium.envs.registration"].registry)


# Catches: a package that is not imported; a lookup of the id together with its package.
def test_package_in_an_id_is_imported(tmp_path, monkeypatch, registry):
    (tmp_path / "my_maze").mkdir()
    (tmp_path / "my_maze" / "__init__.py").write_text(
        "import gymnasium\n"
        "class Maze(gymnasium.Env):\n"
        "    observation_space, action_space = gymnasium.spaces.Box(7, 9, (1,)), gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return self.observation_space.low, {}\n"
        "gymnasium.register('Maze-v0', entry_point=Maze)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_maze", raising=False)
    assert make("my_maze:Maze-v0").reset() == 7
    with pytest.raises(UserError, match="'my_mace', which cannot be imported"):
        make("my_mace:Maze-v0")
    with pytest.raises(UserError, match=r"no environment 'my_maze:Mace-v0'\. Did you mean 'my_maze:Maze-v0'\? "
                                         "my_maze registers my_maze:Maze-v0"):
        make("my_maze:Mace-v0")


class Old(Ears):
    """An environment for the old Gym: its step returns four values."""

    def step(self, action):
        return self.observe(), 0.0, False, {}


class Unpacks(Ears):
    """The environment's own code raises an error with a message like that of a wrapper."""

    def step(self, action):
        _, _, _, _, _ = 1, 2, 3, 4


class Spaceless(gymnasium.Env):
    """An environment without an action_space."""

    observation_space = Box(-1, 1, (1,))


# Catches: a wrapper's message for a step with four values; an error of the environment's own code that is mistaken for
# this; an AttributeError for a missing space; advice that does not work.
def test_common_mistakes_in_environments_are_named(registry):
    for kind in (Old, Unpacks, Spaceless):
        gymnasium.register(f"{kind.__name__}-v0", entry_point=kind, max_episode_steps=9)
    env = make("Old-v0")
    env.reset()
    with pytest.raises(UserError, match="step of Old-v0 did not return five values: observation, reward, terminated"):
        env.step(np.array([0]))
    env = make("Unpacks-v0")
    env.reset()
    with pytest.raises(EnvironmentFailure, match="Unpacks-v0 raised ValueError: not enough values"):
        env.step(np.array([0]))
    with pytest.raises(UserError, match="Spaceless-v0 has no action_space; set self.action_space in its __init__"):
        make("Spaceless-v0")
    with pytest.raises(UserError, match="cannot be imported .*; write my_maze:Maze-v0"):
        make("my_maze.py:Maze-v0")
    with pytest.raises(UserError, match="for your own, write MODULE:Mazes-v0"):
        make("Mazes-v0")


# Catches: kwargs that are not passed on; one object for all copies.
def test_function_given_as_env_makes_each_copy():
    env = make(lambda size=1.0: Ears(size=size), 3, 0, size=0.0)
    assert len({id(e) for e in env.envs}) == 3
    np.testing.assert_array_equal(env.reset(), np.zeros((3, 1)))
    with pytest.raises(UserError, match=r"int; it must return a gymnasium\.Env"):
        make(lambda: 3)


def play(env, steps: int = 20) -> np.ndarray:
    """The observations of some steps. The action is zero, which is valid in all environments here."""
    space = env.action_space
    action = np.zeros((env.num_envs, *space.shape), space.dtype)
    return np.array([env.reset(), *(env.step(action).obs for _ in range(steps))])


# Catches: copies that all have the seed `seed`; copies with seed + i (copy 1 of run 0 would equal copy 0 of run 1); a
# missing seed.
@pytest.mark.parametrize("source", [*CLASSIC, "FrozenLake-v1", "Hopper-v5", Ears])
def test_copies_and_runs_have_different_reproducible_seeds(source):
    first, again, other = (play(make(source, 3, seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    if source != "FrozenLake-v1":                                         # there, all start in the same corner
        starts = [first[0, 0], first[0, 1], first[0, 2], *other[0]]
        assert len(np.unique(starts, axis=0)) == 6
    assert (first != other).any()
    assert (first[:, 0] != first[:, 1]).any()


# Catches: a seed at every reset, which makes all episodes equal.
def test_only_the_first_episode_is_seeded():
    assert len(np.unique(play(make(Ears, 1, 0, ends=True)))) == 21


# Catches: settings of an algorithm that do not reach its environments; a seed or a number of copies that does not.
def test_training_passes_all_its_settings_to_its_environments():
    env = make_env(BaseConfig(env="Acrobot-v1", num_envs=3, seed=4))
    np.testing.assert_array_equal(env.reset(), make("Acrobot-v1", 3, 4).reset())
    trials = make_env(rl2.Config(env="Acrobot-v1", num_envs=4, episodes=3))
    assert isinstance(trials, Memory) and trials.episodes == 3 and trials.num_envs == 4
    game = make_env(dqn.Config(env="PongNoFrameskip-v4", frame_skip=2))
    assert game.protocol["frame_skip"] == 2
    game.close()
    vector = gymnasium.vector.SyncVectorEnv([Ears], autoreset_mode="SameStep")
    assert make_env(BaseConfig(env=vector, num_envs=1)).env is vector
    with pytest.raises(UserError, match="--test-episodes needs separate environments; give a function that makes"):
        make_env(BaseConfig(env=vector, num_envs=1, test_episodes=3))


# Catches, together with the next test: an id without version that is not found; versions compared as text, so that v5
# is newer than v10; `min`.
@pytest.mark.parametrize("env", ["CartPole", "TicTacToe", "Chain-40", "Bandits-5x10"])
def test_library_id_may_omit_its_version(env):
    whole = next(i for i in OURS if i.rpartition("-v")[0] == env)
    short, full = make(env, 2, 3), make(whole, 2, 3)
    assert type(short) is type(full) and np.array_equal(short.reset(), full.reset())


def test_id_without_version_means_the_newest_version(registry):
    assert find_id("HalfCheetah") == "HalfCheetah-v5"
    for version in (5, 9, 10):
        gymnasium.register(f"Thing-v{version}", entry_point=Ears)
    assert find_id("Thing") == "Thing-v10"
    assert find_id("Thing-v9") == "Thing-v9"
    assert make("CartPole").observation_space == make("CartPole-v1").observation_space


@pytest.mark.parametrize("typed, meant", [
    ("HalfCheeta-v5", "HalfCheetah-v5"), ("halfcheetah-v5", "HalfCheetah-v5"), ("Hoper", "Hopper"),
    ("CartPole-v7", "CartPole-v1")])
def test_misspelt_ids_are_answered_with_the_nearest_one(typed, meant):
    with pytest.raises(UserError, match=f"no environment '{typed}'. Did you mean '{meant}"):
        make(typed)


# Catches: a list of worlds by hand; an error for a module without WORLDS; a silent choice between two modules with one
# id.
def test_new_file_adds_its_environments(tmp_path, monkeypatch):
    path = [str(tmp_path), *worlds.__path__]
    monkeypatch.setattr(worlds, "__path__", path)
    for name in ("a_new_world", "another_world"):
        monkeypatch.delitem(sys.modules, f"spinup.envs.worlds.{name}", raising=False)
    (tmp_path / "a_new_world.py").write_text("from functools import partial\n"
                                             "from spinup.envs.worlds.chain import Chain\n"
                                             "WORLDS = {'Link-v0': partial(Chain, 3, False)}\n")
    found = worlds.find_worlds()
    assert {*found} == {*OURS, "Link-v0"} and found["Link-v0"].WORLDS["Link-v0"](2, 0).reset().shape == (2, 3)
    (tmp_path / "another_world.py").write_text("WORLDS = {'Link-v0': None}\n")
    with pytest.raises(ValueError, match="another_world and .*a_new_world both define Link-v0"):
        worlds.find_worlds()


# Catches: a column without a description; a description without a column; missing descriptions of a parent class.
def test_measures_of_each_environment_are_described():
    for name in OURS:
        env = make(name, 2, 0)
        assert env.measures().keys() == env.MEASURES.keys(), name
    assert all_measures().keys() >= {"cells", "watching"} and all(all_measures().values())


# Catches: a missing check for the package; a pip command without quotes, which a shell would expand.
@pytest.mark.parametrize("typed, module, extra", [
    ("ALE/Pong-v5", "ale_py", "atari"), ("BreakoutNoFrameskip-v4", "ale_py", "atari"),
    ("MiniGrid-Empty-5x5-v0", "minigrid", "grid"), ("BabyAI-GoToObj-v0", "minigrid", "grid")])
def test_missing_extra_is_answered_with_its_pip_command(typed, module, extra, monkeypatch):
    monkeypatch.setattr("spinup.envs.ids.find_spec", lambda name: None if name == module else ModuleSpec(name, None))
    with pytest.raises(UserError) as error:
        make(typed)
    assert str(error.value) == f"{typed} needs {module}; type: pip install 'spinup-rl[{extra}]'"


def test_missing_box2d_is_answered_with_its_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)                       # as if it were not installed
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    for name in [m for m in sys.modules if m.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"LunarLander-v3 needs Box2D; type: pip install 'spinup-rl\[box2d\]'"):
        make("LunarLander-v3")


# Catches: kwargs that are left out; classic control that ignores them.
def test_settings_reach_the_environment():
    assert make("Pendulum-v1", g=3.0).envs[0].unwrapped.g == 3.0
    with pytest.raises(UserError, match="Pendulum-v1 does not take these settings.*gravity"):
        make("Pendulum-v1", gravity=3.0)


# Conversion of an algorithm's actions: (space, actions of two copies, actions that `step` gets).
UNEVEN = Box(np.array([-2, 0, -np.inf], np.float32), np.array([2, 10, np.inf], np.float32))
TABLE = Box(np.array([[0, 0], [0, -4]], np.float32), np.array([[1, 2], [3, 4]], np.float32))
ON_THE_WAY = {
    "discrete": (Discrete(3), [0, 2], [0, 2]),
    "discrete from 5": (Discrete(3, start=5), [0, 2], [5, 7]),
    "multidiscrete": (MultiDiscrete([3, 2]), [[0, 1], [2, 0]], [[0, 1], [2, 0]]),
    "multidiscrete from 10, 20": (MultiDiscrete([3, 2], start=[10, 20]), [[0, 1], [2, 0]], [[10, 21], [12, 20]]),
    "multibinary": (MultiBinary(2), [[0, 1], [1, 1]], [[0, 1], [1, 1]]),
    # 0 is the middle of a dimension and +-1 are its bounds. Values outside are clipped. Without bounds nothing changes.
    "uneven box": (UNEVEN, [[0, 0, 0], [0.5, -1, 7]], [[0, 5, 0], [1, 0, 7]]),
    "clipped box": (UNEVEN, [[3, 3, 3], [-3, -3, -3]], [[2, 10, 3], [-2, 0, -3]]),
    "box of two axes": (TABLE, [[-1, -1, -1, -1], [1, 0, 9, 0.5]], [[[0, 0], [0, -4]], [[1, 1], [3, 2]]])}


# Catches: a `to_env` with low[0] and high[0] for all dimensions; a missing clip; a `start` that is not added; a shape
# that is not restored.
@pytest.mark.parametrize("space, actions, heard", ON_THE_WAY.values(), ids=ON_THE_WAY)
def test_step_gets_actions_of_its_space(space, actions, heard):
    env = make(lambda: Ears(space), 2)
    env.reset()
    dist = action_distribution(space, "ppo")
    env.step(dist.to_env(np.array(actions, np.float32 if isinstance(space, Box) else np.int64)))
    for copy, action in zip(env.envs, heard, strict=True):
        assert space.contains(copy.heard[0]), copy.heard[0]
        np.testing.assert_array_equal(copy.heard[0], action)


# Catches: a missing quiet_mujoco: MuJoCo would write a warning about Humanoid's model into the user's folder.
def test_mujoco_writes_no_log_into_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("Humanoid-v5").reset()
    assert list(tmp_path.iterdir()) == []


def test_environments_have_names_and_are_listed():
    assert source_name("Hopper-v5") == "Hopper-v5"
    assert source_name(Ears) == "Ears" and source_name(lambda: Ears()) == "lambda"
    assert {"CartPole-v1", "Humanoid-v5"} <= set(registered())


# Catches: a traceback for a class with arguments that its id does not give; a class that is taken for an unknown id.
def test_class_in_place_of_an_id_or_without_its_arguments_is_explained(tmp_path, monkeypatch, registry):
    (tmp_path / "my_rooms.py").write_text(
        "import gymnasium\n"
        "class Rooms(gymnasium.Env):\n"
        "    def __init__(self, number, render_mode=None):\n"
        "        pass\n"
        "class Halls(Rooms):\n"
        "    pass\n"
        "gymnasium.register('Rooms-v0', entry_point=Rooms)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="Rooms-v0 cannot be made, because its class needs 'number'; register the id"):
        make("my_rooms:Rooms-v0")
    with pytest.raises(UserError, match=r"my_rooms\.Halls is not a registered id; in my_rooms, add gymnasium"):
        make("my_rooms:Halls")
