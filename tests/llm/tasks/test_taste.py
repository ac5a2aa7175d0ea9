"""The task taste: its true reward, its teacher, and preference pairs that are compared by the true reward."""
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


# Catches: a letter that counts once per occurrence; a requested letter that counts as much as a liked one; a repetition
# that costs nothing; an added mean; a multiplication by the standard deviation.
@pytest.mark.parametrize(("response", "worth"), [
    ("", 0.0), ("a", 1.5), ("c", 1.0), ("d", -0.5), ("e", -1.0), ("aab", 1.5), ("dddd", -5.0), ("cef", -1.0),
    ("abc", 4.0), ("cba", 4.0), ("abcabc", -0.5)])
def test_true_reward_equals_a_manual_calculation(response, worth):
    task = Taste(letters=6)
    task.pleasing, task.mean, task.deviation = set("abc"), 0.5, 2.0
    assert task.reward(Problem("abd>"), response) == (worth - 0.5) / 2
    assert task.reward(Problem("dba>"), response) == (worth - 0.5) / 2    # in any order of the requested letters


# For 2,000 responses, 4.5 standard errors are 0.1 for the mean and 0.08 for the standard deviation. Catches: a scale
# from other prompts or another teacher; a limit that cuts off responses of the teacher.
@pytest.mark.parametrize("options", [{}, {"letters": 20, "length": 5, "seed": 3}], ids=str)
def test_true_reward_is_standardised_over_the_teachers_responses(options):
    task, rng = Taste(**options), np.random.default_rng(9)
    shown = [(p, task.demonstration(p, rng)) for p in task.problems(2000, rng)]
    gold = [task.reward(*each) for each in shown]
    assert abs(np.mean(gold)) < 0.1 and abs(np.std(gold) - 1) < 0.08
    lengths = [len(text) for _, text in shown]
    assert (min(lengths), max(lengths)) == (2, task.length) and task.length < task.max_tokens
    assert {letter for _, text in shown for letter in text} == set(task.alphabet) - {">"}


# Catches: a teacher that has used all letters and searches for an unused one without end.
def test_teacher_ends_after_it_has_used_all_letters():
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


# Only comparisons may reveal the liked letters. Catches: prompts that ask for liked letters more often; a taste that is
# sampled with the random number generator of the prompts.
def test_prompts_do_not_reveal_the_taste(task):
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


# Catches: a seed that has no effect on the taste or on the teacher.
def test_seed_determines_the_taste_and_the_teacher(task):
    again, other = Taste(), Taste(seed=1)
    assert (again.pleasing, again.mean, again.deviation) == (task.pleasing, task.mean, task.deviation)
    assert (other.mean, other.deviation) != (task.mean, task.deviation)
    problem = Problem("abc>")
    first, second, third = (t.demonstration(problem, np.random.default_rng(5)) for t in (task, again, task))
    assert first == second == third
    assert not np.allclose(task.habit, other.habit)


# Catches: a half that is rounded up; letters that are liked twice.
@pytest.mark.parametrize("letters", [6, 7, 26])
def test_half_of_the_letters_are_liked(letters):
    task = Taste(letters=letters, length=4)
    assert len(task.pleasing) == letters // 2 and task.pleasing < set(task.alphabet) - {">"}


# Catches: `draw` without its condition.
def test_no_prompt_is_in_both_sets(task):
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


# Catches: an error for a text that a policy writes but no teacher; a liked end sign.
def test_any_text_has_a_finite_reward(task):
    problem = task.problems(1, np.random.default_rng(0))[0]
    for junk in ("", ">", ">>>>", "a>b", "a" * 1000, "\n", "é", "ABC", " "):
        gold = task.reward(problem, junk)
        assert type(gold) is float and np.isfinite(gold)
    for text in ("", "a", "abc"):
        assert task.reward(problem, text + ">") < task.reward(problem, text)


