"""The arm: its points, compared with plane geometry, its goals and its success."""
import gymnasium
import numpy as np
import pytest

from spinup.envs import make
from spinup.envs.worlds.reacher import GoalReacher, points


# Catches: an angle of the second link that is not relative to the first; a goal that is out of reach, or that moves
# within an episode; a reward that ignores the goal; a success that is not that of the last step.
def test_points_goals_and_rewards_follow_their_definitions():
    elbow, hand = points(np.array([np.pi / 2, -np.pi / 2]))
    np.testing.assert_allclose([elbow, hand], [[0, 0.5], [0.5, 0.5]], atol=1e-12)
    arm = gymnasium.make("GoalReacher-v0")
    for seed in range(20):
        obs, _ = arm.reset(seed=seed)
        goal = obs["desired_goal"]
        assert np.linalg.norm(goal) <= 1 and arm.observation_space.contains(obs)
        for t in range(50):
            obs, reward, terminated, truncated, info = arm.step(arm.action_space.sample())
            near = np.linalg.norm(obs["achieved_goal"] - goal) <= 0.05
            assert reward == (0 if near else -1) and info["is_success"] == near and not terminated
            assert truncated == (t == 49) and arm.observation_space.contains(obs)
            assert (obs["desired_goal"] == goal).all()


# Catches: speeds without a delay, with which the agent need not stop in time.
def test_joints_approach_the_wanted_speed_with_a_delay():
    arm = GoalReacher()
    arm.reset(seed=1)
    before, speeds = arm.angles, []
    for _ in range(30):
        arm.step(np.array([1.0, -9.0]))
        speeds.append(arm.speed.copy())
    np.testing.assert_allclose(speeds[0], [0.3, -0.3])
    np.testing.assert_allclose(speeds[-1], [1, -1], atol=1e-4)
    np.testing.assert_allclose(arm.angles - before, 0.4 * np.sum(speeds, 0))


# Catches: a success rate over all steps, or with open episodes; counts that a resumed run loses.
def test_success_is_the_share_of_episodes_that_end_at_their_goal():
    env = make("GoalReacher-v0", 4, seed=2)
    env.reset()
    assert np.isnan(env.measures()["success"])
    for i in range(50):
        for arm in env.envs[:3]:                                          # three of four are at the goal at the end
            arm.angles, arm.speed = arm.angles, np.zeros(2)
            arm.goal = points(arm.angles)[1].astype(np.float32) if i == 49 else arm.goal
        env.step(np.zeros((4, 2), np.float32))
    other = make("GoalReacher-v0", 4, seed=2)
    other.reset()
    other.load_state_dict(env.state_dict())
    assert env.measures() == other.measures() == {"success": pytest.approx(0.75)}
    assert np.isnan(env.measures()["success"])


def test_picture_shows_arm_and_goal():
    arm = GoalReacher(render_mode="rgb_array")
    arm.reset(seed=1)
    picture = arm.render()
    assert picture.shape == (200, 200, 3) and picture.dtype == np.uint8
    colours = {tuple(c) for c in picture.reshape(-1, 3)}
    assert {(213, 94, 0), (0, 114, 178), (255, 255, 255)} <= colours
