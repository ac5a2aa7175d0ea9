"""Players of a `Game`: scripted ones, trained policies, and people's own, each in a process of its own."""
import hashlib
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from spinup.arena.games import find_game, game_of
from spinup.arena.process import Process
from spinup.core.fast.acting import NumpyMLP
from spinup.envs.games import flat
from spinup.envs.worlds.boards import ConnectFour, TicTacToe
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.folders import find_run

FORFEIT = -1            # the move of a player that has none: it loses the game
ILLEGAL = "chose an illegal move"


class Moves(Protocol):
    """A player of n games at once, a function of observations `[n, *shape]`, the moves open to it `[n, A]` bool,
    and random numbers, to moves `[n]`; FORFEIT where it has none."""

    def __call__(self, observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray: ...


@dataclass
class Player:
    """One who plays.

    Attributes:
        name: in tables; no two are alike.
        moves: what it does.
        version: changes where what it plays changes, so that old results are not taken for its own.
        steps: of training, where it was trained; its line in the picture.
        family: whose versions belong to one line.
        faults: why it has forfeited, and how often.
        patience: faults after which it plays no more; 0 = never. An illegal move costs a game and nothing else.
    """

    name: str
    moves: Moves
    version: str = ""
    steps: int | None = None
    family: str = ""
    patience: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    close: Callable[[], None] = lambda: None
    note: Callable[[], str] = lambda: ""

    @property
    def out(self) -> bool:
        """Whether it has failed too often to be asked again."""
        return 0 < self.patience <= sum(n for fault, n in self.faults.items() if fault != ILLEGAL)


def random_moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Any legal move, `[n]`; `legal` is `[n, moves]`."""
    return (rng.random(legal.shape) * legal).argmax(1)


def one_ply(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Connect Four: a move that wins; else one that keeps the other from winning at once; else any, `[n]`."""
    board, (n, moves) = ConnectFour(len(legal)), legal.shape
    stones = np.moveaxis(observation, -1, 0).reshape(2, n, -1).astype(np.uint64)
    own, other = (stones << ConnectFour.bits).sum(-1, dtype=np.uint64)    # [n] each
    worth = rng.random(legal.shape) * legal
    for move in range(moves):
        games = np.flatnonzero(legal[:, move])
        for mine, theirs, gain in ((own, other, 2), (other, own, 1)):
            board.own[games], board.other[games] = mine[games], theirs[games]
            won, _ = board.play(np.full(len(games), move), games)
            worth[games[won > 0], move] += gain
    return worth.argmax(1)


@cache
def outcome(own: int, other: int) -> int:
    """Tic-tac-toe: what who is to move gets where both play their best, 1, 0 or -1. Stones as bits."""
    if any(other & line == line for line in LINES):
        return -1
    if own | other == 0b111111111:
        return 0
    return max(-outcome(other, own | 1 << move) for move in range(9) if not (own | other) >> move & 1)


LINES = [int(line) for line in TicTacToe.lines]


def minimax(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Tic-tac-toe: one of the best moves, `[n]`, each as likely as the others."""
    worth = np.where(legal, rng.random(legal.shape), -np.inf)
    for i, stones in enumerate(observation.reshape(len(legal), 9, 2)):
        own, other = ((stones << np.arange(9)[:, None]).sum(0)).tolist()
        for move in np.flatnonzero(legal[i]).tolist():
            worth[i, move] -= 2 * outcome(other, own | 1 << move)
    return worth.argmax(1)


SCRIPTED: dict[str, dict[str, Moves]] = {"tictactoe": {"random": random_moves, "minimax": minimax},
                                         "connect_four": {"random": random_moves, "one-ply": one_ply}}


def scripted(game: str) -> dict[str, Moves]:
    """The scripted players of a game, by name."""
    return SCRIPTED.get(game, {"random": random_moves})


def trained(directory: Path, env: str, versions: int, load: Callable[[Path], Any]) -> list[Player]:
    """The policy of a run, and before it, if it has learned against its past selves, so many of these.

    load: makes a policy of a folder. UserError: it was trained in another environment than `env`.
    """
    directory = find_run(directory)
    game = game_of(directory)
    if (learned_in := find_game(game)[1]) != env:
        raise UserError(f"{directory} was trained in {learned_in}, not in {env}; name its game with --game {game}")
    policy, checkpoint = load(directory), load_checkpoint(directory / "checkpoint.pt")
    name = directory.name.replace(f"_{env.replace('/', '-')}", "")        # what they play is known
    digest = hashlib.sha256((directory / "checkpoint.pt").read_bytes()).hexdigest()[:16]

    def moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        policy.rng = rng
        return policy.act_batch(flat(observation, legal), deterministic=False)

    players = [Player(name, moves, digest, int(checkpoint["steps"]), name)]
    if pool := checkpoint["parts"].get("pool"):
        taken = sorted(set(np.linspace(0, len(pool["steps"]) - 1, versions).round().astype(int).tolist()))
        players[:0] = [Player(f"{name} @{short(pool['steps'][k])}", past_self(policy.module.pi, pool["nets"][k]),
                              f"{digest} @{pool['steps'][k]}", int(pool["steps"][k]), name) for k in taken if versions]
    return players


def past_self(net: nn.Sequential, weights: dict[str, Tensor]) -> Moves:
    """Moves `[n]` drawn by a network like `net` with these weights."""
    net = deepcopy(net)
    net.load_state_dict(weights)
    outputs = NumpyMLP(net)

    def moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        logits = outputs(flat(observation, legal)) + rng.gumbel(size=legal.shape)
        return np.where(legal, logits, -np.inf).argmax(1)

    return moves


def short(steps: int) -> str:
    """Steps in four letters: 950, 12k, 1.5M."""
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if steps >= unit:
            return f"{steps / unit:.3g}{letter}"
    return str(steps)


def check_python(file: Path) -> None:
    """UserError for something other than a Python file."""
    if file.exists() and not (file.is_file() and file.suffix == ".py"):
        raise UserError(f"{file} is no Python file; give one, such as mine.py, with a function act(observation, mask)")


def own(file: Path, seconds: float, memory_mb: int) -> Player:
    """A player of a file with `act(observation, mask)`, in a process with so little time for a move and memory.

    UserError: no such file, or no Python file.
    """
    check_python(file)
    try:
        source = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read ({(error.strerror or '').lower()}); give a Python file with a function "
                        "act(observation, mask)") from None
    process = Process(file, seconds, memory_mb)
    player = Player(file.stem, lambda *_: np.array([]), hashlib.sha256(source).hexdigest()[:16], patience=3,
                    close=process.close, note=process.note)

    def moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = []
        for seen, mask in zip(observation, legal, strict=True):
            move, fault = (0, "was not asked any more") if player.out else process.ask(seen, mask)
            if fault:
                player.faults[fault] += 1
            chosen.append(FORFEIT if fault else move)
        return np.array(chosen)

    player.moves = moves
    return player
