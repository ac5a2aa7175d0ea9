"""Properties of all tasks that generate their own problems."""
import numpy as np
import pytest

from llm.tasks import make_task
from llm.tasks.episodes import called

TASKS = ["copy", "reverse", "sort", "copy:length=2,symbols=10", "sort:length=9,symbols=26", "addition:teacher=perfect",
         "addition:digits=1,teacher=perfect", "addition:digits=18,teacher=perfect", "countdown", "countdown:numbers=2",
         "countdown:numbers=4,largest=25", "calculator", "calculator:digits=1,calls=1", "calculator:digits=9"]
each_task = pytest.mark.parametrize("text", TASKS)


# Catches: `draw` without its condition; a task that does not pass on `held_out`.
@each_task
def test_no_prompt_is_in_both_sets(text):
    task, rng = make_task(text), np.random.default_rng(0)
    train = {p.prompt for p in task.problems(400, rng)}
    held_out = {p.prompt for p in task.problems(100, rng, held_out=True)}
    assert train and held_out and not train & held_out


# Catches: a problem that is sampled with another random number generator, or from a set, whose order changes.
@each_task
def test_same_seed_gives_the_same_problems(text):
    task = make_task(text)
    first, again, other = (task.problems(20, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert first == again != other


# Catches: a demonstration of other numbers than the prompt's; a verifier that expects another answer; an answer that
# does not solve its problem; a character that is missing in the alphabet; max_tokens without the end token.
@each_task
def test_perfect_teacher_is_right_and_within_alphabet_and_length(text):
    task, rng = make_task(text), np.random.default_rng(1)
    for problem in [*task.problems(100, rng), *task.problems(20, rng, held_out=True)]:
        shown = task.demonstration(problem, rng)
        assert task.reward(problem, shown) == task.reward(problem, problem.answer) == 1.0
        assert set(problem.prompt + problem.answer + shown) <= set(task.alphabet)
        assert len(shown) + 1 <= task.max_tokens
    assert len(set(task.alphabet)) == len(task.alphabet)


# Catches: a verifier that compares only a prefix, a part of the answer, or its length.
@each_task
def test_nearly_right_responses_have_reward_0(text):
    task, rng = make_task(text), np.random.default_rng(2)
    for problem in task.problems(20, rng):
        last = task.alphabet[(task.alphabet.index(problem.answer[-1]) + 1) % len(task.alphabet)]
        for response in ("", problem.answer[:-1], problem.answer[:-1] + last, problem.answer + last):
            assert task.reward(problem, response) == 0.0


# Catches: a tool's output in a task without a tool.
@pytest.mark.parametrize("text", [text for text in TASKS if "calculator" not in text])
def test_without_a_tool_all_characters_are_the_policys(text):
    task = make_task(text)
    assert called(task, task.alphabet + "[1+1]")[0] == [True] * (len(task.alphabet) + 5)
