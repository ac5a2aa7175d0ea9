"""Best-of-n: the best response of each group, its KL divergence by enumeration, and what a run imitates."""
import pytest
import torch

from llm.algos import best_of_n
from llm.tasks import testbed as bed

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {"settings": {"prompts": 4, "samples": 4, "keep": 0.1}, "own": ["winners"]}


# Catches: the last of several equal rewards; a reward above `keep` in place of at least `keep`; the best of the whole
# batch.
def test_winners_are_the_first_best_rows_of_groups_that_reach_keep():
    rewards = torch.tensor([0.0, 1, 1, 0.5, 0.2, 0.9, 3, 2, 3])
    assert best_of_n.winners(rewards, 3, 1.0).tolist() == [1, 6]
    assert best_of_n.winners(rewards, 3, 0.9).tolist() == [1, 5, 6]
    assert best_of_n.winners(rewards, 3, 4.0).tolist() == []


# Catches: log n without the term (n - 1) / n, which is also an upper bound, but never reached.
def test_kl_of_best_of_n_is_close_to_its_upper_bound():
    testbed = bed.Testbed()
    log_p = testbed.log_probs(bed.TabularPolicy(scale=0.3)).detach()
    order = testbed.rewards.argsort()
    below = torch.cat([torch.zeros(1).double(), log_p[order].exp().cumsum(0)])               # P(a worse response)
    assert best_of_n.kl_of_best(1) == 0
    for n in 2, 4, 8:
        best = (below[1:] ** n - below[:-1] ** n).clamp(min=1e-300).log()                    # of the best of n
        reached = float(bed.kl(best, log_p[order]))
        assert 0.8 * best_of_n.kl_of_best(n) < reached < best_of_n.kl_of_best(n)


# Catches: rows other than the best; a denominator with the tokens of all responses; in the control experiment, a
# response to a prompt without a winner, or a number of responses other than the number of winners.
@pytest.mark.parametrize("select", ["best", "random"])
def test_best_of_n_imitates_the_best_or_random_responses(select, watch):
    rewards = [0, 2, 0, 1, 0.5, 0.9, 0, 0, 0, 0, 0, 1]
    seen = watch("best_of_n", lambda draw: rewards, total_steps=4, prompts=3, select=select)
    chosen = [sorted(rows.tolist()) for _, rows, *_ in seen.updates]
    if select == "best":
        assert chosen == [[1, 11]] * 4
    else:
        assert all(a // 4 == 0 and b // 4 == 2 for a, b in chosen) and len({a for a, _ in chosen}) > 1
    assert all(denominator == batch.responses.mask[rows].sum() for batch, rows, _, denominator in seen.updates)
