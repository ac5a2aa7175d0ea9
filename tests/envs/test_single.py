"""One copy as Gymnasium knows it."""
import numpy as np

from spinup.envs import make
from spinup.envs.single import Single


# Catches: the first observation of the next episode given at the end of one; a reset that throws that one away,
# or does not follow its seed.
def test_an_episode_ends_with_what_it_led_to_and_reset_gives_the_next():
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
    for _ in range(3):                                        # left in the middle: each reset gives another episode
        game.step(0)
        starts.append(game.reset()[0].tolist())
    assert len({*map(tuple, starts)}) == 3
