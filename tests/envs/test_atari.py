"""Atari: the settings of each protocol, and statistics that count whole games and scores, whatever the learner gets."""
from collections.abc import Iterator

import numpy as np
import pytest

from spinup.core.replay import Replay
from spinup.envs import make
from spinup.envs.atari import AtariVector, in_words, make_one_atari, protocol
from spinup.envs.vector import Step
from spinup.errors import UserError

V4 = {"sticky_actions": 0.0, "life_loss": True, "clip_rewards": True, "frame_skip": 4, "full_actions": False}
V5 = {**V4, "sticky_actions": 0.25, "life_loss": False}


def play(env: AtariVector, steps: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray, Step]]:
    """Yield (observations, actions, result of `step`) of random play."""
    rng, n = np.random.default_rng(seed), int(env.action_space.n)
    obs = env.reset()
    for _ in range(steps):
        action = rng.integers(n, size=env.num_envs)
        result = env.step(action)
        yield obs, action, result
        obs = result.obs


class Overheard:
    """The emulator of an environment; it records the actions that it gets, and the scores and infos that it returns."""

    def __init__(self, env: AtariVector):
        self.emulator, self.told, self.infos, self.scores = env.envs, [], [], []
        env.envs = self

    def __getattr__(self, name):
        return getattr(self.emulator, name)

    def reset(self, **kwargs):
        obs, info = self.emulator.reset(**kwargs)
        self.infos.append(info)
        return obs, info

    def step(self, action):
        self.told.append(action)
        result = self.emulator.step(action)
        self.scores.append(result[1])
        self.infos.append(result[-1])
        return result


@pytest.mark.parametrize(("env", "meant"), [
    ("PongNoFrameskip-v4", V4), ("PongNoFrameskip", V4), ("ale_py:PongNoFrameskip-v4", V4), ("ALE/Pong-v5", V5),
    ("ALE/Pong", V5), ("ale_py:ALE/Pong-v5", V5), ("PongNoFrameskip-v0", {}), ("PongDeterministic-v4", {}),
    ("Pong-v4", {}), ("CartPole-v1", {}), (AtariVector, {})])
def test_id_selects_the_protocol(env, meant):
    assert protocol(env) == meant
    if meant:
        assert protocol(env, {"frame_skip": 2, "life_loss": None}) == {**meant, "frame_skip": 2}
        made = make(env, 2)
        assert isinstance(made, AtariVector) and made.protocol == meant and made.frames == 4


def test_protocol_is_described_in_words():
    assert in_words(V4) == ("sticky actions 0, 4 frames an action, the game's own actions, a lost life ends the "
                            "learner's episode, the learner's rewards are -1, 0 or 1, returns are the scores of whole "
                            "games")
    other = {**V5, "clip_rewards": False, "frame_skip": 1, "full_actions": True}
    assert in_words(other) == ("sticky actions 0.25, 1 frame an action, all 18 actions, a lost life does not end the "
                               "learner's episode, the learner's rewards are not clipped, returns are the scores of "
                               "whole games")


@pytest.mark.parametrize(("env", "settings", "words"), [
    ("PogNoFrameskip-v4", {}, "no environment 'PogNoFrameskip-v4'. Did you mean 'PongNoFrameskip-v4'?"),
    ("ALE/Breakot-v5", {}, "no environment 'ALE/Breakot-v5'. Did you mean 'ALE/Breakout-v5'?"),
    ("ALE/Pong-v5", {"stiky_actions": 0.1}, "has no setting 'stiky_actions'.* Did you mean 'sticky_actions'?")])
def test_misspelt_names_are_answered_with_the_nearest_one(env, settings, words):
    with pytest.raises(UserError, match=words):
        make(env, 1, **settings)


