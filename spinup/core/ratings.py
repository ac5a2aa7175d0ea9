"""Ratings of players from the games between them, and the choice of the next match.

Both ratings use the usual scale: 400 more points mean odds of ten to one, and the mean is 1200. Elo
(1978) is updated after each game and follows players that change. Bradley and Terry (1952,
doi:10.2307/2334029) fit all games at once, in any order, with confidence intervals.
"""
from dataclasses import dataclass

import numpy as np

MEAN, POINTS = 1200.0, 400 / np.log(10)              # POINTS: rating points per unit of log odds


def expected_score(rating: float, other: float) -> float:
    """Expected score of a player with `rating` against one with `other`: 1 for a win, 0.5 for a
    draw, 0 for a loss."""
    # 10 ** 309 is an OverflowError.
    return 1 / (1 + 10 ** min((other - rating) / 400, 300.0))


def elo(rating: float, other: float, score: float, k: float = 16.0) -> tuple[float, float]:
    """Return both ratings after a game in which the first player scored `score`, 0 to 1. Their sum
    does not change."""
    change = k * (score - expected_score(rating, other))
    return rating + change, other - change


@dataclass(frozen=True)
class Strengths:
    """Ratings of P players with 95 % confidence intervals, `[P]` each."""

    rating: np.ndarray
    low: np.ndarray
    high: np.ndarray


def bradley_terry(scores: np.ndarray) -> Strengths:
    """Fit the ratings by maximum likelihood, with P(i beats j) = sigmoid(theta_i - theta_j).

    scores: `[P, P]`, total score of i in its games against j, where a draw scores one half for
    both. So i and j have played scores[i, j] + scores[j, i] games.

    Each player also gets one draw against an average player. Without it, a player who has won every
    game would have no finite rating. The confidence intervals use the normal approximation of the
    likelihood near its maximum. ValueError if scores is not a square, non-negative matrix.
    """
    scores = np.asarray(scores, float)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or not (scores >= 0).all():
        raise ValueError("scores must be a square matrix [P, P] of non-negative numbers; "
                         f"their shape is {scores.shape}")
    players, games = len(scores), scores + scores.T
    np.fill_diagonal(games, 0)
    got = scores.sum(1) - scores.diagonal() + 0.5
    theta = np.zeros(players)
    for _ in range(100):                                      # Newton; a concave log-likelihood
        p, q = _sigmoid(theta[:, None] - theta), _sigmoid(theta)
        slope = got - (games * p).sum(1) - q
        curvature = -games * p * (1 - p)
        np.fill_diagonal(curvature, q * (1 - q) - curvature.sum(1))
        step = np.linalg.solve(curvature, slope)
        theta += np.clip(step, -2, 2)                         # else it may overshoot at first
        if np.abs(step).max(initial=0) < 1e-10:
            break
    centre = np.eye(players) - 1 / players                    # only differences are determined
    deviation = np.sqrt((centre @ np.linalg.inv(curvature) @ centre).diagonal())
    rating = MEAN + POINTS * (centre @ theta)
    margin = 1.96 * POINTS * deviation
    return Strengths(rating, rating - margin, rating + margin)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def next_match(rating: np.ndarray, games: np.ndarray, rng: np.random.Generator,
               played: np.ndarray | None = None) -> tuple[int, int]:
    """Choose the two players of the next match, the one with the first move first.

    The player with the fewest games meets one with a similar rating: the probability falls by a
    factor e for every 200 points of difference. A game with an uncertain result gives the
    most information. The player who has moved first less often, in total and against the other,
    moves first.

    rating: `[P]`. games: `[P, P]`, how often i has moved first against j. played: games of each
    player, `[P]`, if some of them were against others than these players.
    """
    played = games.sum(0) + games.sum(1) if played is None else played
    fewest = np.flatnonzero(played == played.min())
    one = int(rng.choice(fewest))
    near = np.exp(-abs(rating - rating[one]) / 200)
    near[one] = 0
    other = int(rng.choice(len(rating), p=near / near.sum()))
    begun = games.sum(1) - games.sum(0)
    ahead = begun[one] - begun[other] + 2 * (games[one, other] - games[other, one])
    first = one if ahead < 0 or (ahead == 0 and rng.random() < 0.5) else other
    return first, one + other - first
