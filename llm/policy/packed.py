"""Log-probabilities of responses of different lengths without padding: several sequences share a row."""
from collections.abc import Sequence

import torch
from torch import Tensor

from llm.policy.generate import Prompts
from llm.policy.score import log_probs_in_pieces
from llm.policy.transformer import Slots, Transformer


def score_packed(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor, *,
                 temperature: float = 1.0, checkpointing: bool = False) -> tuple[Tensor, Tensor]:
    """Compute the same numbers as `llm.policy.score.score`, `[B, T]` each, and 0 after the end of a response.

    A sequence is a prompt and its response. Attention stays inside a sequence, and its positions start at 0. So the
    other sequences in a row have no effect. Only the end of a row contains padding.

    Args:
        of, ids, temperature, checkpointing: as in `score`.
        lengths: `[B]` lengths of the responses.
    """
    before, own = prompts.lengths[of].tolist(), lengths.tolist()
    sizes = [p + n - 1 for p, n in zip(before, own, strict=True)]         # no token follows the last one
    rows = pack(sizes)
    shape = len(rows), max(sum(sizes[b] for b in row) for row in rows)
    tokens = torch.zeros(shape, dtype=torch.long, device=ids.device)
    positions, sequence = torch.zeros_like(tokens), torch.full_like(tokens, -1)              # -1: the end of a row
    last = torch.zeros_like(ids)                              # index of the state that predicts each token
    for r, row in enumerate(rows):
        start = 0
        for b in row:
            end = start + sizes[b]
            tokens[r, start:end] = torch.cat([prompts.ids[of[b], :before[b]], ids[b, :own[b] - 1]])
            positions[r, start:end] = torch.arange(sizes[b], device=ids.device)
            sequence[r, start:end] = b
            first = r * shape[1] + start + before[b] - 1
            last[b, :own[b]] = torch.arange(first, first + own[b], device=ids.device)
            start = end
    causal = torch.ones(shape[1], shape[1], dtype=torch.bool, device=ids.device).tril()
    mask = (sequence[:, :, None] == sequence[:, None]) & causal
    hidden = model.hidden(tokens, Slots(None, positions, mask[:, None]), None, checkpointing).flatten(0, 1)
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    hidden, chosen = hidden[last[inside]], ids[inside]                    # [N, width] and [N], for N tokens
    logp, entropy = (torch.zeros(ids.shape, device=ids.device).masked_scatter(inside, x)
                     for x in log_probs_in_pieces(model, hidden, chosen, temperature))
    return logp, entropy


def pack(sizes: Sequence[int]) -> list[list[int]]:
    """Put sequences of these sizes into few rows; each row has room for the longest sequence.

    First-fit decreasing: each sequence, the longest first, goes into the first row with enough room. Return the
    sequences of each row.
    """
    rows, room = [], []
    for b in sorted(range(len(sizes)), key=lambda b: -sizes[b]):
        place = next((r for r, free in enumerate(room) if free >= sizes[b]), len(rows))
        if place == len(rows):
            rows.append([])
            room.append(max(sizes))
        rows[place].append(b)
        room[place] -= sizes[b]
    return rows
