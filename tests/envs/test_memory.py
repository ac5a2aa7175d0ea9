"""Observations for a policy with a memory, compared with episodes worked out by hand."""
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from spinup.envs import make
from spinup.envs.gym import GymVectorEnv
from spinup.envs.memory import Memory
from spinup.errors import UserError


class Clock(gymnasium.Env):
    """Observes (step, episode). Even episodes terminate after 2 steps, odd ones are truncated after 3. Reward 10 a +
    t."""

    def __init__(self, actions):
        self.observation_space, self.action_space, self.episode = Box(-np.inf, np.inf, (2,)), actions, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return np.array([0, self.episode], np.float32), {}

    def step(self, action):
        self.t += 1
        odd = self.episode % 2
        reward = 10 * float(np.sum(action)) + self.t
        obs = np.array([self.t, self.episode], np.float32)
        return obs, reward, not odd and self.t == 2, bool(odd and self.t == 3), {}


# Catches: a memory that is kept in the next trial; the last action of another step; a done flag from the start of the
# step; a trial that ends with each of its episodes; a final observation of the next trial, or one with the done flag. A
# truncated trial is valued as if it continued, and no network was trained on such an input.
def test_discrete_actions_and_rewards_are_observed_within_a_trial():
    env = Memory(GymVectorEnv(lambda: Clock(Discrete(3)), 1, 0), 2)
    assert env.reset()[0].tolist() == [0, 0] + [0] * 6 + [0, 1]
    seen, ends = [], []
    for t, action in enumerate([2, 0, 1, 1, 2, 0]):
        step = env.step(np.array([action]))
        seen.append(step.obs[0].tolist())
        ends.append((bool(step.terminated[0]), bool(step.truncated[0])))
        if t == 4:
            assert step.final_obs[0].tolist() == [3, 1, 0, 0, 1, 0, 0, 23, 0, 0]
        else:
            assert step.final_obs is None
    assert seen[0] == [1, 0, 0, 0, 1, 0, 0, 21, 0, 0]
    assert seen[1] == [0, 1, 1, 0, 0, 2, 0, 0, 1, 0]                      # the next episode's first one, with done
    assert seen[2] == [1, 1, 0, 1, 0, 0, 11, 0, 0, 0]
    assert seen[4] == [0, 2] + [0] * 6 + [0, 1]                           # a new trial
    assert seen[5] == [1, 2, 1, 0, 0, 1, 0, 0, 0, 0]
    assert ends == [(False, False)] * 4 + [(False, True)] + [(False, False)]
    assert env.take_finished() == [(21 + 2 + 11 + 12 + 23, 5)]


# Catches: a part of the last transition in the observation; a number of the observation that is set to 0 at a time
# limit, at the index that the done flag would have; a missing start flag.
@pytest.mark.parametrize("actions", [Discrete(3), Box(-1, 1, (2,))])
def test_observation_inputs_have_only_observation_and_start_flag(actions):
    env = Memory(GymVectorEnv(lambda: Clock(actions), 1, 0), 1, "observation")
    assert env.reset()[0].tolist() == [0, 0, 1] and env.observation_space.shape == (3,)
    seen, final = [], []
    for _ in range(6):
        step = env.step(np.ones((1, *actions.shape), actions.dtype))
        seen.append(step.obs[0].tolist())
        final.append(None if step.final_obs is None else step.final_obs[0].tolist())
    assert seen == [[1, 0, 0], [0, 1, 1], [1, 1, 0], [2, 1, 0], [0, 2, 1], [1, 2, 0]]
    assert final == [None, [2, 0, 0], None, None, [3, 1, 0], None]       # terminated, and truncated


# Catches: the cell of the next state; rows and columns exchanged; a cell that is not cleared.
def test_tabular_memory_marks_the_cell_of_state_and_action():
    env, rng = make("TabularMDPs-10-v0", 8, 3, episodes=10), np.random.default_rng(0)
    state = env.reset()[:, :10].argmax(1)
    for _ in range(99):
        action = rng.integers(0, 5, 8)
        step = env.step(action)
        done, earned = (step.obs[:, i:i + 50].reshape(8, 10, 5) for i in (10, 60))
        assert done[range(8), state, action].tolist() == [1] * 8 and done.sum() == 8
        np.testing.assert_array_equal(earned[range(8), state, action], step.reward)
        np.testing.assert_array_equal(earned.sum((1, 2)), step.reward)
        state = step.obs[:, :10].argmax(1)


