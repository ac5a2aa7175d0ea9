"""Self-play in text: the player that chose each token, the opponents, and the gradient of the classic functions."""
import copy
import importlib
import json
import signal
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector as flat

import llm
from llm.algos import self_play
from llm.algos.self_play import read_games
from llm.duels import NO_MOVE, mover, play
from llm.policy.cache import Slots
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from llm.tasks.board_games import TicTacToe
from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.arena.command import gather
from spinup.arena.players import ILLEGAL, trained
from spinup.arena.tournament import play as compete
from spinup.core.fast.adam import FlatAdam
from spinup.core.ratings import MEAN, elo
from spinup.core.returns import gae
from spinup.envs.worlds.boards import BOARDS
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint

TASK = TicTacToe()
TOKENIZER = CharTokenizer(TASK.alphabet)
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
TINY = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu", "games": 16, "rivals": 2, "minibatches": 2}


def transformer(seed, width=16):
    torch.manual_seed(seed)
    return Transformer(Shape(TOKENIZER.vocab_size, 16, 1, width, 2, 2, width // 2, 2 * width))


def judged(text):
    """Number of moves until the game of a text ends, its result for the first player, and who made an illegal move."""
    stones = {}
    for ply, letter in enumerate(text):
        square = ("ABCDEFGHI", "abcdefghi")[ply % 2].find(letter)
        if square < 0 or square in stones:
            return ply + 1, (-1, 1)[ply % 2], ply % 2
        stones[square] = ply % 2
        if any(all(stones.get(s) == ply % 2 for s in line) for line in LINES):
            return ply + 1, (1, -1)[ply % 2], None
    assert len(stones) == 9
    return 9, 0, None


# Catches: logits of another player or of the previous token; a mask that includes the opening, the opponent's moves or
# tokens after the end; a result for the wrong player; a game that continues after an illegal move.
def test_games_follow_the_rules_and_each_player_chooses_its_own_moves():
    models = [transformer(seed) for seed in range(3)]
    N, rng = 96, np.random.default_rng(0)
    opponent, seat = np.arange(N) // 2 % 2 + 1, np.arange(N) % 2
    openings = [p.prompt for p in TASK.problems(N, rng)]
    games = play(TASK, TOKENIZER, models, opponent, seat, openings, torch.Generator().manual_seed(0), 0.8)
    illegal = 0
    for i in range(N):
        length, begun = int(games.lengths[i]), len(openings[i]) - 1
        ids = games.ids[i, :length].tolist()
        text = "".join(TASK.alphabet[t - 1] if t else "$" for t in ids)
        assert text.startswith(openings[i][1:])
        end, result, culprit = judged(text)
        assert end == length and games.result[i] == (result if seat[i] == 0 else -result)
        assert bool(games.illegal[i]) == (culprit == seat[i])
        illegal += culprit is not None
        mine = [begun <= t < length and t % 2 == seat[i] for t in range(games.ids.shape[1])]
        assert games.mask[i].tolist() == mine
        read = torch.tensor([[TOKENIZER.encode(">")[0], *ids[:-1]]])
        for t in range(begun, length):
            writer = models[0] if t % 2 == seat[i] else models[opponent[i]]
            expected = (writer(read)[0, t] / 0.8).log_softmax(-1)[ids[t]]
            torch.testing.assert_close(games.logp[i, t], expected, atol=1e-5, rtol=1e-4)
    assert 0 < illegal <= N and {-1.0, 1.0} <= set(games.result.tolist())
    logp, _, _ = read_games(models[0], torch.nn.Linear(16, 1), TOKENIZER.encode(">")[0], games.ids, 0.8)
    own = games.mask > 0
    torch.testing.assert_close(logp.detach()[own], games.logp[own], atol=1e-5, rtol=1e-4)


# Catches: the opponent's move as the next state; the result on each move; a recursion that stops at the opponent's
# moves.
def test_advantages_treat_only_own_moves_as_steps():
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1.0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]])
    values, result = torch.randn(mask.shape, generator=generator), torch.tensor([1.0, -1, 1, -1])
    adv, target = self_play.advantages(result, torch.where(mask > 0, values, torch.nan), mask, 0.7)
    for i in range(3):
        own = mask[i] > 0
        v, n = values[i, own], int(own.sum())
        rewards, over = torch.zeros(n), torch.zeros(n)
        rewards[-1], over[-1] = result[i], 1
        expected = gae(rewards[None], v[None], torch.cat([v[1:], torch.ones(1)])[None], over[None],
                       torch.zeros(1, n), gamma=1.0, lam=0.7)
        torch.testing.assert_close(adv[i, own], expected[0][0])
        torch.testing.assert_close(target[i, own], expected[1][0])
        assert not adv[i, ~own].any()
    assert not adv[3].any()