# Catches: the learner's rewards or episode ends in the statistics; `episodic_life`, which restarts the game; a missing
# FIRE; FIRE in the wrong copy or a step too late; rows of `final_obs` that the emulator does not fill.
def test_lost_life_ends_the_learners_episode_but_not_the_game():
    env = make("BreakoutNoFrameskip-v4", 4, seed=1)
    heard, fire, lost_before = Overheard(env), 1, np.zeros(4, bool)
    assert env.fire == fire
    score, length, finished, lost_lives = np.zeros(4), np.zeros(4, int), [], 0
    for t, (obs, action, step) in enumerate(play(env, 500)):
        np.testing.assert_array_equal(heard.told[t], np.where(lost_before, fire, action))
        score, length = score + heard.scores[t], length + 1
        lives, were = heard.infos[t + 1]["lives"], heard.infos[t]["lives"]
        over = step.terminated & (lives >= were)                          # from the last life to five: a new game
        lost_before = step.terminated & ~over
        np.testing.assert_array_equal(lost_before, lives < were)
        lost_lives += lost_before.sum()
        assert (step.final_obs is not None) == step.terminated.any() and not step.truncated.any()
        led_to = step.obs if step.final_obs is None else step.final_obs
        np.testing.assert_array_equal(led_to[:, :-1], obs[:, 1:])         # shifted by one frame, also at an episode end
        np.testing.assert_array_equal(led_to[~over], step.obs[~over])
        assert not step.obs[over, :3].any() and all(image.any() for image in step.obs[over, 3])
        for i in np.flatnonzero(over):
            finished.append((score[i], length[i]))
            score[i] = length[i] = 0
    assert len(finished) >= 8 and lost_lives == 4 * len(finished) + (5 - lives).sum()
    assert env.take_finished() == finished and sum(score for score, _ in finished) > 0


# The learner stores the action that it chose in the first step of a life, so this action must have no effect. Catches:
# an action that is executed in place of FIRE, or together with it.
def test_action_in_the_first_step_of_a_life_has_no_effect():
    one, other = (make("BreakoutNoFrameskip-v4", 1, seed=1) for _ in range(2))
    rng, lives = np.random.default_rng(1), 0
    np.testing.assert_array_equal(one.reset(), other.reset())
    for _ in range(150):
        action = rng.integers(4, size=1)
        chosen = (action + 1) % 4 if one.lost_life.any() else action
        lives += one.lost_life.sum()
        first, second = one.step(action), other.step(chosen)
        np.testing.assert_array_equal(first.obs, second.obs)
        assert first.reward == second.reward and first.terminated == second.terminated
    assert lives >= 3


# In this game, a hit scores at least 5 points.
@pytest.mark.long("True")
@pytest.mark.parametrize("clip", [True, False])
def test_learner_gets_clipped_rewards_and_statistics_get_the_score(clip, monkeypatch):
    monkeypatch.setattr("spinup.envs.atari.LONGEST", 600)                 # frames, so that some games end
    env = make("SpaceInvadersNoFrameskip-v4", 4, clip_rewards=clip)
    heard = Overheard(env)
    rewards = np.array([step.reward for _, _, step in play(env, 200)])
    scores = np.array(heard.scores)
    assert scores.max() >= 5 and rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, np.sign(scores) if clip else scores)
    finished = env.take_finished()
    assert finished and sum(r for r, _ in finished) + env.episode_return.sum() == scores.sum()


@pytest.mark.long
def test_without_life_loss_only_the_end_of_the_game_ends_an_episode():
    env = make("ALE/Breakout-v5", 4)
    heard = Overheard(env)
    steps = [step for _, _, step in play(env, 300)]
    lives = np.array([info["lives"] for info in heard.infos])
    assert (np.diff(lives, axis=0) < 0).sum() > 10
    ends = np.array([step.terminated for step in steps])
    np.testing.assert_array_equal(ends, np.diff(lives, axis=0) > 0)
    assert ends.sum() == len(env.take_finished()) > 2


# Pong has no lives. It ends with the 21st point, long after this limit. Catches: a game that is abandoned before the
# limit.
@pytest.mark.long
def test_game_at_its_frame_limit_is_truncated_and_counted(monkeypatch):
    monkeypatch.setattr("spinup.envs.atari.LONGEST", 400)
    env = make("PongNoFrameskip-v4", 2)
    steps = [step for _, _, step in play(env, 250)]
    np.testing.assert_array_equal([t for t in range(250) if steps[t].truncated.any()], [99, 199])
    assert not any(step.terminated.any() for step in steps)
    assert [length for _, length in env.take_finished()] == [100] * 4
    assert steps[99].final_obs[:, 0].any() and not steps[99].obs[:, 0].any()


def test_frame_skip_and_full_actions_reach_the_emulator():
    env = make("ALE/Breakout-v5", 1, frame_skip=2, full_actions=True)
    heard = Overheard(env)
    assert env.action_space.n == 18 and [0 for _ in play(env, 5)]
    frames = [int(info["episode_frame_number"][0]) for info in heard.infos]
    assert set(np.diff(frames)) == {2} and frames[0] <= 30


