"""GRPO and its variants: advantages and penalties computed by hand, and the groups that an update uses."""
import pytest
import torch

from llm.algos import grpo
from spinup.errors import UserError
from tests.llm.algos.conftest import close

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {"lacking": ["logp"]}

LIMIT = 3                               # tokens of a response to the task of `watch`
GOOD, BAD, MIXED = [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1]


# The functions.

# Catches: `correction=1`; the standard deviation over all groups; a division for the advantage "mean".
def test_group_advantage_is_centred_and_divided_by_the_group_std():
    rewards = torch.tensor([1.0, 0, 0, 1, 3, 1, 1, 1, 7, 7, 7, 7])
    close(grpo.standardised(rewards[:8].view(-1, 4), eps=0).flatten(), [1, -1, -1, 1, 3**0.5, *[-(3**-0.5)] * 3])
    close(grpo.group_advantage(rewards, 4)[8:], [0, 0, 0, 0])
    close(grpo.group_advantage(rewards, 4, "mean"), [0.5, -0.5, -0.5, 0.5, 1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0])
    close(grpo.group_advantage(rewards[:2], 2), [0.5 / 0.5001, -0.5 / 0.5001])


# Catches: the standard deviation of each group; the standard deviation of the rewards in place of their differences
# from the group mean; groups with zero variance that reduce it; NaN advantages in a batch where all groups have zero
# variance.
def test_magistral_advantage_is_divided_by_the_batch_standard_deviation():
    rewards = torch.tensor([[1.0, 0, 0, 0], [5, 5, 5, 9], [7, 7, 7, 7]])
    centred = torch.tensor([[0.75, -0.25, -0.25, -0.25], [-1, -1, -1, 3], [0, 0, 0, 0]])
    found = grpo.batch_standardised(rewards, eps=0)
    torch.testing.assert_close(found, centred / ((0.75 + 12) / 8) ** 0.5)
    assert float(found[:2].square().mean()) == pytest.approx(1)
    assert not grpo.batch_standardised(torch.full((2, 4), 0.7)).any()
    assert torch.equal(grpo.group_advantage(rewards.flatten(), 4, "batch"), grpo.batch_standardised(rewards).flatten())


# Catches: rows of other groups; padding that counts; a division by 0 for a group without a token.
def test_group_length_is_the_mean_over_the_group_and_at_least_1():
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert grpo.group_lengths(mask, 2)[:, 0].tolist() == [2, 2, 2, 2, 1, 1]


# Catches: a penalty that begins at the limit; a penalty below -1; a wrong sign; a division by a buffer of 0.
def test_overlong_penalty_falls_linearly_to_minus_1_at_the_limit():
    lengths = torch.tensor([1, 6, 7, 8, 9, 10, 12])
    close(grpo.overlong_penalty(lengths, 10, 4), [0, 0, -0.25, -0.5, -0.75, -1, -1])
    close(grpo.overlong_penalty(lengths, 10, 0), [0.0] * 7)


# Catches: weights of responses that GSPO's equation does not have; a user's own average that is refused.
@pytest.mark.parametrize("average", ["token", "constant", "group"])
def test_gspo_refuses_averages_that_weight_responses_by_length(average):
    with pytest.raises(UserError, match=f"^--loss sequence has .*; choose --average sequence, not {average}$"):
        grpo.Config(loss="sequence", average=average)
    assert grpo.Config(loss="sequence", average=lambda loss, mask: loss.sum()).loss == "sequence"


# Training runs.

# Catches: the scale of the other method; a denominator of tokens in place of rows; a denominator of only the rows that
# are used.
@pytest.mark.parametrize(("method", "scale", "rows"), [("grpo", 0.5001, 8), ("dr_grpo", 1.0, 8)])
def test_grpo_divides_by_the_standard_deviation_and_dr_grpo_does_not(method, scale, rows, watch):
    seen = watch(method, lambda draw: [1, 0, 1, 0, 1, 1, 1, 1], total_steps=1)
    (batch, used, adv, denominator), = seen.updates
    assert sorted(used.tolist()) == [0, 1, 2, 3] and denominator == rows and len(seen.drawn) == 1
    close(adv[:4, 0], torch.tensor([0.5, -0.5, 0.5, -0.5]) / scale)


