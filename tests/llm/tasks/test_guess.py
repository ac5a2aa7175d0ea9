"""Number guessing: the replies of the environment, the end of a game, and the teacher."""
import numpy as np
import pytest

from llm.tasks import Problem, make_task
from llm.tasks.episodes import Disagreement, played
from spinup.errors import UserError

HIDDEN = Problem("?", data=2 * 36)                                        # with 10 numbers, 6 is hidden


# Catches: exchanged + and -; a game that continues after the right number or after the last guess; a higher reward for
# fewer guesses.
def test_game_replies_and_rewards_only_the_right_number():
    task = make_task("guess:numbers=10,guesses=3")
    assert task.reward(HIDDEN, "4+8-6") == task.reward(HIDDEN, "6") == 1.0
    assert task.reward(HIDDEN, "4+8-7") == task.reward(HIDDEN, "4+") == 0.0
    assert played(task, "4+8-6", HIDDEN)[0] == [True, False, True, False, True]
    for text in ("4-", "8+", "6+", "4+4+4+", "44"):
        with pytest.raises(Disagreement):
            task.reward(HIDDEN, text)


# Catches: a character that is compared like a digit, so that the game continues.
@pytest.mark.parametrize("turn", ["+", "-", "?"])
def test_turn_that_is_not_a_digit_ends_the_game(turn):
    task = make_task("guess:numbers=10")
    assert task.reward(HIDDEN, turn) == 0.0
    with pytest.raises(Disagreement, match="is over"):
        task.reward(HIDDEN, turn + "-6")


# Catches: a hidden number out of range; a number that is never hidden; a game in both sets.
def test_hidden_numbers_cover_the_range_and_sets_are_disjoint():
    task, rng = make_task("guess:numbers=8"), np.random.default_rng(0)
    train, held_out = task.problems(2000, rng), task.problems(300, rng, held_out=True)
    for games in train, held_out:
        hidden = [next(c for c in "0123456789" if task.reward(p, c)) for p in games]
        assert {*hidden} == set("01234567") and max(map(hidden.count, set(hidden))) < 0.2 * len(games)
    assert not {p.data for p in train} & {p.data for p in held_out}


# Catches: a teacher that uses the answers, or leaves the range; text beyond the limit or the alphabet.
def test_teacher_guesses_at_random():
    task, rng = make_task("guess:numbers=10"), np.random.default_rng(1)
    problems = task.problems(3000, rng)
    games = [task.demonstration(p, rng) for p in problems]
    assert all(len(g) < task.max_tokens and set(g) <= set(task.alphabet) for g in games)
    solved = np.mean([task.reward(p, g) for p, g in zip(problems, games, strict=True)])
    expected = 1 - (1 - 1 / task.numbers)**task.guesses
    assert solved == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 3000)**0.5)
    last = [g[-1] for g, p in zip(games, problems, strict=True) if not task.reward(p, g)]
    assert all(0.06 < last.count(c) / len(last) < 0.14 for c in "0123456789")


@pytest.mark.parametrize(("text", "words"), [("guess:numbers=11", "numbers must be from 2 to 10"),
                                             ("guess:guesses=0", "guesses must be"), ("guess:size=3", "no option")])
def test_options_are_checked(text, words):
    with pytest.raises(UserError, match=words):
        make_task(text)
