"""Gymnasium's vector environments: no stored transition crosses the border, however they restart."""
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import spinup
from spinup.envs import make
from spinup.errors import UserError

MODES = list(AutoresetMode)
each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


class Counter(gymnasium.Env):
    """Episodes of three steps whose rewards are 1, 2, 3. An observation is (copy, episode, step); so is the info."""

    observation_space, action_space = Box(-np.inf, np.inf, (3,), np.float32), Discrete(2)

    def __init__(self, copy: int, start: int = 0):
        self.copy, self.episode, self.t, self.start = copy, 0, 0, start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t, self.start = self.start, 0
        return self.observe(), {"begins": self.episode}

    def step(self, action):
        self.t += 1
        over = self.t == 3
        info = {"at": (self.episode, self.t), "cost": float(self.copy)} if self.copy else {"at": (self.episode, self.t)}
        return self.observe(), float(self.t), over and self.episode % 2 == 1, over and self.episode % 2 == 0, info

    def observe(self):
        return np.array([self.copy, self.episode, self.t], np.float32)


def counters(kind: type = SyncVectorEnv, copies: int = 3, **settings):
    """A vector environment of counters, of which no two are in phase."""
    return kind([lambda i=i: Counter(i, i % 3) for i in range(copies)], **settings)


def check_borders(env, steps: int = 20) -> None:
    """Each transition of `env` leads one step on within an episode, and the next one begins where it says."""
    obs = env.reset()
    copies = len(obs)
    np.testing.assert_array_equal(obs, [[i, 1, i % 3] for i in range(copies)])
    ends = 0
    for _ in range(steps):
        step = env.step(np.zeros(copies, np.int64))
        ended = step.terminated | step.truncated
        led_to = step.obs if step.final_obs is None else step.final_obs
        np.testing.assert_array_equal(led_to, obs + [0, 0, 1])
        np.testing.assert_array_equal(step.reward, led_to[:, 2])
        np.testing.assert_array_equal(ended, led_to[:, 2] == 3)
        np.testing.assert_array_equal(step.terminated, ended & (led_to[:, 1] % 2 == 1))
        assert (step.final_obs is None) == (not ended.any())
        first = led_to * [1, 1, 0] + [0, 1, 0]
        np.testing.assert_array_equal(step.obs, np.where(ended[:, None], first, led_to))
        assert [info["at"] for info in step.info] == [(int(e), int(t)) for _, e, t in led_to]
        np.testing.assert_array_equal(step.cost, np.arange(copies))
        assert step.obs.dtype == step.reward.dtype == step.cost.dtype == np.float32
        ends += ended.sum()
        obs = step.obs
    assert ends > copies * 5
    assert {length for _, length in env.take_finished()} == {1, 2, 3} and env.finished_costs[:2] == [2.0, 2.0]


# Catches: the step that restarts a copy stored as a transition (NEXT_STEP); a copy that is not restarted, or all
# of them (DISABLED); the first observation of the next episode as the last of this one, its info as the step's
# (SAME_STEP); `obs` in the memory that the environment writes to again.
@each_mode
@pytest.mark.parametrize("copy", [True, False])
def test_no_transition_crosses_the_border(mode, copy):
    check_borders(make(lambda: counters(autoreset_mode=mode, copy=copy), 3))


# Catches: as above; a worker of Gymnasium that is not told to restart its copy.
@each_mode
def test_nor_with_processes_of_gymnasium(mode):
    env = make(lambda: counters(AsyncVectorEnv, autoreset_mode=mode), 3)
    try:
        check_borders(env, 20)
    finally:
        env.close()


class CostsInTheEnd(Counter):
    def step(self, action):
        *told, info = super().step(action)
        return *told, {"cost": 7.0} if self.t == 3 else {}


# Catches: costs asked for in the info of the next episode alone, or before there were any.
@each_mode
def test_a_cost_may_come_with_the_end_of_an_episode(mode):
    env = make(SyncVectorEnv([lambda: CostsInTheEnd(1)], autoreset_mode=mode))
    env.reset()
    assert [env.step(np.zeros(1, np.int64)).cost for _ in range(5)] == [None, None, 7.0, 0.0, 0.0]


