"""Games against an opponent, compared with the same games played by hand on a board."""
from functools import partial

import numpy as np
import pytest

from spinup.envs.games import Duels, random_move
from spinup.envs.worlds.boards import ConnectFour, TicTacToe
from spinup.envs.zoo import ZooGame


def lowest(obs, opponent, noise):
    """The legal move with the lowest number."""
    return obs[:, -noise.shape[1]:].argmax(1)


def random_actions(obs, moves, rng):
    return random_move(obs, None, rng.random((len(obs), moves)))


# Catches: an opponent's move that is left out or made twice; stones seen from the other player's side; a seat that does
# not change; a wrong reward for a draw or a loss; an opponent that does not make the first move.
@pytest.mark.parametrize("game", [TicTacToe, ConnectFour])
def test_duels_match_games_played_by_hand_on_a_board(game):
    env, rng = Duels(game, 8, 0), np.random.default_rng(1)
    env.reply = lowest
    boards, seats, outcomes = [game(1) for _ in range(8)], np.arange(8) % 2, set()

    def opponent_moves(i):
        worth, over = boards[i].play(boards[i].legal().argmax(1))
        return -float(worth[0]), bool(over[0])

    def begin(i):
        boards[i].reset()
        if seats[i]:
            opponent_moves(i)

    obs = env.reset()
    for i in range(8):
        begin(i)
    for _ in range(300):
        for i, board in enumerate(boards):
            expected = np.concatenate([board.observe()[0].ravel(), board.legal()[0]])
            np.testing.assert_array_equal(obs[i], expected)
        action = random_actions(obs, game.num_actions, rng)
        step = env.step(action)
        for i, board in enumerate(boards):
            reward, over = (x[0] for x in board.play(action[i:i + 1]))
            if not over:
                reward, over = opponent_moves(i)
            assert (step.reward[i], step.terminated[i]) == (reward, over)
            if over:
                outcomes.add((reward, int(seats[i])))
                seats[i] ^= 1
                begin(i)
        if step.final_obs is not None:                                    # the next observation in unfinished games
            ended = step.terminated
            np.testing.assert_array_equal(step.final_obs[~ended], step.obs[~ended])
            np.testing.assert_array_equal(step.final_obs[ended], obs[ended])
        obs = step.obs
    assert {(1, 0), (1, 1), (-1, 0), (-1, 1)} <= outcomes
    assert not step.truncated.any()


def test_illegal_move_loses_and_the_other_games_continue():
    env = Duels(TicTacToe, 2, 0)
    obs = env.reset()                                                     # in the second game the opponent moved first
    taken = int(obs[1, -9:].argmin())
    step = env.step(np.array([0, taken]))
    assert step.reward.tolist() == [0, -1] and step.terminated.tolist() == [False, True]
    assert step.obs[1, :18].sum() == 0 and step.obs[1, -9:].all() and env.seat.tolist() == [0, 0]


def test_each_game_gets_an_opponent_and_reply_gets_its_index():
    env, asked = Duels(ConnectFour, 6, 0), set()
    numbers = iter(range(100, 10_000))

    def reply(obs, opponent, noise):
        asked.update(opponent.tolist())
        return random_move(obs, opponent, noise)

    env.reply, env.draw = reply, lambda n: np.array([next(numbers) for _ in range(n)])
    obs, rng, met = env.reset(), np.random.default_rng(0), []
    for _ in range(60):
        before = env.opponent.copy()
        step = env.step(random_actions(obs, 7, rng))
        obs, met = step.obs, met + before[step.terminated].tolist()
        assert (env.opponent[~step.terminated] == before[~step.terminated]).all()
    assert len(met) == len(set(met)) > 6 and set(met) <= asked
    assert set(env.opponent.tolist()).isdisjoint(met)


def test_duels_are_restored_in_the_middle_of_games():
    one, other = (Duels(ConnectFour, 5, seed) for seed in (1, 2))
    rng = np.random.default_rng(0)
    obs = one.reset()
    other.reset()
    for _ in range(13):
        obs = one.step(random_actions(obs, 7, rng)).obs
    other.load_state_dict(one.state_dict())
    for _ in range(60):
        action = random_actions(one.obs, 7, rng)
        for a, b in zip(one.step(action)[:5], other.step(action)[:5], strict=True):
            np.testing.assert_array_equal(a, b)
    assert one.take_finished() == other.take_finished()


# Catches: openings that always have the same length, are not random, or leave a finished game.
def test_games_can_start_with_random_moves():
    env = Duels(TicTacToe, 4000, 0)
    env.opening, env.reply = 6, lowest
    obs = env.reset()
    stones = obs[:, :18].sum(1).astype(int)
    assert (env.game.mover == env.seat).all() and obs[:, -9:].any(1).all()
    # Each number of opening moves from 0 to 6 has a seventh of the games. Then the opponent moves if it is its turn.
    # After five or six moves, some of the games were over and were reset.
    share = np.bincount(stones, minlength=8) / 4000
    assert share[0] + share[1] > 1.5 / 7 and (share[:7] > 0.02).all()
    squares = obs[stones == 2, :18].reshape(-1, 9, 2).sum((0, 2))
    assert squares.min() > 0.5 * squares[1:].mean()
    for _ in range(20):
        obs = env.step(random_actions(obs, 9, np.random.default_rng(1))).obs
    assert obs[:, -9:].any(1).all()


# Catches: the result of a game that opening moves and a reply have ended, in place of that of the learner's game.
def test_result_is_that_of_the_game_the_learner_played():
    env, ended, rng = Duels(TicTacToe, 500, 0), {}, np.random.default_rng(0)
    env.opening = 8
    obs, play = env.reset(), env.game.play

    def watched(action, games=None):
        worth, over = play(action, games)
        for game, value in zip(games[over], worth[over], strict=True):
            ended.setdefault(game, value if env.game is not None and learner[game] else -value)
            learner[game] = False                                         # later moves in this step are of another game
        learner[games] = False                                            # the next move is the opponent's
        return worth, over

    env.game.play, wins = watched, 0
    for _ in range(60):
        ended.clear()
        learner = np.ones(500, bool)
        step = env.step(random_actions(obs, 9, rng))
        obs, over = step.obs, np.flatnonzero(step.terminated)
        assert set(ended) == set(over) and all(step.reward[game] == ended[game] for game in over)
        wins += (step.reward == 1).sum()
    assert wins > 100


# Catches: a request for the legal moves of an empty list of PettingZoo games.
def test_pettingzoo_games_can_start_with_random_moves():
    env = Duels(partial(ZooGame, "classic/tictactoe-v3"), 2, 0)
    env.opening = 4
    obs = env.reset()
    for _ in range(20):
        obs = env.step(random_actions(obs, 9, np.random.default_rng(1))).obs
    assert obs[:, -9:].any(1).all()


# Catches: the opponents of the new games; results in another order; unfinished games.
def test_rate_gets_opponents_and_results_of_the_finished_games():
    env, rng, told = Duels(TicTacToe, 6, 0), np.random.default_rng(0), []
    numbers = iter(range(10_000))
    env.draw = lambda n: np.array([next(numbers) for _ in range(n)])      # no opponent twice
    env.rate = lambda opponent, result: told.append((opponent.tolist(), result.tolist()))
    obs = env.reset()
    for _ in range(40):
        before = env.opponent.copy()
        step = env.step(random_actions(obs, 9, rng))
        obs, over = step.obs, step.terminated
        assert told[-1] == (before[over].tolist(), step.reward[over].tolist())
    assert len(told) == 40 and sum(len(opponents) for opponents, _ in told) > 40