def test_continuous_actions_are_observed_unchanged():
    env = Memory(GymVectorEnv(lambda: Clock(Box(-1, 1, (2,))), 1, 0), 1)
    env.reset()
    step = env.step(np.array([[0.25, -0.5]], np.float32))
    np.testing.assert_allclose(step.obs[0], [1, 0, 0.25, -0.5, -1.5, 0, 0])
    step = env.step(np.array([[1.0, 1.0]], np.float32))
    assert step.terminated[0] and step.obs[0].tolist() == [0, 1, 0, 0, 0, 0, 1]
    np.testing.assert_allclose(step.final_obs[0], [2, 0, 1, 1, 22, 1, 0])


# Catches: tasks that are sampled for each episode, or only once; a trial of another length; copies with the same task.
@pytest.mark.parametrize(("name", "episodes", "steps", "shown"), [("Bandits-5x10-v0", 10, 10, 1),
                                                                   ("TabularMDPs-10-v0", 10, 100, 10)])
def test_tasks_stay_the_same_within_a_trial(name, episodes, steps, shown):
    env = make(name, 64, 3, episodes=episodes)
    obs, rng = env.reset(), np.random.default_rng(0)
    assert obs.shape[1] == shown + 2 * shown * 5 + 2
    trials = env.env.trials
    tasks = [getattr(trials, "probs", getattr(trials, "reward_means", None)).clone()]
    for _ in range(2 * steps):
        step = env.step(rng.integers(0, 5, 64))
        now = getattr(trials, "probs", getattr(trials, "reward_means", None))
        over = bool(step.terminated.all())
        assert over == (step.final_obs is not None) == (not now.equal(tasks[-1])) == bool(step.obs[:, -1].all())
        if over:
            tasks.append(now.clone())
    assert len(tasks) == 3 and len({float(x) for x in tasks[0].flatten()}) == tasks[0].numel()
    assert {n for _, n in env.take_finished()} == {steps}


# Catches: a state without the generator, the tasks, the clock or the memory.
@pytest.mark.parametrize("name", ["Bandits-5x10-v0", "TabularMDPs-10-v0", "CartPole-v1"])
def test_environment_is_restored_in_the_middle_of_a_trial(name):
    def go(env, rng, n):
        return [env.step(rng.integers(0, 2, 4)) for _ in range(n)]
    one, other = (make(name, 4, seed, episodes=10) for seed in (1, 2))
    one.reset(), other.reset()
    go(one, np.random.default_rng(0), 27)
    other.load_state_dict(one.state_dict())
    for a, b in zip(*(go(env, np.random.default_rng(5), 150) for env in (one, other)), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    assert one.take_finished() == other.take_finished()


def test_number_of_episodes_must_match_the_trial():
    with pytest.raises(UserError, match="a trial of this environment has 10 episodes, not 7; type --episodes 10"):
        make("Bandits-5x10-v0", 4, 0, episodes=7)
    with pytest.raises(UserError, match="a trial of this environment has 10 episodes, not 5"):
        make("Bandits-5x10-v0", 4, 0, episodes=5, frame_stack=2)


# Catches: an evaluation that requires another number of copies of a vector environment.
def test_a_vector_environment_keeps_its_number_of_copies():
    envs = make(gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync"), 2, 0, exact=False, episodes=1)
    assert envs.num_envs == 4
    envs.close()


# Catches: advice to watch an environment that cannot be rendered.
@pytest.mark.parametrize(("env", "settings", "shown"), [
    ("Bandits-5x10-v0", {"episodes": 10}, ()), ("Chain-20-v0", {}, ()), ("NoisyTV-v0", {}, ()),
    ("RandomGraph-v0", {"episodes": 1}, ()), ("CartPole-v1", {"episodes": 2}, ("watch",))])
def test_only_environments_with_a_renderer_can_be_watched(env, settings, shown):
    assert make(env, 2, 0, **settings).shown_by == shown


def test_unsupported_action_spaces_are_refused():
    envs = GymVectorEnv(lambda: Clock(Tuple([Discrete(2), Discrete(3)])), 1, 0)
    with pytest.raises(UserError, match="a policy with a memory cannot act in Tuple"):
        Memory(envs, 1)
