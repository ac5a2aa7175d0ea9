"""Self-play in text (Bansal et al. 2018), beside the classic agent that reads the board and has a legal-action mask."""
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from spinup.arena.games import LEARNED_IN
from spinup.arena.players import ILLEGAL, Player, scripted, trained
from spinup.bench.papers.paper import Line, Paper, at_least, at_most, by_kind, run, seconds_of, together
from spinup.bench.papers.self_play import GAMES, VERSIONS, greedy, meet, rated
from spinup.runs.files import read_json

SEEDS = (1,)                            # --seeds 1 2 3 makes the whole table
MINUTES, PARAMETERS, OFTEN, RANDOM, MINIMAX, RANKS = 10, 200_000, 0.01, 0.05, 0.3, 0.9
GAME = "tictactoe"


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Train both kinds of policy on tic-tac-toe, and the policy in text on Connect Four."""
    kinds = {"tokens": ("llm self_play", GAME), "board": ("self_play", LEARNED_IN[GAME]),
             "connect_four": ("llm self_play", "connect_four")}
    of = by_kind(kinds, seeds, workers, lambda kind, seed: run(*kinds[kind], seed, log_dir, "--threads", "1"))
    results = {kind: [against_scripted(game_of(kind), folder) for folder in of[kind]] for kind in kinds}
    ranked = {kind: [over_training(game_of(kind), folder) for folder in of[kind]] for kind in kinds}
    minutes = {kind: max(map(seconds_of, of[kind])) / 60 for kind in kinds}
    size = read_json(of["tokens"][0] / "config.json")["parameters"]
    illegal = {kind: max(found["illegal"] for found in results[kind]) for kind in kinds}
    lost = {(kind, name): max(found[name][2] for found in results[kind]) / GAMES
            for kind in ("tokens", "board") for name in scripted(GAME)}
    won = {name: mean(found[name][0] for found in results["connect_four"]) / GAMES
           for name in scripted("connect_four")}
    ranks = {kind: float(np.min([found["rank"] for found in ranked[kind]])) for kind in kinds}   # NaN if one is
    lines = [
        at_most("tic-tac-toe in text: training minutes, slowest seed", minutes["tokens"], MINUTES),
        at_most("parameters of the transformer", size, PARAMETERS),
        at_most("share of its sampled moves that are illegal, worst seed", illegal["tokens"], OFTEN),
        at_most(f"games lost to random moves, share of {GAMES}, worst seed", lost["tokens", "random"], RANDOM),
        at_most("games lost to minimax, worst seed", lost["tokens", "minimax"], MINIMAX),
        at_least("rank correlation of rating and training, worst seed", ranks["tokens"], RANKS),
        Line("classic self_play with board and mask: training minutes", "", minutes["board"]),
        Line("games lost to random moves", "", lost["board", "random"]),
        Line("games lost to minimax", "", lost["board", "minimax"]),
        Line("rank correlation of rating and training", "", ranks["board"]),
        Line("Connect Four in text: training minutes, slowest seed", "", minutes["connect_four"]),
        Line("share of its sampled moves that are illegal", "", illegal["connect_four"]),
        Line("games won against random moves, mean of the seeds", "", won["random"]),
        Line("games won against one-ply, mean of the seeds", "", won["one-ply"]),
        Line("rank correlation of rating and training in Connect Four", "", ranks["connect_four"])]

    def draw(figure: Any) -> None:
        panels = (("rating", "rating", "rating in a tournament, mean 1200"),
                  ("lost", "games lost", "share of games lost to random moves"))
        for i, (name, title, label) in enumerate(panels):
            axes = figure.add_subplot(1, 2, i + 1)
            for kind, colour, words in (("board", "#0072B2", "board and legal-action mask"),
                                        ("tokens", "#D55E00", "text, no mask")):
                for k, found in enumerate(ranked[kind]):
                    share = np.array(found["steps"]) / max(found["steps"])
                    axes.plot(share, found[name], marker="o", markersize=3, linewidth=1.3, color=colour,
                              label=words if k == 0 else None)
            axes.set(title=title, xlabel="share of the training", ylabel=label)
        figure.suptitle("tic-tac-toe")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)

    raw = {"results": results, "ranked": ranked}
    return Paper("Self-play in text (Bansal et al. 2018)", lines, draw, raw), together(of)


def game_of(kind: str) -> str:
    """Return the name of the game of a kind of run."""
    return "connect_four" if kind == "connect_four" else GAME


def most_likely(folder: Path, game: str) -> Player:
    """Return the policy of a run as a player that takes its most likely moves."""
    player = trained(folder, LEARNED_IN[game], 0)[-1]
    if player.reader is None:
        return Player("policy", greedy(folder))
    sampled = player.reader
    return Player("policy", reader=lambda so_far, rng: sampled(so_far, None))


def against_scripted(game: str, folder: Path) -> dict[str, Any]:
    """Games won, drawn and lost against each scripted player, with the most likely moves of the policy.

    `illegal` is the share of illegal moves in as many games with sampled moves.
    """
    found: dict[str, Any] = {}
    player, sampled = most_likely(folder, game), trained(folder, LEARNED_IN[game], 0)[-1]
    chosen = counted(sampled)
    for name, moves in scripted(game).items():
        other = Player(name, moves)
        got = Counter(meet(game, player, other, GAMES, np.random.default_rng(0)))
        found[name] = [got[1.0], got[0.5], got[0.0]]
        meet(game, sampled, other, GAMES, np.random.default_rng(1))
    found["illegal"] = sampled.faults[ILLEGAL] / max(1, chosen["moves"])
    found["illegal_most_likely"] = player.faults[ILLEGAL]
    return found


def counted(player: Player) -> Counter[str]:
    """Count the moves that a player chooses from now on."""
    count: Counter[str] = Counter()
    choose = player.choose

    def counting(observation: np.ndarray, legal: np.ndarray, so_far: list[list[int]],
                 rng: np.random.Generator) -> np.ndarray:
        count["moves"] += len(so_far)
        return choose(observation, legal, so_far, rng)

    player.choose = counting
    return count


def over_training(game: str, folder: Path) -> dict[str, Any]:
    """Steps and ratings of ten versions of a run, from a tournament between them; the rank correlation of both; and
    the share of games that each version loses to random moves."""
    players = trained(folder, LEARNED_IN[game], VERSIONS)
    steps, ratings = [p.steps or 0 for p in players], rated(game, players)
    random = Player("random", scripted(game)["random"])
    lost = [meet(game, player, random, 200, np.random.default_rng(0)).count(0.0) / 200 for player in players]
    return {"steps": steps, "rating": ratings, "rank": float(spearmanr(steps, ratings)[0]), "lost": lost}