# Catches: these let through: a worker without shared memory restarts a second time, as do environments that know
# no reset_mask.
@pytest.mark.parametrize("made", [
    lambda: counters(AsyncVectorEnv, shared_memory=False), lambda: gymnasium.make_vec("CartPole-v1", 3)])
def test_a_restart_in_the_next_step_is_refused_where_it_cannot_be_forestalled(made):
    vector = made()
    with pytest.raises(UserError, match=r"in the step after.*vector_kwargs=\{'autoreset_mode': 'SameStep'\}"):
        make(vector, 3)
    vector.close()


# Catches: wrappers that forget the statistics of all copies where one restarts, or fail there.
def test_a_wrapper_that_restarts_all_copies_is_refused():
    for wrapper in gymnasium.wrappers.vector.NormalizeObservation, gymnasium.wrappers.vector.NormalizeReward:
        vector = wrapper(counters())
        with pytest.raises(UserError, match=f"{wrapper.__name__} cannot restart some of the .*wrappers="):
            make(vector, 3)
        vector.close()


def test_what_the_message_advises_works():
    advised = gymnasium.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    assert make(advised, 3).same_step


def test_a_mode_must_be_told():
    vector = counters()
    vector.metadata = {}
    with pytest.raises(UserError, match=r"does not declare how its environments reset; set its metadata\['autor"):
        make(vector, 3)


