"""Ratings, compared with torch's derivatives of the likelihood and with players of known strength."""
import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from spinup.core.ratings import MEAN, POINTS, bradley_terry, elo, expected_score, next_match


def test_ratings_use_the_usual_scale():
    assert expected_score(1600, 1200) == pytest.approx(10 / 11)
    assert expected_score(1200, 1200) == 0.5
    assert expected_score(-1e6, 1e6) < 1e-99 and expected_score(1e6, -1e6) == 1
    assert elo(1200, 1200, 1.0, k=32) == (1216, 1184)
    assert elo(1600, 1200, 0.5) == pytest.approx((1600 - 16 * (10 / 11 - 0.5), 1200 + 16 * (10 / 11 - 0.5)))


# Catches: another prior; games of a player against itself that count; standard deviations of theta in place of those of
# differences; intervals of 90 %.
def test_bradley_terry_matches_maximum_and_curvature_of_the_likelihood():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 12, (5, 5)) / 2
    scores[2] = 0                                                         # this player has lost all games
    found = bradley_terry(scores)
    s = torch.from_numpy(scores).fill_diagonal_(0)

    def loss(theta):
        return -(s * logsigmoid(theta[:, None] - theta)).sum() - 0.5 * (logsigmoid(theta) + logsigmoid(-theta)).sum()

    theta = torch.zeros(5, dtype=torch.double, requires_grad=True)
    search = torch.optim.LBFGS([theta], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-14,
                               line_search_fn="strong_wolfe")

    def again():
        search.zero_grad()
        value = loss(theta)
        value.backward()
        return value

    search.step(again)
    top = theta.detach()
    np.testing.assert_allclose(found.rating, MEAN + POINTS * (top - top.mean()).numpy(), atol=1e-3)
    centre = torch.eye(5, dtype=torch.double) - 0.2
    covariance = centre @ torch.autograd.functional.hessian(loss, top).inverse() @ centre
    half = 1.959964 * POINTS * covariance.diagonal().sqrt().numpy()
    np.testing.assert_allclose((found.high - found.low) / 2, half, rtol=1e-3)
    np.testing.assert_allclose((found.high + found.low) / 2, found.rating)


def test_player_without_games_is_average_with_a_wide_interval():
    found = bradley_terry([[0, 30, 0], [30, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(found.rating, MEAN)
    assert found.high[2] - found.low[2] > 1.5 * (found.high[0] - found.low[0])


@pytest.mark.parametrize("scores", [[[0, 1]], [0, 1], [[0, -1], [1, 0]], [[0, float("nan")], [1, 0]]])
def test_invalid_tables_of_scores_are_refused(scores):
    with pytest.raises(ValueError, match="scores must be"):
        bradley_terry(scores)


# Catches: games against absent players that do not count, so that one player is in every match.
def test_games_against_absent_players_count_for_the_next_match():
    rng, games = np.random.default_rng(0), np.array([[0, 0, 0], [0, 0, 50], [0, 50, 0]])
    pairs = [set(next_match(np.full(3, MEAN), games, rng, np.array([150, 100, 100]))) for _ in range(20)]
    assert any(0 not in pair for pair in pairs) and all(pair & {1, 2} for pair in pairs)


# Catches: intervals that are a third too narrow or too wide; opponents that are sampled uniformly; a player that always
# moves first; a mean rating that changes.
def test_tournament_rates_players_of_known_strength_correctly():
    rng, players = np.random.default_rng(0), 12
    true = MEAN + 55 * (np.arange(players) - 5.5)
    covered, ranks, fitted, near = [], [], [], []
    for _ in range(30):
        rating, games, scores = np.full(players, MEAN), np.zeros((players, players)), np.zeros((players, players))
        for _ in range(30 * players):
            i, j = next_match(rating, games, rng)
            score = float(rng.random() < expected_score(true[i], true[j]))
            games[i, j] += 1
            scores[i, j] += score
            scores[j, i] += 1 - score
            rating[i], rating[j] = elo(rating[i], rating[j], score)
        found = bradley_terry(scores)
        covered.append((found.low <= true) & (true <= found.high))
        ranks.append(np.corrcoef(rating.argsort().argsort(), range(players))[0, 1])
        fitted.append(np.corrcoef(found.rating.argsort().argsort(), range(players))[0, 1])
        near.append((games * abs(np.subtract.outer(true, true))).sum() / games.sum())
        assert abs(rating.mean() - MEAN) < 1e-6
        assert np.ptp(games.sum(0) + games.sum(1)) <= 7 and abs(games.sum(0) - games.sum(1)).max() <= 4
        assert abs(games - games.T).max() <= 4 and not games.diagonal().any()
    assert 0.9 <= np.mean(covered) <= 0.98 and np.mean(ranks) > 0.9 and np.mean(fitted) > 0.93
    assert np.mean(near) < 0.9 * abs(np.subtract.outer(true, true)).sum() / (players * (players - 1))
