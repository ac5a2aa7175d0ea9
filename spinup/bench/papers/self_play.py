"""Self-play (Bansal et al. 2018) on two games, against past versions and against the newest version only."""
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from spinup import load
from spinup.arena.games import LEARNED_IN, find_game
from spinup.arena.players import Moves, Player, scripted, trained
from spinup.arena.tournament import Record, play, tournament
from spinup.bench.papers.paper import Line, Paper, at_least, at_most, by_kind, run, seconds_of, together
from spinup.core.ratings import MEAN, expected_score
from spinup.envs.games import flat
from spinup.envs.worlds.boards import BOARDS
from spinup.envs.zoo import make_one_zoo
from spinup.view.statistics import SHARE, interval

SEEDS = (1, 2, 3)
GAMES, VERSIONS = 500, 9                # games per opponent, half of them in each seat; past versions in a tournament
DELTA = {("tictactoe", ""): (), ("connect_four", ""): ("--delta", "0.5"), ("connect_four", "newest"): ("--delta", "1")}
MINUTES = {"tictactoe": 3, "connect_four": 10}
DRAWS, RANDOM, ONE_PLY, RANKS, FASTER = 0.9, 0.95, 0.7, 0.9, 100
SIMULATIONS, TRUTH = 200, np.linspace(900, 1500, 12)
TURN = 2.0                                                               # seconds of games, ours and PettingZoo's


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train on both games. On Connect Four, also train against the newest version only, and let the two kinds of
    policies play each other."""
    of = by_kind(DELTA, seeds, workers, lambda kind, seed: run(
        "self_play", LEARNED_IN[kind[0]], seed, log_dir, "--threads", "1", *DELTA[kind], label=kind[1]))
    slowest = {game: max(map(seconds_of, of[game, ""])) / 60 for game in MINUTES}
    results = {game: [against_scripted(game, folder) for folder in of[game, ""]] for game in MINUTES}
    lost = max(float(np.sum([seat["random"][2] for seat in found])) for found in results["tictactoe"])
    drawn = [min(found[seat]["minimax"][1] / sum(found[seat]["minimax"]) for found in results["tictactoe"])
             for seat in (0, 1)]
    beaten = max(lines_that_beat(greedy(folder)) for folder in of["tictactoe", ""])
    won = {name: float(np.mean([sum(seat[name][0] for seat in found) / GAMES for found in results["connect_four"]]))
           for name in ("random", "one-ply")}
    ranked = [rating_over_training("connect_four", folder) for folder in of["connect_four", ""]]
    ranks = float(np.min([spearmanr(steps, ratings)[0] for steps, ratings in ranked]))           # NaN if one is
    pairs = [match("connect_four", *both) for both in zip(of["connect_four", ""], of["connect_four", "newest"],
                                                          strict=True)]
    shares = [float(np.mean(p)) for p in pairs]
    low, high = interval(shares, SHARE) or (np.nan, np.nan)
    lines = [
        at_most("tic-tac-toe: training minutes, slowest seed", slowest["tictactoe"], MINUTES["tictactoe"]),
        Line(f"games lost to random play, of {GAMES}, worst seed", "", lost, "0", lost == 0),
        Line("lines of play that beat it, out of all lines, worst seed", "", float(beaten)),
        *(at_least(f"games drawn against minimax, {where}, worst seed", share, DRAWS)
          for where, share in zip(("beginning", "second"), drawn, strict=True)),
        at_most("Connect Four: training minutes, slowest seed", slowest["connect_four"], MINUTES["connect_four"]),
        at_least("games won against random play", won["random"], RANDOM),
        at_least("games won against one-ply", won["one-ply"], ONE_PLY),
        at_least("rank correlation of rating and training steps, worst seed", ranks, RANKS),
        Line(f"score of delta = .5 against newest only, {GAMES} games a pair", "", float(np.mean(shares))),
        Line("its 95 % interval, from", "", low), Line("to", "", high),
        *arena_lines(), *speed_lines()]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for (steps, ratings), seed in zip(ranked, seeds, strict=True):
            axes.plot(np.array(steps) / 1e6, ratings, marker="o", markersize=3, linewidth=1.3, label=f"seed {seed}")
        axes.set(title="Connect Four: past selves in a tournament", xlabel="million moves of training",
                 ylabel="rating, mean 1200")
        axes.legend()

    raw = {"results": results, "ranked": ranked, "pairs": pairs}
    return Paper("Self-play (Bansal et al. 2018)", lines, draw, raw), together(of)


def arena_lines() -> list[Line]:
    """Rank players of known strength in a tournament and compare the ranking with the true one."""
    records = [simulate(seed) for seed in range(SIMULATIONS)]
    found = [record.strengths() for record in records]
    ranks = float(np.mean([spearmanr(TRUTH, strengths.rating)[0] for strengths in found]))
    drift = max(float(abs(record.elo.mean() - MEAN)) for record in records)
    covered = float(np.mean([(s.low <= TRUTH) & (s.high >= TRUTH) for s in found]))
    return [at_least(f"arena, {len(TRUTH)} simulated players: rank correlation with their strength, mean", ranks,
                     RANKS),
            Line("largest change of the mean Elo rating", "", drift, "<= 1e-6", drift <= 1e-6),
            Line(f"strengths within their 95 % intervals, {SIMULATIONS} tournaments", "", covered, ">= 0.9, <= 0.98",
                 0.9 <= covered <= 0.98)]


def simulate(seed: int, games_each: int = 200) -> Record:
    """Simulate a tournament of twelve players of known strength, `TRUTH`, without draws."""
    def match(first: int, second: int, n: int, rng: np.random.Generator) -> list[float]:
        return (rng.random(n) < expected_score(TRUTH[first], TRUTH[second])).astype(float).tolist()

    record = Record.empty([str(i) for i in range(len(TRUTH))], [""] * len(TRUTH))
    return tournament(record, match, games_each, 4, np.random.default_rng(seed))


def speed_lines() -> list[Line]:
    """Random games per second on our boards, relative to those in PettingZoo; the median of three turns."""
    lines = []
    for game, theirs in (("tictactoe", "classic/tictactoe-v3"), ("connect_four", "classic/connect_four-v3")):
        ratio = float(np.median([ours_per_second(game) / theirs_per_second(theirs) for _ in range(3)]))
        lines.append(at_least(f"{game}: random games per second, ratio to PettingZoo", ratio, FASTER))
    return lines


def ours_per_second(game: str, copies: int = 8192) -> float:
    """Random games per second on our boards, `copies` in parallel."""
    board, rng, games, start = BOARDS[game](copies), np.random.default_rng(0), 0, time.perf_counter()
    while time.perf_counter() - start < TURN:
        noise = rng.random((copies, board.num_actions), np.float32)
        _, over = board.play((board.legal() * noise).argmax(1))
        board.reset(over)
        games += int(over.sum())
    return games / (time.perf_counter() - start)


def theirs_per_second(env: str) -> float:
    """Random games per second in PettingZoo's environment."""
    game, rng, games, start = make_one_zoo(env, "aec"), np.random.default_rng(0), 0, time.perf_counter()
    while time.perf_counter() - start < TURN:
        game.reset()
        for _ in game.agent_iter():
            seen, _, terminated, truncated, _ = game.last()
            over = terminated or truncated
            game.step(None if over else int(rng.choice(np.flatnonzero(seen["action_mask"]))))
        games += 1
    return games / (time.perf_counter() - start)


