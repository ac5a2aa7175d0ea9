"""The boards, compared with PettingZoo's in the same games; and their answers to illegal moves."""
import numpy as np
import pettingzoo
import pytest

from spinup.envs.worlds.boards import BOARDS, ConnectFour

THEIRS = {"tictactoe": "classic/tictactoe-v3", "connect_four": "classic/connect_four-v3"}


def random_moves(legal, rng):
    return (legal * rng.random(legal.shape)).argmax(1)


# Catches: a line that is missed, or that continues beyond an edge; a stone in another square; a draw that is missed or
# comes too early; seats exchanged; rows upside down.
@pytest.mark.long("connect_four")
@pytest.mark.parametrize("name", BOARDS)
def test_random_games_match_pettingzoo(name):
    board, rng, games = BOARDS[name](1000), np.random.default_rng(0), [[] for _ in range(1000)]
    running = np.ones(1000, bool)
    while running.any():
        seen, legal, mover = board.observe(), board.legal(), board.mover.copy()
        action = random_moves(legal, rng)
        worth, over = board.play(action)
        for i in np.flatnonzero(running):
            games[i].append((seen[i], legal[i], mover[i], action[i], worth[i], over[i]))
        running &= ~over
        board.reset(~running)

    theirs = pettingzoo.make("aec", THEIRS[name]).unwrapped
    for game in games:
        theirs.reset()
        for seen, legal, mover, action, worth, over in game:
            agent = theirs.agent_selection
            expected = theirs.observe(agent)
            assert theirs.possible_agents.index(agent) == mover
            np.testing.assert_array_equal(seen, expected["observation"])
            np.testing.assert_array_equal(legal, expected["action_mask"])
            theirs.step(int(action))
            assert over == theirs.terminations[agent] and worth == (theirs.rewards[agent] == 1)
    lengths = [len(game) for game in games]
    assert any(game[-1][4] and game[-1][2] == seat for seat in (0, 1) for game in games) and min(lengths) < max(lengths)


@pytest.mark.parametrize("name", BOARDS)
def test_draw_ends_a_game_without_a_winner(name):
    board, rng, draws = BOARDS[name](4000), np.random.default_rng(1), 0
    for _ in range(60):
        worth, over = board.play(random_moves(board.legal(), rng))
        draws += (over & (worth == 0)).sum()
        board.reset(over)
    assert draws > 0


def test_illegal_move_is_named_and_changes_nothing():
    board = ConnectFour(2)
    for _ in range(6):
        board.play(np.array([3, 0]))
    before = board.observe()
    assert not board.legal()[0, 3]
    with pytest.raises(ValueError, match="move 3 is illegal in game 0"):
        board.play(np.array([3, 1]))
    np.testing.assert_array_equal(board.observe(), before)


def test_reset_clears_only_the_given_games():
    board = ConnectFour(3)
    board.play(np.array([1, 2, 3]))
    board.reset(np.array([True, False, False]))
    assert board.mover.tolist() == [0, 1, 1]
    assert board.observe().sum((1, 2, 3)).tolist() == [0, 1, 1]


def test_moves_change_only_the_given_games():
    board, alone, some = ConnectFour(5), ConnectFour(2), np.array([1, 3])
    board.play(np.array([0, 1, 2, 3, 4]))
    alone.play(np.array([1, 3]))
    before = board.observe()
    worth, over = board.play(np.array([6, 3]), some)
    alone.play(np.array([6, 3]))
    assert worth.tolist() == over.tolist() == [0, 0] and board.mover.tolist() == [1, 0, 1, 0, 1]
    np.testing.assert_array_equal(board.observe(some), alone.observe())
    np.testing.assert_array_equal(board.legal(some), alone.legal())
    np.testing.assert_array_equal(board.observe()[::2], before[::2])
    for _ in range(4):
        board.play(np.array([3]), np.array([3]))
    with pytest.raises(ValueError, match="move 3 is illegal in game 3"):
        board.play(np.array([0, 3]), some)
