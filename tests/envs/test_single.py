"""One copy of a vectorised environment as a Gymnasium environment."""
import numpy as np

from spinup.envs import make
from spinup.envs.single import Single


# Catches: the first observation of the next episode at an episode end; a reset that drops this observation, or ignores
# its seed.
def test_step_returns_the_final_observation_and_reset_the_next_one():
    game, vector = Single(make("CartPole-v1", 1, 5)), make("CartPole-v1", 1, 5)
    obs, expected = game.reset()[0], vector.reset()
    np.testing.assert_array_equal(obs, expected[0])
    for _ in range(3):
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = game.step(1)
            step, over = vector.step(np.array([1])), terminated or truncated
            led_to = step.obs if step.final_obs is None else step.final_obs
            np.testing.assert_array_equal(obs, led_to[0])
            assert reward == 1 and terminated == step.terminated[0]
        np.testing.assert_array_equal(game.reset()[0], vector.obs[0])
    first = game.reset(seed=9)[0]
    game.step(0)
    np.testing.assert_array_equal(game.reset(seed=9)[0], first)
    assert game.env.episode_length[0] == 0
    starts = []
    for _ in range(3):                                        # reset in the middle: each time another episode
        game.step(0)
        starts.append(game.reset()[0].tolist())
    assert len({*map(tuple, starts)}) == 3