def greedy(folder: Path) -> Moves:
    """Return the most likely moves of a run's policy."""
    policy = load(folder)
    return lambda observation, legal, rng: policy.act_batch(flat(observation, legal), deterministic=True)


def against_scripted(game: str, folder: Path) -> list[dict[str, list[int]]]:
    """Games won, drawn and lost against each scripted player, as first and as second player."""
    rng, me = np.random.default_rng(0), Player("policy", greedy(folder))
    found: list[dict[str, list[int]]] = [{}, {}]
    for name, moves in scripted(game).items():
        scores = meet(game, me, Player(name, moves), GAMES, rng)
        for seat, got in enumerate((scores[:GAMES // 2], scores[GAMES // 2:])):
            found[seat][name] = [got.count(result) for result in (1, 0.5, 0)]
    return found


def lines_that_beat(moves: Moves) -> int:
    """Number of games that a deterministic player of tic-tac-toe loses over all replies of the opponent, in both
    seats."""
    board, rng, found = BOARDS["tictactoe"](1), np.random.default_rng(0), 0
    paths: list[tuple[int, ...]] = [(), *((move,) for move in range(9))]  # moves so far; then the player moves
    while paths:
        path = paths.pop()
        board.reset()
        for move in path:
            board.play(np.array([move]))
        move = int(moves(board.observe(), board.legal(), rng)[0])
        _, over = board.play(np.array([move]))
        replies = () if over[0] else np.flatnonzero(board.legal()[0]).tolist()
        for reply in replies:
            board.reset()
            for earlier in (*path, move):
                board.play(np.array([earlier]))
            worth, over = board.play(np.array([reply]))
            found += int(worth[0] > 0)
            if not over[0]:
                paths.append((*path, move, reply))
    return found


def rating_over_training(game: str, folder: Path) -> tuple[list[int], list[float]]:
    """Steps and ratings of ten versions of a run, from a tournament between them."""
    players = trained(folder, LEARNED_IN[game], VERSIONS)
    return [player.steps or 0 for player in players], rated(game, players)


def rated(game: str, players: Sequence[Player]) -> list[float]:
    """Ratings of players, from a tournament between them with sampled moves."""
    make_game = find_game(game)[0]
    record = Record.empty([player.name for player in players], [player.version for player in players])
    tournament(record, lambda i, j, n, rng: play(make_game(n, 0), players[i], players[j], rng), 400, 20,
               np.random.default_rng(0))
    return record.strengths().rating.tolist()


def match(game: str, one: Path, other: Path) -> list[float]:
    """Scores of one run's policy against another's, game by game, with sampled actions."""
    first, second = (trained(folder, LEARNED_IN[game], 0)[-1] for folder in (one, other))
    return meet(game, first, second, GAMES, np.random.default_rng(0))


def meet(game: str, one: Player, other: Player, games: int, rng: np.random.Generator) -> list[float]:
    """Scores of `one` in its games against `other`: 1, 0.5 or 0. In the first half of the games `one` begins."""
    make_game = find_game(game)[0]
    first, second = play(make_game(games // 2, 1), one, other, rng), play(make_game(games // 2, 2), other, one, rng)
    return [*first, *(1 - score for score in second)]