# A bug of many libraries: they sample forever if a task is always or never solved. Catches: a missing limit of the
# rollouts; an update without rows, which divides by 0.
@pytest.mark.parametrize("rewards", [GOOD, BAD])
def test_dapo_skips_the_update_if_all_groups_have_zero_variance(rewards, watch):
    seen = watch("dapo", lambda draw: rewards * 2, total_steps=3, max_rollouts=4, overlong=0)
    assert seen.result.status == "finished" and len(seen.drawn) == 12 and not seen.updates
    assert seen.result.progress["reward"] == [rewards[0]] * 3


# Catches: groups with zero variance among the rows; rollouts that continue after there are enough groups; a logged
# reward of only the rows that are used; a denominator that includes the tokens of skipped groups.
def test_dapo_samples_until_enough_groups_vary(watch):
    draws = [GOOD + MIXED, MIXED + GOOD, GOOD + MIXED, MIXED + MIXED, MIXED + MIXED]
    seen = watch("dapo", lambda draw: draws[draw], total_steps=3, max_rollouts=3, overlong=0, minibatches=1)
    assert [len(update[0].rewards) for update in seen.updates] == [16, 16, 8]
    for (batch, rows, adv, denominator), used in zip(seen.updates, [[1, 2], [1, 2], [0, 1]], strict=True):
        assert sorted(rows.tolist()) == [4 * group + i for group in used for i in range(4)]
        assert denominator == batch.responses.mask[rows].sum()
        close(adv[rows].square(), torch.full((8, 1), (0.5 / 0.5001) ** 2))
    assert seen.result.progress["reward"] == [0.75, 0.625, 0.5]
    assert seen.result.progress["zero_variance"] == [0.5, 0.25, 0.0]


# Catches: more rows than requested, which would make the steps of easy tasks smaller.
def test_dapo_uses_at_most_the_requested_number_of_groups(watch):
    draws = [BAD + MIXED, MIXED + MIXED]
    seen = watch("dapo", lambda draw: draws[draw], total_steps=1, overlong=0, minibatches=1)
    assert sorted(seen.updates[0][1].tolist()) == list(range(4, 12))


# Catches: the requested number of minibatches in the denominator. If there are fewer, their steps would be larger.
def test_dapo_makes_no_more_minibatches_than_there_are_responses(watch):
    seen = watch("dapo", lambda draw: BAD + MIXED, total_steps=1, overlong=0, max_rollouts=2, minibatches=8)
    assert len(seen.updates) == 8 and all(len(update[1]) == 1 for update in seen.updates)
    seen = watch("dapo", lambda draw: [BAD + BAD, BAD + MIXED][draw], total_steps=1, overlong=0, max_rollouts=2,
                 minibatches=8)
    (batch, *_), rows = seen.updates[0], torch.cat([update[1] for update in seen.updates])
    assert len(seen.updates) == len(rows) == 4
    assert all(update[3] == batch.responses.mask[rows].sum() / 4 for update in seen.updates)


# Catches: a penalty within the task's own limit, which a correct answer needs; a missing penalty; a penalty in the
# logged reward.
def test_dapo_penalises_responses_beyond_the_limit_of_the_task(watch):
    seen = watch("dapo", lambda draw: GOOD + GOOD, total_steps=1, overlong=4, max_rollouts=1, minibatches=1)
    (batch, _, adv, _), = seen.updates
    lengths = batch.responses.lengths
    assert lengths.max() == LIMIT + 4 and lengths.min() < LIMIT           # the buffer comes after the task's limit
    rewards = torch.tensor([1 - max(0, n - LIMIT) / 4 for n in lengths.tolist()])
    close(adv[:, 0], grpo.group_advantage(rewards, 4))
    assert seen.result.progress["reward"] == [1.0]
