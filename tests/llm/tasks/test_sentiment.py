"""The task sentiment: the score of VADER, called directly, and the refusal without it."""
import sys

import numpy as np
import pytest

from llm.tasks.make import make_task
from spinup.errors import UserError


# Catches: another part of the score than compound; a score that includes the prompt; a prompt in both sets.
def test_reward_is_the_compound_score_of_vader():
    vader = pytest.importorskip("vaderSentiment.vaderSentiment")
    task, rng = make_task("sentiment"), np.random.default_rng(0)
    train, held_out = (task.problems(3000, rng, out) for out in (False, True))
    assert not {p.prompt for p in train} & {p.prompt for p in held_out} and task.measure == "held_out_reward"
    assert len({p.prompt for p in train + held_out}) > 500
    analyzer = vader.SentimentIntensityAnalyzer()
    for text in ("The train was great.", "The train was not great.", "An awful, ugly train!", "A train.", "", ":)"):
        assert task.reward(train[0], text) == analyzer.polarity_scores(text)["compound"]
    good, bad = (task.reward(train[0], text) for text in ("The train was great.", "The train was not great."))
    assert -1 <= bad < 0 < good <= 1 and task.reward(train[0], "wonderful amazing best love " * 5) > 0.99


# Catches: a traceback for a missing package; a missing install command.
def test_missing_vader_gives_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    with pytest.raises(UserError, match=r"needs vaderSentiment; type: pip install 'spinup-rl\[tasks\]'"):
        make_task("sentiment")
