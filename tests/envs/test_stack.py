"""Stacks of observations, compared with Gymnasium's, and their use in training, in evaluation and in a resumed run."""
import json

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation

import spinup
from spinup.algos import dqn
from spinup.envs import make
from spinup.envs.memory import Memory
from spinup.envs.spaces import observation_view
from spinup.envs.stack import FrameStack
from spinup.errors import UserError
from spinup.runs.policy import Policy
from spinup.view.evaluate import evaluate
from spinup.view.watch import make_game, play


class Pictures(gymnasium.Env):
    """Random images of bytes; an episode ends after five steps."""

    def __init__(self, shape=(36, 40, 1)):
        self.observation_space, self.action_space = Box(0, 255, shape, np.uint8), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        self.t += 1
        return self.draw(), 1.0, False, self.t == 5, {}

    def draw(self):
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


class Coloured(Pictures):
    def __init__(self):
        super().__init__((36, 40, 3))


def beside(env, one: gymnasium.Env, size: int, steps: int, view) -> int:
    """Compare the steps of a stack of one copy with those of Gymnasium's wrapper, from the same first observation.
    Return the number of episode ends."""
    theirs, ends = FrameStackObservation(one, size), 0
    obs = theirs.reset(seed=env.env.seeds[0])[0]
    np.testing.assert_array_equal(env.reset()[0], view(obs))
    rng = np.random.default_rng(3)
    for _ in range(steps):
        action = rng.integers(2)
        step = env.step(np.array([action]))
        obs, reward, terminated, truncated, _ = theirs.step(action)
        led_to = step.obs if step.final_obs is None else step.final_obs
        np.testing.assert_array_equal(led_to[0], view(obs))
        assert (reward, terminated, truncated) == (step.reward[0], step.terminated[0], step.truncated[0])
        if terminated or truncated:
            ends += 1
            np.testing.assert_array_equal(step.obs[0], view(theirs.reset()[0]))
    return ends


# Catches: a stack that is filled with zeros; the newest frame first; a new episode with frames of the last one; a final
# observation without the last frame of its episode; an image whose channels are separated.
@pytest.mark.parametrize("kind", [Pictures, Coloured])
def test_stack_of_images_matches_gymnasium(kind):
    env, view = make(kind, 1, seed=4, frame_stack=3), observation_view(kind().observation_space)[2]
    assert beside(env, kind(), 3, 23, lambda obs: np.concatenate([view(one) for one in obs])) == 4
    shape = observation_view(env.observation_space)[0]
    assert env.obs[0].shape == shape and env.frames == (3 if kind is Pictures else 1)


def test_stack_of_vectors_matches_gymnasium():
    env = make(lambda: gymnasium.make("CartPole-v1"), 1, seed=5, frame_stack=4)
    assert beside(env, gymnasium.make("CartPole-v1"), 4, 120, np.ravel) > 2
    assert env.observation_space.shape == (16,)


# Catches: episode statistics that are lost or counted twice; a restart that keeps old frames; a state without the
# stack.
def test_stack_supports_statistics_restarts_and_saving():
    env = make("CartPole-v1", 3, seed=1, frame_stack=2)
    env.reset()
    for _ in range(60):
        env.step(np.ones(3, np.int64))
    finished = env.take_finished()
    assert len(finished) >= 15 and all(total == length for total, length in finished) and not env.take_finished()
    env.restart(1, 7)
    assert (env.obs[1, :4] == env.obs[1, 4:]).all() and (env.obs[0, :4] != env.obs[0, 4:]).any()
    other = make("CartPole-v1", 3, seed=9, frame_stack=2)
    other.reset()
    other.load_state_dict(env.state_dict())
    for _ in range(30):
        np.testing.assert_array_equal(env.step(np.ones(3, np.int64)).obs, other.step(np.ones(3, np.int64)).obs)


# Catches: a `reseed` that restarts copy by copy, which a vector environment of Gymnasium does not support; frames of
# the previous episodes.
def test_reseed_starts_new_episodes_in_all_copies():
    vector = gymnasium.make_vec("CartPole-v1", 2, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    for env in FrameStack(make(vector, 2), 3), Memory(make("CartPole-v1", 2, seed=1), 2):
        env.reset()
        for _ in range(5):
            env.step(np.ones(2, np.int64))
        before = env.obs.copy()
        env.reseed(5)
        first = env.obs.copy()
        assert (first[:, :4] != before[:, :4]).all() and not env.episode_length.any()
        env.step(np.ones(2, np.int64))
        env.reseed(5)
        np.testing.assert_array_equal(env.obs, first)
        env.reseed(6)
        assert (env.obs[:, :4] != first[:, :4]).all()


def test_stack_cannot_be_stacked_again():
    env = make(Pictures, 1, frame_stack=2)
    with pytest.raises(UserError, match="already a stack of 2 frames; leave out --frame-stack"):
        FrameStack(env, 2)


TINY = {"total_steps": 256, "num_envs": 2, "quiet": True, "tensorboard": False, "threads": 1, "test_episodes": 2}
ON = {"ppo": {"rollout_steps": 32}, "dqn": {"learning_starts": 64, "batch_size": 16, "update_every": 8},
      "rl2": {"rollout_steps": 32, "minibatches": 2}, "es": {"pairs": 2}}


# Catches: evaluation, watching or test episodes without the setting; a network for a single observation.
@pytest.mark.parametrize("name", ON)
def test_run_with_a_stack_is_evaluated_with_it(name, tmp_path):
    result = getattr(spinup, name)("StatelessCartPole-v0", preset="none", frame_stack=3, log_dir=tmp_path.as_posix(),
                                   **TINY, **ON[name])
    assert "test_return" in result.progress
    told = json.loads((result.directory / "config.json").read_text())
    assert told["config"]["frame_stack"] == 3
    policy = spinup.load(result.directory)
    assert evaluate(policy, "StatelessCartPole-v0", episodes=4).mean >= 8
    game = make_game("StatelessCartPole-v0", "rgb_array", **policy.env_settings)
    obs, _ = game.reset(seed=1)
    assert obs.shape == policy.observation_space.shape
    player = Policy(policy.module, policy.observation_space, policy.action_space, 1)
    assert play(player, game, "StatelessCartPole-v0", True, None, 3)[0] >= 8


# Catches: a resumed run without the stack, or with another one; frames of another stack in the replay buffer.
@pytest.mark.long
def test_resumed_run_keeps_its_stack(tmp_path):
    cfg = {"env": Pictures, "frame_stack": 3, "log_dir": tmp_path.as_posix(), "checkpoint_steps": 64, **TINY,
           **ON["dqn"]}
    whole = dqn.train(dqn.Config(exp_name="whole", **cfg))
    assert whole.policy.observation_space.shape == (3, 1, 36, 40)

    def fail(row):
        if row["steps"] > 150:
            raise RuntimeError("the power is off")

    with pytest.raises(RuntimeError, match="power"):
        dqn.train(dqn.Config(exp_name="half", on_row=fail, **cfg))
    again = dqn.train(dqn.Config(exp_name="half", **cfg), resume=tmp_path / "half/half_s1")
    assert again.returns == whole.returns
    for one, other in zip(again.policy.module.parameters(), whole.policy.module.parameters(), strict=True):
        assert torch.equal(one, other)
