"""Self-play: its opponents, the legal-action mask, the ratings, and learning a game."""
import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary

import spinup
from spinup.algos import self_play
from spinup.algos.self_play import Player, Pool, mask_illegal, opponents
from spinup.core.ratings import MEAN, expected_score
from spinup.envs import make
from spinup.envs.games import Duels
from spinup.errors import UserError
from spinup.view.evaluate import evaluate

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"num_envs": 16, "total_steps": 10240, "rollout_steps": 32, "lr": 0.005, "versions": 4, "hidden":
        (32,)},
    "tasks": {"game": {}},
    "scores": "clipped_surrogate"}


def player_of(board, moves, hidden, kernel=0, channels=1):
    return Player(Dict(observation=Box(0, 1, board), action_mask=MultiBinary(moves)), kernel, channels, hidden)


# Catches: a missing end of the range of versions; a delta that counts from the wrong end.
@pytest.mark.parametrize("delta, versions, drawn", [
    (0.0, 5, {0, 1, 2, 3, 4}), (1.0, 5, {4}), (0.5, 5, {2, 3, 4}), (0.5, 6, {3, 4, 5}), (0.3, 1, {0}), (0.9, 2, {1}),
    (0.28, 26, {*range(7, 26)})])
def test_opponents_are_uniform_over_the_newer_versions(delta, versions, drawn):
    counts = np.bincount(opponents(np.random.default_rng(0), 30000, versions, delta), minlength=versions)
    assert {int(v) for v in np.flatnonzero(counts)} == drawn
    np.testing.assert_allclose(counts[sorted(drawn)], 30000 / len(drawn), rtol=0.15)


# Catches: an illegal move that can be sampled; an entropy that includes illegal moves; logits that differ between
# acting and learning.
def test_illegal_moves_are_never_sampled_and_not_in_the_entropy():
    torch.manual_seed(0)
    player, rng = player_of((7,), 5, (16,)), np.random.default_rng(0)
    obs = rng.normal(size=(500, 12)).astype(np.float32)
    obs[:, -5:] = rng.random((500, 5)) < 0.5
    obs[:, -1] = 1
    logits = player.actor()(obs)
    act = player.dist.sample(logits, player.dist.noise(rng, (500,)))
    assert obs[np.arange(500), 7 + act].all()
    logp, entropy, _ = player.evaluate(torch.from_numpy(obs), torch.from_numpy(act))
    for i in range(500):
        open_ = np.flatnonzero(obs[i, -5:])
        expected = torch.distributions.Categorical(logits=torch.from_numpy(logits[i, open_]))
        drawn = torch.tensor(open_.tolist().index(act[i]))
        assert logp[i].item() == pytest.approx(expected.log_prob(drawn).item(), abs=1e-5)
        assert entropy[i].item() == pytest.approx(expected.entropy().item(), abs=1e-5)
    entropy.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in player.pi.parameters())


# Catches: a move of a wrong version; moves that are not sampled; a past version that still learns.
def test_each_past_version_moves_with_its_own_weights():
    torch.manual_seed(0)
    player = player_of((4,), 3, (8,))
    pool, obs, expected = Pool(player, 2.0), np.zeros((6000, 7), np.float32), []
    obs[:, -3:] = 1, 0, 1
    for k in range(3):
        with torch.no_grad():
            player.pi[-1].bias.copy_(torch.tensor([k - 1.0, 5.0, 0.0]))
        expected.append(player.params(torch.from_numpy(obs[:1]))[0].softmax(-1).detach().numpy())
        pool.add(k)
    opponent = np.arange(6000) % 3
    moves = pool.reply(obs, opponent, np.random.default_rng(0).random((6000, 3), np.float32))
    for k in range(3):
        share = np.bincount(moves[opponent == k], minlength=3) / 2000
        np.testing.assert_allclose(share, expected[k], atol=0.04)
    assert expected[0][0] < 0.3 < 0.7 < expected[2][0]
    assert pool.reply(obs[:1], opponent[:1], np.zeros((1, 3), np.float32))[0] in (0, 2)      # also with noise 0


def test_ratings_follow_the_results_of_games():
    pool = Pool(player_of((4,), 3, (8,)), 4.0)
    pool.add(0)
    pool.rate(np.array([0, 0]), np.array([1.0, 0.0]))
    first = MEAN + 2
    gain = 4 * (0.5 - expected_score(first, MEAN - 2))
    assert pool.own == pytest.approx(first + gain) and pool.ratings == [pytest.approx(MEAN - 2 - gain)]
    pool.add(10)
    assert pool.ratings[1] == pool.own and pool.steps == [0, 10]
    pool.rate(np.array([1]), np.array([-1.0]))
    assert pool.own == pytest.approx(pool.ratings[1] - 4)
    own, paid = pool.own, copy.deepcopy(pool)
    for each, won in ((pool, 1.0), (paid, 100.0)):                        # only the sign of a result counts
        each.rate(np.array([1]), np.array([won]))
    assert own < pool.own == paid.own


