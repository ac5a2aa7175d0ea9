"""Preference pairs: which responses are compared, and the order of the pairs in training."""
import math

import numpy as np
import pytest
import torch

from llm.preferences import compare, rows_of, shuffled


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# Catches: the last response in place of the worst; rows of another group; a pair of equal rewards that is kept.
def test_compare_pairs_the_best_and_the_worst_of_each_group():
    rewards, rng = torch.tensor([0.0, 3, 1, 2, 2, 2, 5, 5, -1]), np.random.default_rng(0)
    assert compare(rewards, 3, 0.0, rng).tolist() == [[1, 0], [6, 8]]
    assert compare(torch.tensor([1.0, 1, 0, 0]), 2, 1.0, rng).shape == (0, 2)                # with noise too


# Catches: a probability of sigmoid(noise * difference), or one without the difference; labels that are exchanged with
# the probability with which they should be kept.
@pytest.mark.parametrize(("gap", "noise"), [(0.5, 1.0), (2.0, 1.0), (0.5, 0.25), (3.0, 0.01)])
def test_noise_of_comparisons_follows_bradley_terry(gap, noise):
    n = 10_000
    rows = compare(torch.tensor([0.25, 0.25 + gap]).repeat(n), 2, noise, np.random.default_rng(5))
    wrong = (rows[:, 0] < rows[:, 1]).float().mean().item()             # the worse response is chosen
    chance = sigmoid(-gap / noise)
    assert rows.sort(1).values.equal(torch.arange(2 * n).view(-1, 2))
    assert abs(wrong - chance) <= 4 * math.sqrt(chance * (1 - chance) / n)


# Catches: only `2 * pairs`; all chosen responses before all rejected ones.
def test_rows_of_pairs_alternate_chosen_and_rejected():
    assert rows_of(torch.tensor([3, 0, 7])).tolist() == [6, 7, 0, 1, 14, 15]


# Catches: pairs sampled independently for each update; the same order in each pass; the same pairs left out of each
# pass; a generator that all updates share, which starts from the beginning in a resumed run.
@pytest.mark.parametrize(("n", "batch"), [(12, 4), (13, 4), (3, 8), (1, 1)])
def test_each_pass_uses_each_pair_at_most_once(n, batch):
    size, each = min(n, batch), n // min(n, batch)
    drawn = [shuffled(n, batch, update, seed=1).tolist() for update in range(40 * each)]
    assert all(len(rows) == size for rows in drawn)
    passes = [[i for rows in drawn[k:k + each] for i in rows] for k in range(0, len(drawn), each)]
    assert all(len(set(rows)) == len(rows) for rows in passes) and {*range(n)} == {i for rows in passes for i in rows}
    assert n == 1 or (len({tuple(rows) for rows in passes}) > 4 and shuffled(n, batch, 3, 2).tolist() != drawn[3])
    late = 40 * each - 1                                                  # only this update, as after a resume
    assert shuffled(n, batch, late, seed=1).tolist() == drawn[late]
