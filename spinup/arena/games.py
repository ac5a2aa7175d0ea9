"""The games of an arena, by name."""
from collections.abc import Callable
from functools import partial
from typing import Any

from spinup.envs.boards import BOARDS
from spinup.envs.games import Game
from spinup.envs.zoo import ZooGame, find_zoo_id
from spinup.errors import UserError, nearest

LEARNED_IN = {"tictactoe": "TicTacToe-v0", "connect_four": "ConnectFour-v0"}            # the environments of our boards


def find_game(name: str) -> tuple[Callable[[int, int], Game], str]:
    """What makes games, of their number and a seed; and the environment in which one learns it.

    name: tictactoe, connect_four, or one of PettingZoo's games of two, such as classic/chess-v6. UserError for others.
    """
    if name in BOARDS:
        return BOARDS[name], LEARNED_IN[name]
    if name.startswith("classic/"):
        return partial(ZooGame, find_zoo_id(name)), find_zoo_id(name)
    raise UserError(f"there is no game {name!r}.{nearest(name, BOARDS)} Choose {', '.join(BOARDS)} or one of "
                    "PettingZoo's for two, such as classic/chess-v6")


def game_of(env: Any) -> str:
    """The name of the game that one learns in this environment, as `config.json` has it. UserError for a game of one's
    own, which only Python can make."""
    if not isinstance(env, str):
        raise UserError(f"the game of this run is a Python object, {env['callable']}, which a command cannot make; "
                        "from Python, spinup.load(DIR) acts in it")
    return next((name for name, learned_in in LEARNED_IN.items() if learned_in == env), env)
