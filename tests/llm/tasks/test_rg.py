"""Problems of reasoning-gym: its own scores, a split by prompts, and refusals that name what to type."""
import sys

import numpy as np
import pytest

from llm.tasks.make import make_task
from spinup.errors import UserError


# Catches: another score than reasoning-gym's; the first tags instead of the last; a prompt in both sets.
def test_scores_equal_those_of_reasoning_gym():
    pytest.importorskip("reasoning_gym")
    from reasoning_gym import create_dataset
    task, rng = make_task("rg:leg_counting,max_animals=3,size=3000"), np.random.default_rng(0)
    train, held_out = (task.problems(300, rng, out) for out in (False, True))
    assert not {p.prompt for p in train} & {p.prompt for p in held_out} and task.name == "rg_leg_counting"
    peer = create_dataset("leg_counting", max_animals=3, size=3000, seed=0)
    for problem in train[:50] + held_out[:5]:
        entry = peer[problem.data["metadata"]["source_index"]]
        assert entry == problem.data and problem.prompt.startswith(entry["question"].strip())
        assert len(entry["metadata"]["animals"]) == 3
        for answer in (entry["answer"], f"{entry['answer']} legs", "no", ""):
            score = peer.score_answer(answer, entry)
            assert task.reward(problem, f"<answer>0.5</answer> so\n<answer> {answer}\n</answer> legs") == score
            assert task.reward(problem, f" {answer} ") == score
        assert task.reward(problem, task.demonstration(problem, rng)) == 1.0


# Catches: a score that raises an error, which would end training; a demonstration for a generator without answers.
def test_answer_of_another_form_is_not_right():
    pytest.importorskip("reasoning_gym")
    task, rng = make_task("rg:graph_color,size=50"), np.random.default_rng(0)
    problem, = task.problems(1, rng)
    assert all(task.reward(problem, text) < 1 for text in ("", "[", "{}", "null", "9" * 5000, "[" * 10**5))
    with pytest.raises(UserError, match="rg_graph_color has no teacher"):
        task.demonstration(problem, rng)


# Catches: a traceback; a score that passes a response to `eval`; an endless search for held-out problems.
@pytest.mark.parametrize(("text", "words"), [
    ("rg", "the task rg needs a generator; write one such as rg:leg_counting"),
    ("rg:leg_countin", "no generator 'leg_countin'. Did you mean 'leg_counting'?"),
    ("rg:leg_counting,max_animal=3", "task rg:leg_counting has no setting 'max_animal'. Did you mean 'max_animals'?"),
    ("rg:leg_counting,max_animals=x", "in the task rg:leg_counting, max_animals must be a whole number, not 'x'"),
    ("rg:leg_counting,3", "--task rg:leg_counting,3: write settings as name=value"),
    ("rg:leg_counting,max_animals=0", "max_animals must be >= min_animals; choose other settings"),
    ("rg:countdown", "rg:countdown: its score runs responses as Python code; choose another generator"),
    ("rg:leg_counting,size=1", "too few different problems")])
def test_mistakes_are_named(text, words):
    pytest.importorskip("reasoning_gym")
    with pytest.raises(UserError) as error:
        task = make_task(text)
        for held_out in (False, True):
            task.problems(1, np.random.default_rng(0), held_out)
    assert words in str(error.value)


# Catches: a traceback for a missing package; a missing install command.
def test_missing_reasoning_gym_gives_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(UserError, match=r"needs reasoning_gym; type: pip install 'spinup-rl\[rg\]'"):
        make_task("rg:leg_counting")
