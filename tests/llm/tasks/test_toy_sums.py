"""The small tasks for votes, length control and languages: modular, scratchpad, two_scripts."""
from collections import Counter

import numpy as np
import pytest

from llm.tasks import make_task
from llm.tasks.modular import NUMERALS, Modular
from llm.tasks.scratchpad import Scratchpad
from llm.tasks.two_scripts import SCRIPTS, TwoScripts
from spinup.errors import UserError


# Catches: another modulus; numerals of another base.
def test_modular_sums_are_right_in_base_36():
    for problem in Modular(modulus=23).problems(200, np.random.default_rng(0)):
        a, b = (int(x, 36) for x in problem.prompt[:-1].split("+"))
        assert int(problem.answer, 36) == (a + b) % 23 and len(problem.prompt) == 4
    assert [int(x, 36) for x in NUMERALS] == list(range(36))


# Catches: mistakes that are sampled once per prompt; another share of mistakes than `noise`.
@pytest.mark.parametrize("noise", [0.4, 0.8])
def test_right_answer_is_the_most_common_demonstration(noise):
    task, rng = Modular(noise=noise), np.random.default_rng(0)
    problem = task.problems(1, rng)[0]
    shown = Counter(task.demonstration(problem, rng) for _ in range(4000))
    assert shown.most_common(1)[0][0] == problem.answer and len(shown) == 23
    assert shown[problem.answer] / 4000 == pytest.approx(1 - noise + noise / 23, abs=0.03)


# Catches: a wrong partial sum; demonstrations without superfluous steps; a verifier of more than the last number.
def test_scratchpad_ends_with_the_sum():
    task, rng = Scratchpad(), np.random.default_rng(0)
    lengths = []
    for problem in task.problems(300, rng):
        numbers = [int(x) for x in problem.prompt[:-1].split("+")]
        shown = task.demonstration(problem, rng)
        steps, _, last = shown.rpartition("#")
        sums = [str(sum(numbers[:n]) % 10) for n in range(2, len(numbers) + 1)]
        assert {*steps.split(";")[:-1]} <= {*sums} and last == sums[-1] and len(shown) < task.max_tokens
        lengths.append(len(shown) + 1)
        assert task.reward(problem, shown) == task.reward(problem, f"#{last}") == 1 > task.reward(problem, last)
    assert np.mean(lengths) == pytest.approx(2 * 2 * 3 + 3, abs=1)         # tokens; three are enough
    assert make_task("scratchpad").answer_of(None, "1;2") is None


# Catches: a teacher that answers Greek in Greek more often, or Latin in Greek; a strict task that accepts both scripts.
def test_two_scripts_write_the_same_sums():
    task, rng = TwoScripts(rare=0.1), np.random.default_rng(0)
    strict, script = TwoScripts(rule="strict"), TwoScripts(rule="script")
    greek, own = [], 0
    values = {c: str(i) for letters in SCRIPTS.values() for i, c in enumerate(letters)}
    for problem in task.problems(2000, rng):
        a, b = (int("".join(values[c] for c in reversed(x))) for x in problem.prompt[:-1].split("+"))
        assert a + b == int("".join(values[c] for c in reversed(problem.answer)))
        shown = task.demonstration(problem, rng)
        assert task.reward(problem, shown) == 1 and strict.reward(problem, shown) == float(shown == problem.answer)
        assert script.reward(problem, shown) == script.reward(problem, shown[0]) == float(shown == problem.answer)
        assert task.reward(problem, "") == strict.reward(problem, "") == script.reward(problem, "") == 0
        if problem.prompt[0] in SCRIPTS["greek"]:
            greek.append(problem)
            own += shown[0] in SCRIPTS["greek"]
        else:
            assert shown == problem.answer and shown[0] in SCRIPTS["latin"]
    assert len(greek) / 2000 == pytest.approx(0.5, abs=0.05) and own / len(greek) == pytest.approx(0.1, abs=0.04)
    only = TwoScripts(script="greek").problems(20, rng, True)
    assert {c for p in only for c in p.prompt + p.answer} <= {*SCRIPTS["greek"], "+", "="}


# Catches: an option that is not checked.
@pytest.mark.parametrize("text", ["modular:modulus=9", "modular:noise=2", "scratchpad:terms=2", "two_scripts:rare=2",
                                  "two_scripts:script=cyrillic"])
def test_options_are_checked(text):
    with pytest.raises(UserError, match=f"in the task {text.partition(':')[0]}, "):
        make_task(text)


# Catches: an option with the name of an attribute of every task, such as `judge`.
@pytest.mark.parametrize("name", ["modular", "scratchpad", "two_scripts"])
def test_no_option_hides_an_attribute_of_a_task(name):
    task = make_task(name)
    assert task.judge is None and task.open is None and task.measure == "held_out_accuracy" and task.fewest == 1
