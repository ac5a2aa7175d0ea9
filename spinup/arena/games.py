"""The games of an arena, by name."""
from collections.abc import Callable
from functools import partial

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


def game_of(env: str) -> str:
    """The name of the game that one learns in this environment."""
    return next((name for name, learned_in in LEARNED_IN.items() if learned_in == env), env)
