"""Players of a `Game`: scripted players, trained policies, and users' own players, each in a separate process."""
import hashlib
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from spinup.arena.games import find_game, game_of
from spinup.arena.process import Process
from spinup.core.fast.acting import NumpyMLP
from spinup.envs.games import flat
from spinup.envs.worlds.boards import ConnectFour, TicTacToe
from spinup.errors import UserError
from spinup.registry import family, find
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.folders import find_run
from spinup.runs.public import load
from spinup.runs.records import read_run

FORFEIT = -1            # the move of a player that returns no move: it loses the game
ILLEGAL = "chose an illegal move"


class Moves(Protocol):
    """Player of n games in parallel: a function from observations `[n, *shape]`, the legal-action mask `[n, A]` bool
    and a random generator to moves `[n]`; FORFEIT where it has no move."""

    def __call__(self, observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray: ...


# Player of n games in parallel that reads no board: a function from the moves of each game so far, in order, and a
# random generator to moves `[n]`; FORFEIT where it has no move. It may choose illegal moves.
Reader = Callable[[list[list[int]], np.random.Generator], np.ndarray]


@dataclass
class Player:
    """A player in a tournament.

    Attributes:
        name: its unique name in tables.
        moves: the function that chooses its moves; None if it has a reader.
        reader: the function that chooses its moves if it reads the moves so far and not the board.
        version: changes if the player changes, so that old results do not count for it.
        steps: training steps, if it was trained; its x coordinate in the figure.
        family: the name shared by all versions of one run.
        faults: reasons for its forfeits, and their counts.
        patience: number of faults after which it no longer plays; 0 = no limit. An illegal move only loses a game.
    """

    name: str
    moves: Moves | None = None
    version: str = ""
    steps: int | None = None
    family: str = ""
    patience: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    close: Callable[[], None] = lambda: None
    note: Callable[[], str] = lambda: ""
    reader: Reader | None = None

    def choose(self, observation: np.ndarray, legal: np.ndarray, so_far: list[list[int]],
               rng: np.random.Generator) -> np.ndarray:
        """Choose its moves `[n]` in n games with these observations, legal-action masks and moves so far."""
        if self.reader is None:
            return self.moves(observation, legal, rng)
        chosen = self.reader(so_far, rng)
        self.faults[ILLEGAL] += int((chosen == FORFEIT).sum())
        return chosen

    @property
    def out(self) -> bool:
        """Return whether the player has failed too often to play on."""
        return 0 < self.patience <= sum(n for fault, n in self.faults.items() if fault != ILLEGAL)


def random_moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random legal moves, `[n]`; `legal` is `[n, moves]`."""
    return (rng.random(legal.shape) * legal).argmax(1)


def one_ply(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One-ply search in Connect Four, `[n]`: win at once; else prevent a win at once; else a random legal move."""
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
    """Result of optimal play in tic-tac-toe for the player to move, 1, 0 or -1. Positions are bit masks."""
    if any(other & line == line for line in LINES):
        return -1
    if own | other == 0b111111111:
        return 0
    return max(-outcome(other, own | 1 << move) for move in range(9) if not (own | other) >> move & 1)


LINES = [int(line) for line in TicTacToe.lines]


def minimax(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Optimal moves in tic-tac-toe, `[n]`, sampled uniformly among the best."""
    worth = np.where(legal, rng.random(legal.shape), -np.inf)
    for i, stones in enumerate(observation.reshape(len(legal), 9, 2)):
        own, other = ((stones << np.arange(9)[:, None]).sum(0)).tolist()
        for move in np.flatnonzero(legal[i]).tolist():
            worth[i, move] -= 2 * outcome(other, own | 1 << move)
    return worth.argmax(1)


SCRIPTED: dict[str, dict[str, Moves]] = {"tictactoe": {"random": random_moves, "minimax": minimax},
                                         "connect_four": {"random": random_moves, "one-ply": one_ply}}


def scripted(game: str) -> dict[str, Moves]:
    """Scripted players of a game, by name."""
    return SCRIPTED.get(game, {"random": random_moves})


def trained(directory: Path, env: str, versions: int) -> list[Player]:
    """Return the policy of a run as a player. If it learned by self-play, up to `versions` of its past versions come
    before it. UserError if it was trained in another environment than `env`."""
    directory = find_run(directory)
    game = game_of(directory)
    if (learned_in := find_game(game)[1]) != env:
        raise UserError(f"{directory} was trained in {learned_in}, not in {env}; choose its game with --game {game}")
    algorithm = find(read_run(directory)["algorithm"], run=directory)
    checkpoint = load_checkpoint(directory / "checkpoint.pt")
    name = directory.name.replace(f"_{env.replace('/', '-')}", "")        # the game is known

    make = family(algorithm).competitor(directory) if algorithm.family else None
    policy = None if make else load(directory)
    if given := [name for name in ("frame_stack", "episodes") if policy is not None and name in policy.env_settings]:
        flag = "--" + given[0].replace("_", "-")
        raise UserError(f"{directory} was trained with {flag}, which a tournament does not support; type "
                        f"`spinup eval {directory}`, or train again without {flag}")

    def moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        policy.rng = rng
        return policy.act_batch(flat(observation, legal), deterministic=False)

    def player(label: str, version: str, steps: int, net: Any = None) -> Player:
        if make:                                                          # a language model reads the moves so far
            return Player(label, None, version, steps, name, reader=make(net))
        return Player(label, moves if net is None else past_self(policy.module.pi, net), version, steps, name)

    weights = checkpoint["parts"]["model" if algorithm.family else "policy"]
    players = [player(name, digest(weights), int(checkpoint["steps"]))]
    if pool := checkpoint["parts"].get("pool"):
        taken = sorted(set(np.linspace(0, len(pool["steps"]) - 1, versions).round().astype(int).tolist()))
        players[:0] = [player(f"{name} @{short(pool['steps'][k])}", digest(pool["nets"][k]), int(pool["steps"][k]),
                              pool["nets"][k]) for k in taken if versions]
    return players


def digest(weights: dict[str, Tensor] | Tensor) -> str:
    """Return a fingerprint of weights, `[...]` each: a run that trains on keeps the games of its past versions."""
    found = hashlib.sha256()
    for name, x in sorted(weights.items()) if isinstance(weights, dict) else [("", weights)]:
        found.update(name.encode() + x.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def past_self(net: nn.Sequential, weights: dict[str, Tensor]) -> Moves:
    """Return a player that samples moves `[n]` from a network with these weights; `net` gives its architecture."""
    net = deepcopy(net)
    net.load_state_dict(weights)
    outputs = NumpyMLP(net)

    def moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        logits = outputs(flat(observation, legal)) + rng.gumbel(size=legal.shape)
        return np.where(legal, logits, -np.inf).argmax(1)

    return moves


def short(steps: int) -> str:
    """Format a number of steps with at most four characters: 950, 12k, 1.5M."""
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if steps >= unit:
            return f"{steps / unit:.3g}{letter}"
    return str(steps)


def check_python(file: Path) -> None:
    """UserError unless the file is a Python file."""
    if file.exists() and not (file.is_file() and file.suffix == ".py"):
        raise UserError(f"{file} is not a Python file; give one, such as mine.py, with a function act(observation, "
                        "mask)")


def own(file: Path, seconds: float, memory_mb: int) -> Player:
    """Make a player from a file with `act(observation, mask)`, in a process with limited time per move and memory.

    UserError if the file does not exist or is not a Python file.
    """
    check_python(file)
    try:
        source = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read ({(error.strerror or '').lower()}); give a Python file with a function "
                        "act(observation, mask)") from None
    process = Process(file, seconds, memory_mb)
    player = Player(file.stem, version=hashlib.sha256(source).hexdigest()[:16], patience=3, close=process.close,
                    note=process.note)

    def moves(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = []
        for seen, mask in zip(observation, legal, strict=True):
            move, fault = (0, "was already excluded") if player.out else process.ask(seen, mask)
            if fault:
                player.faults[fault] += 1
            chosen.append(FORFEIT if fault else move)
        return np.array(chosen)

    player.moves = moves
    return player
