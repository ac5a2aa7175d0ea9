"""Gymnasium's vector environments: in every reset mode, no stored transition crosses an episode end."""
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import spinup
from spinup.envs import make
from spinup.envs.state import Unsaveable
from spinup.errors import UserError

MODES = list(AutoresetMode)
each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


class Counter(gymnasium.Env):
    """Episodes of three steps with rewards 1, 2, 3. An observation is (copy, episode, step). The info has episode and
    step and, except in copy 0, the copy as a cost."""

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
    """A vector environment of counters that start at different steps."""
    return kind([lambda i=i: Counter(i, i % 3) for i in range(copies)], **settings)


def check_borders(env, steps: int = 20) -> None:
    """Assert that each transition of `env` is one step within an episode, and that the next one starts at its
    observation."""
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


# Catches: a reset step that is stored as a transition (NEXT_STEP); a copy that is not reset, or a reset of all copies
# (DISABLED); the first observation of the next episode as the last one of this, with its info as that of the step
# (SAME_STEP); `obs` in memory that the environment overwrites.
@each_mode
@pytest.mark.parametrize("copy", [True, False])
def test_no_transition_crosses_an_episode_end(mode, copy):
    check_borders(make(lambda: counters(autoreset_mode=mode, copy=copy), 3))


# Catches: the same errors; a worker process of Gymnasium that does not reset its copy on request.
@each_mode
def test_no_transition_crosses_an_episode_end_in_worker_processes(mode):
    env = make(lambda: counters(AsyncVectorEnv, autoreset_mode=mode), 3)
    try:
        check_borders(env, 20)
    finally:
        env.close()


class CostsInTheEnd(Counter):
    def step(self, action):
        *told, info = super().step(action)
        return *told, {"cost": 7.0} if self.t == 3 else {}


# Catches: costs that are read only from the info of the next episode; costs before the first reported one.
@each_mode
def test_first_cost_may_come_with_an_episode_end(mode):
    env = make(SyncVectorEnv([lambda: CostsInTheEnd(1)], autoreset_mode=mode))
    env.reset()
    assert [env.step(np.zeros(1, np.int64)).cost for _ in range(5)] == [None, None, 7.0, 0.0, 0.0]


# Catches: acceptance of these environments. A worker without shared memory resets a copy a second time, and so do
# environments that do not support reset_mask.
@pytest.mark.parametrize("made", [
    lambda: counters(AsyncVectorEnv, shared_memory=False), lambda: gymnasium.make_vec("CartPole-v1", 3)])
def test_next_step_reset_is_refused_if_it_cannot_be_done_earlier(made):
    vector = made()
    with pytest.raises(UserError, match=r"in the step after.*vector_kwargs=\{'autoreset_mode': 'SameStep'\}"):
        make(vector, 3)
    vector.close()


# Catches: wrappers that reset the statistics of all copies when one copy is reset, or that fail then.
def test_wrapper_that_resets_all_copies_is_refused():
    for wrapper in gymnasium.wrappers.vector.NormalizeObservation, gymnasium.wrappers.vector.NormalizeReward:
        vector = wrapper(counters())
        with pytest.raises(UserError, match=f"{wrapper.__name__} cannot restart some of the .*wrappers="):
            make(vector, 3)
        vector.close()


def test_advice_of_the_error_message_works():
    advised = gymnasium.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    assert make(advised, 3).same_step


def test_reset_mode_must_be_declared():
    vector = counters()
    vector.metadata = {}
    with pytest.raises(UserError, match=r"does not declare how its environments reset; set its metadata\['autor"):
        make(vector, 3)


# Catches: another seed for a copy than that of `make`; actions with the wrong shape or type.
@pytest.mark.parametrize("id", ["Acrobot-v1", "Hopper-v5", "FrozenLake-v1"])
def test_vector_environment_steps_like_single_copies(id):
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
    """Has a Dict observation with a number and a vector, and Discrete actions that start at 5."""

    observation_space = Dict(place=Discrete(3), speed=Box(-9, 9, (2,), np.float32))
    action_space = Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"place": 0, "speed": np.zeros(2, np.float32)}, {}

    def step(self, action):
        self.t += 1
        return {"place": self.t, "speed": np.full(2, action, np.float32)}, 0.0, self.t == 2, False, {}


