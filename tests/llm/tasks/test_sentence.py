"""The task sentence: the four quarters of its reward, and prompts that are never in both sets."""
import numpy as np
import pytest

from llm.tasks.sentence import PAIRS, Sentence
from spinup.errors import UserError


# Catches: a word that is found inside another one; a missing check of the sentence's end or of its number of words.
@pytest.mark.parametrize("response, earned", [
    ("The cat plays a piano.", 1.0), ("The cats like the PIANO!", 1.0), ("A cat and a piano.", 1.0), ("", 0.0),
    ("The category of pianists.", 0.5), ("The cat plays a piano", 0.75), ("A cat. A piano.", 0.75),
    ("The cat plays the piano, and the dog listens to it all day and all night long.", 0.75), ("No.", 0.5)])
def test_reward_has_four_quarters(response, earned):
    task = Sentence()
    problem = next(p for p in task.problems(5000, np.random.default_rng(0)) if p.data == ("cat", "piano"))
    assert problem.prompt == "Write one short sentence about a cat and a piano."
    assert task.reward(problem, response) == earned


def test_no_prompt_is_in_both_sets():
    task, rng = Sentence(), np.random.default_rng(0)
    train, held_out = ({p.prompt for p in task.problems(4000, rng, out)} for out in (False, True))
    assert not train & held_out and len(train | held_out) > 0.95 * len(PAIRS)
    with pytest.raises(UserError, match="has no teacher"):
        task.demonstration(task.problems(1, rng)[0], rng)
