"""Self-play (Bansal et al. 2018) on two games, against past versions and against the newest version only."""
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from spinup import load
from spinup.arena.games import LEARNED_IN, find_game
from spinup.arena.players import Moves, Player, scripted, trained
from spinup.arena.tournament import Record, play, tournament
from spinup.bench.papers.paper import Line, Paper, run
from spinup.bench.process import in_turn
from spinup.envs.games import flat
from spinup.envs.ratings import MEAN, expected_score
from spinup.envs.worlds.boards import BOARDS
from spinup.envs.zoo import make_one_zoo
from spinup.runs.files import read_json
from spinup.view.statistics import SHARE, interval

SEEDS = (1, 2, 3)
GAMES = 500                                                              # per opponent, half of them in each seat
MINUTES = {"tictactoe": 3, "connect_four": 10}
DRAWS, RANDOM, ONE_PLY, RANKS, FASTER = 0.9, 0.95, 0.7, 0.9, 100
SIMULATIONS, TRUTH = 200, np.linspace(900, 1500, 12)
TURN = 2.0                                                               # seconds of games, ours and PettingZoo's


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train on both games. On Connect Four, also train against the newest version only, and let the two kinds of
    policies play each other."""
    jobs = [(game, label, flags, seed) for game, label, flags in (
        ("tictactoe", "", ()), ("connect_four", "", ("--delta", "0.5")),
        ("connect_four", "newest", ("--delta", "1"))) for seed in seeds]
    folders = in_turn(lambda job: run("self_play", LEARNED_IN[job[0]], job[3], log_dir, "--threads", "1", *job[2],
                                      label=job[1]), jobs, workers)
    of = {(game, label): [f for (g, x, _, _), f in zip(jobs, folders, strict=True) if (g, x) == (game, label)]
          for game, label, _, _ in jobs}
    slowest = {game: max(read_json(f / "result.json")["seconds"] for f in of[game, ""]) / 60 for game in MINUTES}
    results = {game: [against_scripted(game, folder) for folder in of[game, ""]] for game in MINUTES}
    lost = max(float(np.sum([seat["random"][2] for seat in found])) for found in results["tictactoe"])
    drawn = [min(found[seat]["minimax"][1] / sum(found[seat]["minimax"]) for found in results["tictactoe"])
             for seat in (0, 1)]
    beaten = max(lines_that_beat(greedy(folder)) for folder in of["tictactoe", ""])
    won = {name: float(np.mean([sum(seat[name][0] for seat in found) / GAMES for found in results["connect_four"]]))
           for name in ("random", "one-ply")}
    ranked = [rating_over_training("connect_four", folder) for folder in of["connect_four", ""]]
    ranks = float(np.min([spearmanr(steps, ratings)[0] for steps, ratings in ranked]))           # NaN if one is
    pairs = [meet("connect_four", *both) for both in zip(of["connect_four", ""], of["connect_four", "newest"],
                                                         strict=True)]
    shares = [float(np.mean(p)) for p in pairs]
    low, high = interval(shares, SHARE) or (np.nan, np.nan)
    lines = [
        Line("tic-tac-toe: training minutes, slowest seed", "", slowest["tictactoe"], f"<= {MINUTES['tictactoe']}",
             slowest["tictactoe"] <= MINUTES["tictactoe"]),
        Line(f"games lost to random play, of {GAMES}, worst seed", "", lost, "0", lost == 0),
        Line("lines of play that beat it, out of all lines, worst seed", "", float(beaten)),
        *(Line(f"games drawn against minimax, {where}, worst seed", "", share_, f">= {DRAWS}", share_ >= DRAWS)
          for where, share_ in zip(("beginning", "second"), drawn, strict=True)),
        Line("Connect Four: training minutes, slowest seed", "", slowest["connect_four"],
             f"<= {MINUTES['connect_four']}", slowest["connect_four"] <= MINUTES["connect_four"]),
        Line("games won against random play", "", won["random"], f">= {RANDOM}", won["random"] >= RANDOM),
        Line("games won against one-ply", "", won["one-ply"], f">= {ONE_PLY}", won["one-ply"] >= ONE_PLY),
        Line("rank correlation of rating and training steps, worst seed", "", ranks, f">= {RANKS}",
             ranks >= RANKS),
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
    return Paper("Self-play (Bansal et al. 2018)", lines, draw, raw), folders


def arena_lines() -> list[Line]:
    """Rank players of known strength in a tournament and compare the ranking with the true one."""
    records = [simulate(seed) for seed in range(SIMULATIONS)]
    found = [record.strengths() for record in records]
    ranks = float(np.mean([spearmanr(TRUTH, strengths.rating)[0] for strengths in found]))
    drift = max(float(abs(record.elo.mean() - MEAN)) for record in records)
    covered = float(np.mean([(s.low <= TRUTH) & (s.high >= TRUTH) for s in found]))
    return [Line(f"arena, {len(TRUTH)} simulated players: rank correlation with their strength, mean", "", ranks,
                 f">= {RANKS}", ranks >= RANKS),
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
        lines.append(Line(f"{game}: random games per second, ratio to PettingZoo", "", ratio, f">= {FASTER}",
                          ratio >= FASTER))
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
    make_game, rng, found = find_game(game)[0], np.random.default_rng(0), [{}, {}]
    me = Player("policy", greedy(folder))
    for name, moves in scripted(game).items():
        other = Player(name, moves)
        for seat, scores in enumerate((play(make_game(GAMES // 2, 1), me, other, rng),
                                       play(make_game(GAMES // 2, 2), other, me, rng))):
            got = np.array(scores) if seat == 0 else 1 - np.array(scores)
            found[seat][name] = [int((got == result).sum()) for result in (1, 0.5, 0)]
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
    make_game, env = find_game(game)
    players = trained(folder, env, 9)
    record = Record.empty([p.name for p in players], [p.version for p in players])
    tournament(record, lambda i, j, n, rng: play(make_game(n, 0), players[i], players[j], rng), 400, 20,
               np.random.default_rng(0))
    return [p.steps or 0 for p in players], record.strengths().rating.tolist()


def meet(game: str, one: Path, other: Path) -> list[float]:
    """Scores of one run's policy against another's, game by game, with sampled actions."""
    make_game, env = find_game(game)
    first, second = (trained(folder, env, 0)[-1] for folder in (one, other))
    rng = np.random.default_rng(0)
    return [*play(make_game(GAMES // 2, 1), first, second, rng),
            *(1 - score for score in play(make_game(GAMES // 2, 2), second, first, rng))]
