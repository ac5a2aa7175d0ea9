"""Commands for two-player games: a tournament, and a game against a policy."""
from functools import partial
from pathlib import Path

from spinup.parser import Parser, check_input, path_of

HELP = """\
Compete in two-player games:
  spinup arena DIR|FILE... --game connect_four    a tournament of trained, scripted and your own players; ratings
  spinup play DIR --game tictactoe                play against a policy
"""


def arena(argv: list[str]) -> int:
    from spinup.runs.config import Positive, Size
    from spinup.runs.convert import parse
    from spinup.runs.flags import whole
    parser = Parser("spinup arena", "Hold a tournament in a two-player game. It gives ratings with 95 % confidence "
                                    "intervals as a table, a plot and a web page. Scripted players take part. Type the "
                                    "same command again to resume.")
    parser.add_argument("entries", type=path_of, nargs="*", default=[], metavar="DIR|FILE",
                        help="folders of runs (a self_play run enters with its past versions), or Python files with "
                             "act(observation, mask)")
    parser.add_argument("--game", default="", metavar="NAME",
                        help="tictactoe, connect_four, or a PettingZoo game such as classic/chess-v6. [the game of the "
                             "first DIR]")
    parser.add_argument("--games", type=whole("games"), default=200, metavar="N",
                        help="minimum games per player. [200]")
    parser.add_argument("--batch", type=partial(parse, "batch", Size), default=10, metavar="N",
                        help="games per match; one player moves first in all of them. [10]")
    parser.add_argument("--versions", type=whole("versions", 0), default=8, metavar="N",
                        help="number of past versions of a run that take part. [8]")
    parser.add_argument("--seconds", type=partial(parse, "seconds", Positive), default=1.0, metavar="S",
                        help="time limit per move of a FILE's player. [1]")
    parser.add_argument("--memory", type=whole("memory", 64), default=2048, metavar="MB",
                        help="memory limit of a FILE's player. [2048]")
    parser.add_argument("--seed", type=whole("seed", 0), default=1, metavar="S", help="seed of the games. [1]")
    parser.add_argument("--out", type=path_of, default=Path("arena"), metavar="DIR",
                        help="folder of the results. [arena]")
    args = parser.parse(argv)
    from spinup.arena.command import arena as hold
    return hold(args.entries, game=args.game, games_each=args.games, batch=args.batch, versions=args.versions,
                seconds=args.seconds, memory_mb=args.memory, seed=args.seed, out=args.out)


def play(argv: list[str]) -> int:
    from spinup.runs.flags import whole
    parser = Parser("spinup play", "Play against a policy in the terminal.")
    parser.add_argument("player", metavar="DIR", help="folder of a run, or a scripted player: random, minimax, one-ply")
    parser.add_argument("--game", default="", metavar="NAME", help="tictactoe or connect_four. [the game of the run]")
    parser.add_argument("--second", action="store_true", default=False, help="policy moves first in the first game")
    parser.add_argument("--seed", type=whole("seed", 0), default=1, metavar="S", help="seed of its moves. [1]")
    args = parser.parse(argv)
    check_input("spinup play")
    from spinup.arena.command import game_meant, opponent
    from spinup.arena.games import find_game
    from spinup.arena.play import against
    game = game_meant([Path(args.player)], args.game)
    return against(opponent(args.player, game, find_game(game)[1]), game, begin=not args.second, seed=args.seed)


COMMANDS = {"arena": arena, "play": play}