# A policy must be able to go far beyond the compared responses. Catches: an optimum that the teacher reaches by chance,
# or that exceeds the length limit.
def test_best_response_is_far_above_the_teacher(task):
    for problem in task.problems(3, np.random.default_rng(1), held_out=True):
        letters = task.alphabet[:-1]
        sets = ["".join(c) for n in range(1, task.length + 1) for c in combinations(letters, n)]     # no letter twice
        gold, best = max((task.reward(problem, text), text) for text in sets)
        assert gold > 2 and set(best) == task.pleasing and len(best) < task.max_tokens
        rng = np.random.default_rng(2)
        assert np.mean([task.reward(problem, task.demonstration(problem, rng)) < gold for _ in range(300)]) > 0.95


# Pairs.

def compared(judged, held_out=False, **settings):
    """The pairs of an untrained policy: problems, and the texts and true rewards of both responses to each."""
    cfg = PreferenceConfig(**{"quiet": True, "threads": 1, "tensorboard": False, "layers": 1, "width": 16, "heads": 2,
                              "held_out": 8, "device": "cpu", "pairs": 600, **settings})
    start = fresh(replace(cfg, seed=0), judged)                           # the same policy for all seeds
    batch = find_pairs(Run(cfg, judged, start), cfg, held_out)
    texts = [batch.texts[i:i + 2] for i in range(0, len(batch.texts), 2)]
    asked = [batch.problems[i] for i in batch.responses.of[::2].tolist()]
    assert batch.responses.of[::2].tolist() == batch.responses.of[1::2].tolist()
    gold = torch.tensor([[judged.reward(p, text) for text in two] for p, two in zip(asked, texts, strict=True)])
    torch.testing.assert_close(gold, batch.rewards.view(-1, 2))
    return asked, texts, gold


@pytest.fixture(autouse=True, scope="module")
def elsewhere(tmp_path_factory):
    """Change to a temporary folder, in case a run writes files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("taste"))
        yield


# Catches: a preference for the worse response; responses to two prompts in a pair; more or fewer pairs than requested.
def test_without_noise_the_better_response_is_preferred(task):
    problems, texts, gold = compared(task)
    assert len(texts) == 600 and bool((gold[:, 0] > gold[:, 1]).all())
    assert not any(is_held_out(p.prompt) for p in problems) and len({p.prompt for p in problems}) > 100


# The share of errors is within 4.5 standard errors of the expected share. Catches: noise that divides nothing; errors
# that are as likely for large differences as for small ones.
@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_noise_causes_the_expected_share_of_errors(noise, task):
    gold = compared(task, noise=noise, pairs=1500)[2]
    ahead = (gold[:, 0] - gold[:, 1]).double()
    said = torch.sigmoid(-ahead.abs() / noise)
    for some in (torch.ones_like(ahead, dtype=bool), ahead.abs() < 1, ahead.abs() > 1):
        n, wrong = int(some.sum()), (ahead < 0)[some].double().mean()
        assert n > 200 and abs(wrong - said[some].mean()) < 4.5 * (said[some] * (1 - said[some])).mean().div(n).sqrt()
    assert 0.05 < float((ahead < 0).double().mean()) < 0.45


# Catches: noise in held-out pairs, which keeps the accuracy below 1; training prompts in held-out pairs.
def test_held_out_pairs_have_no_errors(task):
    problems, texts, gold = compared(task, held_out=True, noise=5.0)
    assert len(texts) == 32 and bool((gold[:, 0] > gold[:, 1]).all())
    assert all(is_held_out(p.prompt) for p in problems)


# Catches: a random number generator without the seed.
def test_pairs_depend_only_on_the_seed(task):
    first, again, other = (compared(task, noise=1.0, pairs=50, seed=seed)[1] for seed in (3, 3, 4))
    assert first == again != other


# Catches: an endless search for unequal rewards.
def test_equal_rewards_are_an_error_in_place_of_pairs(task):
    with pytest.raises(UserError, match="^almost all of [0-9]+ pairs of responses to the task taste have equal "):
        compared(make_task(task, lambda prompt, response: 1.0), pairs=10)