@dataclass
class Seen:
    """Record of a training run: games, models of the players, and of each optimiser step the gradient, the weights
    before it and the learning rate."""

    result: object = None
    games: list = field(default_factory=list)
    models: list = field(default_factory=list)
    seats: list = field(default_factory=list)
    gradients: list = field(default_factory=list)
    weights: list = field(default_factory=list)
    rates: list = field(default_factory=list)


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Train on tic-tac-toe: `watch(total_steps=2)`."""
    step = FlatAdam.step

    def watch(resume=None, interrupt=None, log_dir="runs", **given):
        seen = Seen()

        def spy(task, tokenizer, models, opponent, seat, openings, *args):
            seen.models.append([flat(m.parameters()).detach().clone() for m in models])
            seen.games.append(play(task, tokenizer, models, opponent, seat, openings, *args))
            seen.seats.append((opponent, seat))
            if len(seen.games) == interrupt:
                signal.raise_signal(signal.SIGINT)
            return seen.games[-1]

        def listen(optimizer, lr=None):
            seen.weights.append(optimizer.flat.clone())
            seen.gradients.append(optimizer.flat.grad.clone())
            seen.rates.append(lr)
            return step(optimizer, lr)

        monkeypatch.setattr(self_play, "play", spy)
        monkeypatch.setattr(FlatAdam, "step", listen)
        cfg = self_play.Config(**{**TINY, **given}, log_dir=str(tmp_path / log_dir), exp_name="x",
                               algorithm="llm self_play")
        seen.result = self_play.train(cfg, resume)
        return seen
    return watch


# The reference reads one own move at a time, as in an environment; training reads a padded batch of whole games.
# Catches: a gradient of the opponent's moves; the advantage of another move; a sum in place of the mean over own moves;
# a missing entropy bonus; a step without the learning rate of its update.
def test_gradient_equals_the_classic_functions_applied_move_by_move(watch):
    cfg = {"epochs": 1, "minibatches": 1, "entropy_coef": 0.3, "value_coef": 0.4, "lam": 0.9, "lr": 0.02,
           "total_steps": 4, "games": 24, "illegal_penalty": 0.7}
    seen = watch(**cfg)
    assert seen.rates == pytest.approx([0.02, 0.015, 0.01, 0.005])
    for update in (0, 3):                                     # in update 0 all values are 0
        games, begin = seen.games[update], TOKENIZER.encode(">")[0]
        model, head = Transformer(seen.result.policy.model.shape), torch.nn.Linear(16, 1)
        parameters = [*model.parameters(), *head.parameters()]
        torch.nn.utils.vector_to_parameters(seen.weights[update], parameters)
        logps, values, entropies, advs, targets = [], [], [], [], []
        for i in range(24):
            own = np.flatnonzero(games.mask[i].numpy())
            found = []
            for t in own:
                read = torch.tensor([[begin, *games.ids[i, :t].tolist()]])
                state = model.hidden(read, Slots())[0, -1]
                log_pi = model.logits(state).log_softmax(-1)
                found.append((log_pi[games.ids[i, t]], head(state)[0], -(log_pi.exp() * log_pi).sum()))
            if not found:
                continue
            logp, value, entropy = map(torch.stack, zip(*found, strict=True))
            rewards, over = torch.zeros(len(own)), torch.zeros(len(own))
            rewards[-1], over[-1] = games.result[i] - 0.7 * float(games.illegal[i]), 1
            v = value.detach()
            adv, target = gae(rewards[None], v[None], torch.cat([v[1:], v[:1]])[None], over[None], 0 * over[None],
                              gamma=1.0, lam=0.9)
            for values_of, x in zip((logps, values, entropies, advs, targets),
                                    (logp, value, entropy, adv[0], target[0]), strict=True):
                values_of.append(x)
        logp, value, entropy, adv, target = map(torch.cat, (logps, values, entropies, advs, targets))
        adv = (adv - adv.mean()) / adv.std(correction=0)
        each = clipped_surrogate(logp, logp.detach(), adv, (0.2, 0.2))[0] + 0.4 * value_loss(value, target)
        total = (each - 0.3 * (1 - update / 4) * entropy).mean()
        expected = flat(torch.autograd.grad(total, parameters))
        assert expected.norm() > 0.05
        torch.testing.assert_close(seen.gradients[update], expected, atol=2e-5, rtol=1e-3)


# Catches: an opponent that learns too; the newest version in place of the sampled one; only one seat for the learner.
def test_opponents_are_the_sampled_versions(watch, monkeypatch):
    drawn, opponents = [], self_play.opponents

    def spy(*args):
        drawn.append((opponents(*args), args[2]))
        return drawn[-1][0]

    monkeypatch.setattr(self_play, "opponents", spy)
    seen = watch(total_steps=6, versions=3, delta=0.0, lr=0.01)
    pool = load_checkpoint(seen.result.directory / "checkpoint.pt")["parts"]["pool"]
    assert pool["steps"] == [0, 2, 4] and [versions for _, versions in drawn] == [1, 1, 2, 2, 3, 3]
    for (versions, _), models, (opponent, seat) in zip(drawn, seen.models, seen.seats, strict=True):
        for version, weights in zip(versions, models[1:], strict=True):
            assert torch.equal(weights, pool["nets"][version])
        assert sorted(zip(opponent.tolist(), seat.tolist(), strict=True)) == sorted(
            [(k, s) for k in (1, 2) for s in (0, 1)] * 4)
    assert torch.equal(seen.models[0][0], pool["nets"][0]) and torch.equal(seen.models[4][0], pool["nets"][2])
    assert not torch.equal(pool["nets"][0], pool["nets"][1])
    own, ratings = MEAN, [MEAN]                               # the ratings, game by game
    for update, ((versions, _), games) in enumerate(zip(drawn, seen.games, strict=True)):
        ratings += [own] * (update in (2, 4))
        for i in range(16):
            version = versions[i // 2 % 2]
            own, ratings[version] = elo(own, ratings[version], (float(games.result[i]) + 1) / 2, 2.0)
    assert pool["own"] == pytest.approx(own) and pool["ratings"] == pytest.approx(ratings)
    assert seen.result.progress["rating"][-1] == pytest.approx(own)


# Catches: a pool that grows without limit when a run is extended.
def test_pool_keeps_a_limited_number_of_versions():
    pool = self_play.Pool(transformer(0), 3)
    for step in range(5):
        pool.add(step)
    assert pool.steps == [2, 3, 4] and len(pool.nets) == len(pool.ratings) == 3


# Catches: a pool, its ratings or the value function left out of the checkpoint; opponents that are not loaded.
@pytest.mark.long
def test_interrupted_run_resumes_with_the_same_result(watch):
    settings = {"total_steps": 6, "versions": 3, "delta": 0.0, "lr": 0.01}
    whole, again = watch(**settings), watch(**settings, log_dir="again")
    first = watch(**settings, interrupt=3, log_dir="other")
    assert first.result.status == "interrupted" and len(first.games) == 3
    second = watch(**settings, resume=first.result.directory, log_dir="other")
    assert second.result.status == "finished" and len(second.games) == 3
    parts = [load_checkpoint(seen.result.directory / "checkpoint.pt")["parts"] for seen in (whole, again, second)]
    for other in parts[1:]:
        for name in parts[0]["model"]:
            assert torch.equal(parts[0]["model"][name], other["model"][name])
        assert torch.equal(parts[0]["value"]["weight"], other["value"]["weight"])
        assert all(map(torch.equal, parts[0]["pool"]["nets"], other["pool"]["nets"]))
        assert [parts[0]["pool"][k] for k in ("ratings", "own", "steps")] == [
            other["pool"][k] for k in ("ratings", "own", "steps")]
    for name in ("rating", "illegal_moves", "reward", "held_out_accuracy", "entropy"):
        assert whole.result.progress[name] == second.result.progress[name]


# Catches: a mean over the micro-batch in place of the minibatch.
def test_micro_batches_do_not_change_the_gradient(watch):
    whole, pieces = watch(total_steps=2, lr=0.01), watch(total_steps=2, lr=0.01, micro_batch=3, log_dir="other")
    torch.testing.assert_close(pieces.gradients[-1], whole.gradients[-1], atol=2e-6, rtol=1e-3)
    assert pieces.result.progress["loss"][-1] == pytest.approx(whole.result.progress["loss"][-1], abs=1e-5)


# Catches: a copy of one of these functions in llm/algos/self_play.py; a function that is not called.
@pytest.mark.parametrize("function", ["spinup.algos.ppo.clipped_surrogate", "spinup.algos.self_play.opponents",
                                      "spinup.algos.self_play.rated", "spinup.algos.self_play.additions"])
def test_training_calls_the_functions_of_the_classic_algorithm(function, tmp_path, monkeypatch):
    class Broken(Exception):
        pass

    def breaks(*args, **kwargs):
        raise Broken

    try:
        with monkeypatch.context() as patch:
            patch.setattr(function, breaks)
            importlib.reload(self_play)
            with pytest.raises(Broken):
                self_play.train(self_play.Config(**TINY, total_steps=2, log_dir=str(tmp_path)))
    finally:
        importlib.reload(self_play)


# Catches: a folder that is made before the settings are checked.
@pytest.mark.parametrize(("settings", "words"), [
    ({"task": "reverse"}, "self_play needs a two-player game, which the task reverse is not; choose --task tictactoe"),
    ({"reward": "length"}, "the reward of self_play is the result of the game; leave out --reward"),
    ({"games": 4, "rivals": 3}, "--games 4 is less than two games for each of the --rivals 3; choose at least 6, or"),
    ({"minibatches": 17}, "--minibatches 17 is more than --games 16; choose at most 16"),
    ({"max_tokens": 4}, "a game of tictactoe has up to 10 tokens; leave out --max-tokens 4"),
    ({"task": "tictactoe:opening=9"}, "in the task tictactoe, opening must be from 1 to 8, not 9")])
def test_invalid_settings_are_refused_before_a_folder_is_made(settings, words, tmp_path):
    with pytest.raises(UserError, match=words):
        llm.self_play(**TINY | settings, log_dir=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_model_without_the_characters_of_the_game_is_refused(beginner, tmp_path):
    with pytest.raises(UserError, match="'B' is not in the alphabet 'abcdefghij>'"):
        llm.self_play(**TINY, model=beginner, log_dir=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


# Catches: a column without numbers.
def test_columns_of_a_run_equal_the_numbers_of_its_games(watch):
    seen = watch(total_steps=2)
    progress = seen.result.progress
    for name in ("rating", "versions", "illegal_moves", "value_loss", "explained_variance", "entropy", "kl", "reward",
                 "clip_fraction", "ratio_min", "ratio_max", "grad_norm", "learning_rate", "length"):
        assert np.isfinite(progress[name]).all(), name
    games = seen.games[0]
    assert progress["illegal_moves"][0] == pytest.approx(float(games.illegal.sum() / games.mask.sum()))
    assert progress["length"][0] == pytest.approx(float(games.lengths.float().mean()))
    assert progress["reward"][0] == pytest.approx(float(games.result.mean()))
    assert progress["ratio_min"][0] <= 1 <= progress["ratio_max"][0]


# Catches: a value function with another dtype than the policy.
def test_training_works_in_bfloat16(watch):
    seen = watch(total_steps=2, dtype="bfloat16", lr=0.01)
    assert {p.dtype for p in seen.result.policy.model.parameters()} == {torch.bfloat16}
    assert np.isfinite(seen.result.progress["loss"]).all() and seen.gradients[-1].norm() > 0


# Catches: a command that does not support a game in text, or shows no board.
def test_watch_eval_and_arena_accept_a_self_play_run(watch, cli, tmp_path):
    folder = watch(total_steps=3, versions=2).result.directory
    shown = cli("watch", folder)
    assert shown.code == 0 and "[X]" in shown.out and "reward -1.00" in shown.out
    said = cli("eval", folder, "--episodes", 4, "--json")
    assert said.code == 0 and 0 <= json.loads(said.out)["held_out_accuracy"] <= 1
    done = cli("arena", folder, "--games", 4, "--batch", 2, "--versions", 1, "--out", tmp_path / "arena")
    assert done.code == 0 and "minimax" in done.out and "x_s1 @0" in done.out
    wrong = cli("arena", folder, "--game", "connect_four", "--out", tmp_path / "arena")
    assert wrong.code == 2 and "was trained in TicTacToe-v0, not in ConnectFour-v0" in wrong.err


# The arena.

# Catches: a player that uses the board or the legal-action mask; moves of another game; weights of another version.
@pytest.mark.long
def test_arena_players_sample_from_the_past_versions_of_a_run(watch):
    seen = watch(total_steps=6, versions=3, lr=0.02)
    players = trained(seen.result.directory, "TicTacToe-v0", 2)
    assert [p.steps for p in players] == [0, 4, 6] and len({p.version for p in players}) == 3
    pool = load_checkpoint(seen.result.directory / "checkpoint.pt")["parts"]["pool"]
    model = copy.deepcopy(seen.result.policy.model)
    for player, weights in zip(players, [pool["nets"][0], pool["nets"][2], flat(model.parameters()).detach()],
                               strict=True):
        torch.nn.utils.vector_to_parameters(weights, model.parameters())
        games = [[4, 0, 2], [], [0]]
        found = np.array([player.choose(None, None, games, np.random.default_rng(i)) for i in range(400)])
        for game, moves in zip(games, found.T, strict=True):
            ids = torch.tensor([TOKENIZER.encode(">" + "".join(TASK.letters[p % 2][m] for p, m in enumerate(game)))])
            pi = model(ids)[0, -1].softmax(-1).detach().numpy()
            own = TOKENIZER.encode(TASK.letters[len(game) % 2])
            share = np.array([np.mean(moves == m) for m in range(9)])
            np.testing.assert_allclose(share, pi[own], atol=0.1)
            assert np.mean(moves == NO_MOVE) == pytest.approx(1 - pi[own].sum(), abs=0.1)
    scores = compete(BOARDS["tictactoe"](40), players[0], gather([], "tictactoe", "TicTacToe-v0", 0, 1, 64)[0],
                     np.random.default_rng(0))
    assert players[0].faults[ILLEGAL] >= scores.count(0.0) // 2 > 0


# Catches: a greedy player that samples; the letters of the player who has just moved.
def test_mover_without_a_generator_takes_the_most_likely_token():
    model, games, wanted = transformer(0), [[0], [0, 1], [4, 0, 2], []], []
    read = [torch.tensor([TOKENIZER.encode(">" + "".join(TASK.letters[ply % 2][square]
                                                         for ply, square in enumerate(game)))]) for game in games]
    # The embedding is tied. So the first three states now prefer square 3, the last one a letter of the other player.
    for writer, square, ids in ((1, 3, read[0]), (0, 3, read[1]), (1, 3, read[2]), (1, 5, read[3])):
        letter = TOKENIZER.encode(TASK.letters[writer][square])[0]
        model.embed.weight.data[letter] += 2 * model.hidden(ids, Slots())[0, -1].detach()
    for game, ids in zip(games, read, strict=True):
        token = int(model(ids)[0, -1].argmax())
        letter = TASK.alphabet[token - 1] if token else " "
        wanted.append(TASK.letters[len(game) % 2].find(letter))
    assert 3 in wanted and NO_MOVE in wanted
    move = mover(TASK, TOKENIZER, model)
    assert move(games, None).tolist() == move(games, None).tolist() == wanted


# Catches: rewards with the wrong sign; a mask of the opponent's moves; a learner without its own moves in its input.
@pytest.mark.long
def test_training_reduces_illegal_moves(tmp_path):
    result = llm.self_play(layers=1, width=32, heads=2, games=96, rivals=2, minibatches=2, epochs=3, total_steps=60,
                           lr=5e-3, held_out=4, quiet=True, tensorboard=False, threads=1, preset="none", versions=8,
                           log_dir=str(tmp_path))
    illegal = result.progress["illegal_moves"]
    assert illegal[0] > 0.5 and illegal[-1] < 0.3             # .22 with this seed
    untrained, me = trained(result.directory, "TicTacToe-v0", 1)
    random = gather([], "tictactoe", "TicTacToe-v0", 0, 1, 64)[0]
    for player in (untrained, me):
        compete(BOARDS["tictactoe"](200), player, random, np.random.default_rng(0))
    assert me.faults[ILLEGAL] < untrained.faults[ILLEGAL] - 8             # 180 and 199 with this seed
