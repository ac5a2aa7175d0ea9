"""Games of a person against a player, in the terminal."""
import numpy as np
from rich.console import Console
from rich.text import Text

from spinup.arena.players import Player
from spinup.envs.worlds.boards import BOARDS, Board
from spinup.errors import UserError

STONES, COLOURS = "XO", ("bold cyan", "bold yellow")                      # of the first player, and of the second


def against(player: Player, game: str, *, begin: bool, seed: int) -> int:
    """Play games until the person stops; return 0. UserError if the game has no board to show."""
    if game not in BOARDS:
        raise UserError(f"{game} cannot be shown in a terminal; choose {' or '.join(BOARDS)}")
    console, rng, results = Console(highlight=False), np.random.default_rng(seed), []
    console.print(f"You play {game} against {player.name}. Type the number of a move, or q to leave.")
    while (result := one_game(player, BOARDS[game](1), 0 if begin else 1, console, rng)) is not None:
        results.append(result)
        begin = not begin                                                 # change sides
        console.print({1: "You win.", 0: "A draw.", -1: f"{player.name} wins."}[result])
        counts = [results.count(r) for r in (1, 0, -1)]
        console.print(f"{counts[0]} won, {counts[1]} drawn, {counts[2]} lost. Press Enter to play again, q to leave.")
        if ask(console) in ("q", None):
            break
    return 0


def one_game(player: Player, board: Board, person: int, console: Console, rng: np.random.Generator) -> int | None:
    """Play one game and return the person's result, 1, 0 or -1; None if the person left."""
    so_far: list[int] = []
    while True:
        mover = int(board.mover[0])
        if mover == person:
            show(board, console)
            move = choose(board, console)
            if move is None:
                return None
        else:
            legal = board.legal()
            move = int(player.choose(board.observe(), legal, [so_far], rng)[0])
            if move < 0 or not legal[0, move]:                            # of a player that reads no mask
                console.print(f"{player.name} chose an illegal move.")
                return 1
        so_far.append(move)
        worth, over = board.play(np.array([move]))
        if over[0]:
            show(board, console)
            return int(worth[0]) if mover == person else -int(worth[0])


def choose(board: Board, console: Console) -> int | None:
    """Ask for a move until it is legal; None if the person leaves."""
    open_ = (1 + np.flatnonzero(board.legal()[0])).tolist()
    while True:
        console.print("Your move: ", end="")
        word = ask(console)
        if word in ("q", None):
            return None
        if word in map(str, open_):
            return int(word) - 1
        console.print(f"Type one of {' '.join(map(str, open_))}, or q to leave.")


def ask(console: Console) -> str | None:
    """Read a line from the terminal. At the end of the input, print a note and return None."""
    try:
        return console.input().strip().lower()
    except EOFError:
        console.print("\nThe input ended, so the game is over.")
        return None


def show(board: Board, console: Console) -> None:
    """Print the board. Free squares show the numbers of their moves; in games with columns, the numbers are above."""
    own, other = np.moveaxis(board.observe()[0], -1, 0)                   # of the player to move
    first, second = (own, other) if board.mover[0] == 0 else (other, own)
    columns = board.num_actions == board.columns
    if columns:
        console.print(Text(" " + " ".join(map(str, range(1, board.columns + 1))), "dim"))
    for row in range(board.rows):
        line = Text(" ")
        for column in range(board.columns):
            empty = "·" if columns else str(row * board.columns + column + 1)
            seat = 0 if first[row, column] else 1 if second[row, column] else None
            line.append(empty if seat is None else STONES[seat], "dim" if seat is None else COLOURS[seat])
            line.append(" ")
        console.print(line)