def test_mask_illegal_supports_arrays_and_tensors():
    logits, obs = np.float32([[1, 2, 3]]), np.float32([[9, 1, 0, 1]])
    np.testing.assert_array_equal(mask_illegal(logits, obs), mask_illegal(torch.tensor(logits), torch.tensor(obs)))
    assert mask_illegal(logits, obs)[0, 1] < -1e8 and mask_illegal(logits, obs)[0, 2] == 3


# Catches: opponents that only move at random; seats that do not change; versions that are added at the wrong times.
@pytest.mark.long
def test_self_play_learns_tic_tac_toe(tmp_path):
    quick = {"total_steps": 100_000, "num_envs": 64, "versions": 8, "hidden": (64,), "lr": 3e-3, "entropy_coef": 0.02}
    result = spinup.self_play("TicTacToe-v0", preset="none", log_dir=tmp_path.as_posix(), quiet=True, tensorboard=False,
                              **quick)
    untrained = player_of((3, 3, 2), 9, (64,))
    assert evaluate(result.policy, "TicTacToe-v0", episodes=400).mean > 0.45          # .6 to .7 with other seeds
    random = make("TicTacToe-v0", 1, 0)                                   # an untrained player gets about 0
    before = evaluate(spinup.runs.policy.Policy(untrained, random.observation_space, random.action_space),
                      "TicTacToe-v0", episodes=400, deterministic=False).mean
    assert abs(before) < 0.2
    assert result.progress["rating"][-1] > MEAN + 150 and result.progress["versions"][-1] == 8
    assert all(b >= a for a, b in zip(result.progress["versions"], result.progress["versions"][1:], strict=False))


# Catches: weights of the learner in place of those of past versions; weights that are loaded into another layer.
@pytest.mark.parametrize("kernel", [0, 2])
def test_pool_is_restored_from_its_state(kernel):
    torch.manual_seed(0)
    one, other = (Pool(player_of((3, 3, 2), 9, (8,), kernel, 4), 2.0) for _ in range(2))
    for step in range(3):
        one.add(step)
        torch.nn.init.normal_(one.player.pi[-1].weight)
    state = one.state_dict()
    one.add(3)
    assert len(state["nets"]) == 3
    other.load_state_dict(state)
    rng = np.random.default_rng(0)
    obs, noise = rng.random((60, 27), np.float32), rng.random((60, 9), np.float32)
    moves = [pool.reply(obs, np.arange(60) % 3, noise) for pool in (one, other)]
    np.testing.assert_array_equal(*moves)
    assert other.steps == [0, 1, 2]


# Catches: openings or a share of recent opponents that the environment does not get.
def test_environment_gets_the_settings_of_openings_and_opponents(tmp_path, monkeypatch):
    openings, drawn, begin = set(), [], Duels._begin

    def spy(env, games):
        openings.add(env.opening)
        begin(env, games)

    monkeypatch.setattr(Duels, "_begin", spy)
    monkeypatch.setattr(self_play, "opponents", lambda rng, n, versions, delta: drawn.append((versions, delta)) or
        opponents(rng, n, versions, delta))
    spinup.self_play("TicTacToe-v0", preset="none", log_dir=tmp_path.as_posix(), quiet=True, tensorboard=False,
                     num_envs=4, rollout_steps=32, total_steps=256, versions=2, hidden=(8,), opening=2, delta=0.3)
    assert 2 in openings and openings <= {0, 2}
    assert {delta for _, delta in drawn} == {0.3} and {1, 2} <= {versions for versions, _ in drawn}


def test_convolution_needs_observations_of_a_board(tmp_path):
    with pytest.raises(UserError, match=r"--kernel 4 needs observations of rows, columns .* leave out --kernel"):
        spinup.self_play("classic/rps-v2", kernel=4, log_dir=tmp_path.as_posix(), quiet=True)


@pytest.mark.parametrize("env", ["CartPole-v1", "mpe/simple_spread-v3"])
def test_environments_other_than_two_player_games_are_refused(env, tmp_path):
    with pytest.raises(UserError, match="needs a two-player game with alternating moves.* choose --env TicTacToe-v0"):
        spinup.self_play(env, num_envs=3, rollout_steps=64, minibatches=4, log_dir=tmp_path.as_posix(), quiet=True)
    assert not list(tmp_path.iterdir())
