"""Games of an arena, by name."""
from collections.abc import Callable
from functools import partial
from pathlib import Path

from spinup.envs.games import Game
from spinup.envs.worlds.boards import BOARDS
from spinup.envs.zoo import ZooGame, find_zoo_id
from spinup.errors import UserError, nearest
from spinup.runs.folders import describe
from spinup.runs.records import read_run

LEARNED_IN = {"tictactoe": "TicTacToe-v0", "connect_four": "ConnectFour-v0"}            # environments with these games


def find_game(name: str) -> tuple[Callable[[int, int], Game], str]:
    """Return a function that makes games from their number and a seed, and the environment for training on this game.

    name: tictactoe, connect_four, or one of PettingZoo's two-player games, such as classic/chess-v6. UserError for
    others.
    """
    if name in BOARDS:
        return BOARDS[name], LEARNED_IN[name]
    if name.startswith("classic/"):
        return partial(ZooGame, find_zoo_id(name)), find_zoo_id(name)
    raise UserError(f"there is no game {name!r}.{nearest(name, BOARDS)} Choose {', '.join(BOARDS)} or a two-player "
                    "game of PettingZoo, such as classic/chess-v6")


def game_of(directory: Path) -> str:
    """Return the name of the game of a run. UserError if the run has no game, or a user's own, which only Python can
    make."""
    data = read_run(directory)
    if (task := str(data["config"].get("task", "")).partition(":")[0]) in LEARNED_IN:       # a game in text
        return task
    env = data["config"].get("env", "")
    if not isinstance(env, str):
        raise UserError(f"the game of this run is a Python object, {env['callable']}, which a command cannot create; "
                        "use spinup.load(DIR) in Python")
    if env not in LEARNED_IN.values() and not env.startswith("classic/"):
        what = f"in {env}, which is not a two-player game" if env else "without a game"
        raise UserError(f"{describe(directory)} is a run of {data['algorithm']} {what}; give a self_play run")
    return next((name for name, learned_in in LEARNED_IN.items() if learned_in == env), env)