def to_and_fro(sticky: float, *actions: int) -> np.ndarray:
    """Observations of Pong from the same first frame, with these actions in turn, each for three steps."""
    env = make("ALE/Pong-v5", 2, 3, sticky_actions=sticky)
    env.reset()
    return np.array([env.step(np.full(2, actions[t // 3 % 2])).obs for t in range(24)])


# Catches: a probability that does not reach the emulator.
@pytest.mark.long
def test_sticky_actions_repeat_the_last_action():
    right, left = 2, 3
    never, always, sometimes = (to_and_fro(sticky, right, left) for sticky in (0.0, 1.0, 0.25))
    np.testing.assert_array_equal(to_and_fro(1.0, left, right), always)   # the first action is repeated for ever
    assert (to_and_fro(0.0, left, right) != never).any()
    assert (sometimes != never).any() and (sometimes != always).any()


# Catches: a missing seed; seed + i, with which run 1 has the copies of run 0; a result that depends on threads.
@pytest.mark.long("ALE/Breakout-v5")
@pytest.mark.parametrize("name", ["ALE/Breakout-v5", "PongNoFrameskip-v4"])
def test_seed_determines_the_observations(name):
    envs = [make(name, 2, seed) for seed in (0, 0, 1)]
    first, again, other = ([step.obs for _, _, step in play(env, 40)] for env in envs)
    np.testing.assert_array_equal(first, again)
    assert (np.array(first) != np.array(other)).any()
    assert len({*envs[0].seeds, *envs[2].seeds}) == 4


# Catches: a stack after a lost life or a reset that is built from the wrong frames; four stored frames for each step.
@pytest.mark.long
def test_replay_buffer_returns_every_stack():
    env = make("BreakoutNoFrameskip-v4", 3, seed=2)
    replay = Replay(1200, 3, env.observation_space.shape, np.uint8, (), np.int64, env.frames)
    steps = []
    for obs, action, step in play(env, 300):
        replay.add(obs, action, step)
        led_to = step.obs if step.final_obs is None else step.final_obs
        steps += [(obs[i], led_to[i], action[i], step.reward[i], step.terminated[i]) for i in range(3)]
    assert sum(end for *_, end in steps) > 20 and len(replay) == 900
    batch = replay.sample(np.arange(replay.oldest, replay.count))
    obs, led_to, action, reward, ends = (np.array(x) for x in zip(*steps, strict=True))
    for ours, theirs in ((batch.obs, obs), (batch.next_obs, led_to), (batch.act, action), (batch.rew, reward),
                         (batch.terminated, ends)):
        np.testing.assert_array_equal(ours.numpy(), theirs)


# The images are equal here. Another build of OpenCV than the emulator's may round the mean of a pixel differently.
@pytest.mark.long("BreakoutNoFrameskip-v4", "SeaquestNoFrameskip-v4")
@pytest.mark.parametrize("name", ["BreakoutNoFrameskip-v4", "PongNoFrameskip-v4", "SeaquestNoFrameskip-v4"])
def test_watched_game_equals_the_game_of_training(name):
    env, game, waits = make(name, 4, seed=4), make_one_atari(name), []
    assert game.observation_space == env.observation_space and game.action_space == env.action_space
    heard = Overheard(env)
    walk = list(play(env, 200 if name == "BreakoutNoFrameskip-v4" else 60))          # in Breakout, a game ends by then
    while not waits or waits[-1] not in heard.infos[0]["episode_frame_number"]:      # until a copy waits equally long
        obs, info = game.reset(seed=len(waits))
        waits.append(info["episode_frame_number"])
    i = list(heard.infos[0]["episode_frame_number"]).index(waits[-1])
    total, over = 0.0, False
    for t, (before, action, step) in enumerate(walk):
        np.testing.assert_allclose(obs.astype(int), before[i].astype(int), rtol=0, atol=1)
        obs, reward, over, _, info = game.step(int(action[i]))
        assert reward == heard.scores[t][i]
        total += reward
        if over:
            np.testing.assert_allclose(obs.astype(int), step.final_obs[i].astype(int), rtol=0, atol=1)
            assert (total, t + 1) in env.take_finished()
            break
        assert info["lives"] == heard.infos[t + 1]["lives"][i]
    assert over == (name == "BreakoutNoFrameskip-v4")