# Catches: another seed for a copy than `make` gives it; actions in the wrong shape or type.
@pytest.mark.parametrize("id", ["Acrobot-v1", "Hopper-v5", "FrozenLake-v1"])
def test_copies_play_as_they_do_here(id):
    vector = make(lambda num_envs: gymnasium.make_vec(id, num_envs, "sync", vector_kwargs={
        "autoreset_mode": AutoresetMode.SAME_STEP}), 3, 5)
    ours, rng = make(lambda: gymnasium.make(id), 3, 5), np.random.default_rng(0)
    np.testing.assert_array_equal(vector.reset(), ours.reset())
    space = ours.action_space
    for _ in range(150):
        action = rng.integers(space.n, size=3) if isinstance(space, Discrete) else \
            rng.uniform(-1, 1, (3, *space.shape)).astype(np.float32)
        mine, theirs = ours.step(action), vector.step(action)
        for a, b in zip(mine[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(a, b)
    assert ours.take_finished() == vector.take_finished()


class Sees(gymnasium.Env):
    """Shows a dict with a number and a vector, and is told of actions from 5 on."""

    observation_space = Dict(place=Discrete(3), speed=Box(-9, 9, (2,), np.float32))
    action_space = Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"place": 0, "speed": np.zeros(2, np.float32)}, {}

    def step(self, action):
        self.t += 1
        return {"place": self.t, "speed": np.full(2, action, np.float32)}, 0.0, self.t == 2, False, {}


@each_mode
def test_observations_of_several_parts_and_actions_from_another_start(mode):
    env = make(SyncVectorEnv([Sees, Sees], autoreset_mode=mode), 2)
    np.testing.assert_array_equal(env.reset(), [[1, 0, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(env.step(np.array([0, 1])).obs, [[0, 1, 0, 5, 5], [0, 1, 0, 6, 6]])
    step = env.step(np.array([1, 0]))
    np.testing.assert_array_equal(step.obs, [[1, 0, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(step.final_obs, [[0, 0, 1, 6, 6], [0, 0, 1, 5, 5]])


# Catches: the number taken from the environment, for which batches were not sized; a function not told it.
def test_the_number_of_copies_must_agree():
    with pytest.raises(UserError, match="has 3 environments, but num_envs is 8; give num_envs=3, or a function"):
        make(counters(), 8)
    assert make(counters(), 8, exact=False).num_envs == 3
    assert make(lambda num_envs: counters(copies=num_envs), 8).num_envs == 8


def test_what_makes_no_environment_is_refused():
    with pytest.raises(UserError, match=r"object of type int; it must return a gymnasium\.Env or a gymnasium\.vector"):
        make(lambda: 3)


# Catches: an evaluation in the training's own copies, after which the training goes on in other episodes.
def test_an_object_serves_one_at_a_time():
    vector = counters()
    first = make(vector, 3)
    first.reset()
    second = make(vector, 3)
    second.reset()
    second.step(np.zeros(3, np.int64))
    with pytest.raises(UserError, match="another training run or evaluation has used this vector environment; give"):
        first.step(np.zeros(3, np.int64))


# Catches: the object looked for in the outermost wrapper alone.
def test_nor_does_an_object_within_a_wrapper():
    vector = counters(autoreset_mode=AutoresetMode.SAME_STEP)
    first = make(vector, 3)
    first.reset()
    make(gymnasium.wrappers.vector.RecordEpisodeStatistics(vector), 3).reset()
    with pytest.raises(UserError, match="another training run or evaluation has used this vector environment; give"):
        first.step(np.zeros(3, np.int64))


class Deaf(SyncVectorEnv):
    """Resets all of its environments, whatever the mask says."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


# Catches: environments that are reset in the middle of an episode, without a word.
def test_a_mask_must_be_followed():
    env = make(Deaf([lambda i=i: Counter(i, i % 3) for i in range(3)], autoreset_mode=AutoresetMode.DISABLED), 3)
    env.reset()
    with pytest.raises(UserError, match=r"environments that it should not reset; .*options\['reset_mask'\]"):
        env.step(np.zeros(3, np.int64))


class Bright(gymnasium.Env):
    """Shows random pixels; its actions begin at 2."""

    observation_space, action_space = Box(0, 255, (3, 36, 36), np.uint8), Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def look(self):
        return self.np_random.integers(0, 256, (3, 36, 36), np.uint8)

    def step(self, action):
        assert 2 <= action < 5
        return self.look(), float(action), bool(self.np_random.random() < 0.2), False, {}


# Catches: a batch that is handed on as it is, where its copies would be converted.
def test_batches_of_images_are_those_of_single_environments():
    vector = make(SyncVectorEnv([Bright] * 3, autoreset_mode=AutoresetMode.SAME_STEP), 3, 5)
    ours, rng = make(Bright, 3, 5), np.random.default_rng(0)
    assert vector.plain and np.array_equal(vector.reset(), ours.reset())
    with pytest.raises(UserError, match="make them agree"):               # floats from 0 to 1 would all be 0
        vector._seen(np.random.default_rng(1).random((3, 3, 36, 36)), 3)
    for _ in range(30):
        action = rng.integers(3, size=3)
        for a, b in zip(ours.step(action)[:4], vector.step(action)[:4], strict=True):
            np.testing.assert_array_equal(a, b)


class Closes(SyncVectorEnv):
    closes = 0

    def close(self, **kwargs):
        type(self).closes += 1


# Catches: an environment of the user's closed, with which they may want to go on; one of ours left open.
def test_who_makes_a_vector_environment_closes_it():
    vector = Closes([lambda: Counter(0)])
    make(vector).close()
    assert Closes.closes == 0
    make(lambda: vector).close()
    assert Closes.closes == 1


# Catches: an instance or a function refused by the settings; a state that was never saved given back.
def test_a_training_takes_them(tmp_path):
    def many(num_envs):
        return gymnasium.make_vec("Acrobot-v1", num_envs, "sync", vector_kwargs={"autoreset_mode": "SameStep"})

    settings = {"num_envs": 4, "rollout_steps": 16, "minibatches": 1, "total_steps": 128, "preset": "none",
                "quiet": True, "tensorboard": False, "log_dir": str(tmp_path)}
    results = [spinup.ppo(env, **settings) for env in (many(4), many, lambda: gymnasium.make("Acrobot-v1"))]
    first, second, third = (result.progress["return_mean"] for result in results)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    env = make(many, 4)
    assert not env.can_save and env.why_not_saved == "a vector environment gives no access to its state"


def test_a_single_environment_is_asked_for_where_one_is_drawn():
    from spinup.envs.make import make_one
    with pytest.raises(UserError, match="the function given as env returned a vector environment; make it return a"):
        make_one(counters)
    with pytest.raises(UserError, match="a single environment is needed here; give an id, or a function"):
        make_one(counters())
