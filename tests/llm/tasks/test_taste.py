"""A taste that is known here and to be learned elsewhere, and the pairs that are compared by it."""
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from llm.config import PreferenceConfig
from llm.policy.load import fresh
from llm.preferences import find_pairs
from llm.run import Run
from llm.tasks import make_task
from llm.tasks.task import Problem, is_held_out
from llm.tasks.taste import Taste
from spinup.errors import UserError


@pytest.fixture(scope="module")
def task():
    return Taste()


def prompts(task, n, seed=0, held_out=False):
    return [p.prompt for p in task.problems(n, np.random.default_rng(seed), held_out)]


# Catches: a letter that counts as often as it stands there; one that was asked for and counts as much as a
# pleasing one; a repetition that costs nothing; a mean added, or a deviation multiplied.
@pytest.mark.parametrize(("response", "worth"), [
    ("", 0.0), ("a", 1.5), ("c", 1.0), ("d", -0.5), ("e", -1.0), ("aab", 1.5), ("dddd", -5.0), ("cef", -1.0),
    ("abc", 4.0), ("cba", 4.0), ("abcabc", -0.5)])
def test_gold_by_hand(response, worth):
    task = Taste(letters=6)
    task.pleasing, task.mean, task.deviation = set("abc"), 0.5, 2.0
    assert task.reward(Problem("abd>"), response) == (worth - 0.5) / 2
    assert task.reward(Problem("dba>"), response) == (worth - 0.5) / 2    # in whatever order they are asked for


# Of 2,000 answers the mean is within 0.1 of 0 by 4.5 standard errors, and the deviation within 0.08 of 1 by as much.
# Catches: a scale from other prompts or another teacher than these; a limit that cuts the teacher off.
@pytest.mark.parametrize("options", [{}, {"letters": 20, "length": 5, "seed": 3}], ids=str)
def test_gold_has_mean_0_and_deviation_1_over_the_teacher(options):
    task, rng = Taste(**options), np.random.default_rng(9)
    shown = [(p, task.demonstration(p, rng)) for p in task.problems(2000, rng)]
    gold = [task.reward(*each) for each in shown]
    assert abs(np.mean(gold)) < 0.1 and abs(np.std(gold) - 1) < 0.08
    lengths = [len(text) for _, text in shown]
    assert (min(lengths), max(lengths)) == (2, task.length) and task.length < task.max_tokens
    assert {letter for _, text in shown for letter in text} == set(task.alphabet) - {">"}


# Catches: a teacher that looks for a letter it has not used where it has used all of them, and never ends.
def test_a_teacher_whose_letters_are_all_used_ends():
    class Impatient:
        def __init__(self):
            self.rng, self.draws = np.random.default_rng(0), 0

        def __getattr__(self, name):
            self.draws += 1
            assert self.draws < 20_000, "the teacher does not end"
            return getattr(self.rng, name)

    task, rng = Taste(letters=6, length=2), Impatient()
    task.length = 40
    for problem in task.problems(20, np.random.default_rng(0)):
        assert 2 <= len(task.demonstration(problem, rng)) <= 40


# What pleases is to be found by comparing alone. Catches: prompts that ask for pleasing letters oftener; a taste
# drawn from the generator that draws the prompts.
def test_prompts_do_not_tell_the_taste(task):
    tastes = [task, *(Taste(seed=seed) for seed in (1, 2, 3))]
    assert len({frozenset(taste.pleasing) for taste in tastes}) > 1
    assert len({tuple(prompts(taste, 50)) for taste in tastes}) == 1
    counts = dict.fromkeys(task.alphabet[:-1], 0)
    for prompt in prompts(task, 2000):
        assert len(set(prompt[:3])) == 3 and prompt[3:] == ">"
        for letter in prompt[:3]:
            counts[letter] += 1
    share = 3 / task.letters
    assert all(abs(n / 2000 - share) < 4.5 * (share * (1 - share) / 2000) ** 0.5 for n in counts.values())


# Catches: a seed that is not used, for the taste or for the teacher.
def test_a_seed_is_one_taste(task):
    again, other = Taste(), Taste(seed=1)
    assert (again.pleasing, again.mean, again.deviation) == (task.pleasing, task.mean, task.deviation)
    assert (other.mean, other.deviation) != (task.mean, task.deviation)
    problem = Problem("abc>")
    first, second, third = (t.demonstration(problem, np.random.default_rng(5)) for t in (task, again, task))
    assert first == second == third
    assert not np.allclose(task.habit, other.habit)


# Catches: a half rounded up, or letters that please twice.
@pytest.mark.parametrize("letters", [6, 7, 26])
def test_half_of_the_letters_please(letters):
    task = Taste(letters=letters, length=4)
    assert len(task.pleasing) == letters // 2 and task.pleasing < set(task.alphabet) - {">"}


# Catches: `draw` without its condition.
def test_no_prompt_is_on_both_sides(task):
    learned, tested = set(prompts(task, 400)), set(prompts(task, 200, held_out=True))
    assert not learned & tested and all(map(is_held_out, tested)) and len(tested) > 10


