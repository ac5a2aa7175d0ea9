"""Board games as text: openings, rewards of responses, replies of the opponent, and the moves of the policy."""
import re
from itertools import pairwise

import numpy as np
import pytest

from llm.policy.policy import Turns
from llm.policy.tokenizer import CharTokenizer
from llm.tasks.board_games import ConnectFour, Match, TicTacToe, transcript
from llm.tasks.check import problems_of
from llm.tasks.episodes import Dialogue, pieces, played
from llm.tasks.make import make_task
from llm.tasks.task import Problem
from spinup.errors import UserError

TASK = TicTacToe()
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def judged(text):
    """Stones by square, and the result of a game of tic-tac-toe for its first player, or None while it lasts. A simple
    second computation."""
    stones = {}
    for ply, letter in enumerate(text[1:]):
        square = "ABCDEFGHI".find(letter) if ply % 2 == 0 else "abcdefghi".find(letter)
        if square < 0 or square in stones:
            return stones, -1 if ply % 2 == 0 else 1
        stones[square] = ply % 2
        for line in LINES:
            if all(stones.get(s) == ply % 2 for s in line):
                return stones, 1 if ply % 2 == 0 else -1
    return stones, 0 if len(stones) == 9 else None


# Catches: an opening that repeats a square, ends the game, or has letters of one player only; held-out openings in
# training.
@pytest.mark.parametrize("task", [TASK, ConnectFour()], ids=["tictactoe", "connect_four"])
def test_openings_are_legal_unfinished_games_in_disjoint_sets(task):
    rng = np.random.default_rng(0)
    train, held_out = ({p.prompt for p in problems_of(task, 600, rng, held)} for held in (False, True))
    assert not train & held_out and ">" in train and len(held_out) > 200
    assert {len(text) - 1 for text in train} == set(range(task.opening + 1))
    if task is TASK:
        assert all(judged(text)[1] is None for text in train | held_out)
    again = {p.prompt for p in problems_of(task, 600, np.random.default_rng(0), False)}
    assert again == train


# Catches: the reward of the opponent; a draw that counts as a loss; a letter of the other player that counts as a move.
@pytest.mark.parametrize("seed", range(4))
def test_reward_of_a_response_is_the_result_of_its_game(seed):
    rng, results = np.random.default_rng(seed), set()
    for problem in problems_of(TASK, 60, rng):
        text = TASK.demonstration(problem, rng)
        earned = TASK.reward(problem, text)
        seat = (len(problem.prompt) - 1) % 2
        _, result = judged(problem.prompt + text)
        if result is None:                                                # the opponent's last move is not in the text
            assert earned in (-1.0, 0.0)
        else:
            assert earned == (result if seat == 0 else -result)
        results.add(earned)
        taken = text[0].swapcase()
        for wrong in (taken, ">", problem.prompt[-1], ""):
            assert TASK.reward(problem, wrong) == -1.0
    assert results >= {1.0, -1.0}


# Catches: an opponent that plays on an occupied square, or always the first free one; replies that differ in a
# replay of the game.
def test_opponent_makes_all_kinds_of_legal_moves():
    replies = set()
    for problem in problems_of(TASK, 200, np.random.default_rng(0)):
        rng = np.random.default_rng(1)
        text = TASK.demonstration(problem, rng)
        assert text == TASK.demonstration(problem, np.random.default_rng(1))
        own = played(TASK, text, problem)[0]
        assert own == [i % 2 == 0 for i in range(len(text))]
        assert all(a.isupper() != b.isupper() for a, b in pairwise(text))
        replies.update(text[1::2].lower())
    assert replies == set("abcdefghi")
    match = Match(TASK, ">")
    match.act("E")
    wrong = "a" if match.observe() != "a" else "b"
    with pytest.raises(UserError, match="episode of the task tictactoe writes"):
        pieces(TASK, f"E{wrong}", Problem(">"))


# Catches: turns of two characters; a game that continues after its end.
def test_each_token_of_the_policy_is_a_turn():
    tokenizer = CharTokenizer(TASK.alphabet)
    turns = Turns(Dialogue(TASK, Problem(">")), tokenizer)
    added = turns(tokenizer.encode("E"))
    assert len(added) == 1 and tokenizer.decode(added) in "abcdfghi"
    assert turns([*tokenizer.encode("E"), *added, *tokenizer.encode("E")]) == [tokenizer.end]
    assert turns.dialogue.done and turns.dialogue.reward == -1


# Catches: boards in another order, or without the opening.
def test_game_is_shown_as_boards():
    for seed in range(6):
        problem = Problem(">Ea")
        text = TASK.demonstration(problem, np.random.default_rng(seed))
        shown = TASK.show(problem, text).splitlines()
        assert len(shown) == 3 and shown[0].startswith("[O]") and shown[1][4] == "X"
        stones, result = judged(problem.prompt + text)
        unread = result is None                               # the opponent's last move ended the game
        assert sum(line.count("[") for line in shown) == len(text) + 1 + unread            # one mark in each board
        last = "".join(c for line in shown for c in re.findall(r"[XO·]", line)[-3:])
        known = "".join("·XO"[1 + stones.get(square, -1)] for square in range(9))
        assert sum(a != b for a, b in zip(last, known, strict=True)) == unread
    assert TASK.show(problem, "e") == TASK.show(problem, "") + "\n'e' is not a legal move"                # and no board


def test_connect_four_fills_columns():
    task = make_task("connect_four:opening=2")
    assert (task.moves, task.squares, task.max_tokens) == (7, 42, 43) and task.alphabet == ">ABCDEFGabcdefg"
    full = ">" + "Aa" * 3
    assert task.reward(Problem(full), "A") == -1.0 and task.reward(Problem(full), "E") in (0.0, -1.0)
    assert transcript(task, [0, 0, 6]) == ">AaG"
    with pytest.raises(UserError, match="opening"):
        make_task("tictactoe:opening=9")
