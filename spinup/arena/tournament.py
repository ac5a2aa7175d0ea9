"""Tournament: pairing of players, their results, and ratings from the results."""
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from spinup.arena.players import FORFEIT, ILLEGAL, Player
from spinup.core.ratings import MEAN, Strengths, bradley_terry, elo, next_match
from spinup.envs.games import Game
from spinup.errors import UserError
from spinup.runs.files import read_json, write_json

# Plays a number of games in which the first player begins; returns its scores: 0, 0.5 or 1.
Match = Callable[[int, int, int, np.random.Generator], list[float]]


def play(game: Game, first: Player, second: Player, rng: np.random.Generator) -> list[float]:
    """Play all games of `game` to the end; return the scores of `first`, who begins: 1, 0.5 for a draw, or 0.

    A player that forfeits or chooses an illegal move loses the game.
    """
    game.reset()
    scores, running = np.zeros(game.num_games), np.ones(game.num_games, bool)
    so_far: list[list[int]] = [[] for _ in range(game.num_games)]         # moves of each game
    while running.any():
        for seat, player in enumerate((first, second)):
            turn = np.flatnonzero(running & (game.mover == seat))
            if not len(turn):
                continue
            legal = game.legal(turn)
            move = np.asarray(player.choose(game.observe(turn), legal, [so_far[i] for i in turn], rng))
            given = move != FORFEIT
            open_ = given & legal[np.arange(len(turn)), np.where(given, move, 0)]
            if closed := int((given & ~open_).sum()):
                player.faults[ILLEGAL] += closed
            worth, over = np.full(len(turn), -1.0), np.ones(len(turn), bool)
            worth[open_], over[open_] = game.play(move[open_], turn[open_])
            for i, chosen in zip(turn[open_].tolist(), move[open_].tolist(), strict=True):
                so_far[i].append(chosen)
            for i, result in zip(turn[over], worth[over], strict=True):
                scores[i] = (1 + (1 if seat == 0 else -1) * np.sign(result)) / 2
            running[turn[over]] = False
    return scores.tolist()