@each_mode
def test_dict_observations_and_actions_with_a_start_are_converted(mode):
    env = make(SyncVectorEnv([Sees, Sees], autoreset_mode=mode), 2)
    np.testing.assert_array_equal(env.reset(), [[1, 0, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(env.step(np.array([0, 1])).obs, [[0, 1, 0, 5, 5], [0, 1, 0, 6, 6]])
    step = env.step(np.array([1, 0]))
    np.testing.assert_array_equal(step.obs, [[1, 0, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(step.final_obs, [[0, 0, 1, 6, 6], [0, 0, 1, 5, 5]])


# Catches: the environment's own number of copies in place of num_envs, which determines the batch sizes; a function
# that does not get num_envs.
def test_number_of_copies_must_equal_num_envs():
    with pytest.raises(UserError, match="has 3 environments, but num_envs is 8; give num_envs=3, or a function"):
        make(counters(), 8)
    assert make(counters(), 8, exact=False).num_envs == 3
    assert make(lambda num_envs: counters(copies=num_envs), 8).num_envs == 8


def test_function_that_returns_no_environment_is_refused():
    with pytest.raises(UserError, match=r"object of type int; it must return a gymnasium\.Env or a gymnasium\.vector"):
        make(lambda: 3)


# Catches: an evaluation in the training's own copies, after which the training continues in other episodes.
def test_vector_environment_object_serves_only_one_run():
    vector = counters()
    first = make(vector, 3)
    first.reset()
    second = make(vector, 3)
    second.reset()
    second.step(np.zeros(3, np.int64))
    with pytest.raises(UserError, match="another training run or evaluation has used this vector environment; give"):
        first.step(np.zeros(3, np.int64))


# Catches: a check of the outermost wrapper only.
def test_wrapped_vector_environment_object_serves_only_one_run():
    vector = counters(autoreset_mode=AutoresetMode.SAME_STEP)
    first = make(vector, 3)
    first.reset()
    make(gymnasium.wrappers.vector.RecordEpisodeStatistics(vector), 3).reset()
    with pytest.raises(UserError, match="another training run or evaluation has used this vector environment; give"):
        first.step(np.zeros(3, np.int64))


class Deaf(SyncVectorEnv):
    """Resets all of its environments and ignores the mask."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


# Catches: a silent reset of environments in the middle of an episode.
def test_reset_that_ignores_its_mask_is_refused():
    env = make(Deaf([lambda i=i: Counter(i, i % 3) for i in range(3)], autoreset_mode=AutoresetMode.DISABLED), 3)
    env.reset()
    with pytest.raises(UserError, match=r"environments that it should not reset; .*options\['reset_mask'\]"):
        env.step(np.zeros(3, np.int64))


class Bright(gymnasium.Env):
    """Returns random pixels; its actions start at 2."""

    observation_space, action_space = Box(0, 255, (3, 36, 36), np.uint8), Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def look(self):
        return self.np_random.integers(0, 256, (3, 36, 36), np.uint8)

    def step(self, action):
        assert 2 <= action < 5
        return self.look(), float(action), bool(self.np_random.random() < 0.2), False, {}


# Catches: a batch that is passed on unchanged, although single observations would be converted.
def test_batches_of_images_equal_those_of_single_environments():
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


# Catches: a `close` of the user's environment, which the user may still need; an environment of the library that stays
# open.
def test_vector_environment_is_closed_by_its_creator():
    vector = Closes([lambda: Counter(0)])
    make(vector).close()
    assert Closes.closes == 0
    make(lambda: vector).close()
    assert Closes.closes == 1


# Catches: settings that refuse an instance or a function; a state that counts as saved, although it cannot be saved.
def test_training_accepts_vector_environments_and_functions(tmp_path):
    def many(num_envs):
        return gymnasium.make_vec("Acrobot-v1", num_envs, "sync", vector_kwargs={"autoreset_mode": "SameStep"})

    settings = {"num_envs": 4, "rollout_steps": 16, "minibatches": 1, "total_steps": 128, "preset": "none",
                "quiet": True, "tensorboard": False, "log_dir": str(tmp_path)}
    results = [spinup.ppo(env, **settings) for env in (many(4), many, lambda: gymnasium.make("Acrobot-v1"))]
    first, second, third = (result.progress["return_mean"] for result in results)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    env = make(many, 4)
    env.reset()
    with pytest.raises(Unsaveable, match="a vector environment gives no access to its state"):
        env.state_dict()


def test_vector_environment_is_refused_where_a_single_one_is_needed():
    from spinup.envs.make import make_one
    with pytest.raises(UserError, match="the function given as env returned a vector environment; make it return a"):
        make_one(counters)
    with pytest.raises(UserError, match="a single environment is needed here; give an id, or a function"):
        make_one(counters())