# Catches: an option that is not checked.
@pytest.mark.parametrize(("options", "words"), [
    ({"letters": 5}, "letters must be from 6 to 26, not 5"), ({"letters": 27}, "letters must be from 6 to 26, not 27"),
    ({"length": 1}, "length must be from 2 to 100, not 1"), ({"length": 101}, "length must be from 2 to 100, not 101"),
    ({"seed": -1}, "seed must be from 0 to"), ({"letters": "8"}, "letters must be a whole number")])
def test_options_are_checked(options, words):
    with pytest.raises(UserError, match=words) as caught:
        Taste(**options)
    assert "taste" in str(caught.value) and "--" not in str(caught.value)


# Catches: an error for what no teacher would write, but a policy does; a sign of the end that pleases.
def test_whatever_is_written_is_worth_a_finite_number(task):
    problem = task.problems(1, np.random.default_rng(0))[0]
    for junk in ("", ">", ">>>>", "a>b", "a" * 1000, "\n", "é", "ABC", " "):
        gold = task.reward(problem, junk)
        assert type(gold) is float and np.isfinite(gold)
    for text in ("", "a", "abc"):
        assert task.reward(problem, text + ">") < task.reward(problem, text)


# A learned reward is to be pushed well beyond what was compared. Catches: an optimum that the teacher reaches by
# chance, or that is too long to be written.
def test_the_best_response_is_far_above_the_teacher(task):
    for problem in task.problems(3, np.random.default_rng(1), held_out=True):
        letters = task.alphabet[:-1]
        sets = ["".join(c) for n in range(1, task.length + 1) for c in combinations(letters, n)]     # no letter twice
        gold, best = max((task.reward(problem, text), text) for text in sets)
        assert gold > 2 and set(best) == task.pleasing and len(best) < task.max_tokens
        rng = np.random.default_rng(2)
        assert np.mean([task.reward(problem, task.demonstration(problem, rng)) < gold for _ in range(300)]) > 0.95


# Pairs.

def compared(judged, held_out=False, **settings):
    """The pairs of a policy that has learned nothing: problems, and texts and gold of both responses of each."""
    cfg = PreferenceConfig(**{"quiet": True, "threads": 1, "tensorboard": False, "layers": 1, "width": 16, "heads": 2,
                              "held_out": 8, "device": "cpu", "pairs": 600, **settings})
    start = fresh(replace(cfg, seed=0), judged)                           # the same policy whatever the seed
    batch = find_pairs(Run(cfg, judged, start), cfg, held_out)
    texts = [batch.texts[i:i + 2] for i in range(0, len(batch.texts), 2)]
    asked = [batch.problems[i] for i in batch.responses.of[::2].tolist()]
    assert batch.responses.of[::2].tolist() == batch.responses.of[1::2].tolist()
    gold = torch.tensor([[judged.reward(p, text) for text in two] for p, two in zip(asked, texts, strict=True)])
    torch.testing.assert_close(gold, batch.rewards.view(-1, 2))
    return asked, texts, gold


@pytest.fixture(autouse=True, scope="module")
def elsewhere(tmp_path_factory):
    """Runs would be in a folder of their own, if there were one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("taste"))
        yield


# Catches: the worse one preferred; responses to two prompts in a pair; more or fewer of them than were asked.
def test_without_noise_the_better_one_is_preferred(task):
    problems, texts, gold = compared(task)
    assert len(texts) == 600 and bool((gold[:, 0] > gold[:, 1]).all())
    assert not any(is_held_out(p.prompt) for p in problems) and len({p.prompt for p in problems}) > 100


# The share of errors is within 4.5 standard errors of what the noise means. Catches: noise that divides nothing,
# or as likely to err where the difference is large.
@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_noise_errs_as_often_as_it_says(noise, task):
    gold = compared(task, noise=noise, pairs=1500)[2]
    ahead = (gold[:, 0] - gold[:, 1]).double()
    said = torch.sigmoid(-ahead.abs() / noise)
    for some in (torch.ones_like(ahead, dtype=bool), ahead.abs() < 1, ahead.abs() > 1):
        n, wrong = int(some.sum()), (ahead < 0)[some].double().mean()
        assert n > 200 and abs(wrong - said[some].mean()) < 4.5 * (said[some] * (1 - said[some])).mean().div(n).sqrt()
    assert 0.05 < float((ahead < 0).double().mean()) < 0.45


# Catches: an accuracy that noise keeps below 1; prompts that were learned from.
def test_held_out_pairs_have_no_errors(task):
    problems, texts, gold = compared(task, held_out=True, noise=5.0)
    assert len(texts) == 32 and bool((gold[:, 0] > gold[:, 1]).all())
    assert all(is_held_out(p.prompt) for p in problems)


# Catches: a generator without the seed.
def test_pairs_hang_on_the_seed_alone(task):
    first, again, other = (compared(task, noise=1.0, pairs=50, seed=seed)[1] for seed in (3, 3, 4))
    assert first == again != other


# Catches: a search that never ends.
def test_where_all_earns_the_same_nothing_is_compared(task):
    with pytest.raises(UserError, match="^almost all of [0-9]+ pairs of responses to the task taste have equal "):
        compared(make_task(task, lambda prompt, response: 1.0), pairs=10)
