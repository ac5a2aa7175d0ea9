"""Number guessing: what the environment answers, what ends a game, and what the teacher does."""
import numpy as np
import pytest

from llm.tasks import Problem, make_task
from llm.tasks.episodes import Disagreement, replay
from spinup.errors import UserError

HIDDEN = Problem("20-27:", data=22)


# Turned red by: + and - exchanged; a game that goes on after the right number or after the last guess; a reward for
# fewer guesses.
def test_a_game():
    task = make_task("guess:numbers=8,guesses=3")
    assert task.reward(HIDDEN, "24?-20?+22?") == task.reward(HIDDEN, "22?") == 1.0
    assert task.reward(HIDDEN, "24?-20?+21?") == task.reward(HIDDEN, "24?-2") == 0.0
    assert replay(task, "24?-22?", HIDDEN) == [True, True, True, False, True, True, True]
    for text in ("24?+", "20?-", "22?+", "24?-24?-24?-"):
        with pytest.raises(Disagreement):
            task.reward(HIDDEN, text)


# Turned red by: a text that Python reads as a number; an error of `int`.
@pytest.mark.parametrize("turn", ["?", "2-?", "+22?", "022?", "22:?", "-22?", "2" * 5000 + "?"])
def test_a_turn_that_is_no_number_ends_the_game(turn):
    task = make_task("guess")
    assert task.reward(HIDDEN, turn) == 0.0
    with pytest.raises(Disagreement, match="is over"):
        task.reward(HIDDEN, turn + "-22?")


# Turned red by: a range of another size, or beyond 99; a hidden number outside the range; prompts on both sides.
def test_prompts():
    task, rng = make_task("guess:numbers=10"), np.random.default_rng(0)
    train, held_out = task.problems(2000, rng), task.problems(300, rng, held_out=True)
    bounds = {tuple(map(int, p.prompt[:-1].split("-"))) for p in [*train, *held_out]}
    assert bounds == {(low, low + 9) for low in range(1, 91)}
    assert {p.data - int(p.prompt.split("-")[0]) for p in train} == set(range(10))
    assert not {p.prompt for p in train} & {p.prompt for p in held_out}


# Turned red by: a teacher that uses the answers, or leaves the range; text beyond the limit or the alphabet.
def test_the_teacher_guesses_at_random():
    task, rng = make_task("guess"), np.random.default_rng(1)
    problems = task.problems(3000, rng)
    games = [task.demonstration(p, rng) for p in problems]
    assert all(len(g) + 1 <= task.max_tokens + 1 and set(g) <= set(task.alphabet) for g in games)
    solved = np.mean([task.reward(p, g) for p, g in zip(problems, games, strict=True)])
    expected = 1 - (1 - 1 / task.numbers)**task.guesses
    assert solved == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 3000)**0.5)
    last = [int(g.split("?")[-2].strip("+-")) for g in games if g.count("?") == task.guesses]
    low = [int(p.prompt.split("-")[0]) for p, g in zip(problems, games, strict=True) if g.count("?") == task.guesses]
    assert {a - b for a, b in zip(last, low, strict=True)} == set(range(task.numbers))


@pytest.mark.parametrize(("text", "words"), [("guess:numbers=91", "numbers must be from 2 to 90"),
                                             ("guess:guesses=0", "guesses must be"), ("guess:size=3", "no option")])
def test_options_are_checked(text, words):
    with pytest.raises(UserError, match=words):
        make_task(text)
