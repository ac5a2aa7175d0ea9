"""`spinup arena`: reads players from the command line, and writes the results of their games to files."""
from collections import defaultdict
from itertools import count
from os.path import abspath
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from spinup.arena.games import find_game, game_of
from spinup.arena.players import Player, check_python, own, scripted, trained
from spinup.arena.show import print_table, write
from spinup.arena.tournament import Record, hold
from spinup.envs.worlds.boards import BOARDS
from spinup.errors import UserError, nearest
from spinup.runs.folders import check_writable, find_run, runs_below


def runs_in(directory: Path) -> list[Path]:
    """Return the runs directly below a folder; the folder itself if it is a run, or if no run is there."""
    inside = runs_below(directory, "*/config.json")
    return [directory] if (directory / "config.json").exists() or not inside else inside


def game_meant(entries: list[Path], game: str) -> str:
    """Return the given game, or the game of the first run. UserError if no game is given and there is no run."""
    folders = [entry for entry in entries if entry.is_dir()]
    if game or folders:
        return game or game_of(find_run(runs_in(folders[0])[0]))
    known = {name for board in BOARDS for name in scripted(board)}
    for entry in entries:
        if not entry.exists() and str(entry) not in known:
            raise UserError(f"there is no {entry}; give the folder of a self_play run, such as "
                            "runs/self_play_ConnectFour-v0_1, or, for a tournament, a Python file")
        check_python(entry)
    raise UserError("no game is given; type --game tictactoe or --game connect_four")


def tell_apart(players: list[Player], homes: list[tuple[str, ...]]) -> None:
    """Make names of players unique: add parent folders in front of equal names.

    homes: the parent folders of each player, the nearest first.
    """
    names, found = [p.family or p.name for p in players], defaultdict(set)
    for name, home in zip(names, homes, strict=True):
        found[name].add(home)
    for player, name, home in zip(players, names, homes, strict=True):
        depth = next(k for k in count() if sum(other[:k] == home[:k] for other in found[name]) == 1)
        whole = "/".join([*home[:depth][::-1], name])
        player.name, player.family = whole + player.name.removeprefix(name), whole if player.family else ""


def gather(entries: list[Path], game: str, env: str, versions: int, seconds: float, memory_mb: int) -> list[Player]:
    """Return the scripted players and the players of folders and files, all with different names."""
    players = [Player(name, moves) for name, moves in scripted(game).items()]
    homes: list[tuple[str, ...]] = [()] * len(players)
    for entry in entries:
        for path in map(find_run, runs_in(entry)) if entry.is_dir() else [entry]:
            players += trained(path, env, versions) if entry.is_dir() else [own(path, seconds, memory_mb)]
            homes += [Path(abspath(path)).parent.parts[::-1]] * (len(players) - len(homes))
    tell_apart(players, homes)
    names: set[str] = set()
    for player in players:
        name, again = player.name, 2
        while player.name in names:
            player.name, again = f"{name} ({again})", again + 1
        if player.family:
            player.family = player.family if player.name == name else f"{player.family} ({again - 1})"
        names.add(player.name)
    return players


def opponent(word: str, game: str, env: str) -> Player:
    """Return the opponent for a person: a scripted player by name, or the policy of a run. UserError with the nearest
    name."""
    known = scripted(game)
    if word in known:
        return Player(word, known[word])
    if not Path(word).is_dir():
        raise UserError(f"there is no folder {word!r} and no player of {game} with that name.{nearest(word, known)} "
                        f"Give the folder of a run, or one of: {', '.join(known)}")
    return trained(Path(word), env, 0)[-1]


def arena(entries: list[Path], *, game: str, games_each: int, batch: int, versions: int, seconds: float, memory_mb: int,
          seed: int, out: Path) -> int:
    """Play a tournament, or resume the one in `out`; return 0. UserError for an entry that cannot play."""
    game = game_meant(entries, game)
    make_game, env = find_game(game)
    check_writable(out, "--out", "results")
    players = gather(entries, game, env, versions, seconds, memory_mb)
    console = Console()
    try:
        bar = Progress(TextColumn("{task.completed:,.0f} of {task.total:,.0f} games"), BarColumn(),
                       TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)
        with bar:
            task = bar.add_task("", total=len(players) * games_each // 2)

            def after(record: Record) -> None:
                bar.update(task, completed=np.minimum(record.games[:len(players)], games_each).sum() // 2)

            out.mkdir(parents=True, exist_ok=True)
            file = out / f"{game.replace('/', '_')}.json"
            with FileLock(out / ".lock", timeout=0):
                record = hold(make_game, players, games_each, batch, seed, file, console.print, after)
                rows = write(record, players, game, out)
    except Timeout:
        raise UserError(f"another tournament is writing to --out {out}; wait until it ends, or choose another "
                        "--out") from None
    except IsADirectoryError as error:
        raise UserError(f"{error.filename2} is a folder; remove it, or choose another --out") from None
    finally:
        for player in players:
            player.close()
    print_table(rows, console)
    for name in ("arena.html", "arena.png", "ratings.json"):
        console.print(str(out / name), highlight=False, soft_wrap=True)
    return 0
