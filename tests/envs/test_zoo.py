"""PettingZoo's environments, compared with PettingZoo itself and with this library's boards."""
from functools import partial

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, flatdim
from mpe2 import simple_spread_v3
from pettingzoo import ParallelEnv
from pettingzoo.classic import connect_four_v3

import spinup
from spinup.envs import make
from spinup.envs.games import Duels, random_move, see
from spinup.envs.ids import find_id
from spinup.envs.make import make_one
from spinup.envs.vector import generator
from spinup.envs.zoo import ZooGame
from spinup.errors import EnvironmentFailure, UserError
from spinup.registry import find
from spinup.runs.presets import configure
from spinup.view.evaluate import evaluate


def random_actions(env, rng):
    return random_move(env.obs, None, rng.random((env.num_envs, env.action_space.n)))


# Catches: a wrong player to move, observation, legal-action mask or result; a finished game that is not reset.
@pytest.mark.parametrize("ours, theirs", [("TicTacToe-v0", "classic/tictactoe-v3"),
                                          ("ConnectFour-v0", "classic/connect_four")])
def test_pettingzoo_duel_matches_the_librarys_board(ours, theirs):
    one, other, rng = make(ours, 4, 5), make(theirs, 4, 5), np.random.default_rng(0)
    np.testing.assert_array_equal(one.reset(), other.reset())
    for _ in range(120):
        action = random_actions(one, rng)
        for a, b in zip(one.step(action)[:5], other.step(action)[:5], strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(one.take_finished()) > 8


# Leduc hold'em has random cards. Catches: a seed that is not saved; a move that is lost.
def test_card_games_are_restored_in_the_middle():
    one, other = (make("classic/leduc_holdem-v4", 3, seed) for seed in (1, 2))
    rng = np.random.default_rng(0)
    one.reset()
    other.reset()
    for _ in range(7):
        one.step(random_actions(one, rng))
    other.load_state_dict(one.state_dict())
    results = set()
    for _ in range(30):
        action = random_actions(one, rng)
        step = one.step(action)
        for a, b in zip(step[:5], other.step(action)[:5], strict=True):
            np.testing.assert_array_equal(a, b)
        results |= set(step.reward[step.terminated].tolist())
    assert len(results) > 2


# Catches: another order of board and legal-action mask than in training.
def test_trained_policy_acts_on_pettingzoo_observations(tmp_path):
    result = spinup.self_play("ConnectFour-v0", total_steps=2048, num_envs=32, rollout_steps=32, versions=2,
                              log_dir=tmp_path.as_posix(), quiet=True, tensorboard=False)
    policy, game, rng = spinup.load(result.directory), connect_four_v3.env(), np.random.default_rng(0)
    duel = make("classic/connect_four-v3", 1, 0).game
    game.reset()
    for _ in range(7):
        seen = game.last()[0]
        assert policy.act(seen) == policy.act_batch(see(duel), deterministic=True)[0]
        move = int(rng.choice(np.flatnonzero(seen["action_mask"])))
        game.step(move)
        duel.play(np.array([move]), np.array([0]))
    for part in seen["observation"], see(duel)[0], {"observation": seen["observation"]}:
        with pytest.raises(ValueError, match='one observation must be {"observation": ..., "action_mask": ...}'):
            policy.act(part)


@pytest.mark.parametrize("env", ["classic/chess-v6", "classic/rps-v2", "classic/go-v5"])
def test_other_two_player_games_can_be_played(env):
    duels, rng = make(env, 2, 0), np.random.default_rng(0)
    obs = duels.reset()
    for _ in range(20):
        obs = duels.step(random_actions(duels, rng)).obs
    assert obs.shape == (2, flatdim(duels.observation_space)) and np.isfinite(obs).all()


# Catches: rows of another agent, another copy or another step; a seed that does not reach a copy.
def test_agents_are_rows_with_pettingzoos_observations_and_rewards():
    envs, rng = make("mpe/simple_spread-v3", 6, 3), np.random.default_rng(0)
    theirs = [simple_spread_v3.parallel_env() for _ in range(2)]
    expected = [env.reset(seed=seed)[0] for env, seed in zip(theirs, envs.seeds, strict=True)]
    obs = envs.reset()
    for t in range(60):
        np.testing.assert_array_equal(obs, np.concatenate([list(seen.values()) for seen in expected]))
        action = rng.integers(0, 5, 6)
        step, rewards = envs.step(action), []
        for i, env in enumerate(theirs):
            acts = {agent: int(a) for agent, a in zip(env.agents, action[3 * i:3 * i + 3], strict=True)}
            expected[i], reward, _, cut, _ = env.step(acts)
            rewards += reward.values()
            if any(cut.values()):
                np.testing.assert_array_equal(step.final_obs[3 * i:3 * i + 3], list(expected[i].values()))
                expected[i] = env.reset()[0]
        np.testing.assert_allclose(step.reward, rewards, rtol=1e-6)
        assert step.truncated.all() == (t % 25 == 24) and not step.terminated.any()
        obs = step.obs
    assert len(envs.take_finished()) == 12


# Catches: a resumed run that starts with its first episodes again.
def test_agents_are_reseeded():
    envs = make("mpe/simple_spread-v3", 6, 3)
    first = envs.reset().copy()
    envs.reseed(4)
    assert (envs.obs != first).any(1).all() and len(envs.seeds) == 2


# Catches: an illegal move if the noise of the only legal move is 0.
def test_a_random_move_is_legal():
    seen = np.array([[7.0, 0, 0, 1]], np.float32)
    assert random_move(seen, None, np.zeros((1, 3), np.float32)) == [2]


def test_different_observations_of_agents_are_padded_and_labelled():
    envs = make("mpe/simple_tag-v3", 8, 0)
    envs.reset()
    obs = envs.step(np.arange(8) % 5).obs                                 # three see 16 numbers, their prey sees 14
    np.testing.assert_array_equal(obs[:4, -4:], np.eye(4))
    assert obs.shape == (8, 20) and (obs[[3, 7], 14:16] == 0).all() and (obs[[0, 1, 2], 14:16] != 0).any()


def test_both_players_of_an_atari_game_are_rows_with_four_frames():
    envs = make("atari/pong-v3", 2, 0)
    obs = envs.reset()
    for _ in range(4):
        obs = envs.step(np.array([2, 3])).obs
    assert obs.shape == (2, 6, 84, 84) and obs.dtype == np.uint8 and (obs[:, 0] != obs[:, 3]).any()
    np.testing.assert_array_equal(obs[0, :4], obs[1, :4])                # only the last images show the agent
    assert (obs[0, 4:] != obs[1, 4:]).all()


@pytest.mark.parametrize("env, num_envs, words", [
    ("mpe/simple_spread-v3", 8, "--num-envs 8 is not a multiple of 3, .*; choose 9"),
    ("mpe/simple_speaker_listener-v4", 2, "have different actions"),
    ("butterfly/pistonball-v6", 20, r"cannot be made here: .* type: pip install 'pettingzoo\[butterfly\]'"),
    ("classic/tictactoe-v9", 1, "Did you mean 'classic/tictactoe-v3'")])
def test_environments_that_cannot_be_played_are_refused(env, num_envs, words):
    with pytest.raises(UserError, match=words):
        make(env, num_envs, 0)


def test_cooperative_game_of_two_players_is_refused():
    envs, rng = make("classic/hanabi-v5", 4, 0), np.random.default_rng(0)
    with pytest.raises(UserError, match="hanabi-v5 is not a zero-sum game"):
        envs.reset()                                                      # the opponent's first move may already win
        for _ in range(100):
            envs.step(random_actions(envs, rng))


def test_id_may_omit_its_version():
    assert find_id("classic/chess") == "classic/chess-v6" and find_id("mpe/simple_spread") == "mpe/simple_spread-v3"


# Catches: defaults for a kind of environment that are looked up in an environment with one agent.
@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_several_agents_need_no_preset(algorithm):
    config, said = configure(find(algorithm), {"env": "mpe/simple_tag", "num_envs": 8})
    assert (config.env, config.num_envs, said.split(";")[0]) == ("mpe/simple_tag-v3", 8, "none")


# Catches: an episode of which only some agents are counted; a number of rows that is not a multiple of the agents.
@pytest.mark.parametrize(("episodes", "whole"), [(1, 3), (7, 9)])
def test_one_policy_plays_all_agents_and_is_evaluated_with_all(episodes, whole, tmp_path):
    result = spinup.ppo("mpe/simple_spread", num_envs=6, rollout_steps=32, total_steps=384, test_episodes=2, quiet=True,
                        log_dir=tmp_path.as_posix(), tensorboard=False)
    found = evaluate(result.policy, "mpe/simple_spread-v3", episodes=episodes)
    assert len(found.returns) == whole and set(found.lengths) == {25} and found.mean < 0
    assert len(result.progress["test_return"]) > 0


class Copying(ParallelEnv):
    """Two agents, five steps: an agent gets 1 if it repeats the bit that it sees. Agents in `left` get no reward."""

    possible_agents, left = ("a", "b"), ()

    def observation_space(self, agent):
        return Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def see(self):
        self.bits = dict(zip(self.possible_agents, self.rng.integers(2, size=2), strict=True))
        return {agent: np.array([bit], np.float32) for agent, bit in self.bits.items()}

    def reset(self, seed=None, options=None):
        self.rng, self.time = np.random.default_rng(seed), 0
        return self.see(), {}

    def step(self, actions):
        self.time += 1
        rewards = {a: float(actions[a] == self.bits[a]) for a in actions if a not in self.left}
        return self.see(), rewards, dict.fromkeys(actions, False), dict.fromkeys(actions, self.time == 5), {}


# Catches: agents of a user's class that exchange their rows; a class that is called as if it made a Gymnasium env.
def test_own_class_with_several_agents_is_trained_and_evaluated(tmp_path):
    result = spinup.ppo(Copying, num_envs=8, rollout_steps=64, total_steps=8192, lr=1e-2, threads=1, quiet=True,
                        log_dir=tmp_path.as_posix(), tensorboard=False)
    found = evaluate(result.policy, Copying, episodes=3)
    assert found.agents == 2 and found.returns == [5.0] * 4 and "copying" in result.directory.name.lower()


def test_faults_of_an_own_class_with_several_agents_are_named():
    class Forgetful(Copying):
        left = ("b",)

    envs = make(Forgetful, 4)
    envs.reset()
    with pytest.raises(EnvironmentFailure, match="Forgetful raised KeyError: 'b', at step 1 of an episode, in copy 0"):
        envs.step(np.zeros(4, int))
    with pytest.raises(UserError, match="--num-envs 3 is not a multiple of 2, the number of agents of Copying"):
        make(Copying, 3)
    with pytest.raises(UserError, match="Copying has several agents and cannot be rendered"):
        make_one(Copying)


# Catches: one generator for the seeds of the games and for the openings of duels.
def test_seeds_of_games_and_openings_use_different_generators():
    env = Duels(partial(ZooGame, "classic/tictactoe-v3"), 4, 3)
    again = generator(3)
    assert env.game.seeds != [int(again.integers(2**31)) for _ in range(4)]
