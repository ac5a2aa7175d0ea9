"""Games of text between language models: many games in lockstep, one token per move, and a KV cache per player."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from llm.policy.cache import Cache, Slots
from llm.policy.draw import choose
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer, attention_dtype
from llm.tasks.board_games import BEGIN, BoardGame, transcript

NO_MOVE = -1            # a token that is no move of the player


@dataclass
class Played:
    """N finished games of up to T moves.

    Attributes:
        ids: `[N, T]` moves of both players as tokens; undefined after `lengths`.
        logp: `[N, T]` log-probabilities of the player that chose each move.
        mask: `[N, T]` 1 where the learner chose the move; 0 for openings, for the opponent, and after the end.
        lengths: `[N]` moves of each game, with the opening.
        result: `[N]` 1 if the learner won, 0 for a draw, -1 if it lost.
        illegal: `[N]` bool, True if the learner's last move was illegal.
    """

    ids: Tensor
    logp: Tensor
    mask: Tensor
    lengths: Tensor
    result: Tensor
    illegal: Tensor


class Reader:
    """A player in progress: a model that has read the moves of its games so far."""

    def __init__(self, model: Transformer, games: Tensor, length: int):
        self.model, self.games = model, games
        dtype = attention_dtype(model.device, model.dtype)
        self.cache = Cache(model.shape, len(games), length, model.device, dtype)

    def read(self, token: Tensor, position: int) -> Tensor:
        """Read the next token of all games, `[N]`; return the logits of the next move in this reader's games,
        `[n, vocab]`."""
        hidden = self.model.hidden(token[self.games, None], Slots(position), self.cache)
        return self.model.logits(hidden[:, 0])


@torch.inference_mode()
def play(task: BoardGame, tokenizer: Tokenizer, models: Sequence[Transformer], opponent: np.ndarray, seat: np.ndarray,
         openings: Sequence[str], generator: torch.Generator, temperature: float = 1.0) -> Played:
    """Play N games between the learner, `models[0]`, and its opponents, the other models.

    Args:
        opponent: `[N]` number of the opponent's model, from 1.
        seat: `[N]` 0 if the learner is the first player, else 1.
        openings: N prompts of the task: the moves with which the games begin.
    A player sees only the moves. There is no legal-action mask: an illegal move, or a token that is not a move of this
    player, loses the game.
    """
    N, T, device = len(seat), task.squares, models[0].device
    given = torch.zeros(N, T, dtype=torch.long)
    for row, text in enumerate(openings):
        ids = tokenizer.encode(text.removeprefix(BEGIN))
        given[row, :len(ids)] = torch.tensor(ids, dtype=torch.long)
    begun = np.array([len(text) - len(BEGIN) for text in openings])
    table = moves_of_tokens(task, tokenizer)                              # [2, vocab]
    games = [torch.arange(N), *(torch.from_numpy(np.flatnonzero(opponent == k)) for k in range(1, len(models)))]
    readers = [Reader(model, rows.to(device), T) for model, rows in zip(models, games, strict=True) if len(rows)]
    board, alive = task.board(N), np.ones(N, bool)
    ids, logp, mask = (torch.zeros(N, T, dtype=kind) for kind in (torch.long, torch.float32, torch.float32))
    lengths, result, illegal = np.zeros(N, np.int64), np.zeros(N, np.float32), np.zeros(N, bool)
    token = torch.full((N,), tokenizer.encode(BEGIN)[0], device=device)
    for ply in range(T):
        mine = seat == ply % 2                                            # games in which the learner is to move
        logits = readers[0].read(token, ply)
        for reader in readers[1:]:
            theirs = ~torch.from_numpy(mine).to(device)[reader.games]
            logits[reader.games[theirs]] = reader.read(token, ply)[theirs]
        log_pi = (logits.float() / temperature).log_softmax(-1)
        chosen = choose(log_pi, generator)
        opening = torch.from_numpy(begun > ply)
        token = torch.where(opening.to(device), given[:, ply].to(device), chosen)
        ids[:, ply], logp[:, ply] = token, log_pi.gather(1, token[:, None])[:, 0]
        mask[:, ply] = torch.from_numpy(mine & alive & (begun <= ply))
        lengths += alive

        # Make the moves. An illegal move loses.
        move = table[ply % 2, ids[:, ply].numpy()]
        rows = np.flatnonzero(alive)
        legal = (move[rows] >= 0) & board.legal(rows)[np.arange(len(rows)), move[rows]]
        lost, rows = rows[~legal], rows[legal]
        won, over = board.play(move[rows], rows)
        sign = np.where(mine, 1.0, -1.0)
        result[lost], result[rows] = -sign[lost], won * sign[rows]
        illegal[lost] = mine[lost]
        alive[lost] = alive[rows[over]] = False
        if not alive.any():
            break
    T = ply + 1
    with torch.inference_mode(False):
        return Played(*(x[:, :T].clone().to(device) for x in (ids, logp, mask)),
                      *(torch.from_numpy(x).to(device) for x in (lengths, result, illegal)))


def moves_of_tokens(task: BoardGame, tokenizer: Tokenizer) -> np.ndarray:
    """Return the move that each token means for the first and for the second player, `[2, vocab]`; or NO_MOVE."""
    table = np.full((2, tokenizer.vocab_size), NO_MOVE)
    for player, letters in enumerate(task.letters):
        table[player, tokenizer.encode(letters)] = np.arange(task.moves)
    return table


def mover(task: BoardGame, tokenizer: Tokenizer, model: Transformer, temperature: float = 1.0
          ) -> Callable[[Sequence[Sequence[int]], np.random.Generator | None], np.ndarray]:
    """Return a player: a function from the moves of n games so far, and a random generator, to its moves `[n]`.

    It samples its moves at this temperature; without a generator it takes the most likely ones. The result is NO_MOVE
    where the model writes a token that is not a move of the player to move.
    """
    table = moves_of_tokens(task, tokenizer)

    @torch.inference_mode()
    def move(games: Sequence[Sequence[int]], rng: np.random.Generator | None) -> np.ndarray:
        rows = [tokenizer.encode(transcript(task, moves)) for moves in games]
        last, longest = np.array([len(row) - 1 for row in rows]), max(map(len, rows))
        ids = torch.tensor([row + [tokenizer.end] * (longest - len(row)) for row in rows], device=model.device)
        logits = model(ids)[torch.arange(len(rows)), torch.from_numpy(last)].float().cpu().numpy() / temperature
        if rng is not None:
            logits = logits + rng.gumbel(size=logits.shape)
        return table[last % 2, logits.argmax(1)]

    return move
