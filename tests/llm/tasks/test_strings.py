"""Copy, reverse, sort."""
from itertools import product
from string import ascii_lowercase

import numpy as np
import pytest

from llm.tasks.strings import Copy, Reverse, Sort
from llm.tasks.task import is_held_out
from spinup.errors import UserError


# Catches: an answer of another task; a prompt without its end sign; letters beyond `symbols`.
def test_answers_are_copied_reversed_or_sorted():
    rng = np.random.default_rng(0)
    for cls, solve in ((Copy, str), (Reverse, lambda s: s[::-1]), (Sort, lambda s: "".join(sorted(s)))):
        problems = cls(length=5, symbols=4).problems(200, rng)
        assert all(p.answer == solve(p.prompt[:-1]) and len(p.prompt) == 6 and p.prompt[-1] == ">" for p in problems)
        assert {c for p in problems for c in p.prompt} == set("abcd>")


# Every allowed setting of a length includes the prompts of the smallest one. Catches: a lower limit on the number of
# prompts, with which none is held out and `problems` never returns.
@pytest.mark.parametrize("length", range(2, 10))
def test_every_allowed_setting_has_prompts_for_both_sets(length):
    symbols = next(s for s in range(2, 27) if s ** length >= 100)
    Copy(length, symbols)
    prompts = ("".join(letters) + ">" for letters in product(ascii_lowercase[:symbols], repeat=length))
    assert {is_held_out(prompt) for prompt in prompts} == {True, False}


# Catches: an option that is not checked.
@pytest.mark.parametrize(("options", "words"), [
    ({"length": 0}, "length must be from 1 to 100, not 0"), ({"symbols": 27}, "symbols must be from 2 to 26, not 27"),
    ({"length": "8"}, "length must be a whole number"), ({"length": 1, "symbols": 26}, "makes 26; raise length")])
def test_options_are_checked(options, words):
    with pytest.raises(UserError, match=words) as caught:
        Reverse(**options)
    assert "reverse" in str(caught.value) and "--" not in str(caught.value)
