"""Sequence packing: responses of different lengths share a row without padding."""
from collections.abc import Sequence

import torch
from torch import Tensor

from llm.policy.cache import Slots
from llm.policy.generate import Prompts
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer, additive, attention_dtype

WIDE = 256              # width of the model from which computing padding takes longer than packing
PADDING = 0.2           # share of the multiplications that packing must save


def worth_packing(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor) -> bool:
    """True if packing saves time: the model is wide, and packing saves at least `PADDING` of the multiplications.

    A divided model is always packed. Otherwise it would read responses of one token in one call, others in two.

    of, ids, lengths: responses `[B, T]`, their prompts `[B]` and their lengths `[B]`.
    """
    if model.divided or model.shape.width < WIDE:
        return model.divided
    needed, _, sizes = groups_of(prompts, of, lengths)
    (B, T), L, S, P = ids.shape, prompts.ids.shape[1], max(sizes), len(needed)
    packed = len(pack(sizes)) * work(model.shape, S, S * S)
    return packed < (1 - PADDING) * (P * work(model.shape, L, L * L) + B * work(model.shape, T, T * (L + T)))


def work(shape: Shape, tokens: int, pairs: int) -> int:
    """Multiplications of a layer for some tokens, and for some pairs of a query and a key. A row with a whole group is
    long, and its queries have many keys."""
    projections = 2 * (shape.heads + shape.kv_heads) * shape.head_size + 3 * shape.hidden
    return tokens * shape.width * projections + 2 * pairs * shape.heads * shape.head_size


def groups_of(prompts: Prompts, of: Tensor, lengths: Tensor) -> tuple[list[int], dict[int, list[int]], list[int]]:
    """Return the prompts that have responses, the responses to each of them, and the tokens of each such group.

    of, lengths: prompts `[B]` and lengths `[B]` of the responses.
    """
    needed, before, own = of.unique().tolist(), prompts.lengths.tolist(), lengths.tolist()
    groups = {p: [] for p in needed}
    for b, p in enumerate(of.tolist()):
        groups[p].append(b)
    return needed, groups, [before[p] + sum(own[b] - 1 for b in groups[p]) for p in needed]   # none follows the last


def read_packed(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor,
                checkpointing: bool = False) -> Tensor:
    """Hidden state that predicts each token of a response, `[B, T, width]`, and 0 after its end.

    A group is a prompt, read once, and all its responses, one after the other. A response attends to its prompt and to
    itself, and its positions follow those of the prompt. So the other responses and groups in a row have no effect.
    Only the end of a row contains padding.

    Args:
        of, ids, checkpointing: as in `llm.policy.score.read`.
        lengths: `[B]` lengths of the responses, at least 1.
    """
    device, before, own = ids.device, prompts.lengths.tolist(), lengths.tolist()
    needed, groups, sizes = groups_of(prompts, of, lengths)
    rows = pack(sizes)
    shape = len(rows), max(sum(sizes[i] for i in row) for row in rows)
    tokens = torch.zeros(shape, dtype=torch.long, device=device)
    positions, group, response = torch.zeros_like(tokens), torch.full_like(tokens, -1), torch.full_like(tokens, -1)
    last = torch.zeros_like(ids)                              # index of the state that predicts each token
    for r, row in enumerate(rows):
        start = 0
        for p in (needed[i] for i in row):
            end = start + before[p]
            tokens[r, start:end] = prompts.ids[p, :before[p]]
            positions[r, start:end] = torch.arange(before[p], device=device)
            first = r * shape[1] + end - 1
            begin = start
            for b in groups[p]:
                start, end = end, end + own[b] - 1
                tokens[r, start:end] = ids[b, :own[b] - 1]
                positions[r, start:end] = torch.arange(before[p], before[p] + own[b] - 1, device=device)
                response[r, start:end] = b
                last[b, 0] = first
                last[b, 1:own[b]] = torch.arange(start, end, device=device) + r * shape[1]
            group[r, begin:end] = p
            start = end
    causal = torch.ones(shape[1], shape[1], dtype=torch.bool, device=device).tril()
    asked, mine = response[:, None] == -1, response[:, None] == response[:, :, None]
    mask = causal & (group[:, None] == group[:, :, None]) & (asked | mine)
    mask = additive(mask[:, None], attention_dtype(device, model.dtype))
    hidden = model.hidden(tokens, Slots(None, positions, mask), None, checkpointing).flatten(0, 1)
    inside = torch.arange(ids.shape[1], device=device) < lengths[:, None]
    return (hidden[last.flatten()] * inside.view(-1, 1)).unflatten(0, ids.shape)


def pack(sizes: Sequence[int]) -> list[list[int]]:
    """Put groups of these sizes into few rows; each row has room for the longest group.

    First-fit decreasing: each group, the longest first, goes into the first row with enough room. Return the groups of
    each row.
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
