"""Episode ends in a replay buffer, compared with a plain list of the episodes."""
import numpy as np
import pytest

from spinup.core.episode_ends import Episodes
from spinup.core.replay import Replay
from spinup.envs.vector import Step


def play(replay: Replay, episodes: Episodes, rng: np.random.Generator, steps: int, ending: float,
         numbers: list[list[int]]) -> None:
    """Store random steps, and append the episode number of each one to `numbers[env]`."""
    n, obs = replay.num_envs, rng.random((replay.num_envs, 2), np.float32)
    for _ in range(steps):
        ended = rng.random(n) < ending
        terminated = ended & (rng.random(n) < 0.5)
        final, new = rng.random((2, n, 2), np.float32)
        step = Step(np.where(ended[:, None], new, final), np.zeros(n, np.float32), terminated, ended & ~terminated,
                    final if ended.any() else None)
        replay.add(obs, np.zeros((n, 1), np.float32), step)
        episodes.follow()
        obs = step.obs
        for env, over in enumerate(ended):
            numbers[env].append(numbers[env][-1] + over)                  # the last number: episode of the next step


# Catches: the last row of another environment or episode; the newest row in place of the last row of a finished
# episode; overwritten rows that an episode longer than the buffer counts as its own; a resumed run that finds other
# ends.
@pytest.mark.parametrize("size, n, ending", [(500, 1, 0.2), (47, 3, 0.2), (30, 3, 0.02), (40, 4, 0.9)])
def test_last_returns_the_last_row_of_each_episode(size, n, ending):
    rng, replay = np.random.default_rng(size), Replay(size, n, (2,), np.dtype(np.float32), (1,), np.float32)
    episodes, numbers = Episodes(replay), [[0] for _ in range(n)]
    for _ in range(12):
        play(replay, episodes, rng, 9, ending, numbers)
        for env in range(n):                                              # each call of `play` starts new episodes
            numbers[env][-1] += 1
        rows = np.arange(replay.oldest, replay.count)
        of = [numbers[row % n][row // n] for row in rows]
        last = [max(r for r in rows if r % n == row % n and numbers[r % n][r // n] == k)
                for row, k in zip(rows, of, strict=True)]
        assert episodes.last(rows).tolist() == last
        replay.begin_anew()
        resumed = Episodes(replay)
        resumed.follow()
        assert resumed.last(rows).tolist() == last