@dataclass
class Record:
    """Record of all games so far.

    Attributes:
        names, versions: those of the players `[P]`.
        scores: `[P, P]`, the total score of i against j; a draw counts one half.
        begun: `[P, P]`, the number of games against j in which i began.
        elo: `[P]`, updated after every game.
        faults: reasons and counts of the forfeits of each player.
    """

    names: list[str]
    versions: list[str]
    scores: np.ndarray
    begun: np.ndarray
    elo: np.ndarray
    faults: list[dict[str, int]] = field(default_factory=list)

    @classmethod
    def empty(cls, names: list[str], versions: list[str]) -> "Record":
        """Make a record of players without games."""
        n = len(names)
        return cls(names, versions, np.zeros((n, n)), np.zeros((n, n), np.int64), np.full(n, MEAN), [{}] * n)

    @property
    def games(self) -> np.ndarray:
        """Number of games of each player, `[P]`."""
        return self.begun.sum(0) + self.begun.sum(1)

    def add(self, first: int, second: int, scores: list[float]) -> None:
        """Add games in which `first` began."""
        self.begun[first, second] += len(scores)
        self.scores[first, second] += sum(scores)
        self.scores[second, first] += len(scores) - sum(scores)
        for score in scores:
            self.elo[first], self.elo[second] = elo(self.elo[first], self.elo[second], score)

    def strengths(self) -> Strengths:
        """Strengths of the players from all games so far (Bradley and Terry, 1952)."""
        return bradley_terry(self.scores)

    def for_players(self, names: list[str], versions: list[str]) -> tuple["Record", list[str]]:
        """Return the record of these players, in this order, followed by the other players in the record; and the names
        of changed players.

        A player with a new name and a known version is the same player. If the new name was that of another player,
        the other player gets a free name. A new player starts without games. So does a player with a known name and a
        new version.
        """
        known = {key: i for i, key in enumerate(zip(self.names, self.versions, strict=True))}
        old = [known.get(key) for key in zip(names, versions, strict=True)]
        for k, version in enumerate(versions):
            if old[k] is None and version:
                old[k] = next((i for i, v in enumerate(self.versions) if v == version and i not in old), None)
        left = {name: i for i, name in enumerate(self.names) if i not in old}
        changed = [name for name, i in zip(names, old, strict=True) if i is None and name in left]
        absent = {}                                                       # numbers by name, here a free one
        for name, i in left.items():
            if name not in changed and (name not in names or self.games[i]):
                free = count(1)
                while name in {*names, *absent}:
                    name = f"{self.names[i]} (earlier {next(free)})"
                absent[name] = i
        old += absent.values()
        new = Record.empty(names + [*absent], versions + [self.versions[i] for i in absent.values()])
        kept = [k for k, i in enumerate(old) if i is not None]
        at = [old[k] for k in kept]
        new.scores[np.ix_(kept, kept)] = self.scores[np.ix_(at, at)]
        new.begun[np.ix_(kept, kept)] = self.begun[np.ix_(at, at)]
        new.elo[kept] = self.elo[at]
        new.elo += MEAN - new.elo.mean()                                  # if a player has changed
        new.faults = [self.faults[i] if i is not None else {} for i in old]
        return new, changed

    def as_dict(self) -> dict[str, Any]:
        """Return all values as plain data, for JSON."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}


def tournament(record: Record, match: Match, games_each: int, batch: int, rng: np.random.Generator, *,
               out: Callable[[int], bool] = lambda player: False, after: Callable[[Record], None] | None = None,
               ) -> Record:
    """Play matches of `batch` games until each player has played `games_each`.

    out: returns whether a player is excluded. after: called after each match.
    """
    while True:
        playing = np.flatnonzero([not out(i) for i in range(len(record.names))])
        if len(playing) < 2 or record.games[playing].min() >= games_each:
            return record
        among = np.ix_(playing, playing)
        first, second = (int(playing[i]) for i in next_match(
            record.elo[playing], record.begun[among], rng, record.games[playing]))
        record.add(first, second, match(first, second, batch, rng))
        if after is not None:
            after(record)


def hold(make_game: Callable[[int, int], Game], players: list[Player], games_each: int, batch: int, seed: int,
         file: Path, say: Callable[[str], None], after: Callable[[Record], None]) -> Record:
    """Play a tournament whose results are in `file`. They are written atomically after every match, and a later call
    resumes it.

    Players in `file` that are not in `players` stay in the record, after the others, and play no more.

    say: prints a line. after: called after each match. UserError if `file` is something else.
    """
    names, versions = [p.name for p in players], [p.version for p in players]
    record = Record.empty(names, versions)
    if file.exists():
        record, changed = read(file).for_players(names, versions)
        if record.begun.any():
            say(f"resuming with {record.begun.sum():,} games from {file}")
        for name in changed:
            say(f"{name} has changed since then and starts again without games")
    for player, faults in zip(players, record.faults, strict=False):
        player.faults = Counter(faults)
    rng = np.random.default_rng([seed, int(record.begun.sum())])          # new games, not a repetition

    def match(first: int, second: int, n: int, rng: np.random.Generator) -> list[float]:
        return play(make_game(n, int(rng.integers(2**31))), players[first], players[second], rng)

    def keep(record: Record) -> None:
        record.faults[:len(players)] = [dict(p.faults) for p in players]
        write_json(file, record.as_dict())
        after(record)

    return tournament(record, match, games_each, batch, rng, out=lambda i: i >= len(players) or players[i].out,
                      after=keep)


def read(file: Path) -> Record:
    """Read the results in `file`; UserError if it holds none."""
    advice = "remove it, or choose another --out"
    data = read_json(file, advice)
    try:
        arrays = {name: np.array(data[name], kind) for name, kind in (
            ("scores", float), ("begun", np.int64), ("elo", float))}
        record = Record(list(data["names"]), list(data["versions"]), **arrays, faults=list(data["faults"]))
        n = len(record.names)
        shapes = [record.scores.shape, record.begun.shape, record.elo.shape]
        if shapes != [(n, n), (n, n), (n,)] or not n == len(record.versions) == len(record.faults):
            raise ValueError
        if {type(text) for text in record.names + record.versions} - {str} or len({*record.names}) < n:
            raise ValueError
        played = record.begun + record.begun.T
        if (record.begun < 0).any() or not np.allclose(record.scores + record.scores.T, played, rtol=0, atol=1e-6):
            raise ValueError
        if (record.scores < 0).any() or not np.isfinite(record.elo).all():
            raise ValueError
        for faults in record.faults:
            if any(type(times) is not int or times < 0 for times in faults.values()):
                raise ValueError
        return record
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise UserError(f"{file} does not contain arena results; {advice}") from None
